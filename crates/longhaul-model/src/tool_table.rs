//! The tool table of a `ModelRequest`: the tools that the model may call.
//!
//! Invariant: the bytes of a tool's schema are only changed where providers require it.

use longhaul_core::raw::RawJson;
use serde::Deserialize;

use crate::call_ids;
use crate::json_object::JsonObject;

/// A row of the tool table: name, description and input schema of a tool.
#[derive(Debug, Deserialize)]
pub(crate) struct ToolTableRow {
    name: String,
    #[serde(default)]
    description: String,
    schema: RawJson,
}

impl ToolTableRow {
    /// Encodes the tool for a request. The tool's name is truncated to the given number of
    /// characters, and its input schema is put into the field with the given name.
    pub(crate) fn encode_tool(&self, max_name_chars: usize, schema_field: &str) -> JsonObject {
        let description = Some(&self.description).filter(|text| !text.is_empty());
        JsonObject::default()
            .with_field("name", &call_ids::to_valid_tool_name(&self.name, max_name_chars))
            .with_option("description", description)
            .with_field(schema_field, &self.schema_with_type())
    }

    /// Returns the input schema of the tool. If the schema has no `type`, `object` is added,
    /// because providers require a type.
    fn schema_with_type(&self) -> RawJson {
        match JsonObject::parse(self.schema.as_str()) {
            Some(mut fields) if fields.get("type").is_none() => {
                fields.set_field("type", RawJson::from_serialize(&"object"));
                RawJson::from_serialize(&fields)
            }
            Some(_) | None => self.schema.clone(),
        }
    }
}

pub(crate) fn parse_tool_table(table_json: &str) -> Result<Vec<ToolTableRow>, String> {
    serde_json::from_str(table_json).map_err(|error| format!("invalid tool table: {error}"))
}
