//! The delivery log: one line before each delivery (intent) and one after it (receipt). After a
//! crash the log shows whether a message was delivered.
//!
//! Invariant: the log does not contain the text of a message, only its hash.

use serde::Deserialize;
use serde_json::{Value, json};

use longhaul_core::id::Epoch;
use longhaul_core::raw::Hash;
use longhaul_core::time::Timestamp;

use crate::jsonl::{JsonLinesFile, LockedJsonLines};
use crate::message::envelope::MessageEnvelope;
use crate::safe_dir::FsError;

/// State of the delivery of one message, according to the delivery log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DeliveryState {
    /// The log of this machine shows that the delivery was not started.
    NotStarted,
    /// The log has no entry for the message, but the log may be the wrong one: it does not exist,
    /// or it comes from another machine.
    NoRecord,
    /// The worker that drives the run in this epoch has started the delivery through this channel.
    /// The outcome is unknown.
    Started { channel: String, epoch: Epoch },
    /// The delivery failed, and certainly nothing was delivered.
    Failed,
    /// The message was delivered.
    Delivered,
}

impl DeliveryState {
    /// Returns whether a worker that has claimed the run after this epoch is sending the message.
    pub(super) fn is_started_after(&self, claimed: Epoch) -> bool {
        matches!(self, Self::Started { epoch, .. } if *epoch > claimed)
    }
}

/// A line of the log, as far as it is read back. The first line names the machine (`host`).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LogLine {
    kind: String,
    host: String,
    channel: String,
    epoch: Option<u64>,
    certain: bool,
}

impl LogLine {
    fn from_json(line: Value) -> Self {
        serde_json::from_value(line).unwrap_or_default()
    }
}

/// The log file, with intents (logged before a delivery) and receipts (logged after it).
#[derive(Debug, Clone)]
pub(super) struct DeliveryLog(pub(super) JsonLinesFile);

impl DeliveryLog {
    /// Returns the state of the delivery with this idempotency key.
    pub(super) fn state(&self, key: &str) -> Result<DeliveryState, FsError> {
        let Some(log) = self.0.lock_existing()? else {
            return Ok(DeliveryState::NoRecord);
        };
        let state = logged_state(&log, key)?;
        // A copy of another machine's log lacks the deliveries that were started on this machine
        // before the copy was made, and those that were started on the other machine afterwards.
        let first = log.first_line()?.map(LogLine::from_json).unwrap_or_default();
        let is_from_this_host = first.kind == "host" && first.host == host_name();
        let is_unknown = matches!(state, DeliveryState::NotStarted) && !is_from_this_host;
        Ok(if is_unknown { DeliveryState::NoRecord } else { state })
    }

    /// Logs that a message is about to be sent, unless it was delivered already, or another worker
    /// that has claimed the run since is sending it. Returns the delivery state before this call.
    pub(super) fn record_start(
        &self,
        envelope: &MessageEnvelope,
        channel: &str,
        at: Timestamp,
    ) -> Result<DeliveryState, FsError> {
        let log = self.0.lock_or_create()?;
        if log.is_empty()? {
            log.append(&json!({ "kind": "host", "host": host_name() }))?;
        }
        let previous = logged_state(&log, &envelope.key)?;
        if previous != DeliveryState::Delivered && !previous.is_started_after(envelope.epoch) {
            log.append(&json!({
                "kind": "intent",
                "key": envelope.key,
                "run": envelope.run,
                "call": envelope.call,
                "epoch": envelope.epoch,
                "at": at,
                "channel": channel,
                "recipient": envelope.recipient,
                "text_sha256": Hash::digest(envelope.text.as_bytes()),
            }))?;
        }
        Ok(previous)
    }

    /// Logs that a message was delivered.
    pub(super) fn record_receipt(
        &self,
        key: &str,
        at: Timestamp,
        answer: &str,
    ) -> Result<(), FsError> {
        let line = json!({ "kind": "receipt", "key": key, "at": at, "answer": answer });
        self.0.lock_or_create()?.append(&line)
    }

    /// Logs that a delivery failed. If `is_certain` is false, the message may have been delivered.
    pub(super) fn record_failure(
        &self,
        envelope: &MessageEnvelope,
        at: Timestamp,
        is_certain: bool,
    ) -> Result<(), FsError> {
        let line = json!({
            "kind": "failure",
            "key": envelope.key,
            "epoch": envelope.epoch,
            "at": at,
            "certain": is_certain,
        });
        self.0.lock_or_create()?.append(&line)
    }
}

/// Returns the name of this machine.
fn host_name() -> String {
    let uname = rustix::system::uname();
    uname.nodename().to_string_lossy().into_owned()
}

/// Returns the state of the delivery with this key: the last line with the key counts, but a
/// receipt is final.
fn logged_state(log: &LockedJsonLines, key: &str) -> Result<DeliveryState, FsError> {
    let mut state = DeliveryState::NotStarted;
    let mut latest_epoch = 0;
    for line in log.lines_with_key(key)?.into_iter().map(LogLine::from_json) {
        match line.kind.as_str() {
            "intent" => {
                latest_epoch = line.epoch.unwrap_or_default();
                state =
                    DeliveryState::Started { channel: line.channel, epoch: Epoch(latest_epoch) };
            }
            // A failure with a lower epoch was logged by an earlier worker and says nothing about
            // the attempt of a later one.
            "failure" if line.certain && line.epoch.is_none_or(|epoch| epoch >= latest_epoch) => {
                state = DeliveryState::Failed;
            }
            "receipt" => return Ok(DeliveryState::Delivered),
            _ => {}
        }
    }
    Ok(state)
}
