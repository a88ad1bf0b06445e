//! The OpenAPI document matches the server: every documented route is served, every served
//! route is documented, and everything else is rejected with a problem.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::suite::harness::client::{get, post, request};
use crate::suite::harness::sse::SseClient;
use crate::suite::harness::{TestServer, server_with_gate};

/// Routes that are not documented: pages, and the document itself.
const PAGES: [&str; 4] = ["/openapi.json", "/", "/style.css", "/a/{token}"];

const METHODS: [&str; 6] = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// Returns the documented methods by path.
fn documented_methods(document: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let paths = document["paths"].as_object().unwrap();
    let methods_of = |item: &Value| {
        let keys = item.as_object().unwrap().keys();
        let upper_names = keys.map(|name| name.to_ascii_uppercase());
        upper_names.filter(|name| METHODS.contains(&name.as_str())).collect()
    };
    paths.iter().map(|(path, item)| (path.clone(), methods_of(item))).collect()
}

/// Returns a function that replaces path parameters with real values.
async fn path_filler(server: &TestServer) -> impl Fn(&str) -> String + use<> {
    let (run, gate) = server.submit_until_gate().await;
    let steer_body = json!({ "text": "hi" });
    let response = server.send(post(format!("/v1/runs/{run}/steer"), &steer_body)).await;
    let steer = response.expect(202)["id"].as_str().unwrap().to_owned();
    let gate = gate["id"].as_str().unwrap().to_owned();
    move |path: &str| {
        let id = if path.starts_with("/v1/gates") { &gate } else { &run };
        let name = match path.split('/').nth(2) {
            Some("agents") => "tester",
            _ => "mail",
        };
        path.replace("{id}", id)
            .replace("{other}", &run)
            .replace("{steer}", &steer)
            .replace("{name}", name)
            .replace("{token}", "none")
    }
}

#[tokio::test]
async fn the_document_needs_no_key_and_names_what_generators_need() {
    let server = server_with_gate().open().await;
    let document = server.send(get("/openapi.json").without_key()).await.expect(200);
    assert_eq!(document["servers"], json!([{ "url": "/" }]));
    assert_eq!(document["components"]["schemas"]["NewRun"]["required"], json!(["input"]));
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let names = operation["parameters"].as_array().unwrap().iter();
            let has_key = names.filter(|one| one["name"] == "Idempotency-Key").count();
            assert_eq!(has_key, usize::from(method == "post"), "{method} {path}");
        }
    }
}

#[tokio::test]
async fn every_documented_route_is_served_and_no_other_method() {
    let server = server_with_gate().start().await;
    let document = server.get_json("/openapi.json").await;
    let version = document["openapi"].as_str().unwrap();
    assert!(version.starts_with("3.1"), "{version}");
    let fill_path = path_filler(&server).await;
    let mut paths = documented_methods(&document);
    assert!(paths.len() > 20, "{paths:?}");
    for page in PAGES {
        let get = ["GET".to_owned()].into_iter();
        let post_method = (page == "/a/{token}").then(|| "POST".to_owned());
        paths.insert(page.to_owned(), get.chain(post_method).collect());
    }
    for (path, methods) in paths {
        for method in METHODS {
            let http_request = request(method, fill_path(&path));
            if path == "/v1/events/stream" && method == "GET" {
                SseClient::open(&server, http_request).await;
                continue;
            }
            let answer = server.send(http_request).await;
            let label = format!("{method} {path}: {} {}", answer.status, answer.text());
            if methods.contains(method) {
                let code = match answer.header("content-type") {
                    Some("application/problem+json") => answer.problem(),
                    _ => String::new(),
                };
                assert!(!["not_found", "method_not_allowed"].contains(&&*code), "{label}");
                continue;
            }
            assert_eq!(answer.status, 405, "{label}");
            assert_eq!(answer.problem(), "method_not_allowed");
            let allow = answer.header("allow").unwrap_or_default();
            let allow: BTreeSet<String> = allow.split(',').map(|one| one.trim().into()).collect();
            let mut expected = methods.clone();
            if methods.contains("GET") {
                expected.insert("HEAD".to_owned());
            }
            assert_eq!(allow, expected, "{label}");
        }
    }
}

#[tokio::test]
async fn an_unknown_path_is_reported_as_such() {
    let server = server_with_gate().open().await;
    for path in ["/v1", "/v2/runs", "/v1/runs/", "//v1/runs", "/docs2", "/a/", "/v1/runs/x/y"] {
        let answer = server.send(get(path)).await;
        assert_eq!((answer.status, &*answer.problem()), (404, "not_found"), "{path}");
        // Without a key, a caller does not learn whether the path exists.
        assert_eq!(server.send(get(path).without_key()).await.status, 401, "{path}");
    }
    let star_response = server.send(request("OPTIONS", "*")).await;
    assert_eq!(star_response.status, 404);
}

