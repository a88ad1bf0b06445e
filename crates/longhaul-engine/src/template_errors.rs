//! Error messages for undefined values in templates: which value is undefined, on which line, and
//! which names exist.
//!
//! Invariant: messages contain only names and types, never values.

use longhaul_core::suggest::rank_names_by_similarity;
use minijinja::Error;
use serde_json::{Map, Value};

/// Maximum number of names that a message lists, and maximum number of characters per name.
const NAMES_MAX: usize = 8;
const NAME_CHARS_MAX: usize = 60;

/// Returns the message for a template error caused by an undefined value.
pub(crate) fn undefined_value_message(error: &Error, values: &Value) -> String {
    let line = error.line().unwrap_or(1);
    let detail = error.detail().and_then(|detail| detail.strip_prefix('`'));
    let Some((expression, _)) = detail.and_then(|detail| detail.split_once("` is undefined"))
    else {
        return format!("line {line}: a value is missing");
    };
    let alternatives = describe_available_values(values, expression)
        .map(|alternatives| format!("; {alternatives}"));
    let (expression, alternatives) = (quote_name(expression), alternatives.unwrap_or_default());
    format!("line {line}: {expression} is missing{alternatives}")
}

fn quote_name(name: &str) -> String {
    let name: String = name.chars().take(NAME_CHARS_MAX).collect();
    format!("`{name}`")
}

/// Describes the value in which the last name of the expression was looked up. `None` if the
/// expression starts with a variable that the template itself defines.
fn describe_available_values(values: &Value, expression: &str) -> Option<String> {
    let steps = expression.split(['.', '[', ']', '\'']);
    let steps: Vec<&str> = steps.filter(|step| !step.is_empty()).collect();
    let (missing_name, path) = steps.split_last()?;
    let at = path.iter().try_fold(values, |at, step| match at.as_array() {
        Some(list) => list.get(step.parse::<usize>().ok()?),
        None => at.get(step),
    })?;
    Some(describe_parent_value(at, &path.join("."), missing_name))
}

/// Describes the value in which the missing name was looked up.
fn describe_parent_value(value: &Value, path: &str, missing_name: &str) -> String {
    let value_type = match value {
        Value::Object(fields) => return list_field_names(fields, path, missing_name),
        Value::Array(list) => return format!("`{path}` is a list of length {}", list.len()),
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
    };
    format!("`{path}` is {value_type}")
}

fn list_field_names(fields: &Map<String, Value>, path: &str, missing_name: &str) -> String {
    let sentence_start = match path {
        "" if fields.is_empty() => return "there are no values".to_owned(),
        "" => "available:".to_owned(),
        path if fields.is_empty() => return format!("`{path}` has no fields"),
        path => format!("`{path}` has"),
    };
    let all = rank_names_by_similarity(missing_name, fields.keys().map(String::as_str));
    let names = all.iter().take(NAMES_MAX).map(|name| quote_name(name));
    let names: Vec<String> = names.collect();
    let omitted_note = match all.len().saturating_sub(NAMES_MAX) {
        0 => String::new(),
        omitted => format!(" and {omitted} more"),
    };
    format!("{sentence_start} {}{omitted_note}", names.join(", "))
}
