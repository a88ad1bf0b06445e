//! The terminal of a command that follows a run: lines that stay, below them live lines that are
//! drawn again and again, and a line editor that opens with the first key.
//!
//! Invariant: while a person edits a line, nothing else is written. What is printed meanwhile appears
//! when the line is sent.

use std::io::{IsTerminal as _, Write as _};
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use longhaul_core::time::Clock as _;
use longhaul_engine::clock::SystemClock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, getpgrp, getpid, kill_process};
use rustix::termios::{
    LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr,
};
use rustyline::Editor;
use rustyline::config::{Behavior, Config};
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use tokio::sync::mpsc;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::sanitize::sanitize_line;
use crate::typing::{self, TypedLine};

/// Range of usable widths. A terminal that reports another width is taken to have the nearest one.
const WIDTHS: std::ops::RangeInclusive<usize> = 20..=500;

/// Rows of a terminal whose height is unknown.
const DEFAULT_ROWS: usize = 24;

/// Columns of a terminal whose width is unknown.
const DEFAULT_COLUMNS: usize = 80;

/// Maximum size of the text that is printed while a person edits a line, in bytes. The oldest text
/// is discarded.
const HELD_BYTES_MAX: usize = 1 << 20;

/// Columns below which a terminal is narrow.
const NARROW_COLUMNS: usize = 60;

/// Time between two checks whether the modes of the terminal were reset.
const MODES_CHECK_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };

const PROMPT: &str = "> ";

/// Sequences with which a terminal marks pasted text, so that a pasted block is one line.
const PASTE_MARKS_ON: &str = "\x1b[?2004h";
const PASTE_MARKS_OFF: &str = "\x1b[?2004l";

static SCREEN: Mutex<Option<Screen>> = Mutex::new(None);

/// State of the terminal while a run is followed.
#[derive(Debug, Default)]
struct Screen {
    live_lines: Vec<String>,
    /// Widths of the live lines that the terminal shows.
    drawn: Vec<usize>,
    /// Text that is printed when the person has sent the line. `None` if nobody edits a line.
    held: Option<String>,
    /// Modes before a person's keys were read. `None` if no keys are read.
    original_modes: Option<Termios>,
}

/// Returns the screen, if it is open.
fn screen() -> MutexGuard<'static, Option<Screen>> {
    SCREEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens the screen if stderr is a terminal that can show live lines, and this process is not in the
/// background.
pub(crate) fn open() {
    let err = std::io::stderr();
    let has_capabilities =
        std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb");
    if has_capabilities && err.is_terminal() && tcgetpgrp(&err) == Ok(getpgrp()) {
        *screen() = Some(Screen::default());
    }
}

/// Returns the lines that a person types on the screen. `None` if the screen is not open, or stdin is
/// no terminal.
pub(crate) fn read_typed_lines() -> Option<mpsc::Receiver<TypedLine>> {
    let mut open = screen();
    let screen = open.as_mut().filter(|_| typing::is_interactive())?;
    let stdin = std::io::stdin();
    screen.original_modes = Some(tcgetattr(&stdin).ok()?);
    set_key_modes();
    let (sender, lines) = mpsc::channel(16);
    std::thread::spawn(move || read_lines(&sender));
    Some(lines)
}

/// Lets this process read single keys, which the terminal does not print. Does nothing in the
/// background, and if it is so already.
fn set_key_modes() -> bool {
    let stdin = std::io::stdin();
    let by_line = LocalModes::ICANON | LocalModes::ECHO;
    let modes = tcgetattr(&stdin).ok().filter(|modes| modes.local_modes.intersects(by_line));
    let Some(mut modes) = modes.filter(|_| tcgetpgrp(&stdin) == Ok(getpgrp())) else {
        return false;
    };
    modes.local_modes.remove(by_line);
    write_to_terminal(PASTE_MARKS_ON);
    tcsetattr(&stdin, OptionalActions::Now, &modes).is_ok()
}

/// Closes the screen: removes the live lines, and gives the terminal its original modes back. Without
/// an open screen this does nothing.
pub(crate) fn close() {
    let mut open = screen();
    let Some(mut screen) = open.take() else { return };
    let mut text = screen.erase();
    // An unfinished line stays as it is.
    text.extend(screen.held.take().map(|held| format!("\r\n{held}")));
    if let Some(modes) = &screen.original_modes {
        text.push_str(PASTE_MARKS_OFF);
        _ = tcsetattr(std::io::stdin(), OptionalActions::Now, modes);
    }
    write_to_terminal(&text);
}

