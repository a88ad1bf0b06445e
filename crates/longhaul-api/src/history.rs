//! A conversation as people keep it: a list of who said what.
//!
//! Never: more than words. Calls and their results come as messages, in the form
//! that the journal has.

use std::fmt;
use std::sync::Arc;

use longhaul_core::message::{Block, Message, Reply, Words};
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
const DIALECT: &str = "history";

/// What is wrong with a history.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadHistory {
    /// It is too long.
    #[error("is longer than {HISTORY_BYTES_MAX} bytes")]
    Long,
    /// It has too many messages.
    #[error("has more than {MESSAGES_MAX} messages")]
    Many,
    /// It is no list of messages.
    #[error("is no JSON list of {{\"role\": \"user\" or \"assistant\", \"content\": TEXT}}: {0}")]
    Shape(String),
    /// A message says nothing; they are counted from 1.
    #[error("says nothing in message {0}")]
    Empty(usize),
    /// It begins with an answer.
    #[error("begins with the assistant; a conversation begins with the user")]
    Begins,
}

/// Who says something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Speaker {
    /// A person.
    User,
    /// The model.
    Assistant,
}

impl Speaker {
    /// All of them.
    const ALL: [Self; 2] = [Self::User, Self::Assistant];
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    role: Speaker,
    content: String,
}

/// What some programs write before a text.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// Reads a history.
pub fn history(bytes: &[u8]) -> Result<Vec<Message>, BadHistory> {
    if bytes.len() > HISTORY_BYTES_MAX {
        return Err(BadHistory::Long);
    }
    let bytes = bytes.strip_prefix(BOM).unwrap_or(bytes);
    let shape = |error: serde_json::Error| BadHistory::Shape(error.to_string());
    let said: Vec<Said> = serde_json::from_slice(bytes).map_err(shape)?;
    if said.len() > MESSAGES_MAX {
        return Err(BadHistory::Many);
    }
    if let Some(place) = said.iter().position(|said| said.content.trim().is_empty()) {
        return Err(BadHistory::Empty(place + 1));
    }
    if said
        .first()
        .is_some_and(|said| said.role == Speaker::Assistant)
    {
        return Err(BadHistory::Begins);
    }
    Ok(said.into_iter().map(message).collect())
}

fn message(said: Said) -> Message {
    match said.role {
        Speaker::User => Message::user(said.content),
        Speaker::Assistant => Message::Assistant(Arc::new(Reply {
            dialect: DIALECT.to_owned(),
            blocks: vec![Block::Text(Words {
                text: said.content.into(),
                extra: None,
            })],
        })),
    }
}

/// A message of a history that comes with a task.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Told {
    /// As people write it: who said what.
    Said(Message),
    /// As the journal has it.
    Kept(Message),
}

impl Told {
    /// The message.
    fn message(self) -> Message {
        match self {
            Self::Said(message) | Self::Kept(message) => message,
        }
    }
}

/// The same, and how many bytes it was written in.
#[derive(Debug)]
struct Weighed {
    told: Told,
    bytes: usize,
}

impl<'de> Deserialize<'de> for Weighed {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let raw = RawJson::deserialize(from)?;
        let told = told(&raw).map_err(D::Error::custom)?;
        let bytes = raw.as_str().len();
        Ok(Self { told, bytes })
    }
}

impl<'de> Deserialize<'de> for Told {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        told(&RawJson::deserialize(from)?).map_err(D::Error::custom)
    }
}

fn told(raw: &RawJson) -> Result<Told, String> {
    let value: serde_json::Value =
        serde_json::from_str(raw.as_str()).map_err(|error| error.to_string())?;
    if value.get("role").is_some() || value.get("content").is_some() {
        let said: Said = serde_json::from_value(value).map_err(|error| error.to_string())?;
        return match said.content.trim().is_empty() {
            true => Err("it says nothing".to_owned()),
            false => Ok(Told::Said(message(said))),
        };
    }
    serde_json::from_str(raw.as_str())
        .map(Told::Kept)
        .map_err(|error| {
            let words = error.to_string();
            // The place is that in the message alone, which nobody sees.
            let words = words.split(" at line ").next().unwrap_or_default();
            format!(
                "{words}; a message is {{\"role\": \"user\" or \"assistant\", \"content\": TEXT}}"
            )
        })
}

