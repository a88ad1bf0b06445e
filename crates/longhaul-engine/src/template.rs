//! Templates of agents: prompts and lanes, filled with what the run was given.
//!
//! Never: loads another template, runs for ever or fills in what is missing.
//! What users and models say is a value, never a template.

use std::collections::BTreeMap;

use longhaul_core::raw::RawJson;
use longhaul_core::template::{TemplateLimits, check, render};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, ErrorKind};
use serde_json::{Value, json};

use crate::missing::missing;

/// Bounds of one template: steps, bytes and calls within each other.
const LIMITS: TemplateLimits = TemplateLimits {
    fuel: 100_000,
    budget: 4 * 1024 * 1024,
    recursion: 32,
};

/// The longest text that a template may make.
const TEXT_BYTES_MAX: usize = 256 * 1024;

/// Fills a template, or says why that can't be done.
pub(crate) fn fill(source: &str, values: &Value) -> Result<String, String> {
    if !["{{", "{%", "{#"].iter().any(|mark| source.contains(mark)) {
        return Ok(source.to_owned());
    }
    let text = |value: &minijinja::Value| Ok(value.to_string());
    let syntax = SyntaxConfig::default();
    let filled =
        render(source, Serde(values).into(), syntax, (&LIMITS, text)).map_err(|error| {
            match error.kind() == ErrorKind::UndefinedError {
                true => missing(source, values, error.line()),
                false => error.to_string(),
            }
        })?;
    if filled.len() > TEXT_BYTES_MAX {
        return Err(format!("it is longer than {TEXT_BYTES_MAX} bytes"));
    }
    Ok(filled)
}

/// Whether this is a template at all.
pub(crate) fn compiles(source: &str) -> bool {
    check(source, &SyntaxConfig::default()).is_ok()
        && Environment::new().template_from_str(source).is_ok()
}

/// Whether a template speaks of this value.
pub(crate) fn mentions(source: &str, name: &str) -> bool {
    let of_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    let opens = source.match_indices('{').map(|(at, _)| &source[at + 1..]);
    let tags = opens.filter_map(|after| {
        let inside = after.strip_prefix(['{', '%'])?;
        inside.split('}').next()
    });
    tags.flat_map(|tag| tag.split(|letter| !of_name(letter)))
        .any(|word| word == name)
}

/// What every template of an agent can speak of.
pub(crate) fn values(input: &RawJson, context: &BTreeMap<String, RawJson>) -> Value {
    let context: serde_json::Map<_, _> = context
        .iter()
        .map(|(name, value)| (name.clone(), value.value()))
        .collect();
    json!({ "input": input.value(), "context": context })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expect: Result<&str, &str>) {
        let input = RawJson::of(&json!({ "repo": "a/b" }));
        let filled = fill(source, &values(&input, &BTreeMap::new()));
        match (filled, expect) {
            (Ok(text), Ok(expect)) => assert_eq!(text, expect),
            (Err(why), Err(expect)) => assert!(why.contains(expect), "{why}"),
            (got, _) => panic!("{source}: {got:?}"),
        }
    }

    #[test]
    fn templates_are_filled_strictly() {
        check("plain { text }", Ok("plain { text }"));
        check("repo:{{ input.repo }}", Ok("repo:a/b"));
        check(
            "{{ input.branch }}",
            Err("line 1: `input.branch` is missing"),
        );
        check("{{ nothing }}", Err("line 1: `nothing` is missing"));
        check("{% include 'x' %}", Err("template"));
    }

    #[test]
    fn what_a_template_speaks_of_is_seen() {
        let uses = |source| mentions(source, "perception");
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
            let input = RawJson::of(&json!({ "repo": "a/b" }));
            let filled = fill(source, &values(&input, &BTreeMap::new()));
            assert!(filled.is_err(), "{source}");
        }
    }

    #[test]
    fn templates_come_to_an_end() {
        check(
            "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}",
            Err("fuel"),
        );
        check(
            "{% macro a() %}{{ a() }}{{ a() }}{% endmacro %}{{ a() }}",
            Err("recursion"),
        );
    }
}
