//! A stranger's output, line by line.
//!
//! Never: holds more of a line than a message may be long.

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

/// The longest message of a server, in bytes.
pub(super) const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Reads lines. To stop waiting for the next one loses nothing.
#[derive(Debug)]
pub(super) struct BoundedLineReader<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    max_bytes: usize,
}

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LineRead {
    /// A line, without its end.
    Full(Vec<u8>),
    /// A line that is longer than a message may be.
    TooLong,
    /// There is no more. What stood after the last line is no message.
    Eof,
}

impl<R: AsyncRead + Unpin> BoundedLineReader<R> {
    pub(super) fn new(from: R, max: usize) -> Self {
        Self { reader: BufReader::with_capacity(64 * 1024, from), line: Vec::new(), max_bytes: max }
    }

    /// The next line.
    pub(super) async fn next(&mut self) -> LineRead {
        loop {
            // An error of a pipe says as little as its end.
            let Ok(some) = self.reader.fill_buf().await else {
                return LineRead::Eof;
            };
            if some.is_empty() {
                return LineRead::Eof;
            }
            let end = some.iter().position(|byte| *byte == b'\n');
            let take = end.unwrap_or(some.len());
            if self.line.len() + take > self.max_bytes {
                return LineRead::TooLong;
            }
            self.line.extend_from_slice(&some[..take]);
            self.reader.consume(take + usize::from(end.is_some()));
            if end.is_some() {
                return LineRead::Full(std::mem::take(&mut self.line));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_is_complete_or_too_long_or_absent() {
        for (text, lines) in [
            (
                "a\nbc\n\n",
                vec![complete_line("a"), complete_line("bc"), complete_line(""), LineRead::Eof],
            ),
            ("a\r\nrest", vec![complete_line("a\r"), LineRead::Eof]),
            ("12345678\n", vec![complete_line("12345678"), LineRead::Eof]),
            ("123456789\n", vec![LineRead::TooLong]),
            ("1234567890123456789", vec![LineRead::TooLong]),
            ("", vec![LineRead::Eof]),
        ] {
            let mut read = BoundedLineReader::new(text.as_bytes(), 8);
            for line in lines {
                assert_eq!(read.next().await, line, "{text:?}");
            }
        }
    }

    fn complete_line(text: &str) -> LineRead {
        LineRead::Full(text.into())
    }
}
