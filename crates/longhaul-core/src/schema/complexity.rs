//! Size of a JSON Schema with every reference replaced by its target, computed in linear time
//! without actually replacing references.
//!
//! Invariant: every part that a validator can reach is counted. A reference that can't be resolved
//! is an error.

use serde_json::Value;

use super::error::{EXPANSION_MAX, SchemaError};
use super::references::SchemaGraph;
use super::totals::{SubschemaCountKind, build_schema_nodes, compute_subschema_totals};

/// Upper bounds of the work for validating a value against a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemaComplexity {
    /// Number of subschemas if every reference is replaced by its target. Recursive references
    /// count once.
    expansion: u64,
    /// Maximum number of subschemas that one part of an object or list is validated against.
    fanout: u64,
    /// Whether any subschema refers to a subschema that contains it.
    is_recursive: bool,
}

impl SchemaComplexity {
    /// Measures how much work it is to validate values against a schema.
    ///
    /// # Errors
    /// Returns the reason why no value should be validated against the schema.
    pub fn measure(schema: &Value) -> Result<Self, SchemaError> {
        let graph = SchemaGraph::new(schema);
        let nodes = build_schema_nodes(&graph)?;
        let expanded = compute_subschema_totals(&nodes, SubschemaCountKind::Parts, 0..1);
        let reached = || (0..nodes.len()).filter(|at| expanded.totals[*at] > 0);
        // In a recursive schema, the root's total omits the targets of references that lead back.
        // The subschemas for one value are never recursive, so their totals are complete.
        let visited = compute_subschema_totals(&nodes, SubschemaCountKind::Visits, reached());
        if let Some(at) = visited.cycle {
            return Err(SchemaError::Cycle(json_pointer_to(schema, graph.parts[at])));
        }
        let expansion = expanded.totals.first().copied().unwrap_or(1);
        let expansion = expansion.max(visited.max_subschema_total());
        if expansion > EXPANSION_MAX {
            return Err(SchemaError::Expansion);
        }
        if let Some(unknown) = reached().find_map(|at| nodes[at].unknown) {
            return Err(SchemaError::Reference(unknown.to_owned()));
        }
        let fields = compute_subschema_totals(&nodes, SubschemaCountKind::Fields, reached())
            .max_subschema_total();
        let items = compute_subschema_totals(&nodes, SubschemaCountKind::Items, reached())
            .max_subschema_total();
        Ok(Self {
            expansion,
            fanout: fields.max(items).max(1),
            is_recursive: expanded.cycle.is_some() || reached().any(|at| nodes[at].is_meta),
        })
    }

    /// Returns whether any subschema refers to a subschema that contains it.
    pub const fn is_recursive(&self) -> bool {
        self.is_recursive
    }

    /// Returns an upper bound for the number of subschemas that this value and its parts are
    /// validated against.
    pub fn validation_cost(&self, value: &Value) -> u64 {
        let fanout = if self.is_recursive { self.fanout } else { 1 };
        let mut visits = 0_u64;
        let mut values = vec![(value, 1_u64)];
        while let Some((value, paths)) = values.pop() {
            let inner = paths.saturating_mul(fanout);
            let mut size = 1;
            match value {
                Value::String(text) => size += text.len() as u64 / 32,
                Value::Array(list) => values.extend(list.iter().map(|child| (child, inner))),
                Value::Object(fields) => values.extend(fields.values().map(|child| (child, inner))),
                Value::Null | Value::Bool(_) | Value::Number(_) => {}
            }
            visits = visits.saturating_add(paths.saturating_mul(size));
        }
        visits.saturating_mul(self.expansion)
    }
}

