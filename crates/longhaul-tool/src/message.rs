//! `send_message`: a message to the one person whom the runtime names.
//!
//! Never: to somebody whom the model chose, and never twice for one call: what
//! is about to leave is written down before, and what has left is after.

mod deliver;
mod parcel;
mod record;
mod way;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};

use longhaul_core::event::tool::{Finding, ToolOutput};
use longhaul_core::id::BadId;
use longhaul_core::policy::effect::{EffectClass, InDoubt};
use longhaul_core::port::outbound::Reach;
use longhaul_core::port::tool::{Tool, ToolCard, ToolContext, ToolFailure};
use longhaul_core::raw::RawJson;
use longhaul_core::time::{Clock, Millis, Timestamp};

use crate::ask::{aside, card, typed};
use crate::jsonl::Jsonl;
use crate::location::Location;
use crate::message::parcel::{Parcel, TEXT_LENGTH_MAX, recipient, refusal};
use crate::message::record::{Intent, Record, State};
use crate::message::way::{TAKEN_OVER, Way};
use crate::outbound::Guarded;
use crate::place::Trouble;

pub use crate::message::deliver::{BadDeliver, Deliver};

/// What the model reads of a message that has left. It is not told to whom.
const DELIVERED: &str = "The message was delivered.";

/// How messages are sent.
#[derive(Debug, Clone)]
pub struct Messages {
    /// On which way.
    pub deliver: Deliver,
    /// Where deliveries are written down.
    pub record: Location,
    /// Where relative paths begin and programs work.
    pub root: PathBuf,
    /// Whether a webhook may be at a private address.
    pub allow_private: bool,
}

/// Sends messages.
#[derive(Debug)]
pub struct SendMessage {
    card: ToolCard,
    record: Record,
    way: Way,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    text: String,
}

impl SendMessage {
    /// The tool that sends messages so.
    pub fn new(
        messages: Messages,
        clock: Arc<dyn Clock>,
        out: Arc<Guarded>,
    ) -> Result<Self, BadId> {
        let properties = json!({
            "text": {
                "type": "string",
                "minLength": 1,
                "maxLength": TEXT_LENGTH_MAX,
                "description": "The whole message, as the person will read it",
            },
        });
        let description = "Sends a message to the person you work for. Who that is, is set for \
            you. A message that has left can't be taken back.";
        Ok(Self {
            card: ToolCard {
                verifies: true,
                in_doubt: Some(InDoubt::Ask),
                timeout: Some(Millis::from_secs(120)),
                ..card("send_message", description, properties, &["text"])?
            },
            record: Record(Jsonl::new(messages.record.based_in(&messages.root))),
            way: Way {
                deliver: messages.deliver.based_in(&messages.root),
                root: messages.root,
                reach: match messages.allow_private {
                    true => Reach::Private,
                    false => Reach::Public,
                },
                clock,
                out,
            },
        })
    }

    fn now(&self) -> Timestamp {
        self.way.clock.now()
    }

    /// Writes down that the message is about to leave; says what was known before.
    async fn intend(&self, around: &ToolContext, parcel: &Parcel) -> Result<State, ToolFailure> {
        let (record, way, at) = (self.record.clone(), self.way.deliver.way(), self.now());
        let (around, parcel) = (around.clone(), parcel.clone());
        aside(move || {
            let intent = Intent {
                around: &around,
                recipient: &parcel.recipient,
                text: &parcel.text,
                way,
                at,
            };
            record.intend(&intent).map_err(|why| {
                let path = record.0.path();
                refusal(format!("the record of deliveries `{path}` {why}"))
            })
        })
        .await
    }
}

#[async_trait]
impl Tool for SendMessage {
    fn card(&self) -> &ToolCard {
        &self.card
    }

    fn class(&self, _input: &Value) -> EffectClass {
        EffectClass::Once
    }

    fn subjects(&self, _input: &Value) -> Vec<String> {
        Vec::new()
    }

    fn subjects_in(&self, _input: &Value, context: &BTreeMap<String, RawJson>) -> Vec<String> {
        recipient(context).into_iter().collect()
    }

    /// A program does not end with its worker.
    fn outlives(&self) -> bool {
        matches!(self.way.deliver, Deliver::Command(_))
    }

    async fn call(&self, input: Value, around: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let input: Input = typed(&self.card, input)?;
        let parcel = Parcel::new(input.text, around)?;
        match self.intend(around, &parcel).await? {
            State::Delivered => return Ok(ToolOutput::text(DELIVERED)),
            State::Begun { epoch, .. } if epoch > around.epoch.0 => {
                return Err(refusal(TAKEN_OVER.into()));
            }
            State::Nothing | State::Elsewhere | State::Begun { .. } | State::Failed => {}
        }
        let sent = self.way.send(&parcel, &self.record, around.epoch).await;
        let (record, around, at) = (self.record.clone(), around.clone(), self.now());
        let output = match &sent {
            Ok(_) => Ok(ToolOutput::text(DELIVERED)),
            Err(lost) => Err(lost.failure()),
        };
        let wrote = aside(move || {
            Ok(match &sent {
                Ok(answer) => record.receipt(&around.key, at, answer),
                Err(lost) => record.failure(&around, at, lost.sure),
            })
        });
        match (wrote.await, output) {
            (Ok(Ok(())), output) | (_, output @ Err(_)) => output,
            // It has left all the same: what is lost is only the proof.
            (Ok(Err(_)) | Err(_), Ok(_)) => Ok(ToolOutput::text(format!(
                "{DELIVERED} The record of deliveries could not be written."
            ))),
        }
    }

    async fn verify(&self, _input: Value, around: &ToolContext) -> Finding {
        let (record, deliver) = (self.record.clone(), self.way.deliver.clone());
        let (key, now) = (around.key.clone(), self.now());
        let looked = aside(move || {
            let finding = judge(&record, &deliver, &key);
            if let Ok((Finding::Happened(_), true)) = finding {
                // What the outbox proves is written down for the next who asks.
                _ = record.receipt(&key, now, "found in the outbox");
            }
            Ok(finding)
        });
        match looked.await {
            Ok(Ok((finding, _))) => finding,
            Ok(Err(_)) | Err(_) => Finding::Unknown,
        }
    }
}

/// Whether a message has left, by the record and the outbox; and whether it was
/// the outbox that said so.
fn judge(record: &Record, deliver: &Deliver, key: &str) -> Result<(Finding, bool), Trouble> {
    let delivered = || Finding::Happened(ToolOutput::text(DELIVERED));
    let way = match record.state(key)? {
        State::Delivered => return Ok((delivered(), false)),
        State::Nothing | State::Failed => return Ok((Finding::NotHappened, false)),
        State::Elsewhere => return Ok((Finding::Unknown, false)),
        State::Begun { way, .. } => way,
    };
    let Deliver::File(path) = deliver else {
        return Ok((Finding::Unknown, false));
    };
    if way != deliver.way() {
        return Ok((Finding::Unknown, false));
    }
    let stands = match Jsonl::new(path.clone()).hold_if_there()? {
        Some(held) => !held.find(key)?.lines.is_empty(),
        None => false,
    };
    Ok(match stands {
        true => (delivered(), true),
        false => (Finding::NotHappened, true),
    })
}
