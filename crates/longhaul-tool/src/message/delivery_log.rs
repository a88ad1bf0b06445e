//! The record of deliveries: what was about to leave, and what is known to have
//! left. It is how a call that a crash cut off is judged afterwards.
//!
//! Never: what the message says. Its hash tells two of them apart.

use serde_json::{Value, json};

use longhaul_core::port::tool::ToolContext;
use longhaul_core::raw::Hash;
use longhaul_core::time::Timestamp;

use crate::jsonl::{JsonLinesFile, LockedJsonLines};
use crate::safe_dir::FsError;

/// What is known of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DeliveryState {
    /// Nothing was begun.
    NotStarted,
    /// Nothing is written here, but this is not where it would have to be: there
    /// is no record, or it is another machine's.
    NoRecord,
    /// It was begun on this way, by the driver with this epoch, and nobody is sure
    /// how it ended.
    Started { channel: String, epoch: u64 },
    /// It failed, and surely nothing arrived.
    Failed,
    /// It was delivered.
    Delivered,
}

/// A message about to leave.
#[derive(Debug)]
pub(super) struct DeliveryIntent<'a> {
    pub(super) ctx: &'a ToolContext,
    pub(super) recipient: &'a str,
    pub(super) text: &'a str,
    pub(super) channel: &'static str,
    pub(super) at: Timestamp,
}

/// The file of intents and receipts.
#[derive(Debug, Clone)]
pub(super) struct DeliveryLog(pub(super) JsonLinesFile);

impl DeliveryLog {
    /// What is known of the delivery under this key.
    pub(super) fn state(&self, key: &str) -> Result<DeliveryState, FsError> {
        match self.0.lock_existing()? {
            Some(held) => {
                let known = state(&held, key)?;
                let is_elsewhere = known == DeliveryState::NotStarted && !is_from_this_host(&held)?;
                Ok(if is_elsewhere { DeliveryState::NoRecord } else { known })
            }
            None => Ok(DeliveryState::NoRecord),
        }
    }

    /// Writes down that a message is about to leave, unless it has left already
    /// or a later driver is at it; says what was known before.
    pub(super) fn record_intent(
        &self,
        intent: &DeliveryIntent<'_>,
    ) -> Result<DeliveryState, FsError> {
        let around = intent.ctx;
        let held = self.0.lock()?;
        if held.is_empty()? {
            held.append(&json!({ "kind": "host", "host": host_name() }))?;
        }
        let before = state(&held, &around.idempotency_key)?;
        let is_past = match &before {
            DeliveryState::Delivered => true,
            DeliveryState::Started { epoch, .. } => *epoch > around.epoch.0,
            DeliveryState::NotStarted | DeliveryState::NoRecord | DeliveryState::Failed => false,
        };
        if !is_past {
            held.append(&json!({
                "kind": "intent",
                "key": around.idempotency_key,
                "run": around.run,
                "call": around.call,
                "epoch": around.epoch,
                "at": intent.at,
                "channel": intent.channel,
                "recipient": intent.recipient,
                "text_sha256": Hash::digest(intent.text.as_bytes()),
            }))?;
        }
        Ok(before)
    }

    /// Writes down that a message has left.
    pub(super) fn record_receipt(
        &self,
        key: &str,
        at: Timestamp,
        answer: &str,
    ) -> Result<(), FsError> {
        let line = json!({ "kind": "receipt", "key": key, "at": at, "answer": answer });
        self.0.lock()?.append(&line)
    }

    /// Writes down that a message has not left, as far as is known.
    pub(super) fn record_failure(
        &self,
        around: &ToolContext,
        at: Timestamp,
        sure: bool,
    ) -> Result<(), FsError> {
        let line = json!({
            "kind": "failure",
            "key": around.idempotency_key,
            "epoch": around.epoch,
            "at": at,
            "certain": sure,
        });
        self.0.lock()?.append(&line)
    }
}

/// The name of this machine.
fn host_name() -> String {
    let uname = rustix::system::uname();
    uname.nodename().to_string_lossy().into_owned()
}

/// Whether the record was begun on this machine. One that came here from another
/// does not know what was begun here before, nor there since.
fn is_from_this_host(held: &LockedJsonLines) -> Result<bool, FsError> {
    let first = held.first_line()?.unwrap_or_default();
    Ok(first["kind"] == "host" && first["host"] == host_name())
}

/// The last line of a key says how it stands, but a receipt is for good.
fn state(held: &LockedJsonLines, key: &str) -> Result<DeliveryState, FsError> {
    let mut state = DeliveryState::NotStarted;
    for line in &held.find_key(key)?.lines {
        match line["kind"].as_str() {
            Some("intent") => {
                state = DeliveryState::Started {
                    channel: line["channel"].as_str().unwrap_or_default().to_owned(),
                    epoch: line["epoch"].as_u64().unwrap_or_default(),
                };
            }
            Some("failure")
                if line["certain"] == Value::Bool(true) && is_latest_attempt(&state, line) =>
            {
                state = DeliveryState::Failed;
            }
            Some("receipt") => return Ok(DeliveryState::Delivered),
            _ => {}
        }
    }
    Ok(state)
}

/// Whether a failure is that of the driver who is at it: an earlier one knows only
/// of its own try.
fn is_latest_attempt(state: &DeliveryState, failure: &Value) -> bool {
    match (state, failure["epoch"].as_u64()) {
        (DeliveryState::Started { epoch, .. }, Some(its)) => its >= *epoch,
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
