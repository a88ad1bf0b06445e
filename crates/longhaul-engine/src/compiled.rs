//! Makes the judge of a schema that stands in an agent's file. The file may be a
//! stranger's: to look at it must cost little.
//!
//! Never: compiles a schema whose patterns were not counted before.

use jsonschema::{PatternOptions, Validator};
use longhaul_core::schema::{PATTERNS_MAX, patterns};
use serde_json::Value;

/// So much memory one pattern may take.
const PATTERN_BYTES_MAX: usize = 1024 * 1024;

/// The judge of this schema, or what is wrong with it.
pub fn compiled(schema: &Value) -> Result<Validator, String> {
    if patterns(schema) > PATTERNS_MAX {
        return Err(format!("it holds more than {PATTERNS_MAX} patterns"));
    }
    let patterns = PatternOptions::fancy_regex().size_limit(PATTERN_BYTES_MAX);
    let options = jsonschema::options().with_pattern_options(patterns);
    options.build(schema).map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, json};

    #[test]
    fn patterns_are_few_and_small() {
        let named = |count: usize| {
            let field = |at: usize| (format!("f{at}"), json!({ "pattern": format!("^{at}$") }));
            let fields: Map<String, Value> = (0..count).map(field).collect();
            json!({ "type": "object", "properties": fields })
        };
        assert!(compiled(&named(PATTERNS_MAX)).is_ok());
        let why = compiled(&named(PATTERNS_MAX + 1)).unwrap_err();
        assert_eq!(why, "it holds more than 64 patterns");
        assert!(compiled(&json!({ "pattern": r"^[\p{L} ]{1,20}$" })).is_ok());
        assert!(compiled(&json!({ "pattern": r"(\p{L}{60}){10}" })).is_err());
    }
}
