//! Reads `output:`, the JSON Schema of an agent's result, from a file or in place.
//!
//! Never: follows a reference out of the schema, and never takes one that nobody
//! could check a result against.

use std::path::{Component, Path, PathBuf};

use longhaul_core::raw::{RawJson, canonical_json};
use longhaul_core::schema::{SchemaComplexity, SchemaError, external_reference};
use longhaul_engine::validation::SchemaValidator;
use serde_json::Value;

use crate::agents::diagnostics::{Diagnostics, FieldReader};
use crate::agents::load_context::LoadContext;
use crate::project_file;
use crate::spanned::TableEntry;

/// The longest schema, in bytes.
const BYTES_MAX: usize = 256 << 10;

/// Reads the schema.
pub(crate) fn parse(
    sheet: &mut Diagnostics,
    entry: &TableEntry,
    shelf: &LoadContext<'_>,
) -> Option<RawJson> {
    let mut fields = FieldReader::new(sheet, entry, "schema")?;
    let schema = fields.get("schema");
    fields.finish();
    let Some(schema) = schema else {
        let message = "`output` needs a `schema`: the path of a file, or the schema itself";
        sheet.invalid(entry.position, message);
        return None;
    };
    let read = if schema.node.table().is_some() {
        validate(schema.node.to_json()).map_err(|why| format!("`schema` {why}"))
    } else {
        let name = sheet.text(schema)?;
        let plain = Path::new(&name).components().filter(|part| *part != Component::CurDir);
        sheet.files.push(shelf.root.join(plain.collect::<PathBuf>()));
        load_file(&name, shelf)
    };
    match read {
        Ok(schema) => Some(schema),
        Err(message) => {
            sheet.invalid(schema.node.position, message);
            None
        }
    }
}

fn load_file(name: &str, shelf: &LoadContext<'_>) -> Result<RawJson, String> {
    let bytes = project_file::read(shelf.root, Path::new(name), BYTES_MAX)
        .map_err(|unread| format!("the schema `{name}` {unread}"))?;
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    let value: Value = serde_json::from_slice(bytes).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        format!("the schema `{name}` is no JSON: {name}:{line}:{column}")
    })?;
    validate(value).map_err(|why| format!("the schema `{name}` {why}"))
}

/// The one spelling of a schema that results can be checked against.
pub(crate) fn validate(value: Value) -> Result<RawJson, String> {
    if !value.is_object() {
        return Err("is no schema: write an object, such as {\"type\": \"object\"}".to_owned());
    }
    if let Err(why) = SchemaValidator::new(&value) {
        if let Some(foreign) = external_reference(&value) {
            return Err(format!(
                "refers to `{foreign}`, and nothing outside of a schema is fetched: put it under `$defs`"
            ));
        }
        return Err(match SchemaComplexity::measure(&value) {
            Err(SchemaError::Cycle(_)) => format!("says nothing: {}", truncate(&why)),
            Err(SchemaError::Expansion) => format!("can't be used: {}", truncate(&why)),
            Err(SchemaError::Reference(_)) | Ok(_) => {
                format!("is no JSON Schema: {}", truncate(&why))
            }
        });
    }
    RawJson::parse(canonical_json(&value)).map_err(|error| format!("can't be kept: {error}"))
}

/// A part of the schema may stand in what is said of it.
fn truncate(text: &str) -> String {
    let mut letters = text.chars();
    let mut said: String = letters.by_ref().take(300).collect();
    if letters.next().is_some() {
        said.push_str("...");
    }
    said
}
