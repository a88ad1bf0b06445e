//! The table of tools as an `Ask` carries it, row by row.
//!
//! Never: another spelling of a tool's schema, but where providers demand one.

use longhaul_core::raw::RawJson;
use serde::Deserialize;

use crate::fields::Fields;
use crate::ids;

/// A row of the table of tools.
#[derive(Debug, Deserialize)]
pub(crate) struct Row {
    name: String,
    #[serde(default)]
    description: String,
    schema: RawJson,
}

impl Row {
    /// The tool under a name of at most so many letters, its schema under this name.
    pub(crate) fn tool(&self, name_max: usize, schema: &str) -> Fields {
        let description = Some(&self.description).filter(|text| !text.is_empty());
        Fields::default()
            .with("name", &ids::name(&self.name, name_max))
            .with_some("description", description)
            .with(schema, &self.schema())
    }

    /// The schema as it is; only one that does not say that it wants an object,
    /// as providers demand, is made to say so.
    fn schema(&self) -> RawJson {
        match Fields::read(self.schema.as_str()) {
            Some(mut fields) if fields.get("type").is_none() => {
                fields.set("type", RawJson::of(&"object"));
                RawJson::of(&fields)
            }
            Some(_) | None => self.schema.clone(),
        }
    }
}

/// Reads a table.
pub(crate) fn read(table: &str) -> Result<Vec<Row>, String> {
    serde_json::from_str(table).map_err(|bad| format!("the table of tools can't be read: {bad}"))
}
