//! The conversation that a task brings: as people write one, as the command line
//! takes it, or as a journal has it.
//!
//! Never: a message that is neither.

use std::fmt;

use longhaul_core::message::Message;
use longhaul_engine::history::{BadHistory, HISTORY_BYTES_MAX, MESSAGES_MAX};
use longhaul_engine::history::{Speaker, Told, Weighed};
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::json;
use utoipa::openapi::schema::{
    AdditionalProperties, Array, ArrayBuilder, ObjectBuilder, OneOfBuilder, Schema, Type,
};

/// Reads it.
pub(crate) fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Message>, D::Error> {
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

/// Describes it.
pub(crate) fn described() -> Array {
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
