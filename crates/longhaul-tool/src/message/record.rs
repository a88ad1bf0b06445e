//! The record of deliveries: what was about to leave, and what is known to have
//! left. It is how a call that a crash cut off is judged afterwards.
//!
//! Never: what the message says. Its hash tells two of them apart.

use serde_json::{Value, json};

use longhaul_core::port::tool::ToolContext;
use longhaul_core::raw::Hash;
use longhaul_core::time::Timestamp;

use crate::jsonl::{Held, Jsonl};
use crate::place::Trouble;

/// What is known of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing was begun.
    Nothing,
    /// Nothing is written here, but this is not where it would have to be: there
    /// is no record, or it is another machine's.
    Elsewhere,
    /// It was begun on this way, by the driver with this epoch, and nobody is sure
    /// how it ended.
    Begun { way: String, epoch: u64 },
    /// It failed, and surely nothing arrived.
    Failed,
    /// It was delivered.
    Delivered,
}

/// A message about to leave.
#[derive(Debug)]
pub(super) struct Intent<'a> {
    pub(super) around: &'a ToolContext,
    pub(super) recipient: &'a str,
    pub(super) text: &'a str,
    pub(super) way: &'static str,
    pub(super) at: Timestamp,
}

/// The file of intents and receipts.
#[derive(Debug, Clone)]
pub(super) struct Record(pub(super) Jsonl);

impl Record {
    /// What is known of the delivery under this key.
    pub(super) fn state(&self, key: &str) -> Result<State, Trouble> {
        match self.0.hold_if_there()? {
            Some(held) => {
                let known = state(&held, key)?;
                let is_elsewhere = known == State::Nothing && !is_ours(&held)?;
                Ok(if is_elsewhere {
                    State::Elsewhere
                } else {
                    known
                })
            }
            None => Ok(State::Elsewhere),
        }
    }

    /// Writes down that a message is about to leave, unless it has left already
    /// or a later driver is at it; says what was known before.
    pub(super) fn intend(&self, intent: &Intent<'_>) -> Result<State, Trouble> {
        let around = intent.around;
        let held = self.0.hold()?;
        if held.is_empty()? {
            held.add(&json!({ "kind": "host", "host": host() }))?;
        }
        let before = state(&held, &around.key)?;
        let is_past = match &before {
            State::Delivered => true,
            State::Begun { epoch, .. } => *epoch > around.epoch.0,
            State::Nothing | State::Elsewhere | State::Failed => false,
        };
        if !is_past {
            held.add(&json!({
                "kind": "intent",
                "key": around.key,
                "run": around.run,
                "call": around.call,
                "epoch": around.epoch,
                "at": intent.at,
                "way": intent.way,
                "recipient": intent.recipient,
                "text_sha256": Hash::of(intent.text.as_bytes()),
            }))?;
        }
        Ok(before)
    }

    /// Writes down that a message has left.
    pub(super) fn receipt(&self, key: &str, at: Timestamp, answer: &str) -> Result<(), Trouble> {
        let line = json!({ "kind": "receipt", "key": key, "at": at, "answer": answer });
        self.0.hold()?.add(&line)
    }

    /// Writes down that a message has not left, as far as is known.
    pub(super) fn failure(
        &self,
        around: &ToolContext,
        at: Timestamp,
        sure: bool,
    ) -> Result<(), Trouble> {
        let line = json!({
            "kind": "failure",
            "key": around.key,
            "epoch": around.epoch,
            "at": at,
            "sure": sure,
        });
        self.0.hold()?.add(&line)
    }
}

/// The name of this machine.
fn host() -> String {
    let uname = rustix::system::uname();
    uname.nodename().to_string_lossy().into_owned()
}

/// Whether the record was begun on this machine. One that came here from another
/// does not know what was begun here before, nor there since.
fn is_ours(held: &Held) -> Result<bool, Trouble> {
    let first = held.first()?.unwrap_or_default();
    Ok(first["kind"] == "host" && first["host"] == host())
}

/// The last line of a key says how it stands, but a receipt is for good.
fn state(held: &Held, key: &str) -> Result<State, Trouble> {
    let mut state = State::Nothing;
    for line in &held.find(key)?.lines {
        match line["kind"].as_str() {
            Some("intent") => {
                state = State::Begun {
                    way: line["way"].as_str().unwrap_or_default().to_owned(),
                    epoch: line["epoch"].as_u64().unwrap_or_default(),
                };
            }
            Some("failure") if line["sure"] == Value::Bool(true) && is_last(&state, line) => {
                state = State::Failed;
            }
            Some("receipt") => return Ok(State::Delivered),
            _ => {}
        }
    }
    Ok(state)
}

/// Whether a failure is that of the driver who is at it: an earlier one knows only
/// of its own try.
fn is_last(state: &State, failure: &Value) -> bool {
    match (state, failure["epoch"].as_u64()) {
        (State::Begun { epoch, .. }, Some(its)) => its >= *epoch,
        (State::Nothing | State::Elsewhere | State::Failed | State::Delivered, _) | (_, None) => {
            true
        }
    }
}
