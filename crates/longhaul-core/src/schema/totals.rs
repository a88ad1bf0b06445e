//! Counts of the subschemas that a value is checked against, in linear time.
//!
//! Invariant: no count is lower than what a validator visits. One keyword may make it
//! visit the same subschema several times.

use serde_json::Value;

use super::error::SchemaError;
use super::references::{Graph, Targets};

/// Keywords whose subschemas apply to the same value as the schema that holds them.
const IN_PLACE_LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
const IN_PLACE_SINGLE: [&str; 4] = ["not", "if", "then", "else"];
const IN_PLACE_MAPS: [&str; 2] = ["dependentSchemas", "dependencies"];

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

/// Keywords whose subschemas a validator checks once more to find out what they evaluate.
const REPEATED: [&str; 3] = ["contains", "unevaluatedItems", "unevaluatedProperties"];
const UNEVALUATED: [&str; 2] = ["unevaluatedItems", "unevaluatedProperties"];

/// Maximum number of targets of all references of a schema, candidates included.
const TARGETS_MAX: usize = 1_000_000;

/// Number of subschemas of a schema of schemas, and of those that look into one part.
const META_PARTS: u64 = 300;
const META_FANOUT: u64 = 2;

/// A subschema and those that its value and the parts of its value are checked against.
pub(super) struct Node<'a> {
    in_place: Vec<usize>,
    children: Vec<usize>,
    /// Those of `inner` that are checked once more for an enclosing `unevaluated...`.
    repeated: Vec<usize>,
    /// Whether it needs to know what the others evaluate.
    is_unevaluated: bool,
    /// Maximum number of `inner` and of `repeated` that apply to one field.
    fields: (u64, u64),
    /// The same for an item of a list.
    items: (u64, u64),
    /// Whether it refers to the schema of schemas.
    pub(super) is_meta: bool,
    /// A reference that leads to nothing.
    pub(super) unknown: Option<&'a str>,
}

/// What is summed up over subschemas.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Count {
    /// All that are contained, however deep in the value.
    Parts,
    /// Those that apply to the same value.
    Visits,
    /// Those that apply to one field of the same object.
    Fields,
    /// Those that apply to one item of the same list.
    Items,
}

impl Node<'_> {
    /// What it counts itself, and what it counts once more for an enclosing `unevaluated...`.
    fn own(&self, count: Count) -> (u64, u64) {
        let (own, repeated) = match count {
            Count::Parts | Count::Visits => (1, 1),
            Count::Fields => self.fields,
            Count::Items => self.items,
        };
        let meta = match count {
            Count::Parts | Count::Visits => META_PARTS,
            Count::Fields | Count::Items => META_FANOUT,
        };
        (own + if self.is_meta { meta } else { 0 }, repeated)
    }

    fn target(&self, at: usize, count: Count) -> Option<usize> {
        let inner = || self.children.get(at - self.in_place.len());
        let same = self.in_place.get(at);
        same.or_else(|| inner().filter(|_| count == Count::Parts)).copied()
    }
}

pub(super) fn build_nodes<'a>(graph: &Graph<'a>) -> Result<Vec<Node<'a>>, SchemaError> {
    let mut nodes = Vec::with_capacity(graph.parts.len());
    let mut referred = 0;
    for (at, part) in graph.parts.iter().enumerate() {
        let mut same = subschemas(part, (&IN_PLACE_LISTS, &IN_PLACE_SINGLE, &IN_PLACE_MAPS));
        let (mut is_meta, mut unknown) = (false, None);
        for (to, targets) in graph.resolved_references(at) {
            referred += graph.resource_count();
            match targets {
                Targets::Values(values) => {
                    referred += values.len();
                    same.extend(values);
                }
                Targets::Meta => is_meta = true,
                Targets::Unknown => unknown = Some(to),
            }
            if referred > TARGETS_MAX {
                return Err(SchemaError::Expansion);
            }
        }
        let inner = subschemas(part, (&PART_LISTS, &PART_SINGLE, &PART_MAPS));
        nodes.push(Node {
            in_place: graph.indices_of(&same),
            children: graph.indices_of(&inner),
            repeated: graph.indices_of(&subschemas(part, (&[], &REPEATED, &[]))),
            is_unevaluated: UNEVALUATED.iter().any(|name| part.get(name).is_some()),
            fields: field_fanout(part),
            items: item_fanout(part),
            is_meta,
            unknown,
        });
    }
    Ok(nodes)
}

