//! Parses `output:`, the JSON Schema of an agent's result, inline or from a file.
//!
//! Invariant: references to other documents are not fetched, and a schema that can't be used for
//! validation is rejected.

use std::path::Path;

use longhaul_core::raw::RawJson;
use longhaul_engine::agent::check::{schema_as_canonical_json, validate_output_schema};
use serde_json::Value;

use crate::agents::diagnostics::{Diagnostics, Fields};
use crate::project_file;
use crate::spanned::TableEntry;

/// Maximum size of an output schema in bytes.
const SCHEMA_BYTES_MAX: usize = 256 << 10;

/// Parses the field `output` of an agent file: the JSON Schema of the agent's result.
pub(crate) fn parse_output_field(
    diagnostics: &mut Diagnostics<'_>,
    entry: &TableEntry,
) -> Option<RawJson> {
    let mut fields = Fields::new(diagnostics, entry, "schema")?;
    let schema = fields.get("schema");
    fields.finish();
    let Some(schema) = schema else {
        let message = "`output` needs a `schema`: the path of a file, or the schema itself";
        return diagnostics.reject(entry.position, message);
    };
    let result = if schema.node.as_table().is_some() && diagnostics.ctx.is_built_in {
        schema_as_canonical_json(&schema.node.to_json())
    } else if schema.node.as_table().is_some() {
        validate_output_schema(schema.node.to_json())
            .map_err(|reason| format!("`schema`: {reason}"))
    } else {
        let name = diagnostics.text(schema)?;
        diagnostics.add_read_file(&name);
        load_schema_file(&name, diagnostics.ctx.root)
    };
    result.map_or_else(|message| diagnostics.reject(schema.node.position, message), Some)
}

fn load_schema_file(file_name: &str, root: &Path) -> Result<RawJson, String> {
    let bytes = project_file::read_file_in_project(root, Path::new(file_name), SCHEMA_BYTES_MAX)
        .map_err(|error| format!("the schema `{file_name}` can't be used: {error}"))?;
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    let value: Value = serde_json::from_slice(bytes).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        format!("the schema `{file_name}` is not valid JSON: {file_name}:{line}:{column}")
    })?;
    validate_output_schema(value)
        .map_err(|reason| format!("the schema `{file_name}` can't be used: {reason}"))
}
