//! The tool `send_message`, which sends a message to the recipient that the runtime sets.
//!
//! Invariant: the model can't choose the recipient, and a call sends at most one message. The
//! intent is logged before the delivery and the receipt after it.

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
use longhaul_core::policy::effect_facts::{FileContent, PredictedEffects};
use longhaul_core::port::outbound::NetworkScope;
use longhaul_core::port::tool::{Tool, ToolContext, ToolFailure, ToolSpec};
use longhaul_core::raw::RawJson;
use longhaul_core::time::{Clock, Millis, Timestamp};

use crate::jsonl::JsonLinesFile;
use crate::location::FileLocation;
use crate::message::channel::{DeliveryChannel, TAKEN_OVER};
use crate::message::delivery_log::{DeliveryLog, DeliveryState, PendingDelivery};
use crate::message::envelope::{
    MessageEnvelope, TEXT_LENGTH_MAX, find_recipient, not_delivered_failure, recipient_from_context,
};
use crate::outbound::GuardedHttpClient;
use crate::outbound::hop::redacted_url;
use crate::prediction::{effects_of_one_file_change, no_effects};
use crate::safe_dir::FsError;
use crate::tool_support::{
    deserialize_tool_input, run_on_blocking_thread, tool_spec_with_properties,
};

pub use crate::message::target::{DeliveryTarget, DeliveryTargetError};

/// Output for the model after a delivery. It does not reveal the recipient.
const DELIVERED: &str = "The message was delivered.";

/// Configuration of the tool `send_message`.
#[derive(Debug, Clone)]
pub struct SendMessageConfig {
    /// Where messages are delivered.
    pub target: DeliveryTarget,
    /// Location of the delivery log, which shows after a crash whether a message was delivered.
    pub log: FileLocation,
    /// Directory for relative paths, and working directory of delivery programs.
    pub root: PathBuf,
    /// Whether a webhook may be on a private network.
    pub allow_private: bool,
}

/// The tool `send_message`, which delivers a message through the configured channel.
#[derive(Debug)]
pub struct SendMessageTool {
    spec: ToolSpec,
    log: DeliveryLog,
    channel: DeliveryChannel,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SendMessageInput {
    text: String,
}

impl SendMessageTool {
    /// Creates the tool `send_message` with this configuration.
    pub fn new(
        messages: SendMessageConfig,
        clock: Arc<dyn Clock>,
        client: Arc<GuardedHttpClient>,
    ) -> Result<Self, IdError> {
        let properties = json!({
            "text": {
                "type": "string",
                "minLength": 1,
                "maxLength": TEXT_LENGTH_MAX,
                "description": "The whole message, as the person will read it",
            },
        });
        let description = "Sends a message to the person you work for. The recipient is set for \
            you. A sent message can't be revoked.";
        Ok(Self {
            spec: ToolSpec {
                can_verify: true,
                in_doubt: Some(InDoubtPolicy::Ask),
                timeout: Some(Millis::from_secs(120)),
                ..tool_spec_with_properties("send_message", description, properties, &["text"])?
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
                client,
            },
        })
    }

    fn now(&self) -> Timestamp {
        self.channel.clock.now()
    }

    /// Logs that the message is about to be sent. Returns the delivery state before this call.
    async fn record_delivery_start(
        &self,
        ctx: &ToolContext,
        envelope: &MessageEnvelope,
    ) -> Result<DeliveryState, ToolFailure> {
        let (log, channel, at) = (self.log.clone(), self.channel.target.channel_name(), self.now());
        let (ctx, envelope) = (ctx.clone(), envelope.clone());
        run_on_blocking_thread(move || {
            let intent = PendingDelivery {
                ctx: &ctx,
                recipient: &envelope.recipient,
                text: &envelope.text,
                channel,
                at,
            };
            log.record_delivery_start(&intent).map_err(|error| {
                let path = log.0.display_path();
                not_delivered_failure(format!(
                    "the delivery log `{path}` can't be written: {error}"
                ))
            })
        })
        .await
    }
}

#[async_trait]
impl Tool for SendMessageTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn class(&self, _input: &Value) -> EffectClass {
        EffectClass::Once
    }

    fn rule_match_texts(&self, _input: &Value) -> Vec<String> {
        Vec::new()
    }

    fn find_call_problem(
        &self,
        input: &Value,
        context: &BTreeMap<String, RawJson>,
    ) -> Option<String> {
        let text = input.get("text").and_then(Value::as_str).unwrap_or_default();
        let problem = find_recipient(text, context).err()?;
        Some(not_delivered_failure(problem).message().to_owned())
    }

    fn rule_match_texts_with_context(
        &self,
        _input: &Value,
        context: &BTreeMap<String, RawJson>,
    ) -> Vec<String> {
        recipient_from_context(context).into_iter().collect()
    }