/// Prints a line above the live lines. Returns false if the screen is not open.
pub(crate) fn print_line(line: &str) -> bool {
    let mut open = screen();
    let Some(screen) = open.as_mut() else { return false };
    if let Some(held) = &mut screen.held {
        held.push_str(line);
        held.push('\n');
        let excess = held.len().saturating_sub(HELD_BYTES_MAX);
        if let Some(end) =
            held[held.floor_char_boundary(excess)..].find('\n').filter(|_| excess > 0)
        {
            held.drain(..=held.floor_char_boundary(excess) + end);
        }
        return true;
    }
    let text = format!("{}{line}\n{}", screen.erase(), screen.draw());
    write_to_terminal(&text);
    true
}

/// Replaces the live lines. Each is cut to the width of the terminal.
pub(crate) fn set_live_lines(lines: &[String]) {
    let mut open = screen();
    let Some(screen) = open.as_mut() else { return };
    let columns = columns();
    let fit = |line: &String| fit_line(&sanitize_line(line), columns.saturating_sub(1));
    screen.live_lines = lines.iter().map(fit).collect();
    if screen.held.is_none() {
        let text = format!("{}{}", screen.erase(), screen.draw());
        write_to_terminal(&text);
    }
}

/// Returns whether live lines are shown.
pub(crate) fn is_open() -> bool {
    screen().is_some()
}

/// Returns the width of the terminal behind this stream. `None` if it is no terminal.
pub(crate) fn terminal_width(stream: impl AsFd + std::io::IsTerminal) -> Option<usize> {
    if !stream.is_terminal() {
        return None;
    }
    let size = tcgetwinsize(stream).ok();
    let width = size.map(|size| usize::from(size.ws_col)).filter(|width| *width > 0);
    Some(width.unwrap_or(DEFAULT_COLUMNS).clamp(*WIDTHS.start(), *WIDTHS.end()))
}

/// Returns whether live lines are shown on a terminal that has no columns for times and indentation.
pub(crate) fn is_narrow() -> bool {
    is_open() && columns() < NARROW_COLUMNS
}

/// Returns the number of rows of the terminal on stderr.
pub(crate) fn rows() -> usize {
    let size = tcgetwinsize(std::io::stderr()).ok();
    let rows = size.map(|size| usize::from(size.ws_row)).filter(|rows| *rows > 0);
    rows.unwrap_or(DEFAULT_ROWS)
}

/// Returns the number of columns of the terminal on stderr.
pub(crate) fn columns() -> usize {
    terminal_width(std::io::stderr()).unwrap_or(DEFAULT_COLUMNS)
}

/// Breaks a line at spaces, so that each part has at most this number of columns.
pub(crate) fn wrap_line(line: &str, columns: usize) -> Vec<String> {
    let mut parts = vec![String::new()];
    for c in line.chars() {
        let Some(part) = parts.last_mut() else { break };
        if part.width() + c.width().unwrap_or(0) <= columns {
            part.push(c);
            continue;
        }
        let end = part.rfind(' ').filter(|end| !part[..*end].trim().is_empty());
        let mut rest = part.split_off(end.unwrap_or(part.len()));
        rest.push(c);
        parts.push(rest.trim_start().to_owned());
    }
    parts
}

/// Cuts a line to a number of columns. A line that is cut ends in `…`.
pub(crate) fn fit_line(line: &str, columns: usize) -> String {
    let widths = line.char_indices().scan(0, |width, (at, c)| {
        *width += c.width().unwrap_or(0);
        Some((at, *width))
    });
    let mut end = 0;
    for (at, width) in widths {
        if width < columns {
            end = at + line[at..].chars().next().map_or(0, char::len_utf8);
        } else if width > columns {
            return format!("{}…", &line[..end]);
        }
    }
    line.to_owned()
}

impl Screen {
    /// Returns the sequence that erases the live lines.
    fn erase(&mut self) -> String {
        // A terminal that became narrower has wrapped the lines.
        let columns = columns();
        let rows = self.drawn.drain(..).map(|width| width.div_ceil(columns).max(1)).sum();
        match rows {
            0 => String::new(),
            rows => format!("\r{}\x1b[J", "\x1b[A".repeat(rows - 1_usize)),
        }
    }

