//! What commands print: data on stdout, talk on stderr.
//!
//! Never: fails because nobody reads: a closed pipe ends the talk quietly. Data
//! that can't be written for another reason, such as a full disk, is an error.

use std::io::{BufRead as _, ErrorKind, IsTerminal as _, Read as _, Write as _};

use anyhow::Context as _;
use serde::Serialize;

use crate::{error, sanitize};

/// A line of data.
pub(crate) fn stdout_line(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("the output can't be written")
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// One value as a line of JSON. What could steer a terminal or turn its words around is escaped
/// inside of the texts, which stay the same texts.
pub(crate) fn stdout_json(value: &impl Serialize) -> anyhow::Result<()> {
    stdout_line(&escape_json(&serde_json::to_string(value)?))
}

/// A whole list as a line of JSON.
pub(crate) fn json_list(data: &impl Serialize) -> anyhow::Result<()> {
    stdout_json(&serde_json::json!({ "data": data, "next": null }))
}

fn escape_json(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for letter in json.chars() {
        match letter {
            // DEL and C1, which JSON leaves as they are, and marks of direction.
            '\u{7f}'..='\u{9f}'
            | '\u{61c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' => {
                text.push_str(&format!("\\u{:04x}", u32::from(letter)));
            }
            _ => text.push(letter),
        }
    }
    text
}

/// Words of ours for people, as data: what would steer a terminal is taken out.
pub(crate) fn stdout_text(text: &str) -> anyhow::Result<()> {
    stdout_line(&sanitize::text(text))
}

/// A text that somebody else wrote, as data: byte for byte to a program, and
/// without what would steer it to a terminal.
pub(crate) fn print_result(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().is_terminal() {
        true => stdout_text(text),
        false => stdout_line(text),
    }
}

/// A line of talk. Part of it may be a stranger's words.
pub(crate) fn stderr_line(line: &str) {
    _ = writeln!(std::io::stderr().lock(), "{}", sanitize::text(line));
}

/// Asks at the terminal, and waits for a line; none: there is nobody any more.
pub(crate) fn prompt(question: &str) -> Option<String> {
    let mut err = std::io::stderr().lock();
    _ = write!(err, "{} ", sanitize::text(question));
    _ = err.flush();
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line).ok()?;
    (read > 0).then_some(line)
}

/// Whether somebody sits at a terminal who can be shown something and asked.
pub(crate) fn is_interactive() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// What went wrong, and why, one cause after the other.
pub(crate) fn print_error(error: &anyhow::Error) {
    stderr_line(&format!("error: {}", error::full_message(error)));
}

/// What was typed as several words, or the text on stdin for a single `-`.
pub(crate) fn text_or_stdin(
    words: &[String],
    bytes_max: u64,
    what: &str,
) -> anyhow::Result<String> {
    match words == ["-"] {
        true => read_stdin(bytes_max, what),
        false => Ok(words.join(" ")),
    }
}

/// The text on stdin, at most so many bytes of it; `what` names it where it can't be read.
pub(crate) fn read_stdin(bytes_max: u64, what: &str) -> anyhow::Result<String> {
    let mut text = String::new();
    let read = std::io::stdin().lock().take(bytes_max).read_to_string(&mut text);
    read.with_context(|| format!("{what} can't be read from stdin"))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn json_output_holds_no_terminal_control_characters() {
        let strange = "a\u{1b}[0m\u{7f}\u{9b}2J\u{85}\u{61c}\u{200e}\u{200f}\u{202e}\u{2066}\u{2069} ä\u{200d}😀";
        let data = json!({ strange: [strange] });
        let printed = escape_json(&data.to_string());
        let is_kept = |letter: char| !letter.is_control() || letter == '\n';
        assert!(printed.chars().all(is_kept), "{printed}");
        assert!(
            !printed
                .contains(['\u{61c}', '\u{200e}', '\u{200f}', '\u{202e}', '\u{2066}', '\u{2069}'])
        );
        assert!(printed.contains("ä\u{200d}😀"), "{printed}");
        assert_eq!(serde_json::from_str::<Value>(&printed).unwrap(), data);
    }
}