    /// Returns `true` if a program delivers the messages: it keeps running if the worker process
    /// ends.
    fn may_outlive_worker(&self) -> bool {
        matches!(self.channel.target, DeliveryTarget::Command(_))
    }

    async fn predict_effects(&self, _input: &Value, _ctx: &ToolContext) -> PredictedEffects {
        let effects = match &self.channel.target {
            DeliveryTarget::File(file) => {
                let path = file.path().display().to_string();
                effects_of_one_file_change(path, FileContent::Unknown, FileContent::Unknown)
            }
            DeliveryTarget::Webhook(url) => {
                PredictedEffects { network: Some(vec![redacted_url(url)]), ..no_effects() }
            }
            DeliveryTarget::Command(_) => PredictedEffects::default(),
        };
        PredictedEffects {
            undo: Some("impossible: a sent message can't be revoked".into()),
            ..effects
        }
    }

    async fn call(&self, input: Value, ctx: &ToolContext) -> Result<ToolOutput, ToolFailure> {
        let input: SendMessageInput = deserialize_tool_input(&self.spec, input)?;
        let envelope = MessageEnvelope::new(input.text, ctx)?;
        match self.record_delivery_start(ctx, &envelope).await? {
            DeliveryState::Delivered => return Ok(ToolOutput::text(DELIVERED)),
            DeliveryState::Started { epoch, .. } if epoch > ctx.epoch.0 => {
                return Err(not_delivered_failure(TAKEN_OVER.into()));
            }
            DeliveryState::NotStarted
            | DeliveryState::NoRecord
            | DeliveryState::Started { .. }
            | DeliveryState::Failed => {}
        }
        let result = self.channel.deliver_message(&envelope, &self.log, ctx.epoch).await;
        let (log, ctx, at) = (self.log.clone(), ctx.clone(), self.now());
        let output = match &result {
            Ok(_) => Ok(ToolOutput::text(DELIVERED)),
            Err(error) => Err(error.to_tool_failure()),
        };
        let log_result = run_on_blocking_thread(move || {
            Ok(match &result {
                Ok(answer) => log.record_delivery_receipt(&ctx.idempotency_key, at, answer),
                Err(error) => log.record_delivery_failure(&ctx, at, error.is_certain),
            })
        });
        match (log_result.await, output) {
            (Ok(Ok(())), output) | (_, output @ Err(_)) => output,
            // The message was delivered all the same; only the log entry is missing.
            (Ok(Err(_)) | Err(_), Ok(_)) => {
                Ok(ToolOutput::text(format!("{DELIVERED} The delivery log could not be written.")))
            }
        }
    }

    async fn verify(&self, _input: Value, ctx: &ToolContext) -> VerifyOutcome {
        let (log, target) = (self.log.clone(), self.channel.target.clone());
        let (key, now) = (ctx.idempotency_key.clone(), self.now());
        let verification = run_on_blocking_thread(move || {
            let result = verify_delivery(&log, &target, &key);
            if let Ok((VerifyOutcome::Happened(_), true)) = result {
                // What the outbox proves is logged for the next check.
                _ = log.record_delivery_receipt(&key, now, "found in the outbox");
            }
            Ok(result)
        });
        match verification.await {
            Ok(Ok((outcome, _))) => outcome,
            Ok(Err(_)) | Err(_) => VerifyOutcome::Unknown,
        }
    }
}

/// Determines whether a message was delivered, from the delivery log or else from the outbox (the
/// JSON lines file of messages). The returned `true` means that the outbox decided, `false` the
/// log.
fn verify_delivery(
    log: &DeliveryLog,
    target: &DeliveryTarget,
    key: &str,
) -> Result<(VerifyOutcome, bool), FsError> {
    let delivered = || VerifyOutcome::Happened(ToolOutput::text(DELIVERED));
    let started_channel = match log.read_delivery_state(key)? {
        DeliveryState::Delivered => return Ok((delivered(), false)),
        DeliveryState::NotStarted | DeliveryState::Failed => {
            return Ok((VerifyOutcome::NotHappened, false));
        }
        DeliveryState::NoRecord => return Ok((VerifyOutcome::Unknown, false)),
        DeliveryState::Started { channel, .. } => channel,
    };
    let DeliveryTarget::File(path) = target else {
        return Ok((VerifyOutcome::Unknown, false));
    };
    if started_channel != target.channel_name() {
        return Ok((VerifyOutcome::Unknown, false));
    }
    let is_in_outbox = match JsonLinesFile::new(path.clone()).lock_existing_file()? {
        Some(outbox) => !outbox.find_lines_by_key(key)?.lines.is_empty(),
        None => false,
    };
    Ok(match is_in_outbox {
        true => (delivered(), true),
        false => (VerifyOutcome::NotHappened, true),
    })
}
