//! Size of a JSON Schema once every reference is replaced by its target, computed in
//! linear time without replacing any.
//!
//! Invariant: every part that a validator can reach is counted. A reference that can't
//! be followed here is an error.

use std::collections::{HashMap, VecDeque};

use serde_json::Value;

/// Maximum number of subschemas of a schema whose references are replaced.
pub const EXPANSION_MAX: u64 = 50_000;

/// Keywords whose subschemas apply to the same value as the schema that holds them.
const SAME_LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
const SAME_SINGLE: [&str; 4] = ["not", "if", "then", "else"];
const SAME_MAPS: [&str; 2] = ["dependentSchemas", "dependencies"];

/// Keywords whose subschemas apply to a part of the value.
const PART_LISTS: [&str; 2] = ["prefixItems", "items"];
const PART_SINGLE: [&str; 8] = [
    "items",
    "additionalItems",
    "unevaluatedItems",
    "contains",
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "contentSchema",
];
const PART_MAPS: [&str; 2] = ["properties", "patternProperties"];

/// Keywords that refer to another subschema.
pub(super) const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// Keywords that name a subschema.
const ANCHORS: [&str; 2] = ["$anchor", "$dynamicAnchor"];

/// Addresses of the schemas of schemas, which every validator knows.
const META: &str = "json-schema.org/";

/// Reason why a schema is refused before it is compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// It refers to itself without going deeper into the value.
    #[error(
        "{0} leads back to itself by references alone, so that anything would fit it: say what \
         the data is there, such as {{\"type\": \"object\"}}"
    )]
    Cycle(String),
    /// It is too large.
    #[error(
        "with its references replaced by what they refer to it has more than {EXPANSION_MAX} \
         parts, which nobody can check an answer against: refer to each definition from fewer places"
    )]
    Expansion,
    /// It refers to another document.
    #[error("it refers to `{0}`, and nothing outside of a schema is fetched: put it under `$defs`")]
    Reference(String),
}

/// Bounds of the work that checking a value against a schema takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemaShape {
    /// Number of subschemas with every reference replaced; one that leads back is counted once.
    expansion: u64,
    /// Maximum number of subschemas that look into the same object or list.
    fanout: u64,
    /// Whether a subschema refers to one that contains it.
    is_recursive: bool,
}

impl SchemaShape {
    /// Measures a schema.
    ///
    /// # Errors
    /// Says why no value should be checked against it.
    pub fn of(schema: &Value) -> Result<Self, SchemaError> {
        let graph = Graph::new(schema);
        let mut same = Vec::with_capacity(graph.parts.len());
        let mut all = Vec::with_capacity(graph.parts.len());
        let mut looks_inside = Vec::with_capacity(graph.parts.len());
        for (at, part) in graph.parts.iter().enumerate() {
            let mut targets = subschemas(part, (&SAME_LISTS, &SAME_SINGLE, &SAME_MAPS));
            for name in REFERENCES {
                if let Some(to) = part.get(name).and_then(Value::as_str) {
                    targets.extend(graph.resolve(at, to));
                }
            }
            let inner = subschemas(part, (&PART_LISTS, &PART_SINGLE, &PART_MAPS));
            looks_inside.push(u64::from(!inner.is_empty()));
            let targets = graph.known(targets);
            all.push([targets.as_slice(), &graph.known(inner)].concat());
            same.push(targets);
        }
        let expanded = sum(&all, &vec![1; all.len()], 0..1);
        let reached = (0..all.len()).filter(|at| expanded.totals[*at] > 0);
        let visited = sum(&same, &looks_inside, reached.clone());
        if let Some(at) = visited.cycle {
            return Err(SchemaError::Cycle(pointer(schema, graph.parts[at])));
        }
        if let Some(foreign) = reached.clone().find_map(|at| graph.foreign(at)) {
            return Err(SchemaError::Reference(foreign.to_owned()));
        }
        let expansion = expanded.totals.first().copied().unwrap_or(1);
        if expansion > EXPANSION_MAX {
            return Err(SchemaError::Expansion);
        }
        Ok(Self {
            expansion,
            fanout: visited.totals.iter().copied().max().unwrap_or(0).max(1),
            is_recursive: expanded.cycle.is_some(),
        })
    }

