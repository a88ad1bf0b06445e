//! Size of a JSON Schema with every reference replaced by its target, computed in linear time
//! without actually replacing references.
//!
//! Invariant: no count is lower than the number of subschemas that a validator visits. A reference
//! leads to a part of the same document (`#` or `#/...`); every other reference is an error.

use std::collections::HashMap;

use serde_json::Value;

use super::references::{check_ids, reference_target};
use super::{EXPANSION_MAX, SchemaError, inner_values};

/// Keywords whose subschemas apply to the same value as the schema that contains them.
const IN_PLACE: [&str; 9] =
    ["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"];

/// Keywords whose subschemas apply to a part of the value, such as a list item.
const PARTS: [&str; 11] = [
    "properties",
    "patternProperties",
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "prefixItems",
    "items",
    "additionalItems",
    "unevaluatedItems",
    "contains",
    "contentSchema",
];

/// Those of the keywords above that contain an object of subschemas by name.
const MAPS: [&str; 4] = ["properties", "patternProperties", "dependentSchemas", "dependencies"];

/// Keywords whose subschemas a validator evaluates again to find out which parts of a value they
/// cover.
const REPEATED: [&str; 3] = ["contains", "unevaluatedItems", "unevaluatedProperties"];
const UNEVALUATED: [&str; 2] = ["unevaluatedItems", "unevaluatedProperties"];

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
        let graph = SchemaGraph { root: schema };
        check_ids(schema)?;
        let with_parts = graph.post_order(&[schema], true)?;
        // In a recursive schema, the root's total omits the targets of references that lead back.
        // The subschemas for one value are never recursive, so their totals are complete.
        let in_place = graph.post_order(&with_parts.schemas, false)?;
        if let Some(reference) = in_place.cycle {
            return Err(SchemaError::Cycle(reference.to_owned()));
        }
        let max = |start: fn(&Value) -> Count| -> Result<u64, SchemaError> {
            let totals = graph.totals(&in_place.schemas, start, false)?;
            Ok(totals.values().map(|total| total.own).max().unwrap_or(1))
        };
        let totals = graph.totals(&with_parts.schemas, |_| ONE, true)?;
        let root_total = totals.get(&std::ptr::from_ref(schema)).map_or(1, |total| total.own);
        let expansion = root_total.max(max(|_| ONE)?);
        if expansion > EXPANSION_MAX {
            return Err(SchemaError::Expansion);
        }
        Ok(Self {
            expansion,
            fanout: max(field_count)?.max(max(item_count)?).max(1),
            is_recursive: with_parts.cycle.is_some(),
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
            let size = 1 + value.as_str().map_or(0, |text| text.len() as u64 / 32);
            values.extend(inner_values(value).into_iter().map(|child| (child, inner)));
            visits = visits.saturating_add(paths.saturating_mul(size));
        }
        visits.saturating_mul(self.expansion)
    }
}

/// How many subschemas a schema counts as, and how many of them a validator evaluates again if an
/// enclosing schema has the keyword `unevaluatedItems` or `unevaluatedProperties`.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    own: u64,
    repeated: u64,
}

const ONE: Count = Count { own: 1, repeated: 1 };

/// Schemas in an order in which each one comes after those that it contains or refers to.
struct PostOrder<'a> {
    schemas: Vec<&'a Value>,
    /// A reference through which a schema leads back to itself. `None` if there is none.
    cycle: Option<&'a str>,
}

/// The subschemas of a document as a graph, whose edges are keywords and references.
#[derive(Clone, Copy)]
struct SchemaGraph<'a> {
    root: &'a Value,
}

