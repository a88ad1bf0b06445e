//! Checks whether the schemas of a server's tools can be used by models and by our input
//! validation.
//!
//! Invariant: the parts of a schema are counted before the schema is compiled, because a short
//! schema may need a lot of memory.

use jsonschema::{PatternOptions, ValidationOptions};
use longhaul_core::schema::{
    PATTERNS_MAX, SchemaComplexity, SchemaError, count_patterns, find_external_reference,
};
use serde_json::Value;

/// Maximum length of a tool's schema in bytes of JSON.
const SCHEMA_BYTES_MAX: usize = 64 * 1024;

/// Maximum number of regular expressions in all schemas of one server.
const ALL_PATTERNS_MAX: usize = 512;

/// Maximum memory of one compiled regular expression in bytes.
const PATTERN_BYTES_MAX: usize = 256 * 1024;

/// Maximum number of backtracking steps when matching a regular expression.
const BACKTRACK_MAX: usize = 100_000;

/// Returns the options for compiling the schemas of servers.
pub(super) fn validation_options() -> ValidationOptions<'static> {
    let patterns =
        PatternOptions::fancy_regex().size_limit(PATTERN_BYTES_MAX).backtrack_limit(BACKTRACK_MAX);
    jsonschema::options().with_pattern_options(patterns)
}

/// Checks the schemas of one server's tools.
#[derive(Debug, Clone, Default)]
pub(super) struct SchemaChecker {
    /// Number of regular expressions in the schemas checked so far.
    pattern_count: usize,
}

impl SchemaChecker {
    /// Checks the schema of a tool's input or results; `input_or_results` says which. The error
    /// says what is wrong with the schema.
    pub(super) fn check_schema(
        &mut self,
        schema: &Value,
        input_or_results: &str,
    ) -> Result<(), String> {
        let bytes = schema.to_string().len();
        if bytes > SCHEMA_BYTES_MAX {
            let kb = SCHEMA_BYTES_MAX / 1024;
            return Err(format!("the schema of the {input_or_results} is longer than {kb} KB"));
        }
        if find_external_reference(schema).is_some() {
            return Err(format!("the schema of the {input_or_results} refers to another document"));
        }
        match SchemaComplexity::measure(schema) {
            Ok(complexity) if !complexity.is_recursive() => {}
            Ok(_) | Err(SchemaError::Cycle(_)) => {
                return Err(format!("the schema of the {input_or_results} refers to itself"));
            }
            Err(error) => {
                return Err(format!("the schema of the {input_or_results} can't be used: {error}"));
            }
        }
        self.check_pattern_count(schema, input_or_results)?;
        match validation_options().build(schema) {
            Ok(_) => Ok(()),
            Err(error) => {
                let error: String = error.to_string().chars().take(200).collect();
                Err(format!("the schema of the {input_or_results} is invalid: {error}"))
            }
        }
    }

    fn check_pattern_count(
        &mut self,
        schema: &Value,
        input_or_results: &str,
    ) -> Result<(), String> {
        let count = count_patterns(schema);
        if count > PATTERNS_MAX {
            return Err(format!(
                "the schema of the {input_or_results} holds more than {PATTERNS_MAX} patterns"
            ));
        }
        let total = self.pattern_count.saturating_add(count);
        if count > 0 && total > ALL_PATTERNS_MAX {
            return Err(format!("the tool schemas hold more than {ALL_PATTERNS_MAX} patterns"));
        }
        self.pattern_count = total;
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
            let reference = json!({ "$ref": format!("#/$defs/d{}", at + 1) });
            defs.insert(format!("d{at}"), json!({ "allOf": [reference.clone(), reference] }));
        }
        defs.insert("d30".into(), json!({ "type": "object" }));
        let schema = json!({ "$ref": "#/$defs/d0", "$defs": defs });
        let error = SchemaChecker::default().check_schema(&schema, "input").unwrap_err();
        assert!(error.contains("more than 50000 parts"), "{error}");
    }
}
