//! Commands against a server: the same output and exit codes as with the local store. The server is
//! a fake one that returns the data of the store.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::fake_server::{
    FakeServer, RecordedRequest, event_stream, json_response as answer, unused_url,
};
use super::project::{CommandOutput, Project};

/// Runs the binary with this server in `LONGHAUL_URL`.
fn run_against(project: &Project, url: &str, args: &[&str]) -> CommandOutput {
    let mut command = project.command(args);
    command.env("LONGHAUL_URL", url);
    CommandOutput::from_output(&command.output().unwrap())
}

/// A fake server that knows one run of a project and closes every stream after one event.
fn server_with_run(project: &Project, run: &str) -> FakeServer {
    let stdout = |args: &[&str]| project.run(args, 0).out;
    let run_json = stdout(&["show", run, "--json"]);
    let transcript = stdout(&["show", run, "--transcript", "--json"]);
    let mut why: Value = project.json(&["why", run, "--json"]);
    if why["command"].is_null() {
        why["command"] = json!("");
    }
    let journal = project.events(run);
    let brief = run_brief(&run_json, journal.len());
    let view: Value = serde_json::from_str(&run_json).unwrap();
    let failed = u64::from(view["status"] == "failed");
    let total: u64 = if failed == 0 { 1 } else { 2 };
    let counts = json!({ "total": total, "open": 0, "waiting_for_person": 0, "failed": failed,
        "cost_usd": 0.0, "unpriced": 0 });
    let listed: Value = serde_json::from_str(&stdout(&["ls", "--json"])).unwrap();
    let listed = listed["data"].as_array().unwrap().iter().find(|listed| listed["id"] == run);
    let listed = listed.unwrap().to_string();
    let path = format!("GET /v1/runs/{run}");
    let run = run.to_owned();
    FakeServer::new(move |request| {
        let ok = |body: &str| answer("200 OK", body);
        let Some(rest) = request.request_line.strip_prefix(&path) else {
            if request.request_line.starts_with("GET /v1/runs/counts") {
                return ok(&counts.to_string());
            }
            return match request.request_line.starts_with("GET /v1/runs?") {
                true if request.request_line.contains("brief=true") => ok(&list_body(&brief)),
                true => ok(&list_body(&listed)),
                false => answer("404 Not Found", &problem_body("not_found")),
            };
        };
        match rest.split('?').next().unwrap_or_default() {
            "" => ok(&run_json),
            "/why" => ok(&why.to_string()),
            "/transcript" => ok(&transcript),
            "/events" => match request.header("accept") {
                Some("text/event-stream") => one_event_stream(&journal, &run, request),
                _ => ok(&event_page(&journal, request)),
            },
            _ => answer("404 Not Found", &problem_body("run_not_found")),
        }
    })
}

/// Returns a run as in lists.
fn run_brief(run_json: &str, last_seq: usize) -> String {
    let mut run: Value = serde_json::from_str(run_json).unwrap();
    run["last_seq"] = json!(last_seq);
    run["title"] = run["input"].clone();
    let code = run["error"]["code"].clone();
    run["error_code"] = code.clone();
    run["now"] = if code.is_null() { json!("done") } else { code };
    run.to_string()
}

fn list_body(item: &str) -> String {
    format!("{{\"data\":[{item}],\"next\":null}}")
}

fn problem_body(code: &str) -> String {
    json!({ "code": code, "detail": format!("no: {code}"), "status": 400 }).to_string()
}

fn after_param(request: &RecordedRequest) -> u64 {
    let (_, query) = request.request_line.split_once('?').unwrap();
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let (_, after) = pairs.find(|(name, _)| *name == "after").unwrap();
    after.parse().unwrap()
}

fn event_page(journal: &[Value], request: &RecordedRequest) -> String {
    let after = after_param(request);
    let data: Vec<&Value> =
        journal.iter().filter(|event| event["seq"].as_u64().unwrap() > after).collect();
    json!({ "data": data, "next": null }).to_string()
}

/// Returns the next event with noise around it, and then closes the connection.
fn one_event_stream(journal: &[Value], run: &str, request: &RecordedRequest) -> String {
    let after = after_param(request);
    assert_eq!(request.header("last-event-id"), Some(&*after.to_string()));
    let seq = |event: &Value| event["seq"].as_u64().unwrap();
    let frame = |event: &Value| {
        let (seq, kind) = (seq(event), event["type"].as_str().unwrap());
        format!("id: {seq}\nevent: {kind}\ndata: {event}\n\n")
    };
    let delta = json!({ "run": run, "turn": 1, "attempt": 1, "offset": 0, "text": "wor" });
    let mut text = format!(": beat\n\nevent: message.delta\ndata: {delta}\n\n");
    // A repeated event must be ignored.
    let next = journal.iter().find(|event| seq(event) == after);
    text.extend(next.map(frame));
    match journal.iter().find(|event| seq(event) == after + 1) {
        Some(event) => {
            text.push_str(&frame(event));
            // The start of an event that is cut off.
            text.push_str("id: 99\nevent: run.completed\nda");
        }
        None => text.push_str("event: end\ndata: {}\n\n"),
    }
    event_stream(&text)
}

