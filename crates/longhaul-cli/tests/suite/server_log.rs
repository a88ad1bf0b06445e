//! The log of a server: one line per event, and never a secret.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::project::{Project, has_status};
use super::server_harness::{TestServer, local_key, send_request};
use super::server_lifecycle::assert_opens_once;

/// Value of a secret that looks different in JSON.
const SECRET: &str = "hunter2 \"quoted\" \\ and more";

/// A project whose agent file has a secret in a place that an error quotes.
fn project() -> Project {
    let project = Project::new();
    project
        .write("longhaul.toml", "[worker]\npoll = \"10m\"\n[secrets]\nnames = [\"ENTRY_CODE\"]\n");
    let broken_agent = format!("---\ndescription: A.\n{SECRET}: 1\n---\nYou.\n");
    project.write("agents/broken.md", &broken_agent);
    project
}

fn start_server(project: &Project, log: &str) -> TestServer {
    let args = ["serve", "--listen", "127.0.0.1:0", "--until-eof", "--log", log];
    let mut command = project.command(&args);
    command.env("ENTRY_CODE", SECRET);
    TestServer::from_command(command)
}

/// Uses every kind of secret, and returns these secrets.
fn exercise_server(project: &Project, server: &TestServer) -> Vec<String> {
    let local = local_key(project);
    let new_key = project.json(&["keys", "new", "ci", "--role", "approver", "--json"]);
    let key = new_key["secret"].as_str().unwrap().to_owned();
    let bearer = |key: &str| format!("Bearer {key}");
    let run = project.run_until_gate("tidy");
    let gate = project.json(&["gates", "show", &run, "--json"]);
    let gate = gate["id"].as_str().unwrap().to_owned();
    let post = |path: &str, body: &Value| {
        let authorization = bearer(&key);
        let line = format!("POST {path}");
        server.request(&line, &[("authorization", &authorization)], &body.to_string())
    };
    let link = post(&format!("/v1/gates/{gate}/links"), &json!({ "recipient": "bob" }));
    let link = link.json()["url"].as_str().unwrap().to_owned();
    let token = link.rsplit('/').next().unwrap().to_owned();
    assert_eq!(server.request(&format!("GET /a/{token}"), &[], "").status, 200);
    server.request(&format!("POST /a/{token}"), &[], "{}");
    server.request(&format!("GET /a/{token}x"), &[], "");
    let ticket = post("/v1/tickets", &json!({})).json();
    let url = ticket["url"].as_str().unwrap();
    let ticket = url.rsplit('=').next().unwrap().to_owned();
    let first = server.request(&format!("GET /?t={ticket}"), &[], "");
    let cookie = first.header("set-cookie").unwrap().split(';').next();
    let session = cookie.unwrap().split('=').nth(1).unwrap().to_owned();
    server.request(&format!("GET /?t={ticket}"), &[], "");
    // Wrong secrets, and valid ones in the wrong place.
    let wrong_key = format!("lh_{}", "7".repeat(52));
    for (name, value) in [
        ("authorization", bearer(&wrong_key)),
        ("authorization", format!("Basic {key}")),
        ("cookie", format!("longhaul_1={session}")),
    ] {
        let response = server.request(&format!("GET /v1/runs?key={key}"), &[(name, &value)], "");
        assert_eq!(response.status, 401, "{response:?}");
    }
    let plain_secret = SECRET.replace([' ', '"', '\\'], "+");
    for body in [
        json!({ "agent": SECRET, "input": SECRET }),
        json!({ "agent": key, "input": local }),
        json!({ "agent": "plain", "input": SECRET, "context": { SECRET: 1 } }),
        json!({ "agent": "plain", "input": SECRET, SECRET: 1 }),
    ] {
        assert!(post("/v1/runs", &body).status >= 400);
    }
    post(&format!("/v1/runs/{plain_secret}/cancel"), &json!({}));
    post(&format!("/{key}"), &json!({}));
    post(&format!("/v1/runs/{run}/steer"), &json!({ "text": "" }));
    let plain_run =
        post("/v1/runs", &json!({ "agent": "plain", "input": SECRET, "metadata": { "a": key } }));
    let plain_run = plain_run.json()["id"].as_str().unwrap().to_owned();
    project.wait_until(&plain_run, has_status("completed"));
    let cancelled = json!({ "reason": SECRET });
    assert_eq!(post(&format!("/v1/runs/{run}/cancel"), &cancelled).status, 200);
    project.wait_until(&run, has_status("cancelled"));
    project.run(&["keys", "revoke", "ci"], 0);
    let mut secrets = vec![local, key, token, ticket, session, wrong_key, plain_secret];
    secrets.push(SECRET.to_owned());
    secrets.push(Value::from(SECRET).to_string().trim_matches('"').to_owned());
    secrets
}

