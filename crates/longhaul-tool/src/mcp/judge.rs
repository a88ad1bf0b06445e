//! Whether a schema that a server hands us is one that models and our own judge of
//! inputs can work with.
//!
//! Never: compiles a schema whose parts were not counted before. A few letters of it
//! may stand for a lot of memory.

use std::collections::BTreeSet;

use jsonschema::PatternOptions;
use longhaul_core::schema::{PATTERNS_MAX, patterns};
use serde_json::{Map, Value};

/// The longest schema, in bytes of JSON.
const SCHEMA_BYTES_MAX: usize = 64 * 1024;

/// So many patterns all schemas of one server may hold.
const ALL_PATTERNS_MAX: usize = 512;

/// So much memory one pattern may take.
const PATTERN_BYTES_MAX: usize = 256 * 1024;

/// How deep references may lead into one another.
const REFS_DEEP_MAX: usize = 32;

/// Judges the schemas of one server.
#[derive(Debug, Clone, Default)]
pub(super) struct Judge {
    /// So many patterns were compiled so far.
    patterns: usize,
}

impl Judge {
    /// What is wrong with the schema of this, if anything is.
    pub(super) fn hear(&mut self, schema: &Value, of: &str) -> Result<(), String> {
        let bytes = schema.to_string().len();
        if bytes > SCHEMA_BYTES_MAX {
            let kb = SCHEMA_BYTES_MAX / 1024;
            return Err(format!("the schema of its {of} is longer than {kb} KB"));
        }
        let mut refs = Vec::new();
        gather(schema, &mut refs);
        if refs.iter().any(|to| !to.starts_with('#')) {
            return Err(format!("the schema of its {of} refers to another place"));
        }
        let mut known = BTreeSet::new();
        if refs
            .into_iter()
            .any(|to| is_round(schema, to, &mut Vec::new(), &mut known))
        {
            return Err(format!("the schema of its {of} refers to itself"));
        }
        self.count(schema, of)?;
        let patterns = PatternOptions::fancy_regex().size_limit(PATTERN_BYTES_MAX);
        let options = jsonschema::options().with_pattern_options(patterns);
        match options.build(schema) {
            Ok(_) => Ok(()),
            Err(why) => {
                let why: String = why.to_string().chars().take(200).collect();
                Err(format!("the schema of its {of} is none: {why}"))
            }
        }
    }

    fn count(&mut self, schema: &Value, of: &str) -> Result<(), String> {
        let own = patterns(schema);
        if own > PATTERNS_MAX {
            return Err(format!(
                "the schema of its {of} holds more than {PATTERNS_MAX} patterns"
            ));
        }
        let all = self.patterns.saturating_add(own);
        if own > 0 && all > ALL_PATTERNS_MAX {
            return Err(format!(
                "all its schemas hold more than {ALL_PATTERNS_MAX} patterns"
            ));
        }
        self.patterns = all;
        Ok(())
    }
}

/// All that a schema refers to. It was parsed, so it is not deep.
fn gather<'a>(schema: &'a Value, refs: &mut Vec<&'a str>) {
    let own = |fields: &'a Map<String, Value>| {
        let dynamic = fields
            .get("$dynamicRef")
            .or_else(|| fields.get("$recursiveRef"));
        fields.get("$ref").or(dynamic).and_then(Value::as_str)
    };
    match schema {
        Value::Object(fields) => {
            refs.extend(own(fields));
            fields.values().for_each(|inner| gather(inner, refs));
        }
        Value::Array(items) => items.iter().for_each(|inner| gather(inner, refs)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Whether a reference leads back to itself. Those in `known` are known not to.
fn is_round<'a>(
    schema: &'a Value,
    to: &'a str,
    way: &mut Vec<&'a str>,
    known: &mut BTreeSet<&'a str>,
) -> bool {
    if known.contains(to) {
        return false;
    }
    // The whole holds this very reference.
    let pointer = to.trim_start_matches('#');
    if pointer.is_empty() || way.contains(&to) || way.len() > REFS_DEEP_MAX {
        return true;
    }
    // What is not there, the judge of schemas finds.
    let Some(target) = schema.pointer(pointer) else {
        return false;
    };
    let mut inner = Vec::new();
    gather(target, &mut inner);
    way.push(to);
    let round = inner
        .into_iter()
        .any(|next| is_round(schema, next, way, known));
    way.pop();
    known.insert(to);
    round
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn schemas_that_branch_without_end_are_judged_at_once() {
        let mut defs = Map::new();
        for at in 0..30 {
            let to = json!({ "$ref": format!("#/$defs/d{}", at + 1) });
            defs.insert(format!("d{at}"), json!({ "allOf": [to.clone(), to] }));
        }
        defs.insert("d30".into(), json!({ "type": "object" }));
        let schema = json!({ "$ref": "#/$defs/d0", "$defs": defs });
        let mut refs = Vec::new();
        gather(&schema, &mut refs);
        let mut known = BTreeSet::new();
        for to in refs {
            assert!(!is_round(&schema, to, &mut Vec::new(), &mut known));
        }
    }
}