impl<'a> SchemaGraph<'a> {
    /// Returns the subschemas for the same value as `schema` and, if `with_parts`, those for parts
    /// of the value.
    fn subschemas(
        self,
        schema: &'a Value,
        with_parts: bool,
    ) -> Result<Vec<&'a Value>, SchemaError> {
        let mut found = subschemas_under(schema, &IN_PLACE);
        found.extend(reference_target(self.root, schema)?.filter(|target| target.is_object()));
        if with_parts {
            found.extend(subschemas_under(schema, &PARTS));
        }
        Ok(found)
    }

    fn post_order(
        self,
        starts: &[&'a Value],
        with_parts: bool,
    ) -> Result<PostOrder<'a>, SchemaError> {
        let mut order = PostOrder { schemas: Vec::new(), cycle: None };
        let mut is_done: HashMap<*const Value, bool> = HashMap::new();
        for start in starts {
            if is_done.contains_key(&std::ptr::from_ref(*start)) {
                continue;
            }
            is_done.insert(*start, false);
            let mut open = vec![(*start, self.subschemas(start, with_parts)?.into_iter())];
            while let Some((schema, rest)) = open.last_mut() {
                let Some(next) = rest.next() else {
                    is_done.insert(*schema, true);
                    order.schemas.push(*schema);
                    open.pop();
                    continue;
                };
                match is_done.get(&std::ptr::from_ref(next)) {
                    Some(true) => {}
                    Some(false) => {
                        // No schema contains itself, so there is a reference on the way back.
                        let mut path = open.iter().rev();
                        let reference = path.find_map(|(schema, _)| schema.get("$ref")?.as_str());
                        order.cycle = order.cycle.or(reference);
                    }
                    None => {
                        is_done.insert(next, false);
                        open.push((next, self.subschemas(next, with_parts)?.into_iter()));
                    }
                }
            }
        }
        Ok(order)
    }

    /// Returns the own count of each schema plus the totals of its subschemas.
    fn totals(
        self,
        schemas: &[&'a Value],
        own_count: fn(&Value) -> Count,
        with_parts: bool,
    ) -> Result<HashMap<*const Value, Count>, SchemaError> {
        let mut totals: HashMap<*const Value, Count> = HashMap::new();
        for schema in schemas {
            let Count { mut own, mut repeated } = own_count(schema);
            // Zero for a schema that refers back to this one.
            let total =
                |to: &Value| totals.get(&std::ptr::from_ref(to)).copied().unwrap_or_default();
            for to in self.subschemas(schema, false)?.into_iter().map(total) {
                own = own.saturating_add(to.own);
                repeated = repeated.saturating_add(to.own).saturating_add(to.repeated);
            }
            if with_parts {
                let sum = |names: &[&str]| {
                    let inner = subschemas_under(schema, names).into_iter().map(total);
                    inner.fold(0_u64, |sum, to| sum.saturating_add(to.own))
                };
                own = own.saturating_add(sum(&PARTS));
                repeated = repeated.saturating_add(sum(&REPEATED));
            }
            if UNEVALUATED.iter().any(|name| schema.get(name).is_some()) {
                own = own.saturating_add(repeated);
            }
            totals.insert(*schema, Count { own, repeated });
        }
        Ok(totals)
    }
}

/// Returns the subschemas under these keywords that are objects, i.e. not `true` or `false`.
fn subschemas_under<'a>(schema: &'a Value, keywords: &[&str]) -> Vec<&'a Value> {
    let mut found: Vec<&Value> = Vec::new();
    for name in keywords {
        match schema.get(name) {
            Some(Value::Array(list)) => found.extend(list),
            Some(Value::Object(map)) if MAPS.contains(name) => found.extend(map.values()),
            Some(other) => found.push(other),
            None => {}
        }
    }
    found.retain(|schema| schema.is_object());
    found
}

/// Returns how many subschemas of a schema apply to one field of an object at most.
fn field_count(schema: &Value) -> Count {
    let count = |name: &str| subschemas_under(schema, &[name]).len() as u64;
    // `additionalProperties` only applies to fields that no other keyword applies to.
    let named = count("properties").min(1) + count("patternProperties");
    let repeated = count("unevaluatedProperties");
    Count { own: named.max(count("additionalProperties")) + repeated, repeated }
}

