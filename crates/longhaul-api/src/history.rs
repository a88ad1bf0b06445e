//! Conversation history in requests: a list of messages with role and content. Tool calls and
//! their results are given in the journal's message format.

use std::fmt;
use std::sync::Arc;

use longhaul_core::message::{Block, Message, Reply, TextBlock};
use longhaul_core::raw::RawJson;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use utoipa::PartialSchema as _;
use utoipa::openapi::schema::{
    AdditionalProperties, Array, ArrayBuilder, ObjectBuilder, OneOfBuilder, Schema, Type,
};

use crate::transcript::ThreadMessageRole;

/// Maximum size of a history in bytes.
pub const HISTORY_BYTES_MAX: usize = 1024 * 1024;

/// Maximum number of messages in a history.
pub const MESSAGES_MAX: usize = 1_000;

/// Value of `Reply::api`, the provider API of a reply, for assistant messages that come from a
/// history.
const API_NAME: &str = "history";

/// Error of parsing a conversation history.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// The history is longer than [`HISTORY_BYTES_MAX`] bytes.
    #[error("the history is longer than {HISTORY_BYTES_MAX} bytes: send only its newest messages")]
    TooLong,
    /// The history has more than [`MESSAGES_MAX`] messages.
    #[error("the history has more than {MESSAGES_MAX} messages: send only the newest ones")]
    TooManyMessages,
    /// The history is not a list of messages.
    #[error(
        "the history is not a JSON list of {{\"role\": \"user\" or \"assistant\", \"content\": TEXT}}: {0}"
    )]
    InvalidShape(String),
    /// The message with this number (counted from 1) is empty.
    #[error("message {0} of the history is empty")]
    EmptyMessage(usize),
    /// The history begins with an assistant message.
    #[error("the history begins with the assistant, but must begin with the user")]
    AssistantFirst,
}

/// A message of a history, given as role and content.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TextMessage {
    role: ThreadMessageRole,
    content: String,
}

/// UTF-8 byte order mark, which some programs write at the beginning of a file.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// Parses a conversation history: a JSON list of messages with role and content.
pub fn parse_history(bytes: &[u8]) -> Result<Vec<Message>, HistoryError> {
    check_limits(bytes.len(), 0)?;
    let bytes = bytes.strip_prefix(BOM).unwrap_or(bytes);
    let invalid_shape = |error: serde_json::Error| HistoryError::InvalidShape(error.to_string());
    let messages: Vec<TextMessage> = serde_json::from_slice(bytes).map_err(invalid_shape)?;
    check_limits(0, messages.len())?;
    if let Some(index) = messages.iter().position(|message| message.content.trim().is_empty()) {
        return Err(HistoryError::EmptyMessage(index + 1));
    }
    if messages.first().is_some_and(|message| message.role == ThreadMessageRole::Assistant) {
        return Err(HistoryError::AssistantFirst);
    }
    Ok(messages.into_iter().map(convert_text_message).collect())
}

const fn check_limits(bytes: usize, messages: usize) -> Result<(), HistoryError> {
    if bytes > HISTORY_BYTES_MAX {
        return Err(HistoryError::TooLong);
    }
    if messages > MESSAGES_MAX {
        return Err(HistoryError::TooManyMessages);
    }
    Ok(())
}

fn convert_text_message(message: TextMessage) -> Message {
    match message.role {
        ThreadMessageRole::User => Message::user(message.content),
        ThreadMessageRole::Assistant => Message::Assistant(Arc::new(Reply {
            api: API_NAME.to_owned(),
            blocks: vec![Block::Text(TextBlock { text: message.content.into(), extra: None })],
        })),
    }
}

/// A message of the history in a request, given as role and content or in the journal's format.
#[derive(Debug, Clone, PartialEq, Eq)]
struct HistoryMessage {
    message: Message,
    is_in_journal_format: bool,
    /// Size of the message as JSON in bytes.
    size: usize,
}

impl<'de> Deserialize<'de> for HistoryMessage {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = RawJson::deserialize(deserializer)?;
        let fields = raw.to_value();
        let is_in_journal_format = fields.get("role").is_none() && fields.get("content").is_none();
        let message = match is_in_journal_format {
            true => parse_journal_message(&raw),
            false => serde_json::from_value(fields).map_err(|error| error.to_string()).and_then(
                |message: TextMessage| match message.content.trim().is_empty() {
                    true => Err("the message is empty".to_owned()),
                    false => Ok(convert_text_message(message)),
                },
            ),
        };
        let message = message.map_err(D::Error::custom)?;
        Ok(Self { message, is_in_journal_format, size: raw.as_str().len() })
    }
}

fn parse_journal_message(raw: &RawJson) -> Result<Message, String> {
    serde_json::from_str(raw.as_str()).map_err(|error| {
        let reason = error.to_string();
        // The position in the error is relative to this message, which would be misleading.
        let reason = reason.split(" at line ").next().unwrap_or_default();
        format!("{reason}; a message is {{\"role\": \"user\" or \"assistant\", \"content\": TEXT}}")
    })
}

