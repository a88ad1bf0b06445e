//! The OpenAPI document of the API, generated from the table of operations when it is asked for.

use longhaul_api::operation::{BodyKind, Content, Method, Operation as ApiOperation};
use longhaul_api::operations::TAGS;
use longhaul_api::path::PathParams;
use longhaul_api::problem::Problem;
use longhaul_core::openapi::INLINE_PREFIX;
use serde_json::{Map, Value, json};
use utoipa::openapi::path::{
    HttpMethod, Operation, OperationBuilder, Parameter, ParameterBuilder, ParameterIn,
};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{
    Components, ContentBuilder, InfoBuilder, OneOfBuilder, OpenApi as Document, Paths, Ref, RefOr,
    Required, Response, ResponseBuilder, Schema, Server,
};
use utoipa::{IntoParams, ToSchema};

/// Aliases of fields in request bodies: name of the schema, alias, and name of the field.
const FIELD_ALIASES: [(&str, &str, &str); 5] = [
    ("NewRun", "threadId", "thread"),
    ("NewRun", "resourceId", "resource"),
    ("NewRun", "linkedGraphHandles", "links"),
    ("NewTask", "linkedGraphHandles", "links"),
    ("NewEvent", "linkedGraphHandles", "links"),
];

/// Returns the OpenAPI 3.1 document without operations.
pub(crate) fn empty_document() -> Document {
    let info = InfoBuilder::new()
        .title("Longhaul")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "A durable runtime for AI agents. A run is a journal of events and outlives its \
             process. Every error response is a problem with a code and a hint.",
        ))
        .build();
    let mut document = Document::new(info, Paths::new());
    let mut components = Components::new();
    components.add_security_scheme("key", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
    document.components = Some(components);
    add_schema::<Problem>(&mut document);
    let tags = TAGS.iter().map(|(name, description)| {
        TagBuilder::new().name(*name).description(Some(*description)).build()
    });
    document.tags = Some(tags.collect());
    document.servers = Some(vec![Server::new("/")]);
    document.security = Some(vec![SecurityRequirement::new("key", Vec::<String>::new())]);
    document
}

/// Adds an operation of the API to the document.
pub(crate) fn add_operation<P: PathParams, Q: IntoParams, B: ToSchema, A: ToSchema>(
    document: &mut Document,
    operation: &ApiOperation<P, Q, B, A>,
) {
    let lines: Vec<&str> = operation.doc.lines().map(str::trim).collect();
    let mut builder = OperationBuilder::new()
        .tag(operation.tag)
        .operation_id(Some(operation.name.to_ascii_lowercase()))
        .summary(Some(lines.join(" ")));
    let mut parameters = path_parameters::<P>(operation.path);
    let mut query = Q::into_params(|| Some(ParameterIn::Query));
    query.iter_mut().for_each(remove_null_from_parameter);
    parameters.extend(query);
    if operation.content != Content::Json {
        parameters.push(last_event_id_parameter());
    }
    let method = match operation.method {
        Method::Get => HttpMethod::Get,
        Method::Post => HttpMethod::Post,
        Method::Patch => HttpMethod::Patch,
        Method::Delete => HttpMethod::Delete,
    };
    if operation.method == Method::Post {
        parameters.push(idempotency_key_parameter());
    }
    for parameter in parameters {
        builder = builder.parameter(parameter);
    }
    if operation.body != BodyKind::None {
        let is_required = operation.body == BodyKind::Required;
        let reference = RefOr::from(add_schema::<B>(document));
        let schema: RefOr<Schema> = match is_required {
            true => reference,
            false => {
                let null = ObjectBuilder::new().schema_type(Type::Null);
                Schema::from(OneOfBuilder::new().item(reference).item(null).build()).into()
            }
        };
        let content = ContentBuilder::new().schema(Some(schema)).build();
        let body = RequestBodyBuilder::new().content("application/json", content);
        builder = builder.request_body(Some(match is_required {
            true => body.required(Some(Required::True)).build(),
            false => body.build(),
        }));
    }
    for (status, meaning) in operation.responses {
        let response = describe_response::<A>(document, operation.content, meaning);
        builder = builder.response(status.to_string(), response);
    }
    builder = builder.response("default", problem_response());
    if operation.role.is_none() {
        builder = builder.security(SecurityRequirement::default());
    }
    let operation_entry: Operation = builder.build();
    document.paths.add_path_operation(operation.path, vec![method], operation_entry);
}

fn path_parameters<P: PathParams>(path: &str) -> Vec<Parameter> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let parameters = names.zip(P::describe()).map(|(name, (description, schema))| {
        ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Path)
            .required(Required::True)
            .description(Some(description))
            .schema(Some(schema))
            .build()
    });
    parameters.collect()
}

