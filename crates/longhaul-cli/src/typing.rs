//! What a person types at the terminal: whole lines, with the time at which they were typed.

use std::io::{BufRead as _, IsTerminal as _, Read as _};

use longhaul_core::time::Clock as _;
use longhaul_engine::clock::SystemClock;
use tokio::sync::mpsc;

/// Maximum number of bytes that are read of a typed line.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// Minimum time between a question and its answer, in nanoseconds. A line that comes sooner was
/// typed before the person could read the question.
pub(crate) const ANSWER_DELAY_MIN: u64 = 300_000_000;

/// Reason why a line that was typed before `earliest_answer_time` is not used.
pub(crate) const TOO_EARLY: &str = "it was begun before the question could be read";

/// Returns whether stdin and stderr are terminals, so that a person can be asked.
pub(crate) fn is_interactive() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
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

/// A line that the person typed.
#[derive(Debug)]
pub(crate) struct TypedLine {
    pub(crate) text: String,
    /// Monotonic time at which the line was read, in nanoseconds.
    pub(crate) read_at: u64,
}

/// Reads lines from stdin in a separate thread, because a blocking read can't be cancelled.
pub(crate) fn spawn_stdin_reader() -> mpsc::Receiver<TypedLine> {
    let (sender, lines) = mpsc::channel(16);
    std::thread::spawn(move || {
        loop {
            let mut text = String::new();
            match std::io::stdin().lock().take(LINE_BYTES_MAX).read_line(&mut text) {
                Ok(1..) => {}
                Ok(0) | Err(_) => return,
            }
            let text = text.trim_end_matches(['\r', '\n']).to_owned();
            let line = TypedLine { text, read_at: SystemClock.monotonic_nanos() };
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    lines
}
