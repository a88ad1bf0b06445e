//! The conversation that a task brings: as people write one, as the command line
//! takes it, or as a journal has it.
//!
//! Never: a message that is neither.

use longhaul_core::message::Message;
use longhaul_engine::history::{Speaker, Told};
use serde::Deserialize as _;
use serde::de::{Deserializer, Error as _};
use serde_json::json;
use utoipa::openapi::schema::{
    AdditionalProperties, Array, ArrayBuilder, ObjectBuilder, OneOfBuilder, Schema, Type,
};

/// Reads it.
pub(crate) fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Message>, D::Error> {
    let told: Vec<Told> = Vec::deserialize(from)?;
    // What a journal has may begin anywhere.
    if let Some(Told::Said(Message::Assistant(_))) = told.first() {
        let words = "it begins with the assistant; a conversation begins with the user";
        return Err(D::Error::custom(words));
    }
    Ok(told.into_iter().map(Told::message).collect())
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
    ArrayBuilder::new().items(message).build()
}
