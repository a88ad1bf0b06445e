//! Says which value a template has missed, where, and what there is instead.
//!
//! Never: shows a value, only names, and never more than a few of them.

use longhaul_core::suggest::ranked;
use minijinja::Error;
use serde_json::{Map, Value};

/// Maximum number of names that are listed, and of characters of each.
const NAMES_MAX: usize = 8;
const NAME_CHARS_MAX: usize = 60;

/// The message for a template that failed at an undefined value.
pub(crate) fn undefined_value_message(error: &Error, values: &Value) -> String {
    let line = error.line().unwrap_or(1);
    let detail = error.detail().and_then(|detail| detail.strip_prefix('`'));
    let Some((expression, _)) = detail.and_then(|detail| detail.split_once("` is undefined"))
    else {
        return format!("line {line}: a value is missing");
    };
    let there = describe_alternatives(values, expression).map(|there| format!("; {there}"));
    let (expression, there) = (quoted(expression), there.unwrap_or_default());
    format!("line {line}: {expression} is missing{there}")
}

fn quoted(name: &str) -> String {
    let name: String = name.chars().take(NAME_CHARS_MAX).collect();
    format!("`{name}`")
}

/// What stands where the last step of an expression leads nowhere. `None` for an expression that
/// does not begin at one of the values, but at a variable of the template.
fn describe_alternatives(values: &Value, expression: &str) -> Option<String> {
    let steps = expression.split(['.', '[', ']', '\'']);
    let steps: Vec<&str> = steps.filter(|step| !step.is_empty()).collect();
    let (missed, path) = steps.split_last()?;
    let at = path.iter().try_fold(values, |at, step| match at.as_array() {
        Some(list) => list.get(step.parse::<usize>().ok()?),
        None => at.get(step),
    })?;
    Some(describe_value(at, &path.join("."), missed))
}

/// What stands where something was missed.
fn describe_value(at: &Value, here: &str, missed: &str) -> String {
    let kind = match at {
        Value::Object(fields) => return list_field_names(fields, here, missed),
        Value::Array(list) => return format!("`{here}` is a list of {}", list.len()),
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
    };
    format!("`{here}` is {kind}")
}

fn list_field_names(fields: &Map<String, Value>, here: &str, missed: &str) -> String {
    let holds = match here {
        "" => "there is".to_owned(),
        here => format!("`{here}` has"),
    };
    if fields.is_empty() {
        return format!("{holds} nothing in it").replace("there is nothing in it", "there is none");
    }
    let all = ranked(missed, fields.keys().map(String::as_str));
    let shown = all.iter().take(NAMES_MAX).map(|name| quoted(name));
    let shown: Vec<String> = shown.collect();
    let more = match all.len().saturating_sub(NAMES_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{holds} {}{more}", shown.join(", "))
}
