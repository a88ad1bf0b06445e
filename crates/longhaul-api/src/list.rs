//! One page of a list in a response.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Schema, SchemaType, Type};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

/// One page of a list in a response.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct List<T> {
    /// Items of this page, in order.
    pub data: Vec<T>,
    /// Value of the parameter `after` for the next page. `None` means that this is the last page.
    pub next: Option<String>,
}

// Written by hand because a derived schema has the items inline: generated clients would have a
// second type per resource.
impl<T: ToSchema> PartialSchema for List<T> {
    fn schema() -> RefOr<Schema> {
        let data = ArrayBuilder::new()
            .items(Ref::from_schema_name(T::name()))
            .description(Some("Items of this page, in order."));
        let next = ObjectBuilder::new()
            .schema_type(SchemaType::Array(vec![Type::String, Type::Null]))
            .description(Some(
                "Value of the parameter `after` for the next page. `None` means that this is the \
                 last page.",
            ));
        let list = ObjectBuilder::new()
            .description(Some("One page of a list in a response."))
            .property("data", data)
            .required("data")
            .property("next", next);
        RefOr::T(list.into())
    }
}

impl<T: ToSchema> ToSchema for List<T> {
    fn name() -> Cow<'static, str> {
        Cow::Owned(format!("List_{}", T::name()))
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((T::name().into_owned(), T::schema()));
        T::schemas(schemas);
    }
}
