//! Targets of the references in a JSON Schema.
//!
//! Invariant: every subschema that a validator may consider the target of a reference is found.
//! Drafts differ in how a subschema gets its address. Where the address is unclear, every candidate
//! counts as a target.

use std::collections::{HashMap, HashSet, VecDeque};

use serde_json::Value;

/// Keywords that refer to another subschema.
pub(super) const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", RECURSIVE];
const RECURSIVE: &str = "$recursiveRef";

/// Keywords that give a subschema a name for references.
const ANCHORS: [&str; 2] = ["$anchor", "$dynamicAnchor"];

/// Addresses of the meta-schemas, which every validator knows.
const META: [&str; 5] = [
    "http://json-schema.org/draft-04/schema",
    "http://json-schema.org/draft-06/schema",
    "http://json-schema.org/draft-07/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
];

/// Possible targets of a reference in a schema.
pub(super) enum ReferenceTargets<'a> {
    /// Subschemas of the document, of which the validator chooses one.
    Values(Vec<&'a Value>),
    /// The meta-schema, i.e. the schema that describes JSON Schemas.
    Meta,
    /// No part of the document is a possible target.
    Unknown,
}

/// All objects (parts) of a schema document, with an index by their memory address.
#[derive(Default)]
pub(super) struct SchemaGraph<'a> {
    pub(super) parts: Vec<&'a Value>,
    index: HashMap<*const Value, usize>,
    /// For each part, the index of the innermost enclosing part that has an id. It may be the part
    /// itself.
    bases: Vec<usize>,
    /// For each part, the index of the innermost other part that encloses it and has an id.
    parent_bases: Vec<usize>,
    /// Whether the keyword `id` gives a subschema an address, as in draft 4 of JSON Schema.
    has_plain_id: bool,
    ids: HashSet<&'a str>,
    /// Parts with an id, by the last path segment of the id.
    resources: HashMap<&'a str, Vec<usize>>,
    /// Parts with an id whose last path segment can't be determined.
    unclear_ids: Vec<usize>,
    anchors: HashMap<&'a str, Vec<usize>>,
    /// Indices of the parts with `$recursiveAnchor`, to which a `$recursiveRef` in any part may
    /// refer.
    recursive: Vec<usize>,
    /// Whether a part has `$dynamicAnchor` or `$recursiveAnchor`, so that a reference within the
    /// meta-schema may lead back to this document.
    has_dynamic: bool,
}

