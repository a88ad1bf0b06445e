//! The table of tools as an `Ask` carries it, row by row.
//!
//! Never: another spelling of a tool's schema, but where providers demand one.

use longhaul_core::raw::RawJson;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::fields::Fields;

/// A row of the table of tools.
#[derive(Debug, Deserialize)]
pub(crate) struct Row<'a> {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) description: String,
    #[serde(borrow)]
    schema: &'a RawValue,
}

impl Row<'_> {
    /// The schema as it is; only one that does not say that it wants an object,
    /// as providers demand, is made to say so.
    pub(crate) fn schema(&self) -> String {
        let raw = self.schema.get();
        let says = |fields: &Fields| fields.get("type").is_some();
        match Fields::read(raw) {
            Some(fields) if says(&fields) => raw.to_owned(),
            Some(mut fields) => {
                fields.set("type", RawJson::of(&"object"));
                fields
                    .raw()
                    .map_or_else(|| raw.to_owned(), |made| made.as_str().to_owned())
            }
            None => raw.to_owned(),
        }
    }
}

/// Reads a table.
pub(crate) fn read(table: &str) -> Result<Vec<Row<'_>>, String> {
    serde_json::from_str(table).map_err(|bad| format!("the table of tools can't be read: {bad}"))
}
