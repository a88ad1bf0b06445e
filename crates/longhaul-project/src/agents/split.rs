//! Splits an agent file into front matter and body, without parsing them.

use std::borrow::Cow;

use crate::spanned::Position;

/// Maximum size of the front matter of an agent file in bytes.
pub(crate) const FRONT_MATTER_BYTES_MAX: usize = 16 << 10;

/// Maximum size of the body of an agent file in bytes.
pub(crate) const BODY_BYTES_MAX: usize = 256 << 10;

/// Front matter and body of an agent file. Line ends are normalized to `\n`, so that an agent has
/// the same version on every machine.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AgentFileParts {
    /// YAML text of the front matter. An empty line replaces the first `---`, so that line numbers
    /// match the file.
    pub(crate) front_matter: String,
    /// Text after the front matter: the prompt.
    pub(crate) body: String,
    /// Line of the file at which the body starts.
    pub(crate) body_line: usize,
}

/// Splits an agent file into front matter and body. The error is a position and a message.
pub(crate) fn split_agent_file(bytes: &[u8]) -> Result<AgentFileParts, (Position, String)> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let valid_text = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
        let position = Position::from_offset(&valid_text, valid_text.len());
        (position, "the file is not UTF-8: save it as UTF-8".to_owned())
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let text: Cow<'_, str> =
        if text.contains('\r') { text.replace("\r\n", "\n").into() } else { text.into() };
    let mut lines = text.split_inclusive('\n');
    let is_fence = |line: &str| line.trim_end() == "---";
    if !lines.next().is_some_and(is_fence) {
        let message = "an agent file starts with a line `---`, its front matter and another \
                       `---`; move other files to another folder";
        return Err((Position::START, message.to_owned()));
    }
    let mut front_matter = "\n".to_owned();
    let mut body_line = 2;
    loop {
        let Some(line) = lines.next() else {
            let message = "the front matter is not closed: add a line `---` below it";
            return Err((Position::START, message.to_owned()));
        };
        body_line += 1;
        if is_fence(line) {
            break;
        }
        front_matter.push_str(line);
        if front_matter.len() > FRONT_MATTER_BYTES_MAX {
            let message = format!("the front matter is longer than {FRONT_MATTER_BYTES_MAX} bytes");
            return Err((Position::START, message));
        }
    }
    let body: String = lines.collect();
    let position = Position { line: body_line, column: 1 };
    if body.len() > BODY_BYTES_MAX {
        let message = format!("the prompt is longer than {BODY_BYTES_MAX} bytes");
        return Err((position, message));
    }
    let trimmed = body.trim_start_matches('\n');
    Ok(AgentFileParts {
        front_matter,
        body_line: body_line + body.len() - trimmed.len(),
        body: trimmed.trim_end().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_agent_file_split(file: &[u8], front_matter: &str, body: &str, body_line: usize) {
        let parts = split_agent_file(file).unwrap();
        let found = (parts.front_matter.as_str(), parts.body.as_str(), parts.body_line);
        assert_eq!(found, (front_matter, body, body_line));
    }

    #[test]
    fn a_file_is_split_into_front_matter_and_body() {
        assert_agent_file_split(b"---\nname: a\n---\nHello.\n", "\nname: a\n", "Hello.", 4);
        assert_agent_file_split(b"---\n---\n\n\nHello.", "\n", "Hello.", 5);
        assert_agent_file_split(b"---\nname: a\n---", "\nname: a\n", "", 4);
        let windows = b"\xEF\xBB\xBF---\r\nname: a\r\n---\r\nOne.\r\nTwo.\r\n";
        assert_agent_file_split(windows, "\nname: a\n", "One.\nTwo.", 4);
        assert_agent_file_split(b"--- \nname: a\n---  \nA\n---\nB", "\nname: a\n", "A\n---\nB", 4);
    }

    #[test]
    fn files_without_front_matter_are_refused() {
        let check_error = |file: &[u8], position: &str, expected: &str| {
            let (at, message) = split_agent_file(file).unwrap_err();
            assert_eq!(at.to_string(), position);
            assert!(message.contains(expected), "{message}");
        };
        check_error(b"# Read me\n", "1:1", "starts with a line `---`");
        check_error(b"", "1:1", "starts with a line `---`");
        check_error(b"---\nname: a\n", "1:1", "is not closed");
        check_error(b"---\nname: \xff\n---\n", "2:7", "UTF-8");
        let long = format!("---\na: {}\n---\n", "x".repeat(FRONT_MATTER_BYTES_MAX));
        check_error(long.as_bytes(), "1:1", "longer than 16384 bytes");
        let long = format!("---\n---\n{}", "x".repeat(BODY_BYTES_MAX + 1));
        check_error(long.as_bytes(), "3:1", "longer than 262144 bytes");
    }
}
