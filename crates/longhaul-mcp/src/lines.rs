//! Reads untrusted output line by line, with a maximum line length.

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

/// Maximum length of a server's message in bytes.
pub(super) const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Reads lines of limited length. `next_line` is cancel safe.
#[derive(Debug)]
pub(super) struct BoundedLineReader<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    max_bytes: usize,
}

/// Result of reading one line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LineReadOutcome {
    /// A line without its line ending.
    Full(Vec<u8>),
    /// A line that exceeds the maximum length.
    TooLong,
    /// End of the output. An incomplete last line is dropped.
    Eof,
}

impl<R: AsyncRead + Unpin> BoundedLineReader<R> {
    pub(super) fn new(source: R, max_line_bytes: usize) -> Self {
        Self {
            reader: BufReader::with_capacity(64 * 1024, source),
            line: Vec::new(),
            max_bytes: max_line_bytes,
        }
    }

    /// Reads the next line. Reports the end of the output or a line that is too long instead.
    pub(super) async fn next_line(&mut self) -> LineReadOutcome {
        loop {
            // A read error is treated like the end of the output.
            let Ok(buffer) = self.reader.fill_buf().await else {
                return LineReadOutcome::Eof;
            };
            if buffer.is_empty() {
                return LineReadOutcome::Eof;
            }
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let length = end.unwrap_or(buffer.len());
            if self.line.len() + length > self.max_bytes {
                return LineReadOutcome::TooLong;
            }
            self.line.extend_from_slice(&buffer[..length]);
            self.reader.consume(length + usize::from(end.is_some()));
            if end.is_some() {
                return LineReadOutcome::Full(std::mem::take(&mut self.line));
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
                vec![
                    full_line_outcome("a"),
                    full_line_outcome("bc"),
                    full_line_outcome(""),
                    LineReadOutcome::Eof,
                ],
            ),
            ("a\r\nrest", vec![full_line_outcome("a\r"), LineReadOutcome::Eof]),
            ("12345678\n", vec![full_line_outcome("12345678"), LineReadOutcome::Eof]),
            ("123456789\n", vec![LineReadOutcome::TooLong]),
            ("1234567890123456789", vec![LineReadOutcome::TooLong]),
            ("", vec![LineReadOutcome::Eof]),
        ] {
            let mut reader = BoundedLineReader::new(text.as_bytes(), 8);
            for line in lines {
                assert_eq!(reader.next_line().await, line, "{text:?}");
            }
        }
    }

    fn full_line_outcome(text: &str) -> LineReadOutcome {
        LineReadOutcome::Full(text.into())
    }
}