    /// Whether a subschema refers to one that contains it.
    pub const fn is_recursive(&self) -> bool {
        self.is_recursive
    }

    /// Upper bound of the subschemas that this value is checked against, its parts included.
    pub fn work(&self, value: &Value) -> u64 {
        let (mut size, mut depth) = (0_u64, 0);
        let mut values = vec![(value, 0_u32)];
        while let Some((value, level)) = values.pop() {
            depth = depth.max(level);
            size = size.saturating_add(1);
            match value {
                Value::String(text) => size = size.saturating_add(text.len() as u64 / 32),
                Value::Array(list) => values.extend(list.iter().map(|one| (one, level + 1))),
                Value::Object(fields) => values.extend(fields.values().map(|one| (one, level + 1))),
                Value::Null | Value::Bool(_) | Value::Number(_) => {}
            }
        }
        let levels = if self.is_recursive { depth } else { 0 };
        let paths = self.fanout.saturating_pow(levels);
        size.saturating_mul(self.expansion).saturating_mul(paths)
    }
}

/// The objects of a schema document, by their place in memory.
struct Graph<'a> {
    parts: Vec<&'a Value>,
    index: HashMap<*const Value, usize>,
    /// The part whose `$id` the references of each part are relative to.
    bases: Vec<usize>,
    addresses: HashMap<&'a str, usize>,
    anchors: HashMap<&'a str, Vec<usize>>,
}

impl<'a> Graph<'a> {
    fn new(schema: &'a Value) -> Self {
        let mut graph = Self {
            parts: Vec::new(),
            index: HashMap::new(),
            bases: Vec::new(),
            addresses: HashMap::new(),
            anchors: HashMap::new(),
        };
        let mut values = VecDeque::from([(schema, 0)]);
        while let Some((value, base)) = values.pop_front() {
            match value {
                Value::Object(fields) => {
                    let base = graph.add(value, base);
                    values.extend(fields.values().map(|inner| (inner, base)));
                }
                Value::Array(list) => values.extend(list.iter().map(|inner| (inner, base))),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        graph
    }

    /// Adds an object and returns the base of what it contains.
    fn add(&mut self, part: &'a Value, base: usize) -> usize {
        let at = self.parts.len();
        let text = |name: &str| part.get(name).and_then(Value::as_str);
        let mut base = base;
        match text("$id").map(|id| (id, id.strip_prefix('#'))) {
            Some((_, Some(anchor))) => self.anchors.entry(anchor).or_default().push(at),
            Some((id, None)) => {
                let address = id.trim_end_matches('#');
                self.addresses.entry(address).or_insert(at);
                base = at;
            }
            None => {}
        }
        for anchor in ANCHORS.iter().filter_map(|name| text(name)) {
            self.anchors.entry(anchor).or_default().push(at);
        }
        self.parts.push(part);
        self.bases.push(base);
        self.index.insert(std::ptr::from_ref(part), at);
        base
    }

    /// Subschemas that a reference in the part `at` leads to. A name that several
    /// subschemas have leads to each of them.
    fn resolve(&self, at: usize, to: &str) -> Vec<&'a Value> {
        let (address, fragment) = to.split_once('#').unwrap_or((to, ""));
        let base = match address {
            "" => self.bases.get(at),
            other => self.addresses.get(other),
        };
        let Some(root) = base.and_then(|base| self.parts.get(*base)) else {
            return Vec::new();
        };
        if fragment.is_empty() {
            return vec![root];
        }
        if fragment.starts_with('/') {
            let target = percent_decoded(fragment).and_then(|pointer| root.pointer(&pointer));
            return target.into_iter().collect();
        }
        let named = self.anchors.get(fragment).into_iter().flatten();
        named.map(|at| self.parts[*at]).collect()
    }

    /// The first reference of a part that leads out of the document.
    fn foreign(&self, at: usize) -> Option<&'a str> {
        let part = self.parts[at];
        let texts = REFERENCES
            .iter()
            .filter_map(|name| part.get(name)?.as_str());
        texts
            .filter(|to| !to.starts_with('#') && !to.is_empty() && !to.contains(META))
            .find(|to| self.resolve(at, to).is_empty())
    }

