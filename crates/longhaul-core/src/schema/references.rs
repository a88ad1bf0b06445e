//! Where the references of a JSON Schema lead.
//!
//! Invariant: every subschema that a validator may take for the target of a reference is
//! among those that are found. Drafts differ in what gives a subschema its address, so
//! where that is unclear each candidate is a target.

use std::collections::{HashMap, HashSet, VecDeque};

use serde_json::Value;

/// Keywords that refer to another subschema.
pub(super) const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", RECURSIVE];
const RECURSIVE: &str = "$recursiveRef";

/// Keywords that name a subschema.
const ANCHORS: [&str; 2] = ["$anchor", "$dynamicAnchor"];

/// Addresses of the schemas of schemas, which every validator knows.
const META: [&str; 5] = [
    "http://json-schema.org/draft-04/schema",
    "http://json-schema.org/draft-06/schema",
    "http://json-schema.org/draft-07/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
];

/// What a reference leads to.
pub(super) enum Targets<'a> {
    /// To each of these, of which the validator takes one.
    Values(Vec<&'a Value>),
    /// To the schema of schemas.
    Meta,
    /// To nothing that the document contains.
    Unknown,
}

/// The objects of a schema document, by their place in memory.
#[derive(Default)]
pub(super) struct Graph<'a> {
    pub(super) parts: Vec<&'a Value>,
    index: HashMap<*const Value, usize>,
    /// The nearest part with an id that contains each part, which may be itself.
    bases: Vec<usize>,
    /// The same of each part's parent.
    parent_bases: Vec<usize>,
    /// Whether `id` gives an address, as it does in draft 4.
    has_plain_id: bool,
    ids: HashSet<&'a str>,
    /// The parts with an id, by the last segment of its path.
    resources: HashMap<&'a str, Vec<usize>>,
    /// The parts with an id whose last segment is unclear.
    unclear_ids: Vec<usize>,
    anchors: HashMap<&'a str, Vec<usize>>,
    /// The parts that `$recursiveRef` may lead to from anywhere.
    recursive: Vec<usize>,
    /// Whether a reference inside of the schema of schemas may lead back to the document.
    has_dynamic: bool,
}

impl<'a> Graph<'a> {
    pub(super) fn new(schema: &'a Value) -> Self {
        let mut graph = Self { has_plain_id: declares_draft_4(schema), ..Self::default() };
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
    fn add(&mut self, part: &'a Value, outer: usize) -> usize {
        let at = self.parts.len();
        let text = |name: &str| part.get(name).and_then(Value::as_str);
        let mut base = outer;
        for id in self.ids_of(part) {
            if let Some(anchor) = id.strip_prefix('#') {
                self.anchors.entry(anchor).or_default().push(at);
            }
            let id = id.trim_end_matches('#');
            self.ids.insert(id);
            match last_segment(id) {
                Some(segment) => self.resources.entry(segment).or_default().push(at),
                None => self.unclear_ids.push(at),
            }
            base = at;
        }
        for anchor in ANCHORS.iter().filter_map(|name| text(name)) {
            self.anchors.entry(anchor).or_default().push(at);
        }
        if part.get("$recursiveAnchor").is_some() {
            self.recursive.push(at);
        }
        self.has_dynamic |=
            part.get("$recursiveAnchor").is_some() || part.get("$dynamicAnchor").is_some();
        self.parts.push(part);
        self.bases.push(base);
        self.parent_bases.push(outer);
        self.index.insert(std::ptr::from_ref(part), at);
        base
    }

    fn ids_of(&self, part: &'a Value) -> Vec<&'a str> {
        let plain = self.has_plain_id.then_some("id");
        let names = ["$id"].into_iter().chain(plain);
        names.filter_map(|name| part.get(name)?.as_str()).collect()
    }

    /// What the references of the part `at` lead to, each with its text.
    pub(super) fn resolved_references(
        &self,
        at: usize,
    ) -> impl Iterator<Item = (&'a str, Targets<'a>)> + '_ {
        let part = self.parts[at];
        REFERENCES.iter().filter_map(move |name| {
            let to = part.get(name)?.as_str()?;
            if *name != RECURSIVE {
                return Some((to, self.resolve(at, to)));
            }
            // Its text is of no account.
            let mut found = self.enclosing_resources(at);
            found.extend(&self.recursive);
            Some((to, Targets::Values(self.values(found, Some))))
        })
    }

    fn resolve(&self, at: usize, to: &str) -> Targets<'a> {
        let (address, fragment) = match to.strip_prefix('#') {
            Some(fragment) => ("", fragment),
            None => to.rsplit_once('#').unwrap_or((to, "")),
        };
        let candidates = match address {
            "" => self.enclosing_resources(at),
            other => self.resources_like(other),
        };
        if candidates.is_empty() && META.contains(&address) && !self.has_dynamic {
            return Targets::Meta;
        }
        if !address.is_empty() && !self.ids.contains(address) {
            return Targets::Unknown;
        }
        let values = if fragment.is_empty() {
            self.values(candidates, Some)
        } else if fragment.starts_with('/') {
            let path = percent_decoded(fragment);
            self.values(candidates, |part| resolve_pointer(part, path.as_deref()?))
        } else {
            let named = self.anchors.get(fragment).cloned().unwrap_or_default();
            self.values(named, Some)
        };
        if values.is_empty() {
            return Targets::Unknown;
        }
        Targets::Values(values)
    }

