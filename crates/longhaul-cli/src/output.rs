//! Output of commands: data on stdout, messages on stderr.
//!
//! A closed pipe is not an error. Any other failure to write data, such as a full disk, is an
//! error.

use std::io::{BufRead as _, ErrorKind, IsTerminal as _, Read as _, Write as _};

use anyhow::Context as _;
use longhaul_core::sanitize::is_invisible;
use longhaul_core::time::Clock as _;
use longhaul_engine::clock::SystemClock;
use serde::Serialize;

use crate::{error, sanitize};

/// Maximum number of characters that are printed of a typed line that is not used.
pub(crate) const UNUSED_LINE_CHARS_MAX: usize = 60;

/// Prints a line to stdout.
pub(crate) fn print_line(line: &str) -> anyhow::Result<()> {
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

/// Prints a message to stderr. Parts of the message may be untrusted, so control characters are
/// replaced.
pub(crate) fn eprint_line(line: &str) {
    _ = writeln!(std::io::stderr().lock(), "{}", sanitize::sanitize_text(line));
}

/// Minimum time between a question and its answer, in nanoseconds. A line that comes sooner was
/// typed before the person could read the question.
const ANSWER_DELAY_MIN: u64 = 300_000_000;

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
        eprint_line(&early_line_note(&line));
    }
}

/// Discards what was typed at the terminal and not read yet, including an unfinished line.
pub(crate) fn discard_typed_input() {
    if std::io::stdin().is_terminal() {
        _ = rustix::termios::tcflush(std::io::stdin(), rustix::termios::QueueSelector::IFlush);
    }
}

/// Returns the monotonic time from which on a typed line can answer a question that was shown just
/// now.
pub(crate) fn earliest_answer_time() -> u64 {
    SystemClock.monotonic_nanos().saturating_add(ANSWER_DELAY_MIN)
}

/// Says that a line was typed too soon to be an answer.
pub(crate) fn early_line_note(line: &str) -> String {
    let line = sanitize::truncate(&sanitize::sanitize_line(line.trim()), UNUSED_LINE_CHARS_MAX);
    let millis = ANSWER_DELAY_MIN / 1_000_000;
    format!("not used: \"{line}\" (it came within {millis} ms of the question)")
}

/// Returns whether stdin and stderr are terminals, so that a person can be asked.
pub(crate) fn is_interactive() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
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
    let mut text = String::new();
    let result = std::io::stdin().lock().take(bytes_max).read_to_string(&mut text);
    result.with_context(|| format!("{text_name} can't be read from stdin"))?;
    Ok(text)
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