    /// Those of these values that are objects, by their numbers.
    fn known(&self, values: Vec<&Value>) -> Vec<usize> {
        let number = |value: &Value| self.index.get(&std::ptr::from_ref(value)).copied();
        values.into_iter().filter_map(number).collect()
    }
}

/// The values of a schema under keywords that hold lists, one schema or maps of schemas.
fn subschemas<'a>(part: &'a Value, kinds: (&[&str], &[&str], &[&str])) -> Vec<&'a Value> {
    let (lists, singles, maps) = kinds;
    let mut found = Vec::new();
    for name in lists {
        found.extend(
            part.get(name)
                .and_then(Value::as_array)
                .into_iter()
                .flatten(),
        );
    }
    found.extend(singles.iter().filter_map(|name| part.get(name)));
    for name in maps {
        let map = part.get(name).and_then(Value::as_object);
        found.extend(map.into_iter().flat_map(|map| map.values()));
    }
    found
}

/// A pointer as it is meant: in an address a character may be written as `%7E`.
fn percent_decoded(fragment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(fragment.len());
    let mut pieces = fragment.split('%');
    bytes.extend(pieces.next()?.bytes());
    for piece in pieces {
        bytes.push(u8::from_str_radix(piece.get(..2)?, 16).ok()?);
        bytes.extend(piece.bytes().skip(2));
    }
    String::from_utf8(bytes).ok()
}

/// Totals over a graph: of each node its own weight and the totals of its targets.
struct Totals {
    /// Zero for nodes that were not reached.
    totals: Vec<u64>,
    /// A node that is reached from itself.
    cycle: Option<usize>,
}

fn sum(edges: &[Vec<usize>], own: &[u64], starts: impl Iterator<Item = usize>) -> Totals {
    let mut totals = vec![0; edges.len()];
    let mut is_open = vec![false; edges.len()];
    let mut is_done = vec![false; edges.len()];
    let mut cycle = None;
    let mut stack = Vec::new();
    for start in starts.filter(|start| *start < edges.len()) {
        if !is_done[start] {
            stack.push((start, 0));
            is_open[start] = true;
        }
        while let Some((node, next)) = stack.pop() {
            let Some(&to) = edges[node].get(next) else {
                let targets = edges[node].iter().map(|to| totals[*to]);
                totals[node] = targets.fold(own[node], u64::saturating_add);
                is_open[node] = false;
                is_done[node] = true;
                continue;
            };
            stack.push((node, next + 1));
            if is_open[to] {
                cycle.get_or_insert(to);
            } else if !is_done[to] {
                stack.push((to, 0));
                is_open[to] = true;
            }
        }
    }
    Totals { totals, cycle }
}

