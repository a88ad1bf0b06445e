//! The effects of probe tools (tools for crash tests), which append a record of each effect to a
//! file, independently of the journals.

use std::path::Path;

use anyhow::Context as _;
use longhaul_core::id::{CallId, Epoch, RunId};
use serde::Deserialize;

/// Prefix of the names of probe tools.
pub(crate) const PROBE_PREFIX: &str = "probe_";

/// Start of every record. This text can't occur inside a record, where its quotes would be escaped.
const RECORD_PREFIX: &str = "{\"tool\":";

/// Record of one effect, written by the tool itself.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct EffectRecord {
    pub(crate) tool: String,
    pub(crate) run: RunId,
    pub(crate) call: CallId,
    /// Idempotency key that the tool received with the call.
    pub(crate) key: String,
    /// Epoch of the claim under which the call was made.
    pub(crate) epoch: Epoch,
}

/// Reads all records of a file. A missing file has none.
pub(crate) fn read_effects(file: Option<&Path>) -> anyhow::Result<Vec<EffectRecord>> {
    let Some(file) = file.filter(|file| file.exists()) else {
        return Ok(Vec::new());
    };
    let shown = || file.display().to_string();
    parse_effects(&std::fs::read_to_string(file).with_context(shown)?).with_context(shown)
}

/// Parses the records of a file. A process that is killed while it writes may leave part of a
/// record, and the next record follows on the same line.
fn parse_effects(text: &str) -> anyhow::Result<Vec<EffectRecord>> {
    let mut records = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let start = line.rfind(RECORD_PREFIX).unwrap_or_default();
        match serde_json::from_str(&line[start..]) {
            Ok(record) => records.push(record),
            Err(error) if error.is_eof() => {}
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("line {number} is not the record of an effect"));
            }
        }
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_record_truncated_by_a_kill_is_skipped() {
        let run = RunId::from_bits(7);
        let record = |note: &str| {
            format!(
                "{{\"tool\":\"probe_write\",\"run\":\"{run}\",\"call\":\"t1.0\",\"key\":\"k\",\
                 \"epoch\":1,\"note\":{note}}}"
            )
        };
        let record_line = record(r#""says {\"tool\":1""#);
        let (truncated_record, first_4_bytes) = (&record_line[..40], &record_line[..4]);
        let assert_record_count = |log_text: &str, expected: Option<usize>| {
            let records = parse_effects(log_text).ok();
            assert_eq!(records.map(|records| records.len()), expected, "{log_text}");
        };
        assert_record_count("", Some(0));
        assert_record_count(&format!("{record_line}\n{record_line}\n"), Some(2));
        assert_record_count(&format!("{record_line}\n{truncated_record}"), Some(1));
        assert_record_count(&format!("{truncated_record}{record_line}\n"), Some(1));
        assert_record_count(&format!("{first_4_bytes}{record_line}\n{record_line}\n"), Some(2));
        assert_record_count("nothing of ours\n", None);
    }
}
