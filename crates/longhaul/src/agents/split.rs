//! Cuts an agent's file into front matter and body.
//!
//! Never: reads either of them.

use std::borrow::Cow;

use crate::spanned::Position;

/// The longest front matter, in bytes.
pub(crate) const FRONT_MATTER_BYTES_MAX: usize = 16 << 10;

/// The longest body, in bytes.
pub(crate) const BODY_BYTES_MAX: usize = 256 << 10;

/// A file in two parts. Line ends are `\n`, whatever they were, so that an
/// agent is the same on every machine.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    /// The YAML, with an empty line in the place of `---` so that lines count as in the file.
    pub(crate) front_matter: String,
    /// The text below it.
    pub(crate) body: String,
    /// The line of the file in which the body begins.
    pub(crate) body_line: usize,
}

/// Cuts a file, or says where and why that can't be done.
pub(crate) fn split_file(bytes: &[u8]) -> Result<Parts, (Position, String)> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
        let place = Position::from_offset(&before, before.len());
        (place, "is not UTF-8: save the file as UTF-8".to_owned())
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let text: Cow<'_, str> =
        if text.contains('\r') { text.replace("\r\n", "\n").into() } else { text.into() };
    let mut lines = text.split_inclusive('\n');
    let is_fence = |line: &str| line.trim_end() == "---";
    if !lines.next().is_some_and(is_fence) {
        let message = "an agent's file begins with a line `---`, its front matter and another \
                       `---`; what is no agent belongs into another folder";
        return Err((Position::START, message.to_owned()));
    }
    let mut front = "\n".to_owned();
    let mut body_line = 2;
    loop {
        let Some(line) = lines.next() else {
            let message = "the front matter has no end: write a line `---` below it";
            return Err((Position::START, message.to_owned()));
        };
        body_line += 1;
        if is_fence(line) {
            break;
        }
        front.push_str(line);
        if front.len() > FRONT_MATTER_BYTES_MAX {
            let message = format!("the front matter is longer than {FRONT_MATTER_BYTES_MAX} bytes");
            return Err((Position::START, message));
        }
    }
    let body: String = lines.collect();
    let place = Position { line: body_line, column: 1 };
    if body.len() > BODY_BYTES_MAX {
        let message = format!("the prompt is longer than {BODY_BYTES_MAX} bytes");
        return Err((place, message));
    }
    let trimmed = body.trim_start_matches('\n');
    Ok(Parts {
        front_matter: front,
        body_line: body_line + body.len() - trimmed.len(),
        body: trimmed.trim_end().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(file: &[u8], front: &str, body: &str, line: usize) {
        let parts = split_file(file).unwrap();
        let found = (parts.front_matter.as_str(), parts.body.as_str(), parts.body_line);
        assert_eq!(found, (front, body, line));
    }

    #[test]
    fn a_file_is_split_at_its_fences() {
        check(b"---\nname: a\n---\nHello.\n", "\nname: a\n", "Hello.", 4);
        check(b"---\n---\n\n\nHello.", "\n", "Hello.", 5);
        check(b"---\nname: a\n---", "\nname: a\n", "", 4);
        let windows = b"\xEF\xBB\xBF---\r\nname: a\r\n---\r\nOne.\r\nTwo.\r\n";
        check(windows, "\nname: a\n", "One.\nTwo.", 4);
        check(b"--- \nname: a\n---  \nA\n---\nB", "\nname: a\n", "A\n---\nB", 4);
    }

    #[test]
    fn files_without_front_matter_are_refused() {
        let refused = |file: &[u8], place: &str, why: &str| {
            let (at, message) = split_file(file).unwrap_err();
            assert_eq!(at.to_string(), place);
            assert!(message.contains(why), "{message}");
        };
        refused(b"# Read me\n", "1:1", "begins with a line `---`");
        refused(b"", "1:1", "begins with a line `---`");
        refused(b"---\nname: a\n", "1:1", "has no end");
        refused(b"---\nname: \xff\n---\n", "2:7", "UTF-8");
        let long = format!("---\na: {}\n---\n", "x".repeat(FRONT_MATTER_BYTES_MAX));
        refused(long.as_bytes(), "1:1", "longer than 16384 bytes");
        let long = format!("---\n---\n{}", "x".repeat(BODY_BYTES_MAX + 1));
        refused(long.as_bytes(), "3:1", "longer than 262144 bytes");
    }
}