/// Returns how many subschemas of a schema apply to one item of a list at most.
fn item_count(schema: &Value) -> Count {
    let count = |name: &str| subschemas_under(schema, &[name]).len() as u64;
    let repeated = count("contains") + count("unevaluatedItems");
    let positional = count("prefixItems").min(1) + count("items").min(1);
    Count { own: positional + count("additionalItems") + repeated, repeated }
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
            let reference = json!({ "$ref": format!("#/default/{n}") });
            json!({ "properties": { "a": reference, "b": reference, "c": reference } })
        };
        let defs: Vec<Value> = (1..40).map(definition).chain([json!({})]).collect();
        let schema = json!({ "default": defs, "$ref": "#/default/0" });
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
    fn every_reference_that_a_validator_follows_is_counted_or_refused() {
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
            json!({ "$recursiveRef": "#" }),
            json!({ "$dynamicRef": "#n", "$defs": { "a": { "$dynamicAnchor": "n" },
                "b": { "$id": "http://x/y", "not": { "$dynamicAnchor": "n", "not":
                    { "$id": "http://x/z", "$ref": "#/$defs/d0" } } } } }),
        ] {
            assert!(
                SchemaComplexity::measure(&add_exponential_definitions(schema.clone())).is_err(),
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
            (json!({ "$ref": "#" }), "#"),
            (json!({ "allOf": [{ "$ref": "#" }] }), "#"),
            (json!({ "type": "object", "anyOf": [{ "$ref": "#" }] }), "#"),
            (json!({ "not": { "$ref": "#" } }), "#"),
            (
                json!({ "$ref": "#/$defs/a", "$defs": {
                    "a": { "$ref": "#/$defs/b" }, "b": { "allOf": [{ "$ref": "#/$defs/a" }] },
                } }),
                "#/$defs/b",
            ),
            (
                json!({ "type": "object", "properties": { "x": { "$ref": "#/$defs/a%7E1b" } },
                    "$defs": { "a/b": { "$ref": "#/$defs/a~1b" } } }),
                "#/$defs/a~1b",
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
            (json!({ "properties": { "a": { "$id": "a", "type": "string" } } }), false),
            (json!({ "$id": "https://a/b.json", "items": { "$ref": "#" } }), true),
            (
                json!({ "default": { "$ref": "#" }, "enum": [{ "allOf": [{ "$ref": "#" }] }] }),
                false,
            ),
        ] {
            let shape = SchemaComplexity::measure(&schema);
            assert_eq!(shape.map(|shape| shape.is_recursive()), Ok(is_recursive), "{schema}");
        }
    }

    #[test]
    fn references_that_do_not_name_a_part_of_the_document_are_refused() {
        let nested = |id: &str, inner: Value| json!({ "$id": id, "items": inner });
        let meta = "https://json-schema.org/draft/2020-12/";
        for (schema, to) in [
            (nested("https://a/b", json!({ "$ref": "./b" })), "./b"),
            (json!({ "$ref": "#/$defs/none" }), "#/$defs/none"),
            (json!({ "$ref": "#none" }), "#none"),
            (json!({ "$ref": "" }), ""),
            (json!({ "$id": "https://a/", "$ref": "https://a/" }), "https://a/"),
            (json!({ "$anchor": "me", "items": { "$ref": "#me" } }), "#me"),
            (json!({ "$ref": format!("{meta}schema") }), &format!("{meta}schema")),
            (
                json!({ "$id": format!("{meta}schema"), "$ref": "#/$defs/x" }),
                &format!("{meta}schema"),
            ),
            (
                json!({ "properties": { "a": { "$id": "a", "items": { "$ref": "#/properties" } } } }),
                "#/properties",
            ),
            (json!({ "$schema": META_4, "not": { "id": "a", "items": { "$ref": "#" } } }), "#"),
            (json!({ "$ref": "json-schema:///" }), "json-schema:///"),
            (json!({ "$ref": format!("{meta}x") }), &format!("{meta}x")),
            (
                json!({ "$id": meta, "items": { "$ref": format!("{meta}x") },
                    "$defs": { "x": { "$id": "x" } } }),
                meta,
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
