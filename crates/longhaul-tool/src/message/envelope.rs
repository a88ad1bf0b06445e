//! A message with its recipient and metadata.
//!
//! Invariant: the model can't choose the recipient.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use longhaul_core::id::{CallId, Epoch, RunId, ThreadKey};
use longhaul_core::port::tool::{ToolContext, ToolFailure};
use longhaul_core::raw::RawJson;

/// Name of the context value, set by the runtime and not by the model, that holds the recipient.
const RECIPIENT: &str = "recipient";
/// Maximum length of a message in characters.
pub(super) const TEXT_LENGTH_MAX: usize = 20_000;
const RECIPIENT_BYTES_MAX: usize = 1_000;

/// A message with its recipient and metadata. Its JSON is what is delivered; the receiver can detect
/// duplicates by the key.
#[derive(Debug, Clone, Serialize)]
pub(super) struct MessageEnvelope {
    pub(super) key: String,
    pub(super) run: RunId,
    pub(super) call: CallId,
    /// Epoch of the claim under which the message is sent. The receiver does not get it.
    #[serde(skip)]
    pub(super) epoch: Epoch,
    thread: Option<ThreadKey>,
    pub(super) recipient: String,
    pub(super) text: String,
}

impl MessageEnvelope {
    pub(super) fn new(text: String, ctx: &ToolContext) -> Result<Self, ToolFailure> {
        let recipient = find_recipient(&text, &ctx.context).map_err(not_delivered_failure)?;
        Ok(Self {
            key: ctx.idempotency_key.clone(),
            run: ctx.run,
            call: ctx.call,
            epoch: ctx.epoch,
            thread: ctx.thread.clone(),
            recipient,
            text,
        })
    }
}

/// Returns the recipient of a message with this text. The error says why the message can't be sent.
pub(super) fn find_recipient(
    text: &str,
    context: &BTreeMap<String, RawJson>,
) -> Result<String, String> {
    let Some(recipient) = recipient_from_context(context) else {
        return Err("no recipient is set. The person who starts the run sets it with \
                    `--context recipient=...`, and the agent's file lists `context: [recipient]`"
            .into());
    };
    if text.trim().is_empty() {
        return Err("the text is empty".into());
    }
    if text.chars().nth(TEXT_LENGTH_MAX).is_some() {
        return Err(format!("the text exceeds {TEXT_LENGTH_MAX} characters; send a summary"));
    }
    Ok(recipient)
}

/// Returns the recipient that the runtime sets in the context. `None` if there is no valid
/// recipient.
pub(super) fn recipient_from_context(context: &BTreeMap<String, RawJson>) -> Option<String> {
    let recipient = context.get(RECIPIENT)?.to_value();
    let recipient = match &recipient {
        Value::String(recipient) => recipient.trim().to_owned(),
        // An id or a phone number, which the command line parses as a number.
        Value::Number(number) => number.to_string(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    let is_valid = (1..=RECIPIENT_BYTES_MAX).contains(&recipient.len());
    is_valid.then_some(recipient)
}

/// Creates the failure for a message that was certainly not delivered.
pub(super) fn not_delivered_failure(reason: String) -> ToolFailure {
    ToolFailure::new(format!("The message was not delivered: {reason}."))
}
