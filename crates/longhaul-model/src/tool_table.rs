//! The table of tools as an `Ask` carries it, row by row.
//!
//! Never: another spelling of a tool's schema, but where providers demand one.

use longhaul_core::raw::RawJson;
use serde::Deserialize;

use crate::call_ids;
use crate::json_object::JsonObject;

/// A row of the table of tools.
#[derive(Debug, Deserialize)]
pub(crate) struct ToolRow {
    name: String,
    #[serde(default)]
    description: String,
    schema: RawJson,
}

impl ToolRow {
    /// The tool under a name of at most so many letters, its schema under this name.
    pub(crate) fn encode(&self, name_max: usize, schema: &str) -> JsonObject {
        let description = Some(&self.description).filter(|text| !text.is_empty());
        JsonObject::default()
            .with("name", &call_ids::tool_name(&self.name, name_max))
            .with_some("description", description)
            .with(schema, &self.object_schema())
    }

    /// The schema as it is; only one that does not say that it wants an object,
    /// as providers demand, is made to say so.
    fn object_schema(&self) -> RawJson {
        match JsonObject::parse(self.schema.as_str()) {
            Some(mut fields) if fields.get("type").is_none() => {
                fields.set("type", RawJson::from_serialize(&"object"));
                RawJson::from_serialize(&fields)
            }
            Some(_) | None => self.schema.clone(),
        }
    }
}

/// Reads a table.
pub(crate) fn parse(table: &str) -> Result<Vec<ToolRow>, String> {
    serde_json::from_str(table).map_err(|bad| format!("the table of tools can't be read: {bad}"))
}
