//! Finds texts that a comma cut in two: in YAML's short form, `{ a: b, c }`, it ends
//! a text that has no quotes, and the rest becomes a keyword without a value.
//!
//! Never: judges a keyword that has a value. Schemas may hold others than we know.

use crate::written::{Content, Entry, Node};

/// The keywords of JSON Schema and OpenAPI that have another name than a schema's.
const PLAIN: &[&str] = &[
    "$id",
    "$schema",
    "$ref",
    "$anchor",
    "$dynamicRef",
    "$dynamicAnchor",
    "$vocabulary",
    "$comment",
    "type",
    "enum",
    "const",
    "multipleOf",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "maxContains",
    "minContains",
    "maxProperties",
    "minProperties",
    "required",
    "dependentRequired",
    "title",
    "description",
    "default",
    "deprecated",
    "readOnly",
    "writeOnly",
    "examples",
    "example",
    "format",
    "contentEncoding",
    "contentMediaType",
    "nullable",
];

/// Those whose value is a schema, or a list of schemas.
const NESTED: &[&str] = &[
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "oneOf",
    "prefixItems",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// Those whose value has schemas by names that anybody may choose.
const NAMED: &[&str] = &[
    "$defs",
    "definitions",
    "dependencies",
    "dependentSchemas",
    "patternProperties",
    "properties",
];

/// The first keyword of a schema that nobody knows and that has no value.
pub(crate) fn cut_off(schema: &Node) -> Option<&Entry> {
    match &schema.content {
        Content::Table(entries) => entries.iter().find_map(in_keyword),
        Content::List(list) => list.iter().find_map(cut_off),
        Content::Nothing
        | Content::Flag(_)
        | Content::Whole(_)
        | Content::Real(_)
        | Content::Text(_) => None,
    }
}

fn in_keyword(entry: &Entry) -> Option<&Entry> {
    let key = entry.key.as_str();
    if NESTED.contains(&key) {
        return cut_off(&entry.node);
    }
    if NAMED.contains(&key) {
        let Content::Table(schemas) = &entry.node.content else {
            return None;
        };
        return schemas.iter().find_map(|schema| cut_off(&schema.node));
    }
    let is_cut = entry.node.content == Content::Nothing && !PLAIN.contains(&key);
    is_cut.then_some(entry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::written::yaml;

    #[test]
    fn a_keyword_without_a_value_is_the_rest_of_a_text() {
        let check = |schema: &str, found: Option<(&str, &str)>| {
            let node = yaml::read(schema).unwrap();
            let cut = cut_off(&node).map(|entry| (entry.key.clone(), entry.place.to_string()));
            let cut = cut
                .as_ref()
                .map(|(key, place)| (key.as_str(), place.as_str()));
            assert_eq!(cut, found, "{schema}");
        };
        check(
            "{ type: string, description: Says, well }",
            Some(("well", "1:36")),
        );
        check(
            "properties: { a: { description: one, two }, b: { type: string } }",
            Some(("two", "1:38")),
        );
        check(
            "anyOf: [{ type: string }, { description: a, b }]",
            Some(("b", "1:45")),
        );
        check("{ default: null, const: null, x-ours: 1 }", None);
        check("properties: { a: true, b: { enum: [null] } }", None);
        check("properties: { a: { default: { b: null } } }", None);
    }
}
