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
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use longhaul_core::event::tool::{ToolOutput, VerifyOutcome};
use longhaul_core::policy::effect::{EffectClass, InDoubtPolicy};
use longhaul_core::policy::effect_facts::{FileContent, PredictedEffects};
use longhaul_core::port::outbound::NetworkScope;
use longhaul_core::port::tool::{Tool, ToolContext, ToolFailure, ToolSpec};
use longhaul_core::raw::RawJson;
use longhaul_core::time::{Clock, Millis, Timestamp};

use crate::disk_tool::run_on_blocking_thread;
use crate::jsonl::JsonLinesFile;
use crate::location::FileLocation;
use crate::message::channel::{DeliveryChannel, TAKEN_OVER};
use crate::message::delivery_log::{DeliveryLog, DeliveryState};
use crate::message::envelope::{
    MessageEnvelope, TEXT_LENGTH_MAX, find_recipient, not_delivered_failure, recipient_from_context,
};
use crate::outbound::GuardedHttpClient;
use crate::outbound::hop::redacted_url;
use crate::prediction::{no_effects, one_file_change};
use crate::safe_dir::FsError;
use crate::typed::{TypedToolError, parse_input, tool_spec};

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

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SendMessageInput {
    /// The whole message, as the person will read it
    #[schemars(length(min = 1, max = TEXT_LENGTH_MAX))]
    text: String,
}

impl SendMessageTool {
    /// Creates the tool `send_message` with this configuration.
    pub fn new(
        messages: SendMessageConfig,
        clock: Arc<dyn Clock>,
        client: Arc<GuardedHttpClient>,
    ) -> Result<Self, TypedToolError> {
        let description = "Sends a message to the person you work for. The recipient is set for \
            you. A sent message can't be revoked.";
        Ok(Self {
            spec: ToolSpec {
                can_verify: true,
                in_doubt: Some(InDoubtPolicy::Ask),
                timeout: Some(Millis::from_secs(120)),
                ..tool_spec::<SendMessageInput>("send_message", description)?
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

    /// Runs the closure with the log and the current time, on a thread that may block.
    async fn with_log<T: Send + 'static>(
        &self,
        work: impl FnOnce(&DeliveryLog, Timestamp) -> Result<T, FsError> + Send + 'static,
    ) -> Result<T, ToolFailure> {
        let (log, now) = (self.log.clone(), self.channel.clock.now());
        run_on_blocking_thread(move || {
            work(&log, now).map_err(|error| {
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
                one_file_change(path, FileContent::Unknown, FileContent::Unknown)
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
        let input: SendMessageInput = parse_input(&self.spec, input)?;
        let envelope = MessageEnvelope::new(input.text, ctx)?;
        // The intent is logged before the delivery.
        let (intent, channel) = (envelope.clone(), self.channel.target.channel_name());
        let previous =
            self.with_log(move |log, now| log.record_start(&intent, channel, now)).await?;
        if previous == DeliveryState::Delivered {
            return Ok(ToolOutput::text(DELIVERED));
        }
        if previous.is_started_after(ctx.epoch) {
            return Err(not_delivered_failure(TAKEN_OVER.into()));
        }
        match self.channel.deliver(&envelope, &self.log).await {
            Ok(answer) => {
                let receipt =
                    move |log: &DeliveryLog, now| log.record_receipt(&envelope.key, now, &answer);
                // The message was delivered all the same, if only the log entry is missing.
                Ok(ToolOutput::text(match self.with_log(receipt).await {
                    Ok(()) => DELIVERED.to_owned(),
                    Err(_) => format!("{DELIVERED} The delivery log could not be written."),
                }))
            }
            Err(error) => {
                let is_certain = error.is_certain;
                let failure =
                    move |log: &DeliveryLog, now| log.record_failure(&envelope, now, is_certain);
                _ = self.with_log(failure).await;
                Err(error.to_tool_failure())
            }
        }
    }

    async fn verify(&self, _input: Value, ctx: &ToolContext) -> VerifyOutcome {
        let (target, key) = (self.channel.target.clone(), ctx.idempotency_key.clone());
        let verify = move |log: &DeliveryLog, now| verify_delivery(log, &target, (&key, now));
        self.with_log(verify).await.unwrap_or(VerifyOutcome::Unknown)
    }
}

/// Determines whether a message was delivered, from the delivery log or else from the outbox (the
/// JSON lines file of messages). What the outbox proves is logged for the next check.
fn verify_delivery(
    log: &DeliveryLog,
    target: &DeliveryTarget,
    (key, now): (&str, Timestamp),
) -> Result<VerifyOutcome, FsError> {
    let delivered = || VerifyOutcome::Happened(ToolOutput::text(DELIVERED));
    let started_channel = match log.state(key)? {
        DeliveryState::Delivered => return Ok(delivered()),
        DeliveryState::NotStarted | DeliveryState::Failed => return Ok(VerifyOutcome::NotHappened),
        DeliveryState::NoRecord => return Ok(VerifyOutcome::Unknown),
        DeliveryState::Started { channel, .. } => channel,
    };
    let DeliveryTarget::File(path) = target else {
        return Ok(VerifyOutcome::Unknown);
    };
    if started_channel != target.channel_name() {
        return Ok(VerifyOutcome::Unknown);
    }
    let is_in_outbox = match JsonLinesFile::new(path.clone()).lock_existing()? {
        Some(outbox) => !outbox.lines_with_key(key)?.is_empty(),
        None => false,
    };
    if !is_in_outbox {
        return Ok(VerifyOutcome::NotHappened);
    }
    _ = log.record_receipt(key, now, "found in the outbox");
    Ok(delivered())
}
