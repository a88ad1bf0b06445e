//! What commands print: data on stdout, talk on stderr.
//!
//! Never: fails because nobody reads: a closed pipe ends the talk quietly. Data
//! that can't be written for another reason, such as a full disk, is an error.

use std::io::{ErrorKind, Write as _};

use anyhow::Context as _;

/// A line of data.
pub(crate) fn data(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("the output can't be written")
        }
        Ok(()) | Err(_) => Ok(()),
    }
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