#[test]
fn the_output_of_a_server_and_of_the_store_is_the_same() {
    let project = Project::new();
    for (agent, code) in [("plain", 0), ("locked", 1)] {
        project.run(&["run", agent, "milk", "--quiet"], code);
        let run = project.json(&["show", "@last", "--json"]);
        let id = run["id"].as_str().unwrap();
        let server = server_with_run(&project, id);
        for args in [
            &["show", id][..],
            &["show", id, "--json"],
            &["show", id, "--events"],
            &["show", id, "--transcript"],
            &["why", id],
            &["show", &id[20..], "--json"],
            &["show", "@last", "--json"],
            &["ls", "--agent", agent],
            &["ls", "--json", "--agent", agent],
            &["watch", id, "--after", "1000"],
        ] {
            let local = CommandOutput::from_output(&project.command(args).output().unwrap());
            let remote = run_against(&project, &server.url, args);
            assert_eq!(remote.code, local.code, "{args:?}: {remote:?}");
            assert_eq!(remote.out, local.out, "{args:?}: {remote:?}");
            assert_eq!(remote.err, local.err, "{args:?}");
        }
    }
}

#[test]
fn each_event_is_printed_once_over_lost_connections() {
    let project = Project::new();
    project.run(&["run", "plain", "milk", "--quiet"], 0);
    let run = project.json(&["show", "@last", "--json"]);
    let id = run["id"].as_str().unwrap();
    let journal = project.run(&["show", id, "--events", "--json"], 0).out;
    let server = server_with_run(&project, id);
    let output = run_against(&project, &server.url, &["watch", id, "--json"]);
    assert_eq!(output.code, 0, "{output:?}");
    assert_eq!(output.out, journal);
    assert_eq!(output.err.matches("was lost").count(), 1, "{output:?}");
    let text_output = run_against(&project, &server.url, &["watch", id]);
    assert_eq!(text_output.out, "Done: milk\n", "{text_output:?}");
}

#[test]
fn detaching_does_not_wait_for_an_unreachable_server() {
    let project = Project::new();
    let run = project.submit("plain", "milk");
    let run_json = project.run(&["show", &run, "--json"], 0).out;
    let attempts = AtomicUsize::new(0);
    let server = FakeServer::new(move |request| {
        let is_stream = request.header("accept") == Some("text/event-stream");
        match attempts.fetch_add(1, Ordering::SeqCst) {
            0..3 if is_stream => event_stream(": beat\n\n"),
            0..3 => answer("200 OK", &run_json),
            _ => String::new(),
        }
    });
    let output = run_against(&project, &server.url, &["watch", &run, "--timeout", "300ms"]);
    assert_eq!(output.code, 124, "{output:?}");
    assert_eq!(output.err.matches("was lost").count(), 1, "{output:?}");
    assert!(output.err.contains("can't be reached"), "{output:?}");
}

#[test]
fn an_approval_over_http_sends_the_digest() {
    let project = Project::new();
    let run = project.run_until_gate("tidy");
    let gate = project.json(&["gates", "show", &run, "--json"]);
    let id = gate["id"].as_str().unwrap().to_owned();
    let gate_json = gate.to_string();
    let (path, answer_path) =
        (format!("GET /v1/gates/{id}"), format!("POST /v1/gates/{id}/answer"));
    let server = FakeServer::new(move |request| match &*request.request_line {
        line if line == path => answer("200 OK", &gate_json),
        line if line == answer_path => {
            let body = format!("{{\"outcome\":\"closed\",\"seq\":17,\"gate\":{gate_json}}}");
            answer("200 OK", &body)
        }
        "GET /readyz" => answer("200 OK", "{\"status\":\"ready\",\"driven\":true}"),
        _ => answer("200 OK", "{\"data\":[],\"next\":null}"),
    });
    for args in [&["gates", "show", &*id][..], &["gates", "show", &id, "--json"]] {
        let local_out = project.run(args, 0).out;
        assert_eq!(run_against(&project, &server.url, args).out, local_out);
    }
    let output = run_against(&project, &server.url, &["approve", &id, "--yes", "--note", "go"]);
    assert_eq!(output.code, 0, "{output:?}");
    assert!(output.out.starts_with("Approved: vault_write "), "{output:?}");
    assert!(output.out.contains(&format!("{run} resumes at event 17.")), "{output:?}");
    let request = server.requests();
    let request = request.iter().find(|request| request.request_line.starts_with("POST"));
    let body: Value = serde_json::from_str(&request.unwrap().body).unwrap();
    let expected = json!({
        "decision": "approve", "scope": "once", "note": "go", "digest": gate["digest"],
    });
    assert_eq!(body, expected);
}

