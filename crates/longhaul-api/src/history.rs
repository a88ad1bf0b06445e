//! A conversation as people keep it: a list of who said what.
//!
//! Never: more than words. Calls and their results come as messages, in the form
//! that the journal has.

use std::fmt;
use std::sync::Arc;

use longhaul_core::message::{Block, Message, Reply, TextBlock};
use longhaul_core::raw::RawJson;
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::openapi::schema::{
    AdditionalProperties, Array, ArrayBuilder, ObjectBuilder, OneOfBuilder, Schema, Type,
};

/// The longest history, in bytes.
pub const HISTORY_BYTES_MAX: usize = 1024 * 1024;

/// So many messages it may have.
pub const MESSAGES_MAX: usize = 1_000;

/// The dialect of what was said elsewhere.
const API_NAME: &str = "history";

/// What is wrong with a history.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// It is too long.
    #[error("is longer than {HISTORY_BYTES_MAX} bytes")]
    TooLong,
    /// It has too many messages.
    #[error("has more than {MESSAGES_MAX} messages")]
    TooManyMessages,
    /// It is no list of messages.
    #[error("is no JSON list of {{\"role\": \"user\" or \"assistant\", \"content\": TEXT}}: {0}")]
    InvalidShape(String),
    /// A message says nothing; they are counted from 1.
    #[error("says nothing in message {0}")]
    EmptyMessage(usize),
    /// It begins with an answer.
    #[error("begins with the assistant; a conversation begins with the user")]
    AssistantFirst,
}

/// Who says something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum HistoryRole {
    /// A person.
    User,
    /// The model.
    Assistant,
}

impl HistoryRole {
    /// All of them.
    const ALL: [Self; 2] = [Self::User, Self::Assistant];
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TextMessage {
    role: HistoryRole,
    content: String,
}

/// What some programs write before a text.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// Reads a history.
pub fn parse_history(bytes: &[u8]) -> Result<Vec<Message>, HistoryError> {
    if bytes.len() > HISTORY_BYTES_MAX {
        return Err(HistoryError::TooLong);
    }
    let bytes = bytes.strip_prefix(BOM).unwrap_or(bytes);
    let shape = |error: serde_json::Error| HistoryError::InvalidShape(error.to_string());
    let said: Vec<TextMessage> = serde_json::from_slice(bytes).map_err(shape)?;
    if said.len() > MESSAGES_MAX {
        return Err(HistoryError::TooManyMessages);
    }
    if let Some(place) = said.iter().position(|said| said.content.trim().is_empty()) {
        return Err(HistoryError::EmptyMessage(place + 1));
    }
    if said.first().is_some_and(|said| said.role == HistoryRole::Assistant) {
        return Err(HistoryError::AssistantFirst);
    }
    Ok(said.into_iter().map(to_message).collect())
}

fn to_message(said: TextMessage) -> Message {
    match said.role {
        HistoryRole::User => Message::user(said.content),
        HistoryRole::Assistant => Message::Assistant(Arc::new(Reply {
            api: API_NAME.to_owned(),
            blocks: vec![Block::Text(TextBlock { text: said.content.into(), extra: None })],
        })),
    }
}

/// A message of a history that comes with a task.
#[derive(Debug, Clone, PartialEq, Eq)]
enum HistoryMessage {
    /// As people write it: who said what.
    Text(Message),
    /// As the journal has it.
    Journal(Message),
}

impl HistoryMessage {
    /// The message.
    fn into_message(self) -> Message {
        match self {
            Self::Text(message) | Self::Journal(message) => message,
        }
    }
}

/// The same, and how many bytes it was written in.
#[derive(Debug)]
struct SizedMessage {
    message: HistoryMessage,
    bytes: usize,
}

impl<'de> Deserialize<'de> for SizedMessage {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let raw = RawJson::deserialize(from)?;
        let told = parse_message(&raw).map_err(D::Error::custom)?;
        let bytes = raw.as_str().len();
        Ok(Self { message: told, bytes })
    }
}

impl<'de> Deserialize<'de> for HistoryMessage {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        parse_message(&RawJson::deserialize(from)?).map_err(D::Error::custom)
    }
}

fn parse_message(raw: &RawJson) -> Result<HistoryMessage, String> {
    let value: serde_json::Value =
        serde_json::from_str(raw.as_str()).map_err(|error| error.to_string())?;
    if value.get("role").is_some() || value.get("content").is_some() {
        let said: TextMessage = serde_json::from_value(value).map_err(|error| error.to_string())?;
        return match said.content.trim().is_empty() {
            true => Err("it says nothing".to_owned()),
            false => Ok(HistoryMessage::Text(to_message(said))),
        };
    }
    serde_json::from_str(raw.as_str()).map(HistoryMessage::Journal).map_err(|error| {
        let words = error.to_string();
        // The place is that in the message alone, which nobody sees.
        let words = words.split(" at line ").next().unwrap_or_default();
        format!("{words}; a message is {{\"role\": \"user\" or \"assistant\", \"content\": TEXT}}")
    })
}

