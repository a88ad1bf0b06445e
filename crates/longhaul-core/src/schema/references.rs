//! References in a JSON Schema, which lead only to parts of the same document.

use serde_json::Value;

use super::{SchemaError, inner_values};

/// Keywords that refer to another subschema.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// Returns the first reference in a schema that does not start with `#`, i.e. is not relative to
/// the schema itself.
pub fn find_external_reference(schema: &Value) -> Option<&str> {
    match schema {
        Value::Object(fields) => fields.iter().find_map(|(key, value)| match value.as_str() {
            Some(to) if REFERENCES.contains(&&**key) && !to.starts_with('#') => Some(to),
            Some(_) | None => find_external_reference(value),
        }),
        Value::Array(list) => list.iter().find_map(find_external_reference),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// Returns the schema that a schema refers to. `None` if it has no reference.
pub(super) fn reference_target<'a>(
    root: &'a Value,
    schema: &Value,
) -> Result<Option<&'a Value>, SchemaError> {
    let mut references =
        REFERENCES.iter().filter_map(|name| Some((*name, schema.get(name)?.as_str()?)));
    // The targets of the others depend on how a validator got to the schema.
    let target = |(name, reference): (&str, &str)| match name {
        "$ref" => root.pointer(&local_pointer(reference)?),
        _ => None,
    };
    let refused = |reference: &str| SchemaError::Reference(reference.to_owned());
    references.try_fold(None, |_, found| target(found).map(Some).ok_or_else(|| refused(found.1)))
}

/// Refuses ids that would change the target of a reference `#/...`.
pub(super) fn check_ids(root: &Value) -> Result<(), SchemaError> {
    let id_names: &[&str] = match declares_draft_4(root) {
        true => &["$id", "id"],
        false => &["$id"],
    };
    let mut root_ids = id_names.iter().filter_map(|name| root.get(name)?.as_str());
    // A validator knows the meta-schemas by their address.
    let refused = root_ids.find(|id| id.contains("json-schema.org"));
    match refused.or_else(|| find_reference_below_id(root, id_names, false)) {
        Some(reference) => Err(SchemaError::Reference(reference.to_owned())),
        None => Ok(()),
    }
}

/// Returns the decoded JSON pointer of a reference within the document. `None` if the reference is
/// not of the form `#` or `#/...`, or has an invalid escape.
fn local_pointer(reference: &str) -> Option<String> {
    let mut parts = reference.strip_prefix('#')?.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..2)?;
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        // The function also accepts a sign.
        bytes.push(u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)?);
        bytes.extend(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

/// Returns whether any part of the document declares draft 4 as its version of JSON Schema, in
/// which the keyword `id` gives a subschema an address.
fn declares_draft_4(schema: &Value) -> bool {
    let dialect = schema.get("$schema").and_then(Value::as_str);
    dialect.is_some_and(|dialect| dialect.contains("draft-04"))
        || inner_values(schema).into_iter().any(declares_draft_4)
}

/// Returns the first `$ref` inside a subschema with an id: it is relative to that subschema.
fn find_reference_below_id<'a>(
    value: &'a Value,
    id_names: &[&str],
    is_inside: bool,
) -> Option<&'a str> {
    let below = |inner: &'a Value| {
        let has_id = id_names.iter().any(|name| inner.get(name).is_some_and(Value::is_string));
        find_reference_below_id(inner, id_names, is_inside || has_id)
    };
    let reference = value.get("$ref").and_then(Value::as_str).filter(|_| is_inside);
    reference.or_else(|| inner_values(value).into_iter().find_map(below))
}
