//! Sums up the older part of a conversation that no longer fits.
//!
//! Never: throws words away. The journal keeps all of them; only what the model
//! is shown gets shorter. The task itself is kept word for word.

use std::sync::Arc;

use longhaul_core::message::{Message, Part};
use longhaul_core::port::model::Ask;
use longhaul_core::raw::Body;
use longhaul_run::Input;
use longhaul_run::input::Compacted;

use crate::drive::desk::Desk;
use crate::drive::think::ask_model;
use crate::error::Error;

/// So many of the newest messages are kept as they are.
const KEPT: usize = 6;

const SUM_UP: &str = "[longhaul] The conversation no longer fits the model's window. Sum up all \
    of it so far, so that the work can go on from your summary alone. Keep word for word: the \
    goal, every rule and limit that was given, every identifier, name, path, number and link that \
    may still be needed, every question that is open. Say what is done, what was found and what \
    is left. Do not use a tool.";

/// Asks for a summary. None: the run is not ours any more.
pub(super) async fn compact(desk: &mut Desk, mut ask: Ask) -> Result<Option<Input>, Error> {
    let replaced = older(&ask.messages);
    let first = ask.messages.first().cloned();
    let mut shown: Vec<Arc<Message>> = ask.messages[..replaced].to_vec();
    shown.push(Arc::new(Message::user(SUM_UP)));
    ask.messages = Arc::new(shown);
    ask.tools = Body::inline("[]");
    let (heard, active) = ask_model(desk, ask).await?;
    Ok(heard.told(active, |answered| {
        Some(Input::Compacted(Box::new(Compacted {
            replaced,
            summary: vec![summary(first.as_deref(), &answered.reply.text())],
            usage: answered.usage,
            cost: answered.cost,
            model: answered.model,
            active,
        })))
    }))
}

/// How many messages are summed up: all but the newest, and never between a
/// call and its result.
fn older(messages: &[Arc<Message>]) -> usize {
    let mut until = messages
        .len()
        .saturating_sub(KEPT)
        .max(messages.len().min(1));
    while until < messages.len() && matches!(*messages[until], Message::Results(_)) {
        until += 1;
    }
    until
}

/// One message that stands for all that was summed up, the task first.
fn summary(first: Option<&Message>, text: &str) -> Message {
    let mut parts = match first {
        Some(Message::User(parts)) => parts.clone(),
        Some(Message::Assistant(_) | Message::Results(_)) | None => Vec::new(),
    };
    let text = format!("[longhaul] A summary of what was said and done since:\n\n{text}");
    parts.push(Part::Text(text.into()));
    Message::User(parts)
}