/// Stops a server and returns its log, after checking that it holds no secret.
fn log_without_secrets(server: TestServer, secrets: &[String]) -> Vec<String> {
    server.signal("-TERM");
    let (code, log) = server.wait_exit();
    assert_eq!(code, 0, "{log:#?}");
    for line in &log {
        for secret in secrets {
            assert!(!line.contains(secret.as_str()), "{secret}: {line}");
            // Not even the start of a secret.
            let secret_start: String = secret.chars().take(14).collect();
            assert!(!line.contains(&secret_start), "{secret_start}: {line}");
        }
    }
    log
}

#[test]
fn json_log_lines_are_objects_without_secrets() {
    let project = project();
    let server = start_server(&project, "json");
    let secrets = exercise_server(&project, &server);
    let log = log_without_secrets(server, &secrets);
    let mut messages = Vec::new();
    for line in &log {
        let line: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for key in ["at", "level", "message"] {
            assert!(line[key].is_string(), "{key}: {line}");
        }
        let has_run = line["run"].as_str().is_some_and(|run| run.starts_with("run_"));
        let message = line["message"].as_str().unwrap().to_owned();
        let route = line["route"].as_str().unwrap_or_default();
        let run_events =
            ["run submitted", "run claimed", "run idle", "run completed", "cancel requested"];
        let needs_run = run_events.contains(&&*message)
            || message == "request rejected" && route.ends_with("/steer");
        assert!(has_run || !needs_run, "{line}");
        messages.push(message);
    }
    for message in [
        "ready",
        "run submitted",
        "run claimed",
        "run idle",
        "run completed",
        "cancel requested",
        "request rejected",
        "key created",
        "key revoked",
        "shutting down: runs are released at their next event",
        "server stopped",
    ] {
        assert!(messages.iter().any(|logged| logged == message), "{message}: {messages:?}");
    }
}

#[test]
fn text_log_lines_have_no_secret() {
    let project = project();
    let server = start_server(&project, "human");
    let secrets = exercise_server(&project, &server);
    let log = log_without_secrets(server, &secrets);
    let log_contains = |text: &str| log.iter().any(|line| line.contains(text));
    for text in ["ready", "run claimed", "run completed", "request rejected", "broken.md"] {
        assert!(log_contains(text), "{text}: {log:#?}");
    }
    // The login link is printed to a terminal only.
    assert!(!log_contains("/?t="), "{log:#?}");
}

#[test]
fn startup_errors_are_json_log_lines() {
    let project = Project::new();
    let _server = TestServer::start(&project);
    let invalid_config = Project::new();
    invalid_config.write("longhaul.toml", "[server]\nlisen = \"x\"\n");
    let invalid_env = Project::new();
    invalid_env.write(".env", "no line of an env file\n");
    for (project, command, code, expected) in [
        (&project, "serve", 5, "is driven by"),
        (&invalid_config, "serve", 2, "lisen"),
        (&invalid_env, "dev", 2, ".env"),
    ] {
        let output = project.run(&[command, "--listen", "127.0.0.1:0"], code);
        assert!(output.err.contains(expected), "{output:?}");
        for line in output.err.lines() {
            let line: Value =
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            assert_eq!(line["level"], "error", "{line}");
        }
    }
}

/// Runs in a terminal provided by `script`. The `exec` avoids a shell in between, which would get
/// the Ctrl-C too and return 130.
#[test]
#[cfg(target_os = "linux")]
fn dev_prints_a_one_time_link_on_a_terminal() {
    let project = Project::new();
    let binary = env!("CARGO_BIN_EXE_longhaul");
    let mut child = Command::new("script")
        .args(["-qec", &format!("exec {binary} dev --listen 127.0.0.1:0"), "/dev/null"])
        .current_dir(project.path())
        .env("HOME", project.path())
        .env_remove("LONGHAUL_URL")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut link = String::new();
    for line in lines.by_ref() {
        let line = line.unwrap();
        if let Some(at) = line.find("http://").filter(|_| line.contains("/?t=")) {
            link = line[at..].split(' ').next().unwrap().to_owned();
        }
        if line.contains("ready") {
            break;
        }
    }
    let address = link.trim_start_matches("http://").split('/').next();
    let address = address.unwrap().to_owned();
    assert_opens_once(&address, &link);
    assert_eq!(send_request(&address, "GET /livez", &[], "").status, 200);
    // Ctrl-C, as it is typed.
    let mut stdin = stdin;
    std::io::Write::write_all(&mut stdin, b"\x03").unwrap();
    let rest_lines: Vec<String> = lines.map_while(Result::ok).collect();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{rest_lines:#?}");
    assert!(rest_lines.iter().any(|line| line.contains("stopped")), "{rest_lines:#?}");
}