#[test]
fn an_unreachable_named_server_exits_with_5() {
    let project = Project::new();
    let url = unused_url();
    for args in [
        &["ls"][..],
        &["show", "run_00000000000000000000000000"],
        &["submit", "nobody", "milk"],
        &["run", "nobody", "milk"],
        &["watch", "@last"],
        &["cancel", "run_00000000000000000000000000"],
    ] {
        let mut command = project.command(args);
        command.env("LONGHAUL_URL", &url);
        command.env("LONGHAUL_KEY", "lh_very_secret");
        let output = CommandOutput::from_output(&command.output().unwrap());
        assert_eq!(output.code, 5, "{args:?}: {output:?}");
        for part in ["can't be reached", url.as_str(), "LONGHAUL_URL= longhaul"] {
            assert!(output.err.contains(part), "{part}: {output:?}");
        }
        assert!(!output.err.contains("secret"), "{output:?}");
        assert!(!project.store().exists(), "{args:?}");
    }
    let output = run_against(&project, "127.0.0.1:4700", &["ls"]);
    assert_eq!(output.code, 2, "{output:?}");
    assert_eq!(run_against(&project, "", &["ls"]).code, 0);
}

#[test]
fn an_invalid_key_exits_with_6() {
    let project = Project::new();
    for (status, code) in [("401 Unauthorized", "unauthorized"), ("403 Forbidden", "forbidden")] {
        let server = FakeServer::new(move |_| answer(status, &problem_body(code)));
        let output = run_against(&project, &server.url, &["ls"]);
        assert_eq!(output.code, 6, "{output:?}");
        for part in ["longhaul keys new", "LONGHAUL_KEY="] {
            assert!(output.err.contains(part), "{part}: {output:?}");
        }
    }
}

#[test]
fn a_submit_with_a_lost_response_is_retried_with_its_idempotency_key() {
    let project = Project::new();
    let run = project.submit("plain", "milk");
    let run_json = project.run(&["show", &run, "--json"], 0).out;
    let attempts = AtomicUsize::new(0);
    let server = FakeServer::new(move |_| match attempts.fetch_add(1, Ordering::SeqCst) {
        0 => String::new(),
        1 => answer("503 Service Unavailable", &problem_body("draining")),
        2 => answer("409 Conflict", &problem_body("request_in_progress")),
        _ => answer("201 Created", &run_json),
    });
    // An agent that only the server knows.
    let output = run_against(&project, &server.url, &["submit", "theirs", "milk", "--lane", "a"]);
    assert_eq!(output.code, 0, "{output:?}");
    assert_eq!(output.out.trim(), run);
    let requests = server.requests();
    assert_eq!(requests.len(), 4);
    let key = requests[0].header("idempotency-key").unwrap();
    assert!(!key.is_empty());
    for request in &requests {
        assert_eq!(request.request_line, "POST /v1/runs");
        assert_eq!(request.header("idempotency-key"), Some(key));
        let body: Value = serde_json::from_str(&request.body).unwrap();
        assert_eq!(body, json!({ "agent": "theirs", "input": "milk", "lane": "a" }));
    }
    let args = ["submit", "theirs", "milk", "--idempotency-key", "mine"];
    run_against(&project, &server.url, &args);
    let last = server.requests().pop().unwrap();
    assert_eq!(last.header("idempotency-key"), Some("mine"));
}

#[test]
fn a_request_that_must_not_repeat_is_sent_once() {
    let project = Project::new();
    let run = project.submit("plain", "milk");
    let run_json = project.run(&["show", &run, "--json"], 0).out;
    let server = FakeServer::new(move |request| match request.request_line.starts_with("GET") {
        true => answer("200 OK", &run_json),
        false => String::new(),
    });
    let output = run_against(&project, &server.url, &["steer", &run, "left"]);
    assert_eq!(output.code, 5, "{output:?}");
    assert!(output.err.contains("it is unknown whether"), "{output:?}");
    let requests = server.requests();
    let messages = requests.iter().filter(|request| request.request_line.starts_with("POST"));
    assert_eq!(messages.count(), 1);
}