    fn draw(&mut self) -> String {
        self.drawn = self.live_lines.iter().map(|line| line.width()).collect();
        let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let lines = self.live_lines.iter().map(|line| match is_plain {
            true => line.clone(),
            false => format!("\x1b[2m{line}\x1b[0m"),
        });
        lines.collect::<Vec<_>>().join("\r\n")
    }
}

fn write_to_terminal(text: &str) {
    let mut err = std::io::stderr().lock();
    _ = err.write_all(text.as_bytes());
    _ = err.flush();
}

/// Sends each line that a person types, until the terminal or the screen is closed.
fn read_lines(sender: &mpsc::Sender<TypedLine>) {
    let mut history: Vec<String> = Vec::new();
    // Time at which held text was shown last.
    let mut shown_at = 0;
    loop {
        let stdin = std::io::stdin();
        match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&MODES_CHECK_INTERVAL)) {
            Ok(0) => {
                // A shell has reset the modes while the process was stopped.
                if let Some(screen) = screen().as_mut()
                    && set_key_modes()
                {
                    screen.drawn.clear();
                    write_to_terminal(&format!("\r\x1b[J{}", screen.draw()));
                }
                continue;
            }
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return,
        }
        // The line counts as typed when its first key is pressed: what was shown later was not
        // known to the person.
        let begun_at = SystemClock.monotonic_nanos();
        match screen().as_mut() {
            None => return,
            Some(screen) => {
                let erased = screen.erase();
                screen.held = Some(String::new());
                write_to_terminal(&erased);
            }
        }
        let edited = edit_line(&history);
        // A line that was begun before a person could read the held text answers nothing in it.
        let is_early = begun_at < shown_at + typing::ANSWER_DELAY_MIN;
        let read_at = if is_early { 0 } else { begun_at };
        if show_held_text(edited.as_ref().is_ok_and(String::is_empty)) {
            typing::discard_typed_input();
            shown_at = SystemClock.monotonic_nanos();
        }
        match edited {
            Ok(text) => {
                if !text.is_empty() {
                    history.push(text.clone());
                }
                if sender.blocking_send(TypedLine { text, read_at }).is_err() {
                    return;
                }
            }
            // Ctrl-C. The command handles the signal as it does while nobody types.
            Err(ReadlineError::Interrupted) => _ = kill_process(getpid(), Signal::INT),
            Err(_) => return,
        }
    }
}

/// Lets a person edit a line, of which the first key was pressed.
fn edit_line(history: &[String]) -> Result<String, ReadlineError> {
    let config = Config::builder().behavior(Behavior::PreferTerm).build();
    // A new editor for each line, because an editor keeps keys that were pressed after the line.
    let mut editor: Editor<(), MemHistory> =
        Editor::with_history(config.clone(), MemHistory::with_config(&config))?;
    for line in history {
        editor.add_history_entry(line)?;
    }
    editor.readline(PROMPT)
}

/// Ends the editing of a line, and prints what was held back. Returns whether there was any.
fn show_held_text(is_line_empty: bool) -> bool {
    let mut open = screen();
    let Some(screen) = open.as_mut() else { return false };
    let held = screen.held.take().unwrap_or_default();
    // The row of an empty line is erased.
    let erased = if is_line_empty { "\x1b[A\r\x1b[J" } else { "" };
    let text = format!("{PASTE_MARKS_ON}{erased}{held}{}", screen.draw());
    write_to_terminal(&text);
    !held.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_wrapped_at_spaces() {
        for (line, columns, expected) in [
            ("one two three", 8, vec!["one two", "three"]),
            ("one two three", 20, vec!["one two three"]),
            ("abcdefgh", 3, vec!["abc", "def", "gh"]),
            ("  ab cd", 4, vec!["  ab", "cd"]),
            ("日本語", 4, vec!["日本", "語"]),
            ("", 4, vec![""]),
        ] {
            assert_eq!(wrap_line(line, columns), expected, "{line}");
        }
    }

    #[test]
    fn lines_are_cut_to_columns() {
        for (line, columns, expected) in [
            ("abcdef", 6, "abcdef"),
            ("abcdef", 5, "abcd…"),
            ("日本語", 6, "日本語"),
            ("日本語", 5, "日本…"),
            ("日本語", 4, "日…"),
            ("ab", 0, "…"),
            ("", 0, ""),
        ] {
            assert_eq!(fit_line(line, columns), expected, "{line} {columns}");
        }
    }
}