    fn values(
        &self,
        mut parts: Vec<usize>,
        of: impl Fn(&'a Value) -> Option<&'a Value>,
    ) -> Vec<&'a Value> {
        parts.sort_unstable();
        parts.dedup();
        let found = parts.into_iter().filter_map(|at| of(self.parts[at]));
        found.collect()
    }

    /// Number of parts with an id.
    pub(super) fn resource_count(&self) -> usize {
        self.unclear_ids.len() + self.resources.values().map(Vec::len).sum::<usize>()
    }

    /// Parts that a reference without an address may be relative to.
    fn enclosing_resources(&self, at: usize) -> Vec<usize> {
        let mut found = vec![0];
        found.extend(&self.unclear_ids);
        let mut segments = HashSet::new();
        let mut base = self.bases[at];
        loop {
            found.push(base);
            for id in self.ids_of(self.parts[base]) {
                let id = id.trim_end_matches('#');
                if segments.insert(last_segment(id)) {
                    found.extend(self.resources_like(id));
                }
            }
            if base == 0 || self.parent_bases[base] == base {
                return found;
            }
            base = self.parent_bases[base];
        }
    }

    /// Parts whose address may be this one, whatever both are relative to.
    fn resources_like(&self, address: &str) -> Vec<usize> {
        let mut found = self.unclear_ids.clone();
        match last_segment(address) {
            Some(segment) => found.extend(self.resources.get(segment).into_iter().flatten()),
            None => {
                found.extend(self.resources.values().flatten());
                found.push(0);
            }
        }
        found
    }

    /// Those of these values that are objects, by their numbers.
    pub(super) fn indices_of(&self, values: &[&Value]) -> Vec<usize> {
        let number = |value: &&Value| self.index.get(&std::ptr::from_ref(*value)).copied();
        values.iter().filter_map(number).collect()
    }
}

/// Whether a part of a document says that it follows draft 4.
fn declares_draft_4(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => {
            let named = fields.get("$schema").and_then(Value::as_str);
            named.is_some_and(|named| named.contains("draft-04"))
                || fields.values().any(declares_draft_4)
        }
        Value::Array(list) => list.iter().any(declares_draft_4),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The last segment of an address's path, if it stays the same whatever the address is
/// relative to and however it is normalized.
fn last_segment(address: &str) -> Option<&str> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let (path, segment) = address.rsplit_once('/').unwrap_or(("", address));
    let is_clear = !path.ends_with('/')
        && !path.contains(['?', '#', '%', '\\'])
        && segment.chars().all(is_plain)
        && !["", ".", ".."].contains(&segment);
    is_clear.then_some(segment)
}

/// The value at a pointer whose characters are decoded. Unlike [`Value::pointer`] it takes
/// any number for an index, as the validator does.
fn resolve_pointer<'a>(root: &'a Value, path: &str) -> Option<&'a Value> {
    let segments = path.split('/').skip(1);
    segments.into_iter().try_fold(root, |value, segment| match value {
        Value::Array(list) => list.get(segment.parse::<usize>().ok()?),
        Value::Object(fields) => fields.get(&segment.replace("~1", "/").replace("~0", "~")),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    })
}

/// A pointer as it is meant: in an address a character may be written as `%7E`. What only
/// looks like it stays as it is.
fn percent_decoded(fragment: &str) -> Option<String> {
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