/// Reads the conversation that a task brings.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Message>, D::Error> {
    let told = from.deserialize_seq(Conversation)?;
    // What a journal has may begin anywhere.
    if let Some(Told::Said(Message::Assistant(_))) = told.first() {
        let words = "it begins with the assistant; a conversation begins with the user";
        return Err(D::Error::custom(words));
    }
    Ok(told.into_iter().map(Told::message).collect())
}

/// Takes messages in as long as there is room for them.
struct Conversation;

impl<'de> Visitor<'de> for Conversation {
    type Value = Vec<Told>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of messages")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<Told>, A::Error> {
        let (mut all, mut bytes) = (Vec::new(), 0);
        while let Some(next) = list.next_element::<Weighed>()? {
            bytes += next.bytes;
            if bytes > HISTORY_BYTES_MAX {
                return Err(A::Error::custom(format!("it {}", BadHistory::Long)));
            }
            if all.len() == MESSAGES_MAX {
                return Err(A::Error::custom(format!("it {}", BadHistory::Many)));
            }
            all.push(next.told);
        }
        Ok(all)
    }
}

/// The JSON Schema of the conversation that a task brings.
pub(crate) fn schema() -> Array {
    let speakers = Speaker::ALL.map(|speaker| json!(speaker));
    let role = ObjectBuilder::new()
        .schema_type(Type::String)
        .enum_values(Some(speakers));
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
    use super::{HISTORY_BYTES_MAX, Told, history};

    #[test]
    fn a_message_is_told_either_way() {
        let check = |text: &str, expect: &str| {
            let told = serde_json::from_str::<Told>(text);
            let told = told.map(|told| serde_json::to_string(&told.message()).expect("JSON"));
            let told = told.unwrap_or_else(|bad| bad.to_string());
            assert!(told.contains(expect), "{text}: {told}");
        };
        let user = r#"{"user":[{"text":"a"}]}"#;
        check(user, user);
        check(r#"{"role":"user","content":"a"}"#, user);
        let reply = r#"{"assistant":{"dialect":"history","blocks":[{"text":{"text":"b"}}]}}"#;
        check(r#"{"role":"assistant","content":"b"}"#, reply);
        check(reply, reply);
        check(
            r#"{"role":"system","content":"a"}"#,
            "unknown variant `system`",
        );
        check(r#"{"role":"user"}"#, "missing field `content`");
        check(r#"{"role":"user","content":" "}"#, "it says nothing");
        check(r#"{"role":"user","content":["a"]}"#, "invalid type");
        check("3", "a message is {\"role\"");
        check(r#"{"use":[]}"#, "unknown variant `use`");
    }

    #[test]
    fn what_is_no_history_is_refused() {
        let many = format!(
            "[{}]",
            [r#"{"role":"user","content":"a"}"#; 1_001].join(",")
        );
        let long = format!("[{}]", " ".repeat(HISTORY_BYTES_MAX));
        for (text, why) in [
            ("", "is no JSON list"),
            ("{}", "is no JSON list"),
            ("[3]", "is no JSON list"),
            (
                r#"[{"role":"system","content":"a"}]"#,
                "unknown variant `system`",
            ),
            (r#"[{"role":"user","content":["a"]}]"#, "invalid type"),
            (
                r#"[{"role":"user","content":"a","id":1}]"#,
                "unknown field `id`",
            ),
            (
                r#"[{"role":"user","content":"a"},{"role":"assistant","content":" "}]"#,
                "message 2",
            ),
            (
                r#"[{"role":"assistant","content":"a"}]"#,
                "begins with the user",
            ),
            (&many, "more than 1000 messages"),
            (&long, "longer than"),
        ] {
            let bad = history(text.as_bytes()).unwrap_err().to_string();
            assert!(bad.contains(why), "{bad}");
        }
        assert_eq!(history(b"[]"), Ok(Vec::new()));
        let both = br#"[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]"#;
        assert_eq!(history(both).map(|messages| messages.len()), Ok(2));
    }
}
