//! Reasons why a JSON Schema is refused before it is compiled.

/// Maximum number of subschemas of a schema after its references were replaced by their targets.
pub const EXPANSION_MAX: u64 = 50_000;

/// Reason why a schema is rejected before it is compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// A part of the schema refers to itself for the same value, so validation would never end.
    #[error(
        "at {0}, the schema refers to itself by references alone, so that any data would match: \
         specify what the data is there, such as {{\"type\": \"object\"}}"
    )]
    Cycle(String),
    /// The schema has too many subschemas after its references were replaced by their targets.
    #[error(
        "the schema has more than {EXPANSION_MAX} parts if its references are replaced by their \
         targets, too many to validate an answer: refer to each definition from fewer places"
    )]
    Expansion,
    /// The schema refers to another document, which is not fetched.
    #[error("the schema refers to `{0}`, but external references are not fetched: use `$defs`")]
    Reference(String),
}
