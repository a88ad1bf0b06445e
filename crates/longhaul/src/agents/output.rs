//! Reads `output:`, the JSON Schema of an agent's result, from a file or in place.
//!
//! Never: follows a reference out of the schema, and never takes one that nobody
//! could check a result against.

use std::path::{Component, Path, PathBuf};

use longhaul_core::raw::{RawJson, canonical};
use longhaul_core::schema::{SchemaError, SchemaShape, outward_reference};
use longhaul_engine::validation::SchemaValidator;
use serde_json::Value;

use crate::agents::sheet::{Fields, Sheet};
use crate::agents::shelf::Shelf;
use crate::inside;
use crate::written::Entry;

/// The longest schema, in bytes.
const BYTES_MAX: usize = 256 << 10;

/// Reads the schema.
pub(crate) fn read(sheet: &mut Sheet, entry: &Entry, shelf: &Shelf<'_>) -> Option<RawJson> {
    let mut fields = Fields::new(sheet, entry, "schema")?;
    let schema = fields.get("schema");
    fields.end();
    let Some(schema) = schema else {
        let message = "`output` needs a `schema`: the path of a file, or the schema itself";
        sheet.fault(entry.place, message);
        return None;
    };
    let read = if schema.node.table().is_some() {
        judged(schema.node.to_json()).map_err(|why| format!("`schema` {why}"))
    } else {
        let name = sheet.text(schema)?;
        let plain = Path::new(&name)
            .components()
            .filter(|part| *part != Component::CurDir);
        sheet
            .files
            .push(shelf.root.join(plain.collect::<PathBuf>()));
        from_file(&name, shelf)
    };
    match read {
        Ok(schema) => Some(schema),
        Err(message) => {
            sheet.fault(schema.node.place, message);
            None
        }
    }
}

fn from_file(name: &str, shelf: &Shelf<'_>) -> Result<RawJson, String> {
    let bytes = inside::read(shelf.root, Path::new(name), BYTES_MAX)
        .map_err(|unread| format!("the schema `{name}` {unread}"))?;
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    let value: Value = serde_json::from_slice(bytes).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        format!("the schema `{name}` is no JSON: {name}:{line}:{column}")
    })?;
    judged(value).map_err(|why| format!("the schema `{name}` {why}"))
}

/// The one spelling of a schema that results can be checked against.
pub(crate) fn judged(value: Value) -> Result<RawJson, String> {
    if !value.is_object() {
        return Err("is no schema: write an object, such as {\"type\": \"object\"}".to_owned());
    }
    if let Err(why) = SchemaValidator::new(&value) {
        if let Some(foreign) = outward_reference(&value) {
            return Err(format!(
                "refers to `{foreign}`, and nothing outside of a schema is fetched: put it under `$defs`"
            ));
        }
        return Err(match SchemaShape::of(&value) {
            Err(SchemaError::Cycle(_)) => format!("says nothing: {}", short(&why)),
            Err(SchemaError::Expansion) => format!("can't be used: {}", short(&why)),
            Err(SchemaError::Reference(_)) | Ok(_) => format!("is no JSON Schema: {}", short(&why)),
        });
    }
    RawJson::parse(canonical(&value)).map_err(|error| format!("can't be kept: {error}"))
}

/// A part of the schema may stand in what is said of it.
fn short(text: &str) -> String {
    let mut letters = text.chars();
    let mut said: String = letters.by_ref().take(300).collect();
    if letters.next().is_some() {
        said.push_str("...");
    }
    said
}