/// Where a part stands in a schema, for a message.
fn pointer(schema: &Value, part: &Value) -> String {
    let mut values = vec![(String::new(), schema)];
    while let Some((at, value)) = values.pop() {
        if std::ptr::eq(value, part) {
            return if at.is_empty() {
                "its root".to_owned()
            } else {
                at
            };
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

    /// A chain of definitions, each of which holds `wide` references to the next.
    fn chain(deep: usize, wide: usize, keyword: &str) -> Value {
        let link = |n: usize| json!({ "$ref": format!("#/$defs/d{n}") });
        let mut defs: serde_json::Map<String, Value> = (0..deep)
            .map(|n| (format!("d{n}"), json!({ keyword: vec![link(n + 1); wide] })))
            .collect();
        defs.insert(format!("d{deep}"), json!({ "type": "object" }));
        json!({ "type": "object", "allOf": [link(0)], "$defs": defs })
    }

    #[test]
    fn schemas_that_grow_exponentially_are_refused() {
        for keyword in ["allOf", "anyOf", "oneOf", "prefixItems"] {
            assert_eq!(
                SchemaShape::of(&chain(12, 8, keyword)),
                Err(SchemaError::Expansion),
                "{keyword}"
            );
        }
        let wide = |n: usize| {
            let fields = ["a", "b", "c"].map(|name| (name, json!({ "$ref": format!("#x{n}") })));
            json!({ "$anchor": format!("x{}", n - 1), "properties": serde_json::Map::from_iter(
                fields.map(|(name, field)| (name.to_owned(), field))
            ) })
        };
        let defs: Vec<Value> = (1..40).map(wide).collect();
        let hidden = json!({ "default": defs, "$ref": "#x0" });
        assert_eq!(SchemaShape::of(&hidden), Err(SchemaError::Expansion));
    }

    #[test]
    fn schemas_that_share_definitions_are_taken() {
        assert!(SchemaShape::of(&chain(4, 8, "allOf")).is_ok());
        assert!(SchemaShape::of(&chain(2_000, 1, "allOf")).is_ok());
        let unused = chain(12, 8, "allOf")["$defs"].clone();
        assert!(SchemaShape::of(&json!({ "type": "string", "$defs": unused })).is_ok());
    }

    #[test]
    fn what_only_leads_back_to_itself_is_found() {
        for (schema, at) in [
            (json!({ "$ref": "#" }), "its root"),
            (json!({ "$ref": "" }), "its root"),
            (json!({ "allOf": [{ "$ref": "#" }] }), "its root"),
            (
                json!({ "type": "object", "anyOf": [{ "$ref": "#" }] }),
                "its root",
            ),
            (json!({ "not": { "$ref": "#" } }), "its root"),
            (
                json!({ "$id": "https://a/", "$ref": "https://a/" }),
                "its root",
            ),
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
                SchemaShape::of(&schema),
                Err(SchemaError::Cycle(at.to_owned())),
                "{schema}"
            );
        }
    }

    #[test]
    fn what_comes_to_an_end_may_repeat_itself() {
        for (schema, is_recursive) in [
            (json!(true), false),
            (
                json!({ "type": "object", "properties": { "next": { "$ref": "#" } } }),
                true,
            ),
            (
                json!({ "$ref": "#/$defs/tree", "$defs": { "tree": {
                    "type": "object",
                    "properties": { "children": { "type": "array", "items": { "$ref": "#/$defs/tree" } } },
                } } }),
                true,
            ),
            (
                json!({ "anyOf": [{ "type": "string" }, { "items": { "$ref": "#" } }] }),
                true,
            ),
            (
                json!({ "allOf": [{ "$ref": "#/$defs/a" }, { "$ref": "#/$defs/a" }],
                    "$defs": { "a": { "type": "string" } } }),
                false,
            ),
            (
                json!({ "properties": { "$ref": { "type": "string" } } }),
                false,
            ),
            (
                json!({ "default": { "$ref": "#" }, "enum": [{ "allOf": [{ "$ref": "#" }] }] }),
                false,
            ),
            (json!({ "$ref": "#/$defs/none" }), false),
            (
                json!({ "$ref": "https://json-schema.org/draft/2020-12/schema" }),
                false,
            ),
        ] {
            let shape = SchemaShape::of(&schema);
            assert_eq!(
                shape.map(|shape| shape.is_recursive()),
                Ok(is_recursive),
                "{schema}"
            );
        }
    }

    #[test]
    fn references_to_other_documents_are_refused() {
        let schema = json!({ "$id": "https://a/b", "items": { "$ref": "./b" } });
        assert_eq!(
            SchemaShape::of(&schema),
            Err(SchemaError::Reference("./b".to_owned()))
        );
    }

    #[test]
    fn work_grows_with_the_value_and_with_branches_that_recur() {
        let plain = SchemaShape::of(&json!({ "items": { "type": "string" } })).unwrap();
        assert_eq!(plain.work(&json!(["a", "b"])), 6);
        assert_eq!(plain.work(&json!("x".repeat(64))), 6);
        let branch = json!({ "properties": { "a": { "$ref": "#" } } });
        let tree = SchemaShape::of(&json!({ "anyOf": vec![branch; 10] })).unwrap();
        let nested = |deep: usize| (0..deep).fold(json!(1), |inner, _| json!({ "a": inner }));
        assert!(tree.work(&nested(2)) < 10_000);
        assert_eq!(tree.work(&nested(100)), u64::MAX);
    }
}
