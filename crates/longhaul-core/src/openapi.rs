//! OpenAPI schemas of ids, names, times and other types whose JSON is a single value. Such a schema
//! has no entry of its own in a document: it is repeated wherever the type is used.

use std::borrow::Cow;

use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, SchemaFormat, SchemaType, Type};

/// Beginning of the names of these schemas. References to them are replaced by the schemas.
pub const INLINE_PREFIX: &str = "inline.";

/// Returns the name by which other schemas refer to the schema of a type.
pub(crate) fn inline_name(type_name: &str) -> Cow<'static, str> {
    format!("{INLINE_PREFIX}{type_name}").into()
}

pub(crate) fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

/// Returns the schema of an id with this prefix.
pub(crate) fn id(prefix: &str) -> ObjectBuilder {
    text().pattern(Some(format!("^{prefix}_[0-7][0-9a-hjkmnp-tv-z]{{25}}$")))
}

/// Returns the schema of a point in time. Times have six decimals, so they sort as text.
pub(crate) fn timestamp() -> ObjectBuilder {
    text().format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
}

/// Returns the schema of a hash in hexadecimal.
pub(crate) fn hash() -> ObjectBuilder {
    text().pattern(Some("^[0-9a-f]{64}$"))
}

/// Returns the schema of a name from a list.
pub(crate) fn one_of(names: impl IntoIterator<Item = &'static str>) -> ObjectBuilder {
    text().enum_values(Some(names))
}

/// Returns a schema that accepts any JSON value.
pub(crate) fn any_json() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(SchemaType::AnyValue)
}
