//! A message with all that belongs to it.
//!
//! Never: for somebody whom the model chose.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use longhaul_core::port::tool::{ToolContext, ToolFailure};
use longhaul_core::raw::RawJson;

/// The name under which the runtime injects whom a message is for.
const RECIPIENT: &str = "recipient";
/// The longest message, in letters.
pub(super) const TEXT_LENGTH_MAX: usize = 20_000;
const RECIPIENT_BYTES_MAX: usize = 1_000;

/// A message with all that belongs to it.
#[derive(Debug, Clone)]
pub(super) struct Envelope {
    pub(super) key: String,
    run: String,
    call: String,
    thread: Option<String>,
    pub(super) recipient: String,
    pub(super) text: String,
}

impl Envelope {
    pub(super) fn new(text: String, around: &ToolContext) -> Result<Self, ToolFailure> {
        let Some(recipient) = recipient(&around.context) else {
            return Err(failure(
                "nobody said whom it is for. The person who starts the run does, with \
                 `--context recipient=...`, and the agent's file lists `context: [recipient]`"
                    .into(),
            ));
        };
        if text.trim().is_empty() {
            return Err(failure("it says nothing".into()));
        }
        if text.chars().nth(TEXT_LENGTH_MAX).is_some() {
            let why = format!("it is longer than {TEXT_LENGTH_MAX} letters; send the gist of it");
            return Err(failure(why));
        }
        Ok(Self {
            key: around.idempotency_key.clone(),
            run: around.run.to_string(),
            call: around.call.to_string(),
            thread: around.thread.as_ref().map(ToString::to_string),
            recipient,
            text,
        })
    }

    /// What the other side gets. It knows by the key what it has had already.
    pub(super) fn to_json(&self) -> Value {
        json!({
            "key": self.key,
            "run": self.run,
            "call": self.call,
            "thread": self.thread,
            "recipient": self.recipient,
            "text": self.text,
        })
    }
}

/// Whom the runtime names.
pub(super) fn recipient(context: &BTreeMap<String, RawJson>) -> Option<String> {
    let recipient = context.get(RECIPIENT)?.to_value();
    let recipient = match &recipient {
        Value::String(recipient) => recipient.trim().to_owned(),
        // An id or a number of a telephone, as the command line reads it.
        Value::Number(number) => number.to_string(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    let fits = (1..=RECIPIENT_BYTES_MAX).contains(&recipient.len());
    fits.then_some(recipient)
}

/// A message that surely did not leave.
pub(super) fn failure(why: String) -> ToolFailure {
    ToolFailure::new(format!("The message was not delivered: {why}."))
}
