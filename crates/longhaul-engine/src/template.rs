//! Templates of agents: prompts and lanes, filled with what the run was given.
//!
//! Never: loads another template, runs for ever or fills in what is missing.
//! What users and models say is a value, never a template.

use std::collections::BTreeMap;

use longhaul_core::raw::RawJson;
use minijinja::{Environment, UndefinedBehavior};
use serde_json::{Value, json};

/// So many steps may a template take.
const FUEL: u64 = 100_000;

/// The longest text that a template may make.
const TEXT_BYTES_MAX: usize = 256 * 1024;

/// Fills a template, or says why that can't be done.
pub(crate) fn fill(source: &str, values: &Value) -> Result<String, String> {
    if !["{{", "{%", "{#"].iter().any(|mark| source.contains(mark)) {
        return Ok(source.to_owned());
    }
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(32);
    let filled = environment
        .render_str(source, minijinja::value::Serde(values))
        .map_err(|error| error.to_string())?;
    if filled.len() > TEXT_BYTES_MAX {
        return Err(format!("it is longer than {TEXT_BYTES_MAX} bytes"));
    }
    Ok(filled)
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
        check("{{ input.branch }}", Err("undefined"));
        check("{{ nothing }}", Err("undefined"));
        check("{% include 'x' %}", Err("template"));
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
