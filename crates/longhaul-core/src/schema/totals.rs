//! Counts the subschemas that a value is validated against, in linear time.
//!
//! Invariant: no count is lower than the number of subschemas that a validator visits. One keyword
//! may make a validator visit the same subschema several times.

use serde_json::Value;

use super::error::SchemaError;
use super::references::{ReferenceTargets, SchemaGraph};

/// Keywords whose subschemas apply to the same value as the schema that contains them.
const IN_PLACE_LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
const IN_PLACE_SINGLE: [&str; 4] = ["not", "if", "then", "else"];
const IN_PLACE_MAPS: [&str; 2] = ["dependentSchemas", "dependencies"];

/// Keywords whose subschemas apply to a part of the value, such as a list item.
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

/// Keywords whose subschemas a validator evaluates again to find out which parts of a value they
/// cover.
const REPEATED: [&str; 3] = ["contains", "unevaluatedItems", "unevaluatedProperties"];
const UNEVALUATED: [&str; 2] = ["unevaluatedItems", "unevaluatedProperties"];

/// Maximum number of possible targets of the references in a schema, summed over all references.
const TARGETS_MAX: usize = 1_000_000;

/// Number of subschemas that are counted for a meta-schema (a schema that describes JSON Schemas).
const META_PARTS: u64 = 300;
const META_FANOUT: u64 = 2;

/// A subschema, with the indices of the subschemas against which its value and the parts of that
/// value are validated.
pub(super) struct SchemaNode<'a> {
    in_place: Vec<usize>,
    children: Vec<usize>,
    /// Those of `children` that a validator evaluates again if an enclosing schema has the keyword
    /// `unevaluatedItems` or `unevaluatedProperties`.
    repeated: Vec<usize>,
    /// Whether the subschema has the keyword `unevaluatedItems` or `unevaluatedProperties`, whose
    /// result depends on other subschemas.
    is_unevaluated: bool,
    /// Maximum number of subschemas that apply to one field of an object, and how many of them may
    /// be evaluated again.
    fields: (u64, u64),
    /// Maximum number of subschemas that apply to one item of a list, and how many of them may be
    /// evaluated again.
    items: (u64, u64),
    /// Whether the subschema refers to a meta-schema (a schema that describes JSON Schemas).
    pub(super) is_meta: bool,
    /// Reference of the subschema whose target was not found. `None` if all targets were found.
    pub(super) unknown: Option<&'a str>,
}

/// Which of the subschemas in a schema are counted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SubschemaCountKind {
    /// All contained subschemas, whatever part of the value they apply to.
    Parts,
    /// Subschemas that apply to the same value as the subschema that contains them.
    Visits,
    /// Subschemas that apply to one field of an object.
    Fields,
    /// Subschemas that apply to one item of a list.
    Items,
}

impl SchemaNode<'_> {
    /// Returns how many subschemas this subschema counts as by itself, and how many of them are
    /// evaluated again if an enclosing schema has `unevaluatedItems` or `unevaluatedProperties`.
    fn own_and_repeated_subschema_counts(&self, count_kind: SubschemaCountKind) -> (u64, u64) {
        let (own, repeated) = match count_kind {
            SubschemaCountKind::Parts | SubschemaCountKind::Visits => (1, 1),
            SubschemaCountKind::Fields => self.fields,
            SubschemaCountKind::Items => self.items,
        };
        let meta = match count_kind {
            SubschemaCountKind::Parts | SubschemaCountKind::Visits => META_PARTS,
            SubschemaCountKind::Fields | SubschemaCountKind::Items => META_FANOUT,
        };
        (own + if self.is_meta { meta } else { 0 }, repeated)
    }

    /// Returns the index of the counted subschema with this number, from 0: first those for the
    /// same value, then, if all `Parts` are counted, those for parts of the value. `None` if there
    /// are no more.
    fn index_of_nth_counted_subschema(
        &self,
        position: usize,
        count_kind: SubschemaCountKind,
    ) -> Option<usize> {
        let child = || self.children.get(position - self.in_place.len());
        let in_place = self.in_place.get(position);
        in_place.or_else(|| child().filter(|_| count_kind == SubschemaCountKind::Parts)).copied()
    }
}

