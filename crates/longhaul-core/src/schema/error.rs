//! Reasons why a JSON Schema is refused before it is compiled.

/// Maximum number of subschemas of a schema whose references are replaced.
pub const EXPANSION_MAX: u64 = 50_000;

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
