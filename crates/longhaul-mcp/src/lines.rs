//! A stranger's output, line by line.
//!
//! Never: holds more of a line than a message may be long.

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

/// The longest message of a server, in bytes.
pub(super) const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Reads lines. To stop waiting for the next one loses nothing.
#[derive(Debug)]
pub(super) struct Lines<R> {
    from: BufReader<R>,
    line: Vec<u8>,
    max: usize,
}

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A line, without its end.
    Whole(Vec<u8>),
    /// A line that is longer than a message may be.
    TooLong,
    /// There is no more. What stood after the last line is no message.
    End,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(from: R, max: usize) -> Self {
        Self {
            from: BufReader::with_capacity(64 * 1024, from),
            line: Vec::new(),
            max,
        }
    }

    /// The next line.
    pub(super) async fn next(&mut self) -> Line {
        loop {
            // An error of a pipe says as little as its end.
            let Ok(some) = self.from.fill_buf().await else {
                return Line::End;
            };
            if some.is_empty() {
                return Line::End;
            }
            let end = some.iter().position(|byte| *byte == b'\n');
            let take = end.unwrap_or(some.len());
            if self.line.len() + take > self.max {
                return Line::TooLong;
            }
            self.line.extend_from_slice(&some[..take]);
            self.from.consume(take + usize::from(end.is_some()));
            if end.is_some() {
                return Line::Whole(std::mem::take(&mut self.line));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_whole_or_too_long_or_none() {
        for (text, lines) in [
            (
                "a\nbc\n\n",
                vec![whole("a"), whole("bc"), whole(""), Line::End],
            ),
            ("a\r\nrest", vec![whole("a\r"), Line::End]),
            ("12345678\n", vec![whole("12345678"), Line::End]),
            ("123456789\n", vec![Line::TooLong]),
            ("1234567890123456789", vec![Line::TooLong]),
            ("", vec![Line::End]),
        ] {
            let mut read = Lines::new(text.as_bytes(), 8);
            for line in lines {
                assert_eq!(read.next().await, line, "{text:?}");
            }
        }
    }

    fn whole(text: &str) -> Line {
        Line::Whole(text.into())
    }
}
