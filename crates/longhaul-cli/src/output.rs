//! Output of commands: data on stdout, messages on stderr.
//!
//! A closed pipe is not an error. Any other failure to write data, such as a full disk, is an
//! error.

use std::fs::File;
use std::io::{BufRead as _, ErrorKind, IsTerminal as _, Read as _, Write as _};
use std::path::Path;

use anyhow::Context as _;
use longhaul_core::sanitize::is_invisible;
use longhaul_core::time::Clock as _;
use longhaul_engine::clock::SystemClock;
use serde::Serialize;

pub(crate) use crate::typing::{
    TOO_EARLY, TypedLine, discard_typed_input, earliest_answer_time, is_interactive,
    spawn_stdin_reader,
};
use crate::{error, sanitize, terminal};

/// Maximum number of characters that are printed of a typed line that is not used.
const UNUSED_LINE_CHARS_MAX: usize = 60;

/// Prints a line to stdout.
pub(crate) fn print_line(line: &str) -> anyhow::Result<()> {
    if std::io::stdout().is_terminal() && terminal::print_line(line) {
        return Ok(());
    }
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("the output can't be written")
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Prints a value to stdout as one line of JSON. Control characters and invisible ones inside strings
/// are escaped; a JSON parser still reads the same strings.
pub(crate) fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    print_line(&escape_json(&serde_json::to_string(value)?))
}

/// Prints a value as one line of JSON, or lets `print_text` print it for people.
pub(crate) fn show<T: Serialize>(
    json: bool,
    value: &T,
    print_text: impl FnOnce(&T) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    if json { print_json(value) } else { print_text(value) }
}

/// Prints a value as one line of JSON, or as a text for people.
pub(crate) fn show_text<T: Serialize>(
    json: bool,
    value: &T,
    text: impl FnOnce(&T) -> String,
) -> anyhow::Result<()> {
    show(json, value, |value| print_text(&text(value)))
}

/// Prints a complete list, i.e. one without further pages, to stdout as one line of JSON.
pub(crate) fn print_json_list(data: &impl Serialize) -> anyhow::Result<()> {
    print_json(&serde_json::json!({ "data": data, "next": null }))
}

/// Escapes the characters in a line of JSON that a terminal would not show as they are.
pub(crate) fn escape_json(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match is_invisible(c) {
            true => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    text.push_str(&format!("\\u{unit:04x}"));
                }
            }
            false => text.push(c),
        }
    }
    text
}

/// Prints text for people to stdout, with terminal control characters replaced.
pub(crate) fn print_text(text: &str) -> anyhow::Result<()> {
    print_line(&sanitize::sanitize_text(text))
}

/// Prints untrusted text to stdout: unchanged for a program, but with control characters replaced
/// if stdout is a terminal.
pub(crate) fn print_untrusted_text(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().is_terminal() {
        true => print_text(text),
        false => print_line(text),
    }
}