/// Deserializes the conversation history of a task.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<Message>, D::Error> {
    let parsed = deserializer.deserialize_seq(HistoryVisitor)?;
    // Messages in the journal's format may begin with any role.
    if let Some(HistoryMessage {
        message: Message::Assistant(_),
        is_in_journal_format: false,
        ..
    }) = parsed.first()
    {
        return Err(D::Error::custom(HistoryError::AssistantFirst));
    }
    Ok(parsed.into_iter().map(|message| message.message).collect())
}

/// Reads messages until a limit is exceeded, so that a long list is not read into memory.
struct HistoryVisitor;

impl<'de> Visitor<'de> for HistoryVisitor {
    type Value = Vec<HistoryMessage>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of messages")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let (mut messages, mut bytes) = (Vec::new(), 0);
        while let Some(message) = list.next_element::<HistoryMessage>()? {
            bytes += message.size;
            messages.push(message);
            check_limits(bytes, messages.len()).map_err(A::Error::custom)?;
        }
        Ok(messages)
    }
}

/// Returns the JSON Schema of a conversation history.
pub(crate) fn history_schema() -> Array {
    let roles = ["user", "assistant"];
    let role = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(roles));
    let content = ObjectBuilder::new()
        .schema_type(Type::String)
        .min_length(Some(1))
        .description(Some("Text of the message."));
    let text_message = ObjectBuilder::new()
        .schema_type(Type::Object)
        .description(Some("A message with role and content."))
        .property("role", role)
        .property("content", content)
        .required("role")
        .required("content")
        .additional_properties(Some(AdditionalProperties::<Schema>::FreeForm(false)));
    let any_object = ObjectBuilder::new()
        .schema_type(Type::Object)
        .additional_properties(Some(AdditionalProperties::<Schema>::FreeForm(true)));
    let stored_message = ObjectBuilder::new()
        .schema_type(Type::Object)
        .description(Some(
            "A message in the journal's format, with tool calls and results: `user`, `assistant` or `results`.",
        ))
        .property("user", ArrayBuilder::new().items(RawJson::schema()))
        .property("assistant", any_object)
        .property("results", ArrayBuilder::new().items(RawJson::schema()))
        .additional_properties(Some(AdditionalProperties::<Schema>::FreeForm(false)));
    let message = OneOfBuilder::new().item(text_message).item(stored_message);
    let description = format!(
        "At most {HISTORY_BYTES_MAX} bytes in total; the first message must be from the user."
    );
    ArrayBuilder::new()
        .items(message)
        .max_items(Some(MESSAGES_MAX))
        .description(Some(description))
        .build()
}

#[cfg(test)]
mod tests {
    use super::{HISTORY_BYTES_MAX, HistoryMessage, parse_history};

    #[test]
    fn a_message_parses_in_both_formats() {
        let check = |text: &str, expect: &str| {
            let parsed = serde_json::from_str::<HistoryMessage>(text);
            let parsed = parsed.map(|parsed| serde_json::to_string(&parsed.message).expect("JSON"));
            let parsed = parsed.unwrap_or_else(|error| error.to_string());
            assert!(parsed.contains(expect), "{text}: {parsed}");
        };
        let user = r#"{"user":[{"text":"a"}]}"#;
        check(user, user);
        check(r#"{"role":"user","content":"a"}"#, user);
        let reply = r#"{"assistant":{"api":"history","blocks":[{"text":{"text":"b"}}]}}"#;
        check(r#"{"role":"assistant","content":"b"}"#, reply);
        check(reply, reply);
        check(r#"{"role":"system","content":"a"}"#, "unknown variant `system`");
        check(r#"{"role":"user"}"#, "missing field `content`");
        check(r#"{"role":"user","content":" "}"#, "the message is empty");
        check(r#"{"role":"user","content":["a"]}"#, "invalid type");
        check("3", "a message is {\"role\"");
        check(r#"{"use":[]}"#, "unknown variant `use`");
    }

    #[test]
    fn an_invalid_history_is_rejected() {
        let many = format!("[{}]", [r#"{"role":"user","content":"a"}"#; 1_001].join(","));
        let long = format!("[{}]", " ".repeat(HISTORY_BYTES_MAX));
        for (text, expected) in [
            ("", "is not a JSON list"),
            ("{}", "is not a JSON list"),
            ("[3]", "is not a JSON list"),
            (r#"[{"role":"system","content":"a"}]"#, "unknown variant `system`"),
            (r#"[{"role":"user","content":["a"]}]"#, "invalid type"),
            (r#"[{"role":"user","content":"a","id":1}]"#, "unknown field `id`"),
            (r#"[{"role":"user","content":"a"},{"role":"assistant","content":" "}]"#, "message 2"),
            (r#"[{"role":"assistant","content":"a"}]"#, "must begin with the user"),
            (&many, "more than 1000 messages"),
            (&long, "longer than"),
        ] {
            let error = parse_history(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert_eq!(parse_history(b"[]"), Ok(Vec::new()));
        let both = br#"[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]"#;
        assert_eq!(parse_history(both).map(|messages| messages.len()), Ok(2));
    }
}
