//! Finds schemas that lead back to themselves without going deeper into the data:
//! such a part says nothing, and anything would fit it.
//!
//! Never: minds a tree. A reference below a property or an item is about a smaller
//! part of the data, and comes to an end with it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// What stands here is data, and no schema.
const DATA: [&str; 4] = ["const", "enum", "default", "examples"];

/// Schemas in lists, and alone, that are about the same data as where they stand.
const LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
const ALONE: [&str; 4] = ["not", "if", "then", "else"];

/// What refers to another part.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// What gives a part a name.
const ANCHORS: [&str; 2] = ["$anchor", "$dynamicAnchor"];

/// A part of a schema by its JSON Pointer.
type Edges = BTreeMap<String, BTreeSet<String>>;

/// What is wrong with a schema that leads back to itself, in words.
pub fn circle(schema: &Value) -> Option<String> {
    let mut edges = Edges::new();
    let mut parts = vec![(String::new(), schema, String::new())];
    while let Some((at, part, base)) = parts.pop() {
        let base = match address(part) {
            Some(_) => at.clone(),
            None => base,
        };
        let ways = ways(schema, (&at, part), &base);
        if !ways.is_empty() {
            edges.insert(at.clone(), ways);
        }
        for (name, below) in children(part) {
            parts.push((format!("{at}/{name}"), below, base.clone()));
        }
    }
    let at = turning(edges)?;
    let at = if at.is_empty() { "its root" } else { &at };
    Some(format!(
        "{at} leads back to itself by references alone, so that anything would fit it: say what \
         the data is there, such as {{\"type\": \"object\"}}"
    ))
}

/// The address of its own that a part has, from which references in it are read.
fn address(part: &Value) -> Option<&str> {
    let id = part.get("$id")?.as_str()?;
    (!id.starts_with('#')).then_some(id)
}

/// Everything that stands in a part, with its name as a pointer has it.
fn children(part: &Value) -> Vec<(String, &Value)> {
    match part {
        Value::Object(fields) => fields
            .iter()
            .filter(|(name, _)| !DATA.contains(&name.as_str()))
            .map(|(name, value)| (escaped(name), value))
            .collect(),
        Value::Array(list) => (0..).map(|n: usize| n.to_string()).zip(list).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// The parts that are about the same data as this one.
fn ways(schema: &Value, (at, part): (&str, &Value), base: &str) -> BTreeSet<String> {
    let mut ways = BTreeSet::new();
    for name in REFERENCES {
        let target = part.get(name).and_then(Value::as_str);
        ways.extend(target.and_then(|target| found(schema, base, target)));
    }
    for name in LISTS {
        let many = part.get(name).and_then(Value::as_array).map_or(0, Vec::len);
        ways.extend((0..many).map(|place| format!("{at}/{name}/{place}")));
    }
    for name in ALONE {
        let one = part.get(name).filter(|one| one.is_object());
        ways.extend(one.map(|_| format!("{at}/{name}")));
    }
    let named = part.get("dependentSchemas").and_then(Value::as_object);
    let named = named.into_iter().flatten();
    ways.extend(named.map(|(name, _)| format!("{at}/dependentSchemas/{}", escaped(name))));
    ways
}

/// Where a reference leads within the schema; none: elsewhere, or nowhere.
fn found(schema: &Value, base: &str, target: &str) -> Option<String> {
    let (address_of, fragment) = target.split_once('#').unwrap_or((target, ""));
    let base = match address_of {
        "" => base.to_owned(),
        other => search(schema, &|part| address(part) == Some(other))?,
    };
    let root = schema.pointer(&base)?;
    if fragment.is_empty() {
        return Some(base);
    }
    if fragment.starts_with('/') {
        let pointer = unquoted(fragment)?;
        return root.pointer(&pointer).map(|_| format!("{base}{pointer}"));
    }
    let hash = format!("#{fragment}");
    let is_named = |part: &Value| {
        let text = |name: &str| part.get(name).and_then(Value::as_str);
        ANCHORS.iter().any(|name| text(name) == Some(fragment)) || text("$id") == Some(&hash)
    };
    search(root, &is_named).map(|below| format!("{base}{below}"))
}

/// A pointer as it is meant: in an address letters may be written as `%7E`.
fn unquoted(fragment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(fragment.len());
    let mut pieces = fragment.split('%');
    bytes.extend(pieces.next()?.bytes());
    for piece in pieces {
        bytes.push(u8::from_str_radix(piece.get(..2)?, 16).ok()?);
        bytes.extend(piece.bytes().skip(2));
    }
    String::from_utf8(bytes).ok()
}

/// The first part of which this holds.
fn search(schema: &Value, is_it: &dyn Fn(&Value) -> bool) -> Option<String> {
    let mut parts = vec![(String::new(), schema)];
    while let Some((at, part)) = parts.pop() {
        if is_it(part) {
            return Some(at);
        }
        let below = children(part).into_iter();
        parts.extend(below.map(|(name, below)| (format!("{at}/{name}"), below)));
    }
    None
}

/// A part from which one comes back to it.
fn turning(mut edges: Edges) -> Option<String> {
    // What leads nowhere leads into no circle; in the end only circles and what
    // leads to them are left.
    loop {
        let left: BTreeSet<String> = edges.keys().cloned().collect();
        for ways in edges.values_mut() {
            ways.retain(|way| left.contains(way));
        }
        let before = edges.len();
        edges.retain(|_, ways| !ways.is_empty());
        if edges.len() == before {
            break;
        }
    }
    let mut seen = BTreeSet::new();
    let mut at = edges.keys().next()?;
    while seen.insert(at) {
        at = edges.get(at)?.first()?;
    }
    Some(at.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
            let said = circle(&schema).unwrap_or_default();
            assert!(
                said.starts_with(&format!("{at} leads back")),
                "{schema}: {said}"
            );
        }
    }

    #[test]
    fn what_comes_to_an_end_may_repeat_itself() {
        for schema in [
            json!(true),
            json!({ "type": "object", "properties": { "next": { "$ref": "#" } } }),
            json!({ "$ref": "#/$defs/tree", "$defs": { "tree": {
                "type": "object",
                "properties": { "children": { "type": "array", "items": { "$ref": "#/$defs/tree" } } },
            } } }),
            json!({ "anyOf": [{ "type": "string" }, { "items": { "$ref": "#" } }] }),
            json!({ "allOf": [{ "$ref": "#/$defs/a" }, { "$ref": "#/$defs/a" }],
                "$defs": { "a": { "type": "string" } } }),
            json!({ "properties": { "$ref": { "type": "string" } } }),
            json!({ "default": { "$ref": "#" }, "enum": [{ "allOf": [{ "$ref": "#" }] }] }),
            json!({ "$ref": "https://elsewhere/" }),
            json!({ "$ref": "#/$defs/none" }),
        ] {
            assert_eq!(circle(&schema), None, "{schema}");
        }
    }

    #[test]
    fn a_long_chain_is_followed_to_its_end() {
        let link = |n: usize| json!({ "$ref": format!("#/$defs/d{n:04}") });
        let mut defs: serde_json::Map<String, Value> = (0..500)
            .map(|n| (format!("d{n:04}"), link(n + 1)))
            .collect();
        defs.insert("d0500".into(), json!({ "type": "string" }));
        let mut schema = json!({ "$ref": "#/$defs/d0000", "$defs": defs });
        assert_eq!(circle(&schema), None);
        schema["$defs"]["d0500"] = link(0);
        assert!(circle(&schema).is_some());
    }
}