impl<'a> SchemaGraph<'a> {
    pub(super) fn new(schema: &'a Value) -> Self {
        let mut graph = Self { has_plain_id: declares_draft_4(schema), ..Self::default() };
        let mut values = VecDeque::from([(schema, 0)]);
        while let Some((value, base)) = values.pop_front() {
            match value {
                Value::Object(fields) => {
                    let base = graph.index_schema_object(value, base);
                    values.extend(fields.values().map(|inner| (inner, base)));
                }
                Value::Array(list) => values.extend(list.iter().map(|inner| (inner, base))),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        graph
    }

    /// Adds an object (part) of the schema document. Returns the index of the innermost part with
    /// an id that encloses the children of the object, which may be the object itself.
    fn index_schema_object(&mut self, part: &'a Value, enclosing_base_index: usize) -> usize {
        let part_index = self.parts.len();
        let text = |name: &str| part.get(name).and_then(Value::as_str);
        let mut base = enclosing_base_index;
        for id in self.schema_ids(part) {
            if let Some(anchor) = id.strip_prefix('#') {
                self.anchors.entry(anchor).or_default().push(part_index);
            }
            let id = id.trim_end_matches('#');
            self.ids.insert(id);
            match last_path_segment(id) {
                Some(segment) => self.resources.entry(segment).or_default().push(part_index),
                None => self.unclear_ids.push(part_index),
            }
            base = part_index;
        }
        for anchor in ANCHORS.iter().filter_map(|name| text(name)) {
            self.anchors.entry(anchor).or_default().push(part_index);
        }
        if part.get("$recursiveAnchor").is_some() {
            self.recursive.push(part_index);
        }
        self.has_dynamic |=
            part.get("$recursiveAnchor").is_some() || part.get("$dynamicAnchor").is_some();
        self.parts.push(part);
        self.bases.push(base);
        self.parent_bases.push(enclosing_base_index);
        self.index.insert(std::ptr::from_ref(part), part_index);
        base
    }

    fn schema_ids(&self, part: &'a Value) -> Vec<&'a str> {
        let plain_id = self.has_plain_id.then_some("id");
        let names = ["$id"].into_iter().chain(plain_id);
        names.filter_map(|name| part.get(name)?.as_str()).collect()
    }

    /// Returns the references (such as `$ref`) in the part of the document with this index, each
    /// with its text and its possible targets.
    pub(super) fn resolved_references(
        &self,
        part_index: usize,
    ) -> impl Iterator<Item = (&'a str, ReferenceTargets<'a>)> + '_ {
        let part = self.parts[part_index];
        REFERENCES.iter().filter_map(move |name| {
            let reference = part.get(name)?.as_str()?;
            if *name != RECURSIVE {
                return Some((reference, self.resolve_reference(part_index, reference)));
            }
            // The text of a `$recursiveRef` is irrelevant.
            let mut found = self.enclosing_resource_indices(part_index);
            found.extend(&self.recursive);
            Some((reference, ReferenceTargets::Values(self.select_values_of_parts(found, Some))))
        })
    }

    fn resolve_reference(&self, part_index: usize, reference: &str) -> ReferenceTargets<'a> {
        let (address, fragment) = match reference.strip_prefix('#') {
            Some(fragment) => ("", fragment),
            None => reference.rsplit_once('#').unwrap_or((reference, "")),
        };
        let candidates = match address {
            "" => self.enclosing_resource_indices(part_index),
            other => self.resource_indices_by_address(other),
        };
        if candidates.is_empty() && META.contains(&address) && !self.has_dynamic {
            return ReferenceTargets::Meta;
        }
        if !address.is_empty() && !self.ids.contains(address) {
            return ReferenceTargets::Unknown;
        }
        let values = if fragment.is_empty() {
            self.select_values_of_parts(candidates, Some)
        } else if fragment.starts_with('/') {
            let path = percent_decode(fragment);
            self.select_values_of_parts(candidates, |part| {
                resolve_json_pointer(part, path.as_deref()?)
            })
        } else {
            let anchored = self.anchors.get(fragment).cloned().unwrap_or_default();
            self.select_values_of_parts(anchored, Some)
        };
        if values.is_empty() {
            return ReferenceTargets::Unknown;
        }
        ReferenceTargets::Values(values)
    }

    fn select_values_of_parts(
        &self,
        mut part_indices: Vec<usize>,
        select: impl Fn(&'a Value) -> Option<&'a Value>,
    ) -> Vec<&'a Value> {
        part_indices.sort_unstable();
        part_indices.dedup();
        let found =
            part_indices.into_iter().filter_map(|part_index| select(self.parts[part_index]));
        found.collect()
    }

    /// Returns the number of parts of the schema document that have an id.
    pub(super) fn schema_resource_count(&self) -> usize {
        self.unclear_ids.len() + self.resources.values().map(Vec::len).sum::<usize>()
    }

    /// Returns the indices of the parts that may contain the target of a reference without an
    /// address, such as `#/items`. `part_index` is the part with the reference.
    fn enclosing_resource_indices(&self, part_index: usize) -> Vec<usize> {
        let mut found = vec![0];
        found.extend(&self.unclear_ids);
        let mut segments = HashSet::new();
        let mut base = self.bases[part_index];
        loop {
            found.push(base);
            for id in self.schema_ids(self.parts[base]) {
                let id = id.trim_end_matches('#');
                if segments.insert(last_path_segment(id)) {
                    found.extend(self.resource_indices_by_address(id));
                }
            }
            if base == 0 || self.parent_bases[base] == base {
                return found;
            }
            base = self.parent_bases[base];
        }
    }

    /// Returns the indices of the parts whose id may mean this address. Only the last path segment
    /// is compared, because an id may be relative to another id.
    fn resource_indices_by_address(&self, address: &str) -> Vec<usize> {
        let mut found = self.unclear_ids.clone();
        match last_path_segment(address) {
            Some(segment) => found.extend(self.resources.get(segment).into_iter().flatten()),
            None => {
                found.extend(self.resources.values().flatten());
                found.push(0);
            }
        }
        found
    }

    /// Returns the indices of those values that are objects (parts) of the schema document. Other
    /// values are skipped.
    pub(super) fn schema_object_indices(&self, values: &[&Value]) -> Vec<usize> {
        let number = |value: &&Value| self.index.get(&std::ptr::from_ref(*value)).copied();
        values.iter().filter_map(number).collect()
    }
}

/// Returns whether any part of the document declares draft 4 as its version of JSON Schema.
fn declares_draft_4(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => {
            let dialect = fields.get("$schema").and_then(Value::as_str);
            dialect.is_some_and(|dialect| dialect.contains("draft-04"))
                || fields.values().any(declares_draft_4)
        }
        Value::Array(list) => list.iter().any(declares_draft_4),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Returns the last path segment of an address, such as `b.json` of `a/b.json`. `None` if resolving
/// or normalizing the address could change the segment.
fn last_path_segment(address: &str) -> Option<&str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let (path, segment) = address.rsplit_once('/').unwrap_or(("", address));
    let is_clear = !path.ends_with('/')
        && !path.contains(['?', '#', '%', '\\'])
        && segment.chars().all(is_plain)
        && !["", ".", ".."].contains(&segment);
    is_clear.then_some(segment)
}

/// Resolves a decoded JSON pointer. Unlike [`Value::pointer`], this function accepts any number as
/// an index, as the validator does.
fn resolve_json_pointer<'a>(root: &'a Value, path: &str) -> Option<&'a Value> {
    let segments = path.split('/').skip(1);
    segments.into_iter().try_fold(root, |value, segment| match value {
        Value::Array(list) => list.get(segment.parse::<usize>().ok()?),
        Value::Object(fields) => fields.get(&segment.replace("~1", "/").replace("~0", "~")),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    })
}

/// Decodes the percent escapes of a JSON pointer, such as `%7E`. Invalid escapes are left
/// unchanged. `None` if the result is not UTF-8.
fn percent_decode(fragment: &str) -> Option<String> {
    let digit = |byte: Option<&u8>| char::from(*byte?).to_digit(16);
    let mut rest = fragment.as_bytes();
    let mut bytes = Vec::with_capacity(rest.len());
    while let Some((first, after)) = rest.split_first() {
        let code = match (digit(after.first()), digit(after.get(1))) {
            (Some(high), Some(low)) if *first == b'%' => u8::try_from(high * 16 + low).ok(),
            _ => None,
        };
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[2..] } else { after };
    }
    String::from_utf8(bytes).ok()
}
