//! Renders the templates of agents (prompts, lanes, events) with strict limits.
//!
//! Invariants: a template cannot load another template, run forever or skip a missing value. Text
//! of users and models is only a value, never a template. Error messages contain only names and
//! types of values.

use std::collections::BTreeMap;

use longhaul_core::raw::RawJson;
use longhaul_core::suggest::rank_names_by_similarity;
use longhaul_core::template::{
    FormatFn, TemplateLimits, check_template_is_bounded, render_within_limits,
};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, Error, ErrorKind};
use serde_json::{Map, Value, json};

/// Limits of rendering one template: steps, bytes and recursion depth.
const LIMITS: TemplateLimits =
    TemplateLimits { fuel: 100_000, budget: 4 * 1024 * 1024, recursion: 32 };

/// Maximum length of a rendered text in bytes.
const TEXT_BYTES_MAX: usize = 256 * 1024;

/// Maximum number of names that a message lists, and maximum number of characters per name.
const NAMES_MAX: usize = 8;
const NAME_CHARS_MAX: usize = 60;

/// Renders a template with these values. The error says what is wrong with the template.
pub(crate) fn render_template(source: &str, values: &Value) -> Result<String, String> {
    render_with_format(source, values, |value| Ok(value.to_string()))
}

/// Renders the template of an identifier, in which a value that is `null` is an error: all calls
/// without the value would have the same identifier.
pub(crate) fn render_identifier_template(source: &str, values: &Value) -> Result<String, String> {
    render_with_format(source, values, |value| match value.is_none() {
        true => Err(Error::new(ErrorKind::InvalidOperation, "one of its values is null")),
        false => Ok(value.to_string()),
    })
}

fn render_with_format(source: &str, values: &Value, format: FormatFn) -> Result<String, String> {
    if !["{{", "{%", "{#"].iter().any(|delimiter| source.contains(delimiter)) {
        return Ok(source.to_owned());
    }
    let syntax = SyntaxConfig::default();
    let text = render_within_limits(source, Serde(values).into(), syntax, (&LIMITS, format))
        .map_err(|error| match error.kind() == ErrorKind::UndefinedError {
            true => undefined_value_message(&error, values),
            false => error.to_string(),
        })?;
    if text.len() > TEXT_BYTES_MAX {
        return Err(format!("the rendered text is longer than {TEXT_BYTES_MAX} bytes"));
    }
    Ok(text)
}

pub(crate) fn is_valid_template(source: &str) -> bool {
    check_template_is_bounded(source, &SyntaxConfig::default()).is_ok()
        && Environment::new().template_from_str(source).is_ok()
}

pub(crate) fn template_uses_value(source: &str, name: &str) -> bool {
    let is_name_char = |c: char| c.is_alphanumeric() || c == '_';
    let suffixes = source.match_indices('{').map(|(at, _)| &source[at + 1..]);
    let tags = suffixes.filter_map(|after| {
        let tag = after.strip_prefix(['{', '%'])?;
        tag.split('}').next()
    });
    tags.flat_map(|tag| tag.split(|c| !is_name_char(c))).any(|word| word == name)
}

/// Returns the values that every template of an agent can use: the input and the context values.
pub(crate) fn template_values(input: &RawJson, context: &BTreeMap<String, RawJson>) -> Value {
    let context: serde_json::Map<_, _> =
        context.iter().map(|(name, value)| (name.clone(), value.to_value())).collect();
    json!({ "input": input.to_value(), "context": context })
}

