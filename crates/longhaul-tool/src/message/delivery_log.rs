//! The delivery log: one line before each delivery (intent) and one after it (receipt). After a
//! crash the log shows whether a message was delivered.
//!
//! Invariant: the log does not contain the text of a message, only its hash.

use serde_json::{Value, json};

use longhaul_core::port::tool::ToolContext;
use longhaul_core::raw::Hash;
use longhaul_core::time::Timestamp;

use crate::jsonl::{JsonLinesFile, LockedJsonLines};
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
    Started { channel: String, epoch: u64 },
    /// The delivery failed, and certainly nothing was delivered.
    Failed,
    /// The message was delivered.
    Delivered,
}

/// A message that is about to be sent.
#[derive(Debug)]
pub(super) struct PendingDelivery<'a> {
    pub(super) ctx: &'a ToolContext,
    pub(super) recipient: &'a str,
    pub(super) text: &'a str,
    pub(super) channel: &'static str,
    pub(super) at: Timestamp,
}

/// The log file, with intents (logged before a delivery) and receipts (logged after it).
#[derive(Debug, Clone)]
pub(super) struct DeliveryLog(pub(super) JsonLinesFile);

impl DeliveryLog {
    /// Returns the state of the delivery with this idempotency key.
    pub(super) fn read_delivery_state(&self, key: &str) -> Result<DeliveryState, FsError> {
        match self.0.lock_existing_file()? {
            Some(log) => {
                let state = logged_delivery_state(&log, key)?;
                let is_other_host =
                    state == DeliveryState::NotStarted && !is_log_from_this_host(&log)?;
                Ok(if is_other_host { DeliveryState::NoRecord } else { state })
            }
            None => Ok(DeliveryState::NoRecord),
        }
    }

    /// Logs that a message is about to be sent, unless it was delivered already, or another worker
    /// that has claimed the run since is sending it. Returns the delivery state before this call.
    pub(super) fn record_delivery_start(
        &self,
        intent: &PendingDelivery<'_>,
    ) -> Result<DeliveryState, FsError> {
        let ctx = intent.ctx;
        let log = self.0.lock_or_create_file()?;
        if log.is_empty()? {
            log.append_json_line(&json!({ "kind": "host", "host": host_name() }))?;
        }
        let previous = logged_delivery_state(&log, &ctx.idempotency_key)?;
        let is_delivered_or_superseded = match &previous {
            DeliveryState::Delivered => true,
            DeliveryState::Started { epoch, .. } => *epoch > ctx.epoch.0,
            DeliveryState::NotStarted | DeliveryState::NoRecord | DeliveryState::Failed => false,
        };
        if !is_delivered_or_superseded {
            log.append_json_line(&json!({
                "kind": "intent",
                "key": ctx.idempotency_key,
                "run": ctx.run,
                "call": ctx.call,
                "epoch": ctx.epoch,
                "at": intent.at,
                "channel": intent.channel,
                "recipient": intent.recipient,
                "text_sha256": Hash::digest(intent.text.as_bytes()),
            }))?;
        }
        Ok(previous)
    }

    /// Logs that a message was delivered.
    pub(super) fn record_delivery_receipt(
        &self,
        key: &str,
        at: Timestamp,
        answer: &str,
    ) -> Result<(), FsError> {
        let line = json!({ "kind": "receipt", "key": key, "at": at, "answer": answer });
        self.0.lock_or_create_file()?.append_json_line(&line)
    }

    /// Logs that a delivery failed. If `is_certain` is false, the message may have been delivered.
    pub(super) fn record_delivery_failure(
        &self,
        ctx: &ToolContext,
        at: Timestamp,
        is_certain: bool,
    ) -> Result<(), FsError> {
        let line = json!({
            "kind": "failure",
            "key": ctx.idempotency_key,
            "epoch": ctx.epoch,
            "at": at,
            "certain": is_certain,
        });
        self.0.lock_or_create_file()?.append_json_line(&line)
    }
}

/// Returns the name of this machine.
fn host_name() -> String {
    let uname = rustix::system::uname();
    uname.nodename().to_string_lossy().into_owned()
}

/// Returns whether the log was created on this machine. A copy of another machine's log lacks the
/// deliveries that were started on this machine before the copy was made, and those that were
/// started on the other machine afterwards.
fn is_log_from_this_host(log: &LockedJsonLines) -> Result<bool, FsError> {
    let first = log.first_line_json()?.unwrap_or_default();
    Ok(first["kind"] == "host" && first["host"] == host_name())
}

/// Returns the state of the delivery with this key: the last line with the key counts, but a
/// receipt is final.
fn logged_delivery_state(log: &LockedJsonLines, key: &str) -> Result<DeliveryState, FsError> {
    let mut state = DeliveryState::NotStarted;
    for line in &log.find_lines_by_key(key)?.lines {
        match line["kind"].as_str() {
            Some("intent") => {
                state = DeliveryState::Started {
                    channel: line["channel"].as_str().unwrap_or_default().to_owned(),
                    epoch: line["epoch"].as_u64().unwrap_or_default(),
                };
            }
            Some("failure")
                if line["certain"] == Value::Bool(true)
                    && is_failure_of_latest_attempt(&state, line) =>
            {
                state = DeliveryState::Failed;
            }
            Some("receipt") => return Ok(DeliveryState::Delivered),
            _ => {}
        }
    }
    Ok(state)
}

/// Returns whether a logged failure belongs to the latest delivery attempt. A failure with a lower
/// epoch was logged by an earlier worker and says nothing about the attempt of a later one.
fn is_failure_of_latest_attempt(state: &DeliveryState, failure: &Value) -> bool {
    match (state, failure["epoch"].as_u64()) {
        (DeliveryState::Started { epoch, .. }, Some(failure_epoch)) => failure_epoch >= *epoch,
        (
            DeliveryState::NotStarted
            | DeliveryState::NoRecord
            | DeliveryState::Failed
            | DeliveryState::Delivered,
            _,
        )
        | (_, None) => true,
    }
}
