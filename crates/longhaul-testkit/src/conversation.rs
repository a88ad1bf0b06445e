//! Checks conversations as a model provider would.

use std::sync::Arc;

use longhaul_core::message::Message;

/// Checks the rules that every model provider has for a conversation: the first message is from the
/// user, and each reply is followed by exactly one result for each of its calls, in the order of
/// the calls.
pub fn check_message_order(messages: &[Arc<Message>]) -> Result<(), String> {
    let mut open: Vec<&str> = Vec::new();
    let mut before: Option<&Message> = None;
    for (index, message) in messages.iter().enumerate() {
        let invalid =
            |reason| Err(format!("message {index} of the conversation is invalid: {reason}"));
        match &**message {
            Message::Results(results) => {
                let ids: Vec<&str> = results.iter().map(|result| result.id.as_str()).collect();
                let calls: Vec<u16> = results.iter().map(|result| result.call.index).collect();
                if open.is_empty() {
                    return invalid("results without calls");
                }
                if ids != open || !calls.iter().copied().eq(1..=calls.len() as u16) {
                    return invalid("the results don't match the calls and their order");
                }
                open.clear();
            }
            Message::User(_) | Message::Assistant(_) if !open.is_empty() => {
                return invalid("a call without a result");
            }
            Message::Assistant(_) if before.is_none() => {
                return invalid("the first message is from the model");
            }
            Message::Assistant(reply) => {
                open = reply.tool_calls().map(|call| call.id.as_str()).collect();
            }
            Message::User(parts) if parts.is_empty() => return invalid("an empty message"),
            Message::User(_) => {}
        }
        before = Some(message);
    }
    match open.is_empty() {
        true => Ok(()),
        false => Err("the last call of the conversation has no result".to_owned()),
    }
}
