//! The control plane of the fake: sandboxes, volumes and snapshots.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::daytona::Shared;
use crate::daytona::server::{FakeRequest, FakeResponse};
use crate::daytona::state::World;

const PAGE_SIZE: usize = 2;

/// Carries out a request and returns its response.
pub(super) async fn respond(shared: &Shared, request: &FakeRequest) -> FakeResponse {
    let segments: Vec<&str> = request.segments.iter().map(String::as_str).collect();
    let world = &mut *shared.world();
    let result = match (request.method.as_str(), &segments[..]) {
        ("GET", ["sandbox"]) => Ok(list(world, shared, request)),
        ("POST", ["sandbox"]) => world
            .create(shared.dir.path(), request.json())
            .map(|id| world.sandboxes[&id].to_json(&shared.origin)),
        ("GET" | "DELETE" | "POST", ["sandbox", id, action @ ..]) => {
            let action = match (request.method.as_str(), action) {
                ("GET", []) => "get",
                ("DELETE", []) => "delete",
                ("POST", [action @ ("start" | "stop" | "last-activity")]) => action,
                _ => return FakeResponse::error(404, "Cannot find the route"),
            };
            match world.find(id) {
                None => Err((404, format!("Sandbox with ID or name {id} not found"))),
                Some(_) if action == "last-activity" => {
                    world.touch(id);
                    return FakeResponse::empty(201);
                }
                Some(id) => change(world, shared, &id, action),
            }
        }
        ("GET", ["volumes", "by-name", name]) => get_volume(world, name),
        ("POST", ["volumes"]) => create_volume(world, &request.json()),
        ("GET", ["snapshots", name]) if world.snapshots.contains(*name) => {
            return FakeResponse::json(200, &snapshot(name));
        }
        ("GET", ["snapshots", name]) => Err((404, format!("Snapshot {name} not found"))),
        _ => Err((404, format!("Cannot {} /{}", request.method, segments.join("/")))),
    };
    match result {
        Ok(body) => FakeResponse::json(200, &body),
        Err((status, message)) => FakeResponse::error(status, &message),
    }
}

fn change(
    world: &mut World,
    shared: &Shared,
    id: &str,
    action: &str,
) -> Result<Value, (u16, String)> {
    if action == "get" {
        world.count_read(id);
    } else {
        world.change(id, action)?;
    }
    let sandbox = world.sandboxes.get(id).ok_or((404, "Sandbox not found".to_owned()))?;
    Ok(sandbox.to_json(&shared.origin))
}

/// Lists the sandboxes with the labels of the request, a few at a time.
fn list(world: &mut World, shared: &Shared, request: &FakeRequest) -> Value {
    let ids: Vec<String> = world.sandboxes.keys().cloned().collect();
    ids.iter().for_each(|id| world.count_read(id));
    let labels = request.query("labels").unwrap_or("{}");
    let labels: BTreeMap<String, String> = serde_json::from_str(labels).expect("labels");
    let all = world.sandboxes.values().map(|sandbox| sandbox.to_json(&shared.origin));
    let matching =
        all.filter(|body| labels.iter().all(|(name, value)| body["labels"][name] == **value));
    let start: usize = request.query("cursor").map_or(0, |cursor| cursor.parse().expect("cursor"));
    let mut items: Vec<Value> = matching.skip(start).take(PAGE_SIZE + 1).collect();
    let has_more = items.len() > PAGE_SIZE;
    items.truncate(PAGE_SIZE);
    for item in &mut items {
        item.as_object_mut().expect("an object").remove("env");
    }
    let next = has_more.then(|| (start + PAGE_SIZE).to_string());
    json!({ "items": items, "nextCursor": next })
}

fn get_volume(world: &mut World, name: &str) -> Result<Value, (u16, String)> {
    let Some(reads_left) = world.volumes.get_mut(name) else {
        return Err((404, format!("Volume with name {name} not found")));
    };
    *reads_left = reads_left.saturating_sub(1);
    Ok(volume(name, *reads_left == 0))
}

fn create_volume(world: &mut World, request: &Value) -> Result<Value, (u16, String)> {
    let name = request["name"].as_str().expect("a name");
    if world.volumes.contains_key(name) {
        return Err((409, format!("Volume with name {name} already exists")));
    }
    world.volumes.insert(name.to_owned(), world.reads_per_state + 1);
    Ok(volume(name, false))
}

fn volume(name: &str, is_ready: bool) -> Value {
    json!({
        "id": format!("vol-{name}"), "name": name, "organizationId": "org",
        "state": if is_ready { "ready" } else { "pending_create" }, "errorReason": null,
        "createdAt": "2026-01-01T00:00:00.000Z", "updatedAt": "2026-01-01T00:00:00.000Z",
    })
}

fn snapshot(name: &str) -> Value {
    json!({
        "id": "snapshot-1", "general": false, "name": name, "state": "active", "size": 1,
        "entrypoint": [], "cpu": 1, "gpu": 0, "mem": 1, "disk": 3, "errorReason": null,
        "createdAt": "2026-01-01T00:00:00.000Z", "updatedAt": "2026-01-01T00:00:00.000Z",
        "lastUsedAt": null, "sourceSandboxId": null, "sandboxClass": "container",
    })
}