/// Reads the conversation that a task brings.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Message>, D::Error> {
    let told = from.deserialize_seq(HistoryVisitor)?;
    // What a journal has may begin anywhere.
    if let Some(HistoryMessage::Text(Message::Assistant(_))) = told.first() {
        let words = "it begins with the assistant; a conversation begins with the user";
        return Err(D::Error::custom(words));
    }
    Ok(told.into_iter().map(HistoryMessage::into_message).collect())
}

/// Takes messages in as long as there is room for them.
struct HistoryVisitor;

impl<'de> Visitor<'de> for HistoryVisitor {
    type Value = Vec<HistoryMessage>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of messages")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<HistoryMessage>, A::Error> {
        let (mut all, mut bytes) = (Vec::new(), 0);
        while let Some(next) = list.next_element::<SizedMessage>()? {
            bytes += next.bytes;
            if bytes > HISTORY_BYTES_MAX {
                return Err(A::Error::custom(format!("it {}", HistoryError::TooLong)));
            }
            if all.len() == MESSAGES_MAX {
                return Err(A::Error::custom(format!("it {}", HistoryError::TooManyMessages)));
            }
            all.push(next.message);
        }
        Ok(all)
    }
}

/// The JSON Schema of the conversation that a task brings.
pub(crate) fn schema() -> Array {
    let speakers = HistoryRole::ALL.map(|speaker| json!(speaker));
    let role = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(speakers));
    let content = ObjectBuilder::new()
        .schema_type(Type::String)
        .min_length(Some(1))
        .description(Some("What was said."));
    let said = ObjectBuilder::new()
        .schema_type(Type::Object)
        .description(Some("Who said what."))
        .property("role", role)
        .property("content", content)
        .required("role")
        .required("content")
        .additional_properties(Some(AdditionalProperties::<Schema>::FreeForm(false)));
    let kept = ObjectBuilder::new()
        .schema_type(Type::Object)
        .description(Some(
            "A message as a journal has it, with calls and their results: `user`, `assistant` or `results`.",
        ))
        .property("user", ObjectBuilder::new().schema_type(Type::Array))
        .property("assistant", ObjectBuilder::new().schema_type(Type::Object))
        .property("results", ObjectBuilder::new().schema_type(Type::Array))
        .additional_properties(Some(AdditionalProperties::<Schema>::FreeForm(false)));
    let message = OneOfBuilder::new().item(said).item(kept);
    let words = format!("At most {HISTORY_BYTES_MAX} bytes in all, and the user begins.");
    ArrayBuilder::new()
        .items(message)
        .max_items(Some(MESSAGES_MAX))
        .description(Some(words))
        .build()
}

#[cfg(test)]
mod tests {
    use super::{HISTORY_BYTES_MAX, HistoryMessage, parse_history};

    #[test]
    fn a_message_parses_in_both_formats() {
        let check = |text: &str, expect: &str| {
            let told = serde_json::from_str::<HistoryMessage>(text);
            let told = told.map(|told| serde_json::to_string(&told.into_message()).expect("JSON"));
            let told = told.unwrap_or_else(|bad| bad.to_string());
            assert!(told.contains(expect), "{text}: {told}");
        };
        let user = r#"{"user":[{"text":"a"}]}"#;
        check(user, user);
        check(r#"{"role":"user","content":"a"}"#, user);
        let reply = r#"{"assistant":{"api":"history","blocks":[{"text":{"text":"b"}}]}}"#;
        check(r#"{"role":"assistant","content":"b"}"#, reply);
        check(reply, reply);
        check(r#"{"role":"system","content":"a"}"#, "unknown variant `system`");
        check(r#"{"role":"user"}"#, "missing field `content`");
        check(r#"{"role":"user","content":" "}"#, "it says nothing");
        check(r#"{"role":"user","content":["a"]}"#, "invalid type");
        check("3", "a message is {\"role\"");
        check(r#"{"use":[]}"#, "unknown variant `use`");
    }

    #[test]
    fn an_invalid_history_is_rejected() {
        let many = format!("[{}]", [r#"{"role":"user","content":"a"}"#; 1_001].join(","));
        let long = format!("[{}]", " ".repeat(HISTORY_BYTES_MAX));
        for (text, why) in [
            ("", "is no JSON list"),
            ("{}", "is no JSON list"),
            ("[3]", "is no JSON list"),
            (r#"[{"role":"system","content":"a"}]"#, "unknown variant `system`"),
            (r#"[{"role":"user","content":["a"]}]"#, "invalid type"),
            (r#"[{"role":"user","content":"a","id":1}]"#, "unknown field `id`"),
            (r#"[{"role":"user","content":"a"},{"role":"assistant","content":" "}]"#, "message 2"),
            (r#"[{"role":"assistant","content":"a"}]"#, "begins with the user"),
            (&many, "more than 1000 messages"),
            (&long, "longer than"),
        ] {
            let bad = parse_history(text.as_bytes()).unwrap_err().to_string();
            assert!(bad.contains(why), "{bad}");
        }
        assert_eq!(parse_history(b"[]"), Ok(Vec::new()));
        let both = br#"[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]"#;
        assert_eq!(parse_history(both).map(|messages| messages.len()), Ok(2));
    }
}
