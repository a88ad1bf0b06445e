//! The OpenAPI document of the API, generated from the table of operations when it is asked for.

use longhaul_api::operation::{BodyKind, Content, Method, Operation};
use longhaul_api::operations::TAGS;
use longhaul_api::path::PathParams;
use longhaul_api::problem::Problem;
use longhaul_core::openapi::INLINE_PREFIX;
use serde::Serialize;
use serde_json::{Map, Value, json};
use utoipa::openapi::path::{Parameter, ParameterIn};
use utoipa::{IntoParams, ToSchema};

/// Aliases of fields in request bodies: name of the schema, alias, and name of the field.
const FIELD_ALIASES: [(&str, &str, &str); 5] = [
    ("NewRun", "threadId", "thread"),
    ("NewRun", "resourceId", "resource"),
    ("NewRun", "linkedGraphHandles", "links"),
    ("NewTask", "linkedGraphHandles", "links"),
    ("NewEvent", "linkedGraphHandles", "links"),
];

const DESCRIPTION: &str = "A durable runtime for AI agents. A run is a journal of events and outlives \
                           its process. Every error response is a problem with a code and a hint.";

/// An OpenAPI document to which operations are added.
#[derive(Debug, Default)]
pub(crate) struct Document {
    /// Operations by path and method.
    paths: Map<String, Value>,
    schemas: Map<String, Value>,
}

impl Document {
    /// Adds an operation of the API.
    pub(crate) fn add_operation<P: PathParams, Q: IntoParams, B: ToSchema, A: ToSchema>(
        &mut self,
        operation: &Operation<P, Q, B, A>,
    ) {
        let lines: Vec<&str> = operation.doc.lines().map(str::trim).collect();
        let mut entry = json!({
            "tags": [operation.tag], "summary": lines.join(" "),
            "operationId": operation.name.to_ascii_lowercase(),
            "parameters": parameters(operation),
        });
        if operation.body != BodyKind::None {
            let is_required = operation.body == BodyKind::Required;
            let mut schema = self.add_schema::<B>();
            if !is_required {
                schema = json!({ "oneOf": [schema, { "type": "null" }] });
            }
            let content = content("application/json", &schema);
            entry["requestBody"] = json!({ "content": content, "required": is_required });
        }
        for (status, meaning) in operation.responses {
            let mut response = json!({ "description": meaning, "content": {} });
            if operation.content != Content::Stream {
                response["content"]["application/json"]["schema"] = self.add_schema::<A>();
            }
            if operation.content != Content::Json {
                response["content"]["text/event-stream"]["schema"] = json!({ "type": "string" });
            }
            entry["responses"][status.to_string()] = response;
        }
        let problem = content("application/problem+json", &self.add_schema::<Problem>());
        entry["responses"]["default"] = json!({ "description": "A problem", "content": problem });
        if operation.role.is_none() {
            entry["security"] = json!([{}]);
        }
        let method = match operation.method {
            Method::Get => "get",
            Method::Post => "post",
            Method::Patch => "patch",
            Method::Delete => "delete",
        };
        self.paths.entry(operation.path).or_insert_with(|| json!({}))[method] = entry;
    }

    /// Adds the schema of a type, and of all types in it. Returns a reference to it.
    fn add_schema<T: ToSchema>(&mut self) -> Value {
        let mut schemas = vec![(T::name().into_owned(), T::schema())];
        T::schemas(&mut schemas);
        self.schemas.extend(schemas.into_iter().map(|(name, schema)| (name, to_json(&schema))));
        json!({ "$ref": format!("#/components/schemas/{}", T::name()) })
    }

    /// Returns the complete document. References to schemas that have no entry of their own are
    /// replaced by these schemas.
    pub(crate) fn into_json(mut self) -> Value {
        // Schemas of request bodies allow no unknown field, so aliases are fields too.
        for (name, alias, field) in FIELD_ALIASES {
            let schema = self.schemas.get_mut(name);
            if let Some(Value::Object(fields)) = schema.and_then(|it| it.get_mut("properties"))
                && let Some(property) = fields.get(field).cloned()
            {
                fields.insert(alias.to_owned(), property);
            }
        }
        let all = self.schemas.into_iter();
        let (inline, named): (Map<_, _>, Map<_, _>) =
            all.partition(|(name, _)| name.starts_with(INLINE_PREFIX));
        let tags = TAGS.iter().map(|(name, text)| json!({ "name": name, "description": text }));
        let version = env!("CARGO_PKG_VERSION");
        let mut document = json!({
            "openapi": "3.1.0",
            "info": { "title": "Longhaul", "description": DESCRIPTION, "version": version },
            "servers": [{ "url": "/" }],
            "paths": self.paths,
            "components": {
                "schemas": named,
                "securitySchemes": { "key": { "type": "http", "scheme": "bearer" } },
            },
            "security": [{ "key": [] }],
            "tags": tags.collect::<Value>(),
        });
        replace_references(&mut document, &inline);
        document
    }
}

fn to_json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// Returns the content of a body with this media type.
fn content(media_type: &str, schema: &Value) -> Value {
    json!({ media_type: { "schema": schema } })
}

fn parameters<P: PathParams, Q: IntoParams, B, A>(operation: &Operation<P, Q, B, A>) -> Vec<Value> {
    let parts = operation.path.split('/');
    let names = parts.filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let path = names.zip(P::describe()).map(|(name, (description, schema))| {
        json!({
            "name": name, "in": "path", "required": true, "description": description,
            "schema": to_json(&schema),
        })
    });
    let query = Q::into_params(|| Some(ParameterIn::Query));
    let mut parameters: Vec<Value> = path.chain(query.iter().map(query_parameter)).collect();
    if operation.content != Content::Json {
        parameters.push(json!({
            "name": "Last-Event-ID", "in": "header", "required": false,
            "description":
                "For streams: id of the last received event; sent by browsers when they reconnect",
            "schema": { "type": "string", "pattern": "^[\\t ]*[0-9]{0,19}[\\t ]*$" },
        }));
    }
    if operation.method == Method::Post {
        parameters.push(json!({
            "name": "Idempotency-Key", "in": "header", "required": false,
            "description": "Retries with the same key take effect once",
            "schema": {
                "type": "string", "minLength": 1, "maxLength": 255,
                "pattern": "^[ -~]*[!-~][ -~]*$",
            },
        }));
    }
    parameters
}

/// Returns a query parameter. An optional one is left out, it is never `null`.
fn query_parameter(parameter: &Parameter) -> Value {
    let mut parameter = to_json(parameter);
    if let Some(kind) = parameter.pointer_mut("/schema/type")
        && let Value::Array(types) = kind
    {
        types.retain(|kind| kind != "null");
        if let [single] = types.as_slice() {
            *kind = single.clone();
        }
    }
    parameter
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