fn collect_sources(folder: &Path, files: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => collect_sources(&path, files),
            false => {
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                files.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
}

#[test]
fn every_route_but_the_pages_is_in_the_openapi_document() {
    let mut files = Vec::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    collect_sources(&source, &mut files);
    // Only these two ways of adding routes are used: an operation of the table, or a page.
    let router_methods: [(&str, &[&str]); 4] = [
        (".operation(", &["api_router.rs"]),
        (".route(", &["api_router.rs", "routes.rs"]),
        (".nest(", &[]),
        (".merge(", &[]),
    ];
    for (name, text) in &files {
        for (method, homes) in router_methods {
            assert_eq!(text.contains(method), homes.contains(&name.as_str()), "{name} {method}");
        }
    }
    let router = files.iter().find(|(name, _)| name == "api_router.rs").unwrap();
    assert_eq!(
        router.1.matches(".route(operation.path,").count(),
        router.1.matches(".route(").count()
    );
    let routes = files.iter().find(|(name, _)| name == "routes.rs").unwrap();
    let undocumented: Vec<&str> =
        routes.1.split(".route(").skip(1).map(|rest| rest.split('"').nth(1).unwrap()).collect();
    assert_eq!(undocumented, PAGES);
}

#[test]
fn the_openapi_document_lists_every_response() {
    let document = serde_json::to_value(longhaul_server::openapi_document()).unwrap();
    let mut ids = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let Some(id) = operation["operationId"].as_str() else {
                continue;
            };
            assert!(ids.insert(id.to_owned()), "duplicate operation id {id}");
            let problem = &operation["responses"]["default"]["content"];
            assert!(problem["application/problem+json"].is_object(), "{method} {path}");
        }
    }
    for (schema, alias) in [
        ("NewRun", "threadId"),
        ("NewRun", "resourceId"),
        ("NewRun", "linkedGraphHandles"),
        ("NewTask", "linkedGraphHandles"),
        ("NewEvent", "linkedGraphHandles"),
    ] {
        let schema = &document["components"]["schemas"][schema];
        assert!(!schema["properties"][alias].is_null(), "{alias}");
    }
    for (path, item) in document["paths"].as_object().unwrap() {
        let params = item["post"]["parameters"].as_array();
        let mut names = params.into_iter().flatten().map(|param| &param["name"]);
        let has_key = names.any(|name| name == "Idempotency-Key");
        assert_eq!(has_key, item["post"].is_object(), "{path}");
    }
    // Every reference can be resolved.
    let text = document.to_string();
    for rest in text.split("\"#/components/schemas/").skip(1) {
        let name = rest.split('"').next().unwrap();
        let found = &document["components"]["schemas"][name];
        assert!(found.is_object(), "{name} has no schema");
    }
}

#[test]
fn every_operation_of_the_table_is_in_the_openapi_document() {
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("../longhaul-api/src/operations.rs");
    let table = fs::read_to_string(table).unwrap();
    let is_row = |line: &&str| {
        [" = Get ", " = Post ", " = Patch ", " = Delete "]
            .iter()
            .any(|method| line.contains(method))
    };
    let rows = table.lines().filter(is_row).map(|row| row.trim().split(' ').next().unwrap());
    let rows: BTreeSet<String> = rows.map(str::to_ascii_lowercase).collect();
    let document = serde_json::to_value(longhaul_server::openapi_document()).unwrap();
    let items = document["paths"].as_object().unwrap().values();
    let operations = items.flat_map(|item| item.as_object().unwrap().values());
    let ids: BTreeSet<String> = operations
        .filter_map(|operation| Some(operation["operationId"].as_str()?.to_owned()))
        .collect();
    assert_eq!(rows, ids);
}

/// Calls a function for every object in a JSON document, with its path.
fn for_each_object(value: &Value, path: &str, check: &mut impl FnMut(&str, &Value)) {
    match value {
        Value::Object(fields) => {
            check(path, value);
            for (name, field) in fields {
                for_each_object(field, &format!("{path}/{name}"), check);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                for_each_object(item, &format!("{path}/{index}"), check);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Generators drop an operation whose schema has an array without items, and create a second type
/// for an inlined item.
#[test]
fn client_generators_understand_the_openapi_document() {
    let document = serde_json::to_value(longhaul_server::openapi_document()).unwrap();
    for_each_object(&document, "", &mut |path, object| {
        let kind = &object["type"];
        let kinds = kind.as_array().map_or(std::slice::from_ref(kind), Vec::as_slice);
        let is_array = kinds.iter().any(|kind| kind == "array");
        assert!(!is_array || object["items"].is_object(), "{path} has no items");
    });
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let lists: Vec<_> = schemas.iter().filter(|(name, _)| name.starts_with("List_")).collect();
    assert!(lists.len() > 8, "{lists:?}");
    for (name, list) in lists {
        let item = &list["properties"]["data"]["items"]["$ref"];
        let resource = name.trim_start_matches("List_");
        assert_eq!(item, &json!(format!("#/components/schemas/{resource}")));
    }
    assert_eq!(schemas["NewRun"]["required"], json!(["input"]));
    assert_eq!(document["servers"], json!([{ "url": "/" }]));
}