pub(super) fn build_schema_nodes<'a>(
    graph: &SchemaGraph<'a>,
) -> Result<Vec<SchemaNode<'a>>, SchemaError> {
    let mut nodes = Vec::with_capacity(graph.parts.len());
    let mut target_count = 0;
    for (node_index, part) in graph.parts.iter().enumerate() {
        let mut in_place =
            find_subschemas(part, (&IN_PLACE_LISTS, &IN_PLACE_SINGLE, &IN_PLACE_MAPS));
        let (mut is_meta, mut unknown) = (false, None);
        for (to, targets) in graph.resolved_references(node_index) {
            target_count += graph.schema_resource_count();
            match targets {
                ReferenceTargets::Values(values) => {
                    target_count += values.len();
                    in_place.extend(values);
                }
                ReferenceTargets::Meta => is_meta = true,
                ReferenceTargets::Unknown => unknown = Some(to),
            }
            if target_count > TARGETS_MAX {
                return Err(SchemaError::Expansion);
            }
        }
        let inner = find_subschemas(part, (&PART_LISTS, &PART_SINGLE, &PART_MAPS));
        nodes.push(SchemaNode {
            in_place: graph.schema_object_indices(&in_place),
            children: graph.schema_object_indices(&inner),
            repeated: graph.schema_object_indices(&find_subschemas(part, (&[], &REPEATED, &[]))),
            is_unevaluated: UNEVALUATED.iter().any(|name| part.get(name).is_some()),
            fields: max_and_repeated_subschemas_per_field(part),
            items: max_and_repeated_subschemas_per_item(part),
            is_meta,
            unknown,
        });
    }
    Ok(nodes)
}

/// Counts the subschemas of a part that are objects and may thus contain further subschemas. The
/// three lists of keywords are those that contain a list of schemas, a single schema and a map of
/// schemas.
fn count_object_subschemas(part: &Value, keywords_by_kind: (&[&str], &[&str], &[&str])) -> u64 {
    let subschemas = find_subschemas(part, keywords_by_kind);
    subschemas.into_iter().filter(|subschema| subschema.is_object()).count() as u64
}

/// Returns how many subschemas of a schema part apply to one field of an object at most, and how
/// many of them the validator may evaluate a second time for the same field.
fn max_and_repeated_subschemas_per_field(part: &Value) -> (u64, u64) {
    let properties = count_object_subschemas(part, (&[], &[], &["properties"])).min(1);
    let patterns = count_object_subschemas(part, (&[], &[], &["patternProperties"]));
    // `additionalProperties` only applies to fields that no other keyword applies to.
    let additional = count_object_subschemas(part, (&[], &["additionalProperties"], &[]));
    let unevaluated = count_object_subschemas(part, (&[], &["unevaluatedProperties"], &[]));
    ((properties + patterns).max(additional) + unevaluated, unevaluated)
}

/// Returns how many subschemas of a schema part apply to one item of a list at most, and how many
/// of them the validator may evaluate a second time for the same item.
fn max_and_repeated_subschemas_per_item(part: &Value) -> (u64, u64) {
    let prefix_items = count_object_subschemas(part, (&["prefixItems"], &[], &[])).min(1);
    let positional_items = count_object_subschemas(part, (&["items"], &[], &[])).min(1);
    let other_items = count_object_subschemas(part, (&[], &["additionalItems"], &[]));
    let other_items = other_items + u64::from(part.get("items").is_some_and(Value::is_object));
    let repeated = count_object_subschemas(part, (&[], &["contains", "unevaluatedItems"], &[]));
    (prefix_items + positional_items + other_items + repeated, repeated)
}