/// Adds the schema of a type, and of all types in it, to the document. Returns a reference to it.
fn add_schema<T: ToSchema>(document: &mut Document) -> Ref {
    let mut schemas = vec![(T::name().into_owned(), T::schema())];
    T::schemas(&mut schemas);
    let components = document.components.get_or_insert_default();
    components.schemas.extend(schemas);
    Ref::from_schema_name(T::name())
}

fn describe_response<A: ToSchema>(
    document: &mut Document,
    content: Content,
    meaning: &str,
) -> Response {
    let mut response = ResponseBuilder::new().description(meaning);
    if content != Content::Stream {
        let json = ContentBuilder::new().schema(Some(add_schema::<A>(document))).build();
        response = response.content("application/json", json);
    }
    if content != Content::Json {
        let text = ObjectBuilder::new().schema_type(Type::String);
        let stream = ContentBuilder::new().schema(Some(Schema::from(text))).build();
        response = response.content("text/event-stream", stream);
    }
    response.build()
}

/// Adds the aliases of fields to the schemas of request bodies, which allow no unknown field.
pub(crate) fn add_field_aliases(document: &mut Document) {
    let Some(components) = &mut document.components else { return };
    for (name, alias, field) in FIELD_ALIASES {
        if let Some(RefOr::T(Schema::Object(schema))) = components.schemas.get_mut(name)
            && let Some(property) = schema.properties.get(field).cloned()
        {
            schema.properties.insert(alias.to_owned(), property);
        }
    }
}

/// Replaces references to schemas that have no entry of their own by these schemas.
pub(crate) fn inline_schemas(document: &mut Value) {
    let Some(Value::Object(schemas)) = document.pointer_mut("/components/schemas") else { return };
    let all = std::mem::take(schemas).into_iter();
    let (inline, named) = all.partition(|(name, _)| name.starts_with(INLINE_PREFIX));
    *schemas = named;
    replace_references(document, &inline);
}

fn replace_references(value: &mut Value, inline: &Map<String, Value>) {
    if let Value::Array(items) = value {
        items.iter_mut().for_each(|item| replace_references(item, inline));
    } else if let Value::Object(fields) = value {
        let target = fields.get("$ref").and_then(Value::as_str);
        let name = target.and_then(|target| target.strip_prefix("#/components/schemas/"));
        if let Some(Value::Object(schema)) = name.and_then(|name| inline.get(name)) {
            fields.remove("$ref");
            fields.extend(schema.clone());
        }
        fields.values_mut().for_each(|field| replace_references(field, inline));
        merge_null(fields);
    }
}

/// Writes a choice between `null` and a schema of a single value as one schema.
fn merge_null(fields: &mut Map<String, Value>) {
    let null = json!({ "type": "null" });
    let schema = match fields.get("oneOf").and_then(Value::as_array).map(Vec::as_slice) {
        Some([first, Value::Object(schema)]) if *first == null => schema,
        Some([Value::Object(schema), second]) if *second == null => schema,
        _ => return,
    };
    let is_single = schema.get("type").is_none_or(|kind| kind == "string");
    if !is_single || schema.contains_key("enum") || schema.contains_key("$ref") {
        return;
    }
    let mut schema = schema.clone();
    if let Some(kind) = schema.get_mut("type") {
        *kind = json!([kind, "null"]);
    }
    fields.remove("oneOf");
    fields.extend(schema);
}

/// Returns the header `Idempotency-Key`, which every POST request may have.
fn idempotency_key_parameter() -> Parameter {
    let schema = ObjectBuilder::new()
        .schema_type(Type::String)
        .min_length(Some(1))
        .max_length(Some(255))
        .pattern(Some("^[ -~]*[!-~][ -~]*$"));
    ParameterBuilder::new()
        .name("Idempotency-Key")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some("Retries with the same key take effect once"))
        .schema(Some(schema))
        .build()
}

/// Returns the header `Last-Event-ID`, which a request for an event stream may have.
fn last_event_id_parameter() -> Parameter {
    let schema =
        ObjectBuilder::new().schema_type(Type::String).pattern(Some("^[\\t ]*[0-9]{0,19}[\\t ]*$"));
    ParameterBuilder::new()
        .name("Last-Event-ID")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(
            "For streams: id of the last received event; sent by browsers when they reconnect",
        ))
        .schema(Some(schema))
        .build()
}

/// Removes `null` from the types of a query parameter: an optional parameter is left out, it is
/// never `null`.
fn remove_null_from_parameter(parameter: &mut Parameter) {
    if let Some(RefOr::T(Schema::Object(object))) = &mut parameter.schema
        && let SchemaType::Array(types) = &mut object.schema_type
    {
        types.retain(|kind| *kind != Type::Null);
        if let [single_type] = types.as_slice() {
            object.schema_type = SchemaType::Type(single_type.clone());
        }
    }
}

/// Returns the default response of an operation: an error response in the problem format.
fn problem_response() -> Response {
    let problem = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    ResponseBuilder::new()
        .description("A problem")
        .content("application/problem+json", problem)
        .build()
}
