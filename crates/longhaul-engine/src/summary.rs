//! The older part of a conversation in fewer words: how it is asked for, and what
//! stands in its place.
//!
//! Never: throws words away. The journal keeps all of them; only what the model
//! is shown gets shorter. The task itself is kept word for word.

use std::sync::Arc;

use longhaul_core::message::{Message, Part};
use longhaul_core::port::model::Ask;
use longhaul_core::raw::Body;

/// So many of the newest messages are kept as they are.
const KEPT: usize = 6;

const SUM_UP: &str = "[longhaul] The conversation no longer fits the model's window. Sum up all \
    of it so far, so that the work can go on from your summary alone. Keep word for word: the \
    goal, every rule and limit that was given, every identifier, name, path, number and link that \
    may still be needed, every question that is open. Say what is done, what was found and what \
    is left. Do not use a tool.";

const SUMMARY: &str = "[longhaul] A summary of what was said and done since:\n\n";

/// The question for a summary of this conversation.
pub(crate) fn question(ask: Ask) -> Ask {
    let mut shown: Vec<Arc<Message>> = ask.messages[..older(&ask.messages)].to_vec();
    shown.push(Arc::new(Message::user(SUM_UP)));
    Ask {
        messages: Arc::new(shown),
        tools: Body::inline("[]"),
        ..ask
    }
}

/// The words of the model that a summary was made of.
pub(crate) fn told(summary: &[Message]) -> String {
    let Some(Message::User(parts)) = summary.first() else {
        return String::new();
    };
    match parts.last() {
        Some(Part::Text(text)) => text.strip_prefix(SUMMARY).unwrap_or(text).to_owned(),
        Some(Part::Image(_)) | None => String::new(),
    }
}

/// How many messages are summed up: all but the newest, and never between a
/// call and its result.
pub(crate) fn older(messages: &[Arc<Message>]) -> usize {
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
pub(crate) fn summary(first: Option<&Message>, text: &str) -> Message {
    let mut parts = match first {
        Some(Message::User(parts)) => parts.clone(),
        Some(Message::Assistant(_) | Message::Results(_)) | None => Vec::new(),
    };
    let text = format!("{SUMMARY}{text}");
    parts.push(Part::Text(text.into()));
    Message::User(parts)
}
