//! IDs of tool calls in requests: unique, and with characters that all providers accept.
//!
//! Invariant: a tool call of a conversation gets the same ID in every request.

use std::collections::HashMap;

/// Maximum length of a call ID in a request: the lowest limit among the providers.
const ID_MAX: usize = 64;

/// Maximum length of a call ID that is sent back unchanged. Some servers encode signed data in the
/// ID.
const ORIGINAL_ID_MAX: usize = 2_048;

/// IDs of the tool calls in a conversation, each with the index of the message that contains the
/// call.
#[derive(Debug, Default)]
pub(crate) struct ToolCallIds(HashMap<String, usize>);

impl ToolCallIds {
    /// Assigns the ID with which a tool call is sent: the original ID if possible, otherwise an ID
    /// made from the position of the call, so that the call has the same ID in every request.
    pub(crate) fn assign_valid(&mut self, original: &str, message: usize, call: usize) -> String {
        let mut id = replace_invalid_chars(original, ID_MAX);
        let mut tries = 0;
        while id.is_empty() || self.0.contains_key(&id) {
            id = match tries {
                0 => format!("call_{message}_{call}"),
                _ => format!("call_{message}_{call}_{tries}"),
            };
            tries += 1;
        }
        self.0.insert(id.clone(), message);
        id
    }

    /// Assigns the ID of a tool call that is sent back to the server that created its ID. The
    /// original ID is kept, unless another call has it or it is empty, too long or not printable
    /// ASCII.
    pub(crate) fn keep_or_assign(&mut self, original: &str, message: usize, call: usize) -> String {
        let is_id = |byte: u8| byte.is_ascii_graphic();
        let is_valid = !original.is_empty()
            && original.len() <= ORIGINAL_ID_MAX
            && original.bytes().all(is_id);
        if !is_valid || self.0.contains_key(original) {
            return self.assign_valid(original, message, call);
        }
        self.0.insert(original.to_owned(), message);
        original.to_owned()
    }

    /// Removes the call IDs of the message with this index and of all later messages.
    pub(crate) fn remove_ids_since_message(&mut self, message_index: usize) {
        self.0.retain(|_, index| *index < message_index);
    }
}

/// Returns a tool name that is valid in a request, truncated to `max_chars` characters.
pub(crate) fn to_valid_tool_name(original_name: &str, max_chars: usize) -> String {
    match replace_invalid_chars(original_name, max_chars) {
        name if name.is_empty() => "unnamed".to_owned(),
        name => name,
    }
}

fn replace_invalid_chars(text: &str, max_chars: usize) -> String {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    text.chars().take(max_chars).map(|c| if is_valid(c) { c } else { '_' }).collect()
}
