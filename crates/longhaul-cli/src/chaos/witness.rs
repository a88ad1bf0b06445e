//! What the world saw: the lines that the witness tools left in a file.
//!
//! Never: writes. Whoever counts must not be one of those who are counted.

use std::path::Path;

use anyhow::Context as _;
use longhaul_core::id::{CallId, Epoch, RunId};
use serde::Deserialize;

/// One deed, as the tool left it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Line {
    /// Which tool did it.
    pub(crate) tool: String,
    /// For which run.
    pub(crate) run: RunId,
    /// For which call.
    pub(crate) call: CallId,
    /// The key that the tool was given.
    pub(crate) key: String,
    /// The fence of the driver that did it.
    pub(crate) epoch: Epoch,
}

/// All lines so far; a file that is not there yet has none.
pub(crate) fn read(file: &Path) -> anyhow::Result<Vec<Line>> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| file.display().to_string()),
    };
    let line = |(index, line): (usize, &str)| {
        serde_json::from_str(line)
            .with_context(|| format!("{}:{}: no witness's line", file.display(), index + 1))
    };
    text.lines().enumerate().map(line).collect()
}
