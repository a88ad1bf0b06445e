//! `send_message`: a message to the one person whom the runtime names.
//!
//! Never: to somebody whom the model chose, and never twice for one call: what
//! is about to leave is written down before, and what has left is after.

mod channel;
mod delivery_log;
mod envelope;
mod target;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};

use longhaul_core::event::tool::{ToolOutput, VerifyOutcome};
use longhaul_core::id::IdError;
use longhaul_core::policy::effect::{EffectClass, InDoubtPolicy};
use longhaul_core::port::outbound::NetworkScope;
use longhaul_core::port::tool::{Tool, ToolContext, ToolFailure, ToolSpec};
use longhaul_core::raw::RawJson;
use longhaul_core::time::{Clock, Millis, Timestamp};

use crate::jsonl::JsonLinesFile;
use crate::location::Location;
use crate::message::channel::{DeliveryChannel, TAKEN_OVER};
use crate::message::delivery_log::{DeliveryIntent, DeliveryLog, DeliveryState};
use crate::message::envelope::{Envelope, TEXT_LENGTH_MAX, failure, recipient};
use crate::outbound::GuardedClient;
use crate::safe_dir::FsError;
use crate::tool_support::{parse_input, run_blocking, tool_spec};

pub use crate::message::target::{DeliveryTarget, DeliveryTargetError};

/// What the model reads of a message that has left. It is not told to whom.
const DELIVERED: &str = "The message was delivered.";

/// How messages are sent.
#[derive(Debug, Clone)]
pub struct MessageConfig {
    /// On which way.
    pub target: DeliveryTarget,
    /// Where deliveries are written down.
    pub log: Location,
    /// Where relative paths begin and programs work.
    pub root: PathBuf,
    /// Whether a webhook may be at a private address.
    pub allow_private: bool,
}

/// Sends messages.
#[derive(Debug)]
pub struct SendMessage {
    spec: ToolSpec,
    log: DeliveryLog,
    channel: DeliveryChannel,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    text: String,
}

impl SendMessage {
    /// The tool that sends messages so.
    pub fn new(
        messages: MessageConfig,
        clock: Arc<dyn Clock>,
        out: Arc<GuardedClient>,
    ) -> Result<Self, IdError> {
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
            spec: ToolSpec {
                can_verify: true,
                in_doubt: Some(InDoubtPolicy::Ask),
                timeout: Some(Millis::from_secs(120)),
                ..tool_spec("send_message", description, properties, &["text"])?
            },
            log: DeliveryLog(JsonLinesFile::new(messages.log.resolved_from(&messages.root))),
            channel: DeliveryChannel {
                target: messages.target.resolved_from(&messages.root),
                root: messages.root,
                reach: match messages.allow_private {
                    true => NetworkScope::Private,
                    false => NetworkScope::Public,
                },
                clock,
                client: out,
            },
        })
    }

    fn now(&self) -> Timestamp {
        self.channel.clock.now()
    }

    /// Writes down that the message is about to leave; says what was known before.
    async fn record_intent(
        &self,
        around: &ToolContext,
        parcel: &Envelope,
    ) -> Result<DeliveryState, ToolFailure> {
        let (record, way, at) = (self.log.clone(), self.channel.target.channel_name(), self.now());
        let (around, parcel) = (around.clone(), parcel.clone());
        run_blocking(move || {
            let intent = DeliveryIntent {
                ctx: &around,
                recipient: &parcel.recipient,
                text: &parcel.text,
                channel: way,
                at,
            };
            record.record_intent(&intent).map_err(|why| {
                let path = record.0.path();
                failure(format!("the record of deliveries `{path}` {why}"))
            })
        })
        .await
    }
}

#[async_trait]
impl Tool for SendMessage {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn class(&self, _input: &Value) -> EffectClass {
        EffectClass::Once
    }

    fn subjects(&self, _input: &Value) -> Vec<String> {
        Vec::new()
    }

    fn subjects_with_context(
        &self,
        _input: &Value,
        context: &BTreeMap<String, RawJson>,
    ) -> Vec<String> {
        recipient(context).into_iter().collect()
    }

    /// A program does not end with its worker.
    fn may_outlive_worker(&self) -> bool {
        matches!(self.channel.target, DeliveryTarget::Command(_))
    }

    async fn call(&self, input: Value, around: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let input: Input = parse_input(&self.spec, input)?;
        let parcel = Envelope::new(input.text, around)?;
        match self.record_intent(around, &parcel).await? {
            DeliveryState::Delivered => return Ok(ToolOutput::text(DELIVERED)),
            DeliveryState::Started { epoch, .. } if epoch > around.epoch.0 => {
                return Err(failure(TAKEN_OVER.into()));
            }
            DeliveryState::NotStarted
            | DeliveryState::NoRecord
            | DeliveryState::Started { .. }
            | DeliveryState::Failed => {}
        }
        let sent = self.channel.send(&parcel, &self.log, around.epoch).await;
        let (record, around, at) = (self.log.clone(), around.clone(), self.now());
        let output = match &sent {
            Ok(_) => Ok(ToolOutput::text(DELIVERED)),
            Err(lost) => Err(lost.failure()),
        };
        let wrote = run_blocking(move || {
            Ok(match &sent {
                Ok(answer) => record.record_receipt(&around.idempotency_key, at, answer),
                Err(lost) => record.record_failure(&around, at, lost.is_certain),
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

    async fn verify(&self, _input: Value, around: &ToolContext) -> VerifyOutcome {
        let (record, deliver) = (self.log.clone(), self.channel.target.clone());
        let (key, now) = (around.idempotency_key.clone(), self.now());
        let looked = run_blocking(move || {
            let finding = verify_delivery(&record, &deliver, &key);
            if let Ok((VerifyOutcome::Happened(_), true)) = finding {
                // What the outbox proves is written down for the next who asks.
                _ = record.record_receipt(&key, now, "found in the outbox");
            }
            Ok(finding)
        });
        match looked.await {
            Ok(Ok((finding, _))) => finding,
            Ok(Err(_)) | Err(_) => VerifyOutcome::Unknown,
        }
    }
}

/// Whether a message has left, by the record and the outbox; and whether it was
/// the outbox that said so.
fn verify_delivery(
    record: &DeliveryLog,
    deliver: &DeliveryTarget,
    key: &str,
) -> Result<(VerifyOutcome, bool), FsError> {
    let delivered = || VerifyOutcome::Happened(ToolOutput::text(DELIVERED));
    let way = match record.state(key)? {
        DeliveryState::Delivered => return Ok((delivered(), false)),
        DeliveryState::NotStarted | DeliveryState::Failed => {
            return Ok((VerifyOutcome::NotHappened, false));
        }
        DeliveryState::NoRecord => return Ok((VerifyOutcome::Unknown, false)),
        DeliveryState::Started { channel, .. } => channel,
    };
    let DeliveryTarget::File(path) = deliver else {
        return Ok((VerifyOutcome::Unknown, false));
    };
    if way != deliver.channel_name() {
        return Ok((VerifyOutcome::Unknown, false));
    }
    let stands = match JsonLinesFile::new(path.clone()).lock_existing()? {
        Some(held) => !held.find_key(key)?.lines.is_empty(),
        None => false,
    };
    Ok(match stands {
        true => (delivered(), true),
        false => (VerifyOutcome::NotHappened, true),
    })
}