/// Returns the JSON pointer to a part of a schema, for error messages.
fn json_pointer_to(schema: &Value, part: &Value) -> String {
    let mut values = vec![(String::new(), schema)];
    while let Some((at, value)) = values.pop() {
        if std::ptr::eq(value, part) {
            return if at.is_empty() { "its root".to_owned() } else { at };
        }
        match value {
            Value::Object(fields) => values.extend(fields.iter().map(|(name, inner)| {
                let name = name.replace('~', "~0").replace('/', "~1");
                (format!("{at}/{name}"), inner)
            })),
            Value::Array(list) => {
                let list = list.iter().enumerate();
                values.extend(list.map(|(n, inner)| (format!("{at}/{n}"), inner)));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    "a part".to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const META_4: &str = "http://json-schema.org/draft-04/schema#";
    const META_7: &str = "http://json-schema.org/draft-07/schema#";

    /// Returns a schema with a chain of the given number of definitions. Each definition has the
    /// given number of references to the next definition.
    fn schema_with_reference_chain(depth: usize, width: usize, keyword: &str) -> Value {
        let reference_to = |n: usize| json!({ "$ref": format!("#/$defs/d{n}") });
        let mut defs: serde_json::Map<String, Value> = (0..depth)
            .map(|n| (format!("d{n}"), json!({ keyword: vec![reference_to(n + 1); width] })))
            .collect();
        defs.insert(format!("d{depth}"), json!({ "type": "object" }));
        json!({ "type": "object", "allOf": [reference_to(0)], "$defs": defs })
    }

    #[test]
    fn schemas_that_grow_exponentially_are_refused() {
        for keyword in ["allOf", "anyOf", "oneOf", "prefixItems"] {
            assert_eq!(
                SchemaComplexity::measure(&schema_with_reference_chain(12, 8, keyword)),
                Err(SchemaError::Expansion),
                "{keyword}"
            );
        }
        let definition = |n: usize| {
            let fields = ["a", "b", "c"].map(|name| (name, json!({ "$ref": format!("#x{n}") })));
            json!({ "$anchor": format!("x{}", n - 1), "properties": serde_json::Map::from_iter(
                fields.map(|(name, field)| (name.to_owned(), field))
            ) })
        };
        let defs: Vec<Value> = (1..40).map(definition).collect();
        let schema = json!({ "default": defs, "$ref": "#x0" });
        assert_eq!(SchemaComplexity::measure(&schema), Err(SchemaError::Expansion));
    }

    /// Adds definitions to a schema whose expansion, starting at `#/$defs/d0`, grows exponentially.
    fn add_exponential_definitions(mut schema: Value) -> Value {
        let defs = schema_with_reference_chain(12, 8, "allOf")["$defs"].take();
        for (name, definition) in defs.as_object().unwrap() {
            schema["$defs"][name] = definition.clone();
        }
        schema
    }

    #[test]
    fn every_reference_that_a_validator_follows_is_counted() {
        let small_defs = json!({ "d0": { "type": "object" } });
        let reference = json!({ "$ref": "#/$defs/d0" });
        for schema in [
            // Indices and characters in unusual spellings.
            json!({ "$ref": "#/$defs/l/anyOf/00", "$defs": { "l": { "anyOf": [reference] } } }),
            json!({ "$ref": "#/$defs/l/anyOf/+0", "$defs": { "l": { "anyOf": [reference] } } }),
            json!({ "$ref": "#/$defs/%+f", "$defs": { "%+f": reference, "\u{f}": {} } }),
            json!({ "$ref": "#/$defs/%7e0%64", "$defs": { "~d": reference } }),
            json!({ "$ref": "#/$defs/%zz", "$defs": { "%zz": reference } }),
            // Ids that some drafts ignore, or that are ambiguous.
            json!({ "$schema": META_7,
                "allOf": [{ "$id": "http://x/y", "$ref": "#/$defs/d0" }] }),
            json!({ "$schema": META_7,
                "allOf": [{ "$id": "http://x/y", "$ref": "#/$defs/d0", "$defs": small_defs }] }),
            json!({ "$schema": META_4,
                "allOf": [{ "$id": "http://x/y", "not": reference, "$defs": small_defs }] }),
            json!({ "$schema": META_4, "id": "http://x/r", "$id": "http://x/s",
                "allOf": [{ "$ref": "http://x/r#/$defs/d0" }] }),
            json!({ "$id": "http://x/r", "allOf": [{ "$ref": "http://x/r#/$defs/d0" }],
                "default": { "$id": "http://x/r", "$defs": small_defs } }),
            json!({ "$id": "http://x/r", "allOf": [{ "$ref": "r#/$defs/d0" }],
                "not": { "$id": "http://y/", "not": { "$id": "r", "$defs": small_defs } } }),
            json!({ "$id": "http://x/r", "$defs": { "same": { "$id": "http://x/%72",
                "not": reference, "$defs": small_defs } }, "items": { "$ref": "http://x/%72" } }),
            // Targets that depend on the dynamic scope.
            json!({ "$dynamicRef": "#n", "$defs": { "a": { "$dynamicAnchor": "n" },
                "b": { "$id": "http://x/y", "not": { "$dynamicAnchor": "n", "not":
                    { "$id": "http://x/z", "$ref": "#/$defs/d0" } } } } }),
        ] {
            assert_eq!(
                SchemaComplexity::measure(&add_exponential_definitions(schema.clone())),
                Err(SchemaError::Expansion),
                "{schema}"
            );
        }
    }

    #[test]
    fn subschemas_evaluated_again_are_counted_again() {
        // Each level is evaluated, and evaluated again to find out which parts it covers.
        let unevaluated =
            |inner: Value| json!({ "anyOf": [inner], "unevaluatedProperties": false });
        let nested = |depth: usize| (0..depth).fold(json!({}), |inner, _| unevaluated(inner));
        assert!(SchemaComplexity::measure(&nested(4)).is_ok());
        assert_eq!(SchemaComplexity::measure(&nested(40)), Err(SchemaError::Expansion));
        // Each definition is first reached from the previous one, to which it refers back.
        let definition = |n: usize| {
            let previous = json!({ "$ref": format!("#/$defs/c{}", n - 1) });
            let next = json!({ "$ref": format!("#/$defs/c{}", n + 1) });
            (format!("c{n}"), json!({ "allOf": vec![previous; 8], "items": next }))
        };
        let mut defs: serde_json::Map<String, Value> = (1..12).map(definition).collect();
        defs.insert("c0".into(), json!({ "items": { "$ref": "#/$defs/c1" } }));
        defs.insert("c12".into(), json!({ "type": "array" }));
        let schema = json!({ "allOf": [{ "$ref": "#/$defs/c0" }, { "$ref": "#/$defs/c11" }],
            "$defs": defs });
        assert_eq!(SchemaComplexity::measure(&schema), Err(SchemaError::Expansion));
    }

    #[test]
    fn schemas_that_share_definitions_are_accepted() {
        assert!(SchemaComplexity::measure(&schema_with_reference_chain(4, 8, "allOf")).is_ok());
        assert!(SchemaComplexity::measure(&schema_with_reference_chain(2_000, 1, "allOf")).is_ok());
        let unused = schema_with_reference_chain(12, 8, "allOf")["$defs"].clone();
        assert!(SchemaComplexity::measure(&json!({ "type": "string", "$defs": unused })).is_ok());
    }

    #[test]
    fn reference_cycles_are_found() {
        for (schema, at) in [
            (json!({ "$ref": "#" }), "its root"),
            (json!({ "$ref": "" }), "its root"),
            (json!({ "allOf": [{ "$ref": "#" }] }), "its root"),
            (json!({ "type": "object", "anyOf": [{ "$ref": "#" }] }), "its root"),
            (json!({ "not": { "$ref": "#" } }), "its root"),
            (json!({ "$id": "https://a/", "$ref": "https://a/" }), "its root"),
            (json!({ "$anchor": "me", "$ref": "#me" }), "its root"),
            (
                json!({ "$ref": "#/$defs/a", "$defs": {
                    "a": { "$ref": "#/$defs/b" }, "b": { "allOf": [{ "$ref": "#/$defs/a" }] },
                } }),
                "/$defs/a",
            ),
            (
                json!({ "type": "object", "properties": { "x": { "$ref": "#/$defs/a%7E1b" } },
                    "$defs": { "a/b": { "$ref": "#/$defs/a~1b" } } }),
                "/$defs/a~1b",
            ),
        ] {
            assert_eq!(
                SchemaComplexity::measure(&schema),
                Err(SchemaError::Cycle(at.to_owned())),
                "{schema}"
            );
        }
    }

    #[test]
    fn terminating_recursion_is_allowed() {
        for (schema, is_recursive) in [
            (json!(true), false),
            (json!({ "type": "object", "properties": { "next": { "$ref": "#" } } }), true),
            (
                json!({ "$ref": "#/$defs/tree", "$defs": { "tree": {
                    "type": "object",
                    "properties": { "children": { "type": "array", "items": { "$ref": "#/$defs/tree" } } },
                } } }),
                true,
            ),
            (json!({ "anyOf": [{ "type": "string" }, { "items": { "$ref": "#" } }] }), true),
            (
                json!({ "allOf": [{ "$ref": "#/$defs/a" }, { "$ref": "#/$defs/a" }],
                    "$defs": { "a": { "type": "string" } } }),
                false,
            ),
            (json!({ "properties": { "$ref": { "type": "string" } } }), false),
            (
                json!({ "default": { "$ref": "#" }, "enum": [{ "allOf": [{ "$ref": "#" }] }] }),
                false,
            ),
            (json!({ "$ref": "https://json-schema.org/draft/2020-12/schema" }), true),
            (
                json!({ "$id": "https://a/b.json", "allOf": [{ "$ref": "c.json" }],
                    "$defs": { "c": { "$id": "c.json", "$ref": "d.json", "$defs": { "d": {} } },
                        "d": { "$id": "d.json", "items": { "$ref": "#" } } } }),
                true,
            ),
        ] {
            let shape = SchemaComplexity::measure(&schema);
            assert_eq!(shape.map(|shape| shape.is_recursive()), Ok(is_recursive), "{schema}");
        }
    }

    #[test]
    fn references_to_other_documents_are_refused() {
        let nested = |id: &str, inner: Value| json!({ "$id": id, "items": inner });
        let meta = "https://json-schema.org/draft/2020-12/";
        for (schema, to) in [
            (nested("https://a/b", json!({ "$ref": "./b" })), "./b"),
            (json!({ "$ref": "#/$defs/none" }), "#/$defs/none"),
            (json!({ "$ref": "#none" }), "#none"),
            (json!({ "$ref": "json-schema:///" }), "json-schema:///"),
            (json!({ "$ref": format!("{meta}x") }), &format!("{meta}x")),
            (
                json!({ "$id": meta, "items": { "$ref": format!("{meta}x") },
                    "$defs": { "x": { "$id": "x" } } }),
                &format!("{meta}x"),
            ),
            (json!({ "$dynamicAnchor": "meta", "items": { "$ref": META_7 } }), META_7),
        ] {
            assert_eq!(
                SchemaComplexity::measure(&schema),
                Err(SchemaError::Reference(to.to_owned())),
                "{schema}"
            );
        }
    }

    #[test]
    fn validation_cost_grows_with_the_value_and_with_recursion() {
        let plain = SchemaComplexity::measure(&json!({ "items": { "type": "string" } })).unwrap();
        assert_eq!(plain.validation_cost(&json!(["a", "b"])), 6);
        assert_eq!(plain.validation_cost(&json!("x".repeat(64))), 6);
        let branch = json!({ "properties": { "a": { "$ref": "#" } } });
        let tree = SchemaComplexity::measure(&json!({ "anyOf": vec![branch; 10] })).unwrap();
        let nested = |deep: usize| (0..deep).fold(json!(1), |inner, _| json!({ "a": inner }));
        assert!(tree.validation_cost(&nested(2)) < 10_000);
        assert_eq!(tree.validation_cost(&nested(100)), u64::MAX);
        let root = json!({ "$ref": "#" });
        let patterns = json!({ "a": root, "^a": root, "a$": root, "^a$": root });
        for (schema, fanout) in [
            (json!({ "patternProperties": patterns }), 4),
            (json!({ "properties": { "a": root }, "patternProperties": patterns }), 5),
            (json!({ "properties": { "a": root }, "unevaluatedProperties": root }), 3),
            (json!({ "properties": { "a": root, "b": root }, "additionalProperties": root }), 1),
            (json!({ "properties": { "a": root }, "additionalProperties": false }), 1),
            (json!({ "contains": root, "items": root, "prefixItems": [root, root] }), 3),
            (json!({ "contains": root, "items": root, "unevaluatedItems": root }), 5),
            (
                json!({ "if": { "items": root }, "then": { "items": root },
                "dependentSchemas": { "a": { "items": root } } }),
                3,
            ),
            (json!({ "anyOf": [{ "items": root }, { "additionalProperties": root }] }), 1),
        ] {
            let shape = SchemaComplexity::measure(&schema).unwrap();
            assert_eq!(shape.fanout, fanout, "{schema}");
            let paths = fanout.pow(13);
            assert!(shape.validation_cost(&nested(13)) >= paths, "{schema}");
        }
    }
}
