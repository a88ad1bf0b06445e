//! The OpenAPI document of the API, generated from the handlers.

use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ArrayItems, ObjectBuilder, SchemaType, Type};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    Components, ContentBuilder, InfoBuilder, OpenApi as Document, PathItem, Ref, RefOr, Required,
    ResponseBuilder, Schema, Server,
};

use crate::api_router::api_router;

/// Aliases of fields in request bodies: name of the schema, alias, and name of the field.
const FIELD_ALIASES: [(&str, &str, &str); 5] = [
    ("NewRun", "threadId", "thread"),
    ("NewRun", "resourceId", "resource"),
    ("NewRun", "linkedGraphHandles", "links"),
    ("NewTask", "linkedGraphHandles", "links"),
    ("NewEvent", "linkedGraphHandles", "links"),
];

/// Builds the OpenAPI 3.1 document of the API.
pub fn openapi_document() -> Document {
    let mut document = api_router().into_openapi();
    document.info = InfoBuilder::new()
        .title("Longhaul")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "A durable runtime for AI agents. A run is a journal of events and outlives its \
             process. Every error response is a problem with a code and a hint.",
        ))
        .build();
    let mut components = document.components.take().unwrap_or_default();
    components.add_security_scheme("key", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
    add_field_aliases(&mut components);
    reference_list_items(&mut components);
    document.components = Some(components);
    document.servers = Some(vec![Server::new("/")]);
    document.security = Some(vec![SecurityRequirement::new("key", Vec::<String>::new())]);
    for item in document.paths.paths.values_mut() {
        item.post.iter_mut().for_each(add_idempotency_key);
        for operation in path_operations(item) {
            add_problem_response(operation);
            operation.parameters.iter_mut().flatten().for_each(remove_null_from_parameter);
        }
    }
    document
}

/// Adds the aliases of fields to the schemas of request bodies, which allow no unknown field.
fn add_field_aliases(components: &mut Components) {
    for (name, alias, field) in FIELD_ALIASES {
        if let Some(RefOr::T(Schema::Object(schema))) = components.schemas.get_mut(name)
            && let Some(property) = schema.properties.get(field).cloned()
        {
            schema.properties.insert(alias.to_owned(), property);
        }
    }
}

/// Replaces the inlined item schema of each `List_NAME` by a reference to the schema `NAME`, so that
/// generated clients have one type per resource.
fn reference_list_items(components: &mut Components) {
    let list_names = components.schemas.keys().filter_map(|name| name.strip_prefix("List_"));
    for name in list_names.map(str::to_owned).collect::<Vec<_>>() {
        if let Some(RefOr::T(Schema::Object(list))) =
            components.schemas.get_mut(&format!("List_{name}"))
            && let Some(RefOr::T(Schema::Array(data))) = list.properties.get_mut("data")
            && let ArrayItems::RefOrSchema(items) = &mut data.items
        {
            let item_schema = std::mem::replace(&mut **items, Ref::from_schema_name(&name).into());
            components.schemas.entry(name).or_insert(item_schema);
        }
    }
}

/// Adds the header `Idempotency-Key`, which every POST request may have.
fn add_idempotency_key(operation: &mut Operation) {
    let schema = ObjectBuilder::new()
        .schema_type(Type::String)
        .min_length(Some(1))
        .max_length(Some(255))
        .pattern(Some("^[ -~]*[!-~][ -~]*$"));
    let parameter = ParameterBuilder::new()
        .name("Idempotency-Key")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some("Retries with the same key take effect once"))
        .schema(Some(schema))
        .build();
    operation.parameters.get_or_insert_default().push(RefOr::T(parameter));
}

fn path_operations(path_item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [
        &mut path_item.get,
        &mut path_item.post,
        &mut path_item.put,
        &mut path_item.patch,
        &mut path_item.delete,
    ]
    .into_iter()
    .filter_map(Option::as_mut)
}

/// Removes `null` from the types of a query parameter: an optional parameter is left out, it is
/// never `null`.
fn remove_null_from_parameter(parameter: &mut RefOr<Parameter>) {
    if let RefOr::T(parameter) = parameter
        && let Some(RefOr::T(Schema::Object(object))) = &mut parameter.schema
        && let SchemaType::Array(types) = &mut object.schema_type
    {
        types.retain(|kind| *kind != Type::Null);
        if let [single_type] = types.as_slice() {
            object.schema_type = SchemaType::Type(single_type.clone());
        }
    }
}

/// Adds the default response of an API operation: an error response in the problem format.
fn add_problem_response(operation: &mut Operation) {
    let problem = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    let response = ResponseBuilder::new()
        .description("A problem")
        .content("application/problem+json", problem)
        .build();
    let responses = &mut operation.responses.responses;
    responses.insert("default".to_owned(), RefOr::T(response));
}