/// Prints the untrusted output of a program to stdout: unchanged for a program. For a terminal,
/// control characters are replaced and the last line is ended.
pub(crate) fn print_untrusted_output(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let is_terminal = out.is_terminal();
    let text = if is_terminal { sanitize::sanitize_text(text) } else { text.to_owned() };
    let end = if is_terminal && !text.is_empty() && !text.ends_with('\n') { "\n" } else { "" };
    match write!(out, "{text}{end}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("the output can't be written")
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Prints a message to stderr. Parts of the message may be untrusted, so control characters are
/// replaced.
pub(crate) fn eprint_line(line: &str) {
    let line = sanitize::sanitize_text(line);
    if !terminal::print_line(&line) {
        _ = writeln!(std::io::stderr().lock(), "{line}");
    }
}

/// Prints a line about an event to stderr. Unless it is printed whole, it is cut to the width of the
/// terminal.
pub(crate) fn eprint_event(line: &str, is_whole: bool) {
    match !is_whole && terminal::is_open() {
        true => eprint_line(&terminal::fit_line(line, terminal::columns())),
        false => eprint_line(line),
    }
}

/// Prints a question and reads a line from stdin. `None` means end of input or a read error. What was
/// typed at a terminal before the question does not answer it.
pub(crate) fn ask_for_line(question: &str) -> Option<String> {
    let is_terminal = std::io::stdin().is_terminal();
    loop {
        discard_typed_input();
        let mut err = std::io::stderr().lock();
        _ = write!(err, "{} ", sanitize::sanitize_text(question));
        _ = err.flush();
        drop(err);
        let earliest = earliest_answer_time();
        let mut line = String::new();
        let byte_count = std::io::stdin().lock().read_line(&mut line).ok()?;
        let read_at = SystemClock.monotonic_nanos();
        if byte_count == 0 || !is_terminal || read_at >= earliest {
            return (byte_count > 0).then_some(line);
        }
        eprint_line(&unused_line_note(&line, TOO_EARLY));
    }
}

/// Says that a typed line is not used, with the reason.
pub(crate) fn unused_line_note(line: &str, reason: &str) -> String {
    let line = sanitize::truncate(&sanitize::sanitize_line(line.trim()), UNUSED_LINE_CHARS_MAX);
    format!("not used: \"{line}\" ({reason})")
}

/// Asks a question at the terminal, which only an explicit yes confirms. Without a terminal nobody is
/// asked, and it is not confirmed.
pub(crate) fn confirms(question: &str) -> bool {
    is_interactive() && ask_for_line(question).is_some_and(|answer| is_yes(&answer))
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

/// Prints an error with its causes to stderr.
pub(crate) fn print_error(error: &anyhow::Error) {
    eprint_line(&format!("error: {}", error::message_with_causes(error)));
}

/// Joins the words from the command line, or reads stdin if the only word is `-`. The last argument
/// names the text in errors.
pub(crate) fn join_args_or_read_stdin(
    args: &[String],
    bytes_max: u64,
    text_name: &str,
) -> anyhow::Result<String> {
    match args == ["-"] {
        true => read_stdin(bytes_max, text_name),
        false => Ok(args.join(" ")),
    }
}

/// Reads at most `bytes_max` bytes of text from stdin. The last argument names the text in errors.
pub(crate) fn read_stdin(bytes_max: u64, text_name: &str) -> anyhow::Result<String> {
    let text = read_text(Path::new("-"), bytes_max);
    text.with_context(|| format!("{text_name} can't be read from stdin"))
}

/// Reads at most `bytes_max` bytes of text from a file, or from stdin if the path is `-`.
pub(crate) fn read_text(path: &Path, bytes_max: u64) -> std::io::Result<String> {
    let text = String::from_utf8(read_bytes(path, bytes_max)?);
    text.map_err(|error| std::io::Error::other(format!("it is not UTF-8: {error}")))
}

/// Reads at most `bytes_max` bytes from a file, or from stdin if the path is `-`.
pub(crate) fn read_bytes(path: &Path, bytes_max: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match path == Path::new("-") {
        true => std::io::stdin().lock().take(bytes_max).read_to_end(&mut bytes)?,
        false => File::open(path)?.take(bytes_max).read_to_end(&mut bytes)?,
    };
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn json_output_holds_no_invisible_characters() {
        let unsafe_text = "a\u{1b}[0m\u{7f}\u{9b}2J\u{85}\u{61c}\u{200b}\u{200e}\u{202e}\u{2066}\u{2028}\u{e0041} ä\u{200d}😀";
        let data = json!({ unsafe_text: [unsafe_text] });
        let printed = escape_json(&data.to_string());
        assert!(!printed.contains(is_invisible), "{printed}");
        assert!(printed.contains(r"\udb40\udc41 ä\u200d😀"), "{printed}");
        assert_eq!(serde_json::from_str::<Value>(&printed).unwrap(), data);
    }

    #[test]
    fn only_y_or_yes_confirms() {
        for input in ["y", "Y\n", " yes "] {
            assert!(is_yes(input), "{input}");
        }
        for input in ["", "\n", "n", "no", "yep", "y please"] {
            assert!(!is_yes(input), "{input}");
        }
    }
}