/// Returns the message for a template error caused by an undefined value.
fn undefined_value_message(error: &Error, values: &Value) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_rendered_text(source: &str, expect: Result<&str, &str>) {
        let input = RawJson::from_serialize(&json!({ "repo": "a/b" }));
        let result = render_template(source, &template_values(&input, &BTreeMap::new()));
        match (result, expect) {
            (Ok(text), Ok(expect)) => assert_eq!(text, expect),
            (Err(reason), Err(expect)) => assert!(reason.contains(expect), "{reason}"),
            (got, _) => panic!("{source}: {got:?}"),
        }
    }

    #[test]
    fn undefined_template_values_are_errors() {
        assert_rendered_text("plain { text }", Ok("plain { text }"));
        assert_rendered_text("repo:{{ input.repo }}", Ok("repo:a/b"));
        assert_rendered_text("{{ input.branch }}", Err("line 1: `input.branch` is missing"));
        assert_rendered_text("{{ nothing }}", Err("line 1: `nothing` is missing"));
        assert_rendered_text("{% include 'x' %}", Err("template"));
    }

    #[test]
    fn variables_of_a_template_are_detected() {
        let uses = |source| template_uses_value(source, "perception");
        assert!(uses("You see {{ perception.summary }}."));
        assert!(uses("{% if perception %}Look.{% endif %}"));
        assert!(!uses("Your perception is sharp, {{ input.name }}."));
        assert!(!uses("{{ my_perception }}"));
        assert!(!uses(r#"Say {"perception": 1}."#));
    }

    #[test]
    fn templates_are_bounded_in_memory() {
        for source in [
            "{{ input.repo|replace('', input.repo * 1000000) }}",
            "{{ '%2000000000d'|format(1) }}",
            "{% set ns = namespace(x='xx') %}{% for i in range(40) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        ] {
            let input = RawJson::from_serialize(&json!({ "repo": "a/b" }));
            let result = render_template(source, &template_values(&input, &BTreeMap::new()));
            assert!(result.is_err(), "{source}");
        }
    }

    #[test]
    fn template_rendering_terminates() {
        assert_rendered_text(
            "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}",
            Err("fuel"),
        );
        assert_rendered_text(
            "{% macro a() %}{{ a() }}{{ a() }}{% endmacro %}{{ a() }}",
            Err("recursion"),
        );
    }

    fn assert_missing_value_error(source: &str, expected: &str) {
        let values = json!({
            "input": { "repo": "a/b", "branches": ["x"], "title": "t" },
            "context": {},
            "memory": [{ "role": "user" }],
        });
        assert_eq!(render_template(source, &values), Err(expected.to_owned()), "{source}");
    }

    #[test]
    fn a_missing_value_is_reported_with_the_available_ones() {
        assert_missing_value_error(
            "You.\n{{ input.repo }} {{ input.branch }}",
            "line 2: `input.branch` is missing; `input` has `branches`, `repo`, `title`",
        );
        assert_missing_value_error(
            "{{ inptu }}",
            "line 1: `inptu` is missing; available: `input`, `context`, `memory`",
        );
        assert_missing_value_error(
            "{{ context.user }}",
            "line 1: `context.user` is missing; `context` has no fields",
        );
        assert_missing_value_error(
            "{{ input.repo.name|upper }}",
            "line 1: `input.repo.name` is missing; `input.repo` is a text",
        );
        assert_missing_value_error(
            "{{ input.branches.4 }}",
            "line 1: `input.branches[4]` is missing; `input.branches` is a list of length 1",
        );
        assert_missing_value_error(
            "{{ input['x'] }}",
            "line 1: `input['x']` is missing; `input` has `repo`, `branches`, `title`",
        );
        assert_missing_value_error(
            "{{ input.no.deep }}",
            "line 1: `input.no` is missing; `input` has `branches`, `repo`, `title`",
        );
        assert_missing_value_error(
            "{% if 'input.x' != input.repo and\n not input.no %}{% endif %}{{ input.no }}",
            "line 2: `input.no` is missing; `input` has `branches`, `repo`, `title`",
        );
        assert_missing_value_error("{{ range(3).x }}", "line 1: `(...).x` is missing");
    }

    #[test]
    fn a_missing_attribute_of_a_loop_variable_is_reported() {
        let check = |line: &str, expected: &str| {
            let source = format!("{{% for m in memory %}}\n{line}\n{{% endfor %}}");
            assert_missing_value_error(&source, &format!("line 2: {expected}"));
        };
        check("{{ m.role }}: {{ m.content }}", "`m.content` is missing");
        check("{{ m.role }} {{ m['text'] }}", "`m['text']` is missing");
        check("{{ m.text[0].by.whom }}", "`m.text` is missing");
        // These values need not exist.
        check(
            "{{ loop.index }} {{ input.no | default('x') }} {{ m.no|d }} {{ m.is }}",
            "`m.is` is missing",
        );
        check(
            "{% if m.no is not defined or input.no is defined %}{{ m.text }}{% endif %}",
            "`m.text` is missing",
        );
    }

    #[test]
    fn the_list_of_available_values_is_truncated() {
        let fields: serde_json::Map<String, Value> =
            (0..50).map(|n| (format!("n{n}"), json!(1))).collect();
        let message = render_template("{{ input.n7x }}", &json!({ "input": fields })).unwrap_err();
        let listed = "line 1: `input.n7x` is missing; `input` has `n7`, ";
        assert!(message.starts_with(listed), "{message}");
        assert!(message.ends_with(" and 42 more"), "{message}");
        let long = format!("{{{{ {} }}}}", "x".repeat(9_000));
        let message = render_template(&long, &json!({})).unwrap_err();
        assert!(message.len() < 200, "{message}");
    }
}
