//! The toolbox of the sandboxes of the fake: commands, sessions and files.

use std::time::Duration;

use serde_json::{Value, json};

use crate::daytona::Shared;
use crate::daytona::server::{FakeRequest, FakeResponse};

/// Exit codes of the scripts for files.
const NOT_FOUND: i32 = 44;

/// Carries out a request and returns its response.
pub(super) async fn respond(shared: &Shared, request: &FakeRequest) -> FakeResponse {
    let segments: Vec<&str> = request.segments.iter().map(String::as_str).collect();
    let [id, segments @ ..] = &segments[..] else { return FakeResponse::error(404, "Not found") };
    {
        let mut world = shared.world();
        match world.sandboxes.get(*id) {
            None => return FakeResponse::error(404, "sandbox not found"),
            Some(sandbox) if sandbox.state != "started" => return not_started(),
            Some(_) => world.touch(id),
        }
    }
    let path = request.query("path").map(quote).unwrap_or_default();
    match (request.method.as_str(), segments) {
        ("POST", ["process", "execute"]) => execute(shared, id, &request.json()).await,
        ("GET", ["process", "session"]) => list_sessions(shared, id),
        ("POST", ["process", "session"]) => create_session(shared, id, &request.json()),
        ("DELETE", ["process", "session", session]) => delete_session(shared, id, session).await,
        ("POST", ["process", "session", session, "exec"]) => {
            start_command(shared, id, session, &request.json())
        }
        ("GET", ["files", "download"]) => {
            let script = format!(
                "[ -e {path} ] || {{ echo 'no such file'; exit {NOT_FOUND}; }}\ncat -- {path}"
            );
            match run(shared, id, &script, &[]).await {
                None => not_started(),
                Some((0, content)) => FakeResponse::bytes(200, content),
                Some((NOT_FOUND, _)) => FakeResponse::error(404, "no such file or directory"),
                Some((_, output)) => FakeResponse::error(400, &String::from_utf8_lossy(&output)),
            }
        }
        ("POST", ["files", "upload-v2"]) => {
            let script = format!("mkdir -p -- \"$(dirname -- {path})\" && cat > {path}");
            match run(shared, id, &script, &request.body).await {
                None => not_started(),
                Some((0, _)) => {
                    let path = request.query("path").unwrap_or_default();
                    let name = path.rsplit('/').next().unwrap_or_default();
                    let body = json!({ "name": name, "path": path, "type": "file" });
                    FakeResponse::json(200, &body)
                }
                Some((_, output)) => FakeResponse::error(400, &String::from_utf8_lossy(&output)),
            }
        }
        _ => FakeResponse::error(404, "page not found"),
    }
}

fn not_started() -> FakeResponse {
    FakeResponse::error(400, "bad request: failed to get runner info: sandbox is not started")
}

/// Runs a script to its end. `None` means that the sandbox is not started.
async fn run(shared: &Shared, id: &str, script: &str, input: &[u8]) -> Option<(i32, Vec<u8>)> {
    let (_, command) = shared.world().sandboxes.get_mut(id)?.start_command(script, input)?;
    command.wait().await
}

async fn execute(shared: &Shared, id: &str, request: &Value) -> FakeResponse {
    let script = request["command"].as_str().expect("a command");
    let timeout = Duration::from_secs(request["timeout"].as_u64().unwrap_or(10));
    match tokio::time::timeout(timeout, run(shared, id, script, &[])).await {
        Err(_) => FakeResponse::error(408, "command execution timeout"),
        Ok(None) => not_started(),
        Ok(Some((code, output))) => {
            let output = String::from_utf8_lossy(&output);
            FakeResponse::json(200, &json!({ "exitCode": code, "result": output }))
        }
    }
}

fn list_sessions(shared: &Shared, id: &str) -> FakeResponse {
    let world = shared.world();
    let Some(sandbox) = world.sandboxes.get(id) else { return not_started() };
    let sessions = sandbox.sessions.keys();
    let sessions = sessions.map(|name| json!({ "sessionId": name, "commands": [] }));
    FakeResponse::json(200, &sessions.collect())
}

fn create_session(shared: &Shared, id: &str, request: &Value) -> FakeResponse {
    let mut world = shared.world();
    let Some(sandbox) = world.sandboxes.get_mut(id) else { return not_started() };
    let name = request["sessionId"].as_str().expect("a name").to_owned();
    match sandbox.sessions.contains_key(&name) {
        true => FakeResponse::error(409, "session already exists"),
        false => {
            sandbox.sessions.insert(name, Vec::new());
            FakeResponse::empty(201)
        }
    }
}

/// Deletes a session, which kills the process groups of its commands.
async fn delete_session(shared: &Shared, id: &str, session: &str) -> FakeResponse {
    let removed = {
        let mut world = shared.world();
        let Some(sandbox) = world.sandboxes.get_mut(id) else { return not_started() };
        sandbox.sessions.remove(session)
    };
    let Some(commands) = removed else { return FakeResponse::error(404, "session not found") };
    for command in commands {
        let script = format!("kill -9 -- -$(cat /.fake/{command}.pid)");
        if run(shared, id, &script, &[]).await.is_none() {
            return not_started();
        }
    }
    FakeResponse::empty(204)
}

fn start_command(shared: &Shared, id: &str, session: &str, request: &Value) -> FakeResponse {
    let mut world = shared.world();
    let Some(sandbox) = world.sandboxes.get_mut(id) else { return not_started() };
    if !sandbox.sessions.contains_key(session) {
        return FakeResponse::error(404, "session not found");
    }
    let script = request["command"].as_str().expect("a command");
    let Some((number, _)) = sandbox.start_command(script, &[]) else { return not_started() };
    sandbox.sessions.entry(session.to_owned()).or_default().push(number);
    FakeResponse::json(202, &json!({ "cmdId": format!("command-{number}") }))
}

fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