/// A crashed server leaves its marker behind, and another program may listen on its port now.
#[test]
fn a_server_marker_counts_only_for_the_driver() {
    let project = Project::new();
    let run = project.submit("slow", "milk");
    let run_json = project.run(&["show", &run, "--json"], 0).out;
    let other_server = FakeServer::new(move |request| match request.request_line.as_str() {
        "GET /livez" => answer("200 OK", "{\"status\":\"ok\"}"),
        _ => answer("200 OK", &run_json),
    });
    let key = format!("lh_{}", "0".repeat(52));
    project.write(".longhaul/local.key", &key);
    let file = project.path().join(".longhaul/local.key");
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
    let marker = json!({ "url": other_server.url, "pid": 1, "store": project.store() });
    project.write(".longhaul/server.json", &marker.to_string());
    let check = || {
        let output = project.run(&["show", &run, "--json"], 0);
        assert_eq!(output.json()["id"], run.as_str());
        assert!(other_server.requests().is_empty());
    };
    check();
    let _worker = project.start_worker();
    check();
    // A named server gets the local key only if it drives this store.
    let output = run_against(&project, &other_server.url, &["show", &run, "--json"]);
    assert_eq!(output.code, 0, "{output:?}");
    for request in other_server.requests() {
        assert_eq!(request.header("authorization"), None, "{}", request.request_line);
    }
}

/// A key as in responses.
fn key_view() -> Value {
    json!({
        "name": "c/i", "role": "approver", "status": "active", "by": "cli:anna",
        "created_at": "2026-11-15T09:00:00.000000Z", "expires_at": null,
        "revoked_at": null, "last_used_at": null,
    })
}

/// A fake server with one key, and with one name that is taken.
fn server_with_keys() -> FakeServer {
    FakeServer::new(|request| match request.request_line.split(' ').next() {
        Some("POST") if request.body.contains("taken") => {
            answer("409 Conflict", &problem_body("key_taken"))
        }
        Some("POST") => {
            let new_key = json!({ "secret": "lh_shown_once", "key": key_view() });
            answer("201 Created", &new_key.to_string())
        }
        Some("GET") => answer("200 OK", &list_body(&key_view().to_string())),
        _ => answer("200 OK", &key_view().to_string()),
    })
}

#[test]
fn keys_are_created_listed_and_revoked() {
    let project = Project::new();
    let server = server_with_keys();
    let run_cli = |args: &[&str], code| {
        let output = run_against(&project, &server.url, args);
        assert_eq!(output.code, code, "{args:?}: {output:?}");
        output
    };
    let new_args = ["keys", "new", "c/i", "--role", "approver", "--expires", "90d"];
    let output = run_cli(&new_args, 0);
    assert_eq!(output.out, "lh_shown_once\n");
    assert!(output.err.contains("export LONGHAUL_URL="), "{output:?}");
    assert!(output.err.contains("curl -H"), "{output:?}");
    assert!(!output.err.contains("lh_shown_once"), "{output:?}");
    let output = run_cli(&[&new_args[..], &["--json"]].concat(), 0);
    let new_key = json!({ "secret": "lh_shown_once", "key": key_view() });
    assert_eq!(output.json(), new_key);
    let output = run_cli(&["keys", "new", "taken"], 2);
    assert!(output.err.contains("longhaul keys revoke taken"), "{output:?}");
    let output = run_cli(&["keys", "ls"], 0);
    assert!(output.out.contains("approver  active  cli:anna"), "{output:?}");
    let output = run_cli(&["keys", "ls", "--json"], 0);
    assert_eq!(output.json()["data"], json!([key_view()]));
    let output = run_cli(&["keys", "revoke", "c/i"], 0);
    assert!(output.out.contains("`c/i` is revoked"), "{output:?}");
    let requests = server.requests();
    let body = |at: usize| serde_json::from_str::<Value>(&requests[at].body).unwrap();
    let ttl = 90_u64 * 24 * 60 * 60 * 1_000;
    let expected = json!({ "name": "c/i", "role": "approver", "expires_in_ms": ttl });
    assert_eq!(body(0), expected);
    assert_eq!(body(2), json!({ "name": "taken", "role": "operator" }));
    assert_eq!(requests.last().unwrap().request_line, "DELETE /v1/keys/c%2Fi");
}

#[test]
fn an_invalid_new_key_is_refused_before_a_request() {
    let project = Project::new();
    let server = server_with_keys();
    for invalid_args in [
        &["keys", "new", "x", "--role", "root"][..],
        &["keys", "new", "x", "--expires", "soon"],
        &["keys", "new", "x", "--expires", "0s"],
        &["keys", "new", ""],
    ] {
        let output = run_against(&project, &server.url, invalid_args);
        assert_eq!(output.code, 2, "{invalid_args:?}: {output:?}");
    }
    assert!(server.requests().is_empty());
}

#[test]
fn listing_keys_creates_no_store() {
    let project = Project::new();
    let output = project.run(&["keys", "ls"], 0);
    assert!(output.err.contains("longhaul keys new NAME"), "{output:?}");
    project.run(&["keys", "revoke", "ci"], 2);
    assert!(!project.store().exists());
}