/// How many subschemas under this keyword can lead deeper into a value.
fn count_object_subschemas(part: &Value, kinds: (&[&str], &[&str], &[&str])) -> u64 {
    let found = subschemas(part, kinds);
    found.into_iter().filter(|one| one.is_object()).count() as u64
}

/// Maximum number of subschemas of a part that apply to one field of an object, and of
/// those among them that may be repeated.
fn field_fanout(part: &Value) -> (u64, u64) {
    let named = count_object_subschemas(part, (&[], &[], &["properties"])).min(1);
    let patterns = count_object_subschemas(part, (&[], &[], &["patternProperties"]));
    // It applies to those fields alone that none of the others applies to.
    let additional = count_object_subschemas(part, (&[], &["additionalProperties"], &[]));
    let unevaluated = count_object_subschemas(part, (&[], &["unevaluatedProperties"], &[]));
    ((named + patterns).max(additional) + unevaluated, unevaluated)
}

/// The same for one item of a list.
fn item_fanout(part: &Value) -> (u64, u64) {
    let placed = count_object_subschemas(part, (&["prefixItems"], &[], &[])).min(1);
    let listed = count_object_subschemas(part, (&["items"], &[], &[])).min(1);
    let every = count_object_subschemas(part, (&[], &["additionalItems"], &[]));
    let every = every + u64::from(part.get("items").is_some_and(Value::is_object));
    let repeated = count_object_subschemas(part, (&[], &["contains", "unevaluatedItems"], &[]));
    (placed + listed + every + repeated, repeated)
}

/// The values of a schema under keywords that hold lists, one schema or maps of schemas.
fn subschemas<'a>(part: &'a Value, kinds: (&[&str], &[&str], &[&str])) -> Vec<&'a Value> {
    let (lists, singles, maps) = kinds;
    let mut found = Vec::new();
    for name in lists {
        found.extend(part.get(name).and_then(Value::as_array).into_iter().flatten());
    }
    found.extend(singles.iter().filter_map(|name| part.get(name)));
    for name in maps {
        let map = part.get(name).and_then(Value::as_object);
        found.extend(map.into_iter().flat_map(|map| map.values()));
    }
    found
}

/// Totals over subschemas: of each its own count and the totals of its targets.
pub(super) struct Totals {
    /// Zero for those that were not reached.
    pub(super) totals: Vec<u64>,
    /// What finding out the evaluated parts of a value counts once more.
    repeated: Vec<u64>,
    /// One that is reached from itself.
    pub(super) cycle: Option<usize>,
}

impl Totals {
    pub(super) fn max(&self) -> u64 {
        self.totals.iter().copied().max().unwrap_or(0)
    }

    /// Sets the totals of a node whose targets have theirs.
    fn set(&mut self, at: usize, node: &Node<'_>, count: Count) {
        let (mut own, mut repeated) = node.own(count);
        for to in &node.in_place {
            let (total, again) = (self.totals[*to], self.repeated[*to]);
            own = own.saturating_add(total);
            repeated = repeated.saturating_add(total).saturating_add(again);
        }
        if count == Count::Parts {
            let add = |sum: u64, to: &usize| sum.saturating_add(self.totals[*to]);
            own = node.children.iter().fold(own, add);
            repeated = node.repeated.iter().fold(repeated, add);
        }
        if node.is_unevaluated {
            own = own.saturating_add(repeated);
        }
        self.totals[at] = own;
        self.repeated[at] = repeated;
    }
}

pub(super) fn compute_totals(
    nodes: &[Node<'_>],
    count: Count,
    starts: impl Iterator<Item = usize>,
) -> Totals {
    let mut sums =
        Totals { totals: vec![0; nodes.len()], repeated: vec![0; nodes.len()], cycle: None };
    let mut is_open = vec![false; nodes.len()];
    let mut is_done = vec![false; nodes.len()];
    let mut stack = Vec::new();
    for start in starts.filter(|start| *start < nodes.len()) {
        if !is_done[start] {
            stack.push((start, 0));
            is_open[start] = true;
        }
        while let Some((at, next)) = stack.pop() {
            let Some(to) = nodes[at].target(next, count) else {
                sums.set(at, &nodes[at], count);
                is_open[at] = false;
                is_done[at] = true;
                continue;
            };
            stack.push((at, next + 1));
            if is_open[to] {
                sums.cycle.get_or_insert(to);
            } else if !is_done[to] {
                stack.push((to, 0));
                is_open[to] = true;
            }
        }
    }
    sums
}
