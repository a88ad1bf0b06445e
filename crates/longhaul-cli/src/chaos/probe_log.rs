//! Reads the effect log, a file to which the probe tools (tools for crash tests) append a record of
//! each effect, independently of the journals.

use std::path::Path;

use anyhow::Context as _;
use longhaul_core::id::{CallId, Epoch, RunId};
use serde::Deserialize;

/// Record of one effect, written by the probe tool (a tool for crash tests) itself.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct EffectRecord {
    /// Name of the tool that had the effect.
    pub(crate) tool: String,
    /// Id of the run that made the tool call.
    pub(crate) run: RunId,
    /// Id of the tool call.
    pub(crate) call: CallId,
    /// Idempotency key that the tool received with the call.
    pub(crate) key: String,
    /// Epoch of the worker's claim under which the call was made. It grows each time that a worker
    /// takes over the run.
    pub(crate) epoch: Epoch,
}

/// Reads all records of the effect log. A missing file has no records.
pub(crate) fn read_effect_log(file: &Path) -> anyhow::Result<Vec<EffectRecord>> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| file.display().to_string()),
    };
    parse_effect_records(&text).with_context(|| file.display().to_string())
}

/// Start of every record in the effect log. This text can't occur inside a record, where its quotes
/// would be escaped.
const RECORD_PREFIX: &str = "{\"tool\":";

/// Parses the text of an effect log. A process that is killed while it writes may leave part of a
/// record, and the next record follows on the same line.
fn parse_effect_records(text: &str) -> anyhow::Result<Vec<EffectRecord>> {
    let mut records = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let start = line.rfind(RECORD_PREFIX).unwrap_or_default();
        match serde_json::from_str(&line[start..]) {
            Ok(record) => records.push(record),
            Err(error) if error.is_eof() => {}
            Err(error) => {
                return Err(error).with_context(|| {
                    format!("line {} of the probe log is not the record of an effect", index + 1)
                });
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
            let records = parse_effect_records(log_text).ok();
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
