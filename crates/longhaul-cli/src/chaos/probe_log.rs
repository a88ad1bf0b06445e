//! What the world saw: the lines that the witness tools left in a file.
//!
//! Never: writes. Whoever counts must not be one of those who are counted.

use std::path::Path;

use anyhow::Context as _;
use longhaul_core::id::{CallId, Epoch, RunId};
use serde::Deserialize;

/// One deed, as the tool left it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct ProbeRecord {
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
pub(crate) fn load(file: &Path) -> anyhow::Result<Vec<ProbeRecord>> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| file.display().to_string()),
    };
    parse(&text).with_context(|| file.display().to_string())
}

/// How every record begins. Inside of a record the quotes would be escaped.
const RECORD_PREFIX: &str = "{\"tool\":";

/// The records of a file. A process that is killed while it writes across the end of a page
/// leaves a part of its record, and the next record follows on the same line.
fn parse(text: &str) -> anyhow::Result<Vec<ProbeRecord>> {
    let mut records = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let start = line.rfind(RECORD_PREFIX).unwrap_or_default();
        match serde_json::from_str(&line[start..]) {
            Ok(record) => records.push(record),
            Err(error) if error.is_eof() => {}
            Err(error) => {
                return Err(error).with_context(|| format!("line {}: no witness's", index + 1));
            }
        }
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_truncated_by_a_kill_is_skipped_and_hides_no_other() {
        let run = RunId::from_bits(7);
        let record = |note: &str| {
            format!(
                "{{\"tool\":\"probe_write\",\"run\":\"{run}\",\"call\":\"t1.0\",\"key\":\"k\",\
                 \"epoch\":1,\"note\":{note}}}"
            )
        };
        let whole = record(r#""says {\"tool\":1""#);
        for (text, count) in [
            (String::new(), Some(0)),
            (format!("{whole}\n{whole}\n"), Some(2)),
            (format!("{whole}\n{}", &whole[..40]), Some(1)),
            (format!("{}{whole}\n", &whole[..40]), Some(1)),
            (format!("{}{whole}\n{whole}\n", &whole[..4]), Some(2)),
            ("nothing of ours\n".to_owned(), None),
        ] {
            assert_eq!(parse(&text).ok().map(|records| records.len()), count, "{text}");
        }
    }
}
