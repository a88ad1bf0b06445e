//! What commands print: data on stdout, talk on stderr.
//!
//! Never: fails because nobody reads. A closed pipe ends the talk quietly.

use std::io::Write as _;

/// A line of data.
pub(crate) fn data(line: &str) {
    _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// A line of talk.
pub(crate) fn talk(line: &str) {
    _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// What went wrong, and why, one cause after the other.
pub(crate) fn error(error: &anyhow::Error) {
    let causes: Vec<String> = error.chain().map(ToString::to_string).collect();
    talk(&format!("error: {}", causes.join(": ")));
}