/// Returns the subschemas of a part under these keywords. The three lists of keywords are those
/// that contain a list of schemas, a single schema and a map of schemas.
fn find_subschemas<'a>(
    part: &'a Value,
    keywords_by_kind: (&[&str], &[&str], &[&str]),
) -> Vec<&'a Value> {
    let (lists, singles, maps) = keywords_by_kind;
    let mut subschemas = Vec::new();
    for name in lists {
        subschemas.extend(part.get(name).and_then(Value::as_array).into_iter().flatten());
    }
    subschemas.extend(singles.iter().filter_map(|name| part.get(name)));
    for name in maps {
        let map = part.get(name).and_then(Value::as_object);
        subschemas.extend(map.into_iter().flat_map(|map| map.values()));
    }
    subschemas
}

/// Totals over subschemas: the count of each subschema plus the totals of the subschemas that it
/// contains or refers to.
pub(super) struct SubschemaCountTotals {
    /// Total of each subschema, by index. Zero for subschemas that were not reached.
    pub(super) totals: Vec<u64>,
    /// For each subschema, the number of subschemas that a validator evaluates again to find out
    /// which fields and items the subschema covers.
    repeated: Vec<u64>,
    /// Index of a subschema that refers to itself, directly or through other subschemas. `None` if
    /// there is none.
    pub(super) cycle: Option<usize>,
}

impl SubschemaCountTotals {
    pub(super) fn max_subschema_total(&self) -> u64 {
        self.totals.iter().copied().max().unwrap_or(0)
    }

    /// Computes the total of one subschema. The totals of the subschemas that it contains or refers
    /// to must be computed already.
    fn compute_subschema_total(
        &mut self,
        node_index: usize,
        node: &SchemaNode<'_>,
        count_kind: SubschemaCountKind,
    ) {
        let (mut own, mut repeated) = node.own_and_repeated_subschema_counts(count_kind);
        for to in &node.in_place {
            let (total, total_repeated) = (self.totals[*to], self.repeated[*to]);
            own = own.saturating_add(total);
            repeated = repeated.saturating_add(total).saturating_add(total_repeated);
        }
        if count_kind == SubschemaCountKind::Parts {
            let add = |sum: u64, to: &usize| sum.saturating_add(self.totals[*to]);
            own = node.children.iter().fold(own, add);
            repeated = node.repeated.iter().fold(repeated, add);
        }
        if node.is_unevaluated {
            own = own.saturating_add(repeated);
        }
        self.totals[node_index] = own;
        self.repeated[node_index] = repeated;
    }
}

pub(super) fn compute_subschema_totals(
    nodes: &[SchemaNode<'_>],
    count_kind: SubschemaCountKind,
    starts: impl Iterator<Item = usize>,
) -> SubschemaCountTotals {
    let mut totals = SubschemaCountTotals {
        totals: vec![0; nodes.len()],
        repeated: vec![0; nodes.len()],
        cycle: None,
    };
    let mut is_open = vec![false; nodes.len()];
    let mut is_done = vec![false; nodes.len()];
    let mut stack = Vec::new();
    for start in starts.filter(|start| *start < nodes.len()) {
        if !is_done[start] {
            stack.push((start, 0));
            is_open[start] = true;
        }
        while let Some((node_index, next)) = stack.pop() {
            let Some(to) = nodes[node_index].index_of_nth_counted_subschema(next, count_kind)
            else {
                totals.compute_subschema_total(node_index, &nodes[node_index], count_kind);
                is_open[node_index] = false;
                is_done[node_index] = true;
                continue;
            };
            stack.push((node_index, next + 1));
            if is_open[to] {
                totals.cycle.get_or_insert(to);
            } else if !is_done[to] {
                stack.push((to, 0));
                is_open[to] = true;
            }
        }
    }
    totals
}
