//! Whether a schema that a server hands us is one that models and our own judge of
//! inputs can work with.
//!
//! Never: compiles a schema whose parts were not counted before. A few letters of it
//! may stand for a lot of memory.

use jsonschema::{PatternOptions, ValidationOptions};
use longhaul_core::schema::{
    PATTERNS_MAX, SchemaComplexity, SchemaError, count_patterns, external_reference,
};
use serde_json::Value;

/// The longest schema, in bytes of JSON.
const SCHEMA_BYTES_MAX: usize = 64 * 1024;

/// So many patterns all schemas of one server may hold.
const ALL_PATTERNS_MAX: usize = 512;

/// So much memory one pattern may take.
const PATTERN_BYTES_MAX: usize = 256 * 1024;

/// Maximum steps back that matching one pattern takes.
const BACKTRACK_MAX: usize = 100_000;

/// Options under which schemas of servers are compiled.
pub(super) fn options() -> ValidationOptions<'static> {
    let patterns =
        PatternOptions::fancy_regex().size_limit(PATTERN_BYTES_MAX).backtrack_limit(BACKTRACK_MAX);
    jsonschema::options().with_pattern_options(patterns)
}

/// Judges the schemas of one server.
#[derive(Debug, Clone, Default)]
pub(super) struct SchemaChecker {
    /// So many patterns were compiled so far.
    patterns: usize,
}

impl SchemaChecker {
    /// What is wrong with the schema of this, if anything is.
    pub(super) fn check(&mut self, schema: &Value, of: &str) -> Result<(), String> {
        let bytes = schema.to_string().len();
        if bytes > SCHEMA_BYTES_MAX {
            let kb = SCHEMA_BYTES_MAX / 1024;
            return Err(format!("the schema of its {of} is longer than {kb} KB"));
        }
        if external_reference(schema).is_some() {
            return Err(format!("the schema of its {of} refers to another place"));
        }
        match SchemaComplexity::measure(schema) {
            Ok(shape) if !shape.is_recursive() => {}
            Ok(_) | Err(SchemaError::Cycle(_)) => {
                return Err(format!("the schema of its {of} refers to itself"));
            }
            Err(why) => return Err(format!("the schema of its {of} can't be used: {why}")),
        }
        self.count_patterns(schema, of)?;
        match options().build(schema) {
            Ok(_) => Ok(()),
            Err(why) => {
                let why: String = why.to_string().chars().take(200).collect();
                Err(format!("the schema of its {of} is none: {why}"))
            }
        }
    }

    fn count_patterns(&mut self, schema: &Value, of: &str) -> Result<(), String> {
        let own = count_patterns(schema);
        if own > PATTERNS_MAX {
            return Err(format!("the schema of its {of} holds more than {PATTERNS_MAX} patterns"));
        }
        let all = self.patterns.saturating_add(own);
        if own > 0 && all > ALL_PATTERNS_MAX {
            return Err(format!("all its schemas hold more than {ALL_PATTERNS_MAX} patterns"));
        }
        self.patterns = all;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, json};

    #[test]
    fn schemas_that_grow_exponentially_are_refused() {
        let mut defs = Map::new();
        for at in 0..30 {
            let to = json!({ "$ref": format!("#/$defs/d{}", at + 1) });
            defs.insert(format!("d{at}"), json!({ "allOf": [to.clone(), to] }));
        }
        defs.insert("d30".into(), json!({ "type": "object" }));
        let schema = json!({ "$ref": "#/$defs/d0", "$defs": defs });
        let why = SchemaChecker::default().check(&schema, "input").unwrap_err();
        assert!(why.contains("more than 50000 parts"), "{why}");
    }
}
