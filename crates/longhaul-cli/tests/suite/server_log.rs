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
    let broken = format!("---\ndescription: A.\n{SECRET}: 1\n---\nYou.\n");
    project.write("agents/broken.md", &broken);
    project
}

fn start_server(project: &Project, log: &str) -> TestServer {
    let args = ["serve", "--listen", "127.0.0.1:0", "--until-eof", "--log", log];
    let mut command = project.command(&args);
    command.env("ENTRY_CODE", SECRET);
    TestServer::from_command(command)
}

/// Uses every kind of secret, and returns these secrets.
fn exercise_server(project: &Project, served: &TestServer) -> Vec<String> {
    let local = local_key(project);
    let made = project.json(&["keys", "new", "ci", "--role", "approver", "--json"]);
    let key = made["secret"].as_str().unwrap().to_owned();
    let bearer = |key: &str| format!("Bearer {key}");
    let run = project.run_until_gate("tidy");
    let gate = project.json(&["gates", "show", &run, "--json"]);
    let gate = gate["id"].as_str().unwrap().to_owned();
    let post = |path: &str, body: &Value| {
        let mine = bearer(&key);
        let line = format!("POST {path}");
        served.request(&line, &[("authorization", &mine)], &body.to_string())
    };
    let link = post(&format!("/v1/gates/{gate}/links"), &json!({ "recipient": "bob" }));
    let link = link.json()["url"].as_str().unwrap().to_owned();
    let token = link.rsplit('/').next().unwrap().to_owned();
    assert_eq!(served.request(&format!("GET /a/{token}"), &[], "").status, 200);
    served.request(&format!("POST /a/{token}"), &[], "{}");
    served.request(&format!("GET /a/{token}x"), &[], "");
    let ticket = post("/v1/tickets", &json!({})).json();
    let url = ticket["url"].as_str().unwrap();
    let ticket = url.rsplit('=').next().unwrap().to_owned();
    let first = served.request(&format!("GET /?t={ticket}"), &[], "");
    let cookie = first.header("set-cookie").unwrap().split(';').next();
    let session = cookie.unwrap().split('=').nth(1).unwrap().to_owned();
    served.request(&format!("GET /?t={ticket}"), &[], "");
    // Wrong secrets, and valid ones in the wrong place.
    let wrong = format!("lh_{}", "7".repeat(52));
    for (name, value) in [
        ("authorization", bearer(&wrong)),
        ("authorization", format!("Basic {key}")),
        ("cookie", format!("longhaul_1={session}")),
    ] {
        let response = served.request(&format!("GET /v1/runs?key={key}"), &[(name, &value)], "");
        assert_eq!(response.status, 401, "{response:?}");
    }
    let plain = SECRET.replace([' ', '"', '\\'], "+");
    for body in [
        json!({ "agent": SECRET, "input": SECRET }),
        json!({ "agent": key, "input": local }),
        json!({ "agent": "plain", "input": SECRET, "context": { SECRET: 1 } }),
        json!({ "agent": "plain", "input": SECRET, SECRET: 1 }),
    ] {
        assert!(post("/v1/runs", &body).status >= 400);
    }
    post(&format!("/v1/runs/{plain}/cancel"), &json!({}));
    post(&format!("/{key}"), &json!({}));
    post(&format!("/v1/runs/{run}/steer"), &json!({ "text": "" }));
    let done =
        post("/v1/runs", &json!({ "agent": "plain", "input": SECRET, "metadata": { "a": key } }));
    let done = done.json()["id"].as_str().unwrap().to_owned();
    project.wait_until(&done, has_status("completed"));
    let cancelled = json!({ "reason": SECRET });
    assert_eq!(post(&format!("/v1/runs/{run}/cancel"), &cancelled).status, 200);
    project.wait_until(&run, has_status("cancelled"));
    project.run(&["keys", "revoke", "ci"], 0);
    let mut secrets = vec![local, key, token, ticket, session, wrong, plain];
    secrets.push(SECRET.to_owned());
    secrets.push(Value::from(SECRET).to_string().trim_matches('"').to_owned());
    secrets
}

/// Stops a server and returns its log, after checking that it holds no secret.
fn log_without_secrets(served: TestServer, secrets: &[String]) -> Vec<String> {
    served.signal("-TERM");
    let (code, log) = served.wait_exit();
    assert_eq!(code, 0, "{log:#?}");
    for line in &log {
        for secret in secrets {
            assert!(!line.contains(secret.as_str()), "{secret}: {line}");
            // Not even the start of a secret.
            let begin: String = secret.chars().take(14).collect();
            assert!(!line.contains(&begin), "{begin}: {line}");
        }
    }
    log
}

#[test]
fn json_log_lines_are_objects_without_secrets() {
    let project = project();
    let served = start_server(&project, "json");
    let secrets = exercise_server(&project, &served);
    let log = log_without_secrets(served, &secrets);
    let mut logged = Vec::new();
    for line in &log {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|bad| panic!("{bad}: {line}"));
        for key in ["at", "level", "message"] {
            assert!(line[key].is_string(), "{key}: {line}");
        }
        let has_run = line["run"].as_str().is_some_and(|run| run.starts_with("run_"));
        let message = line["message"].as_str().unwrap().to_owned();
        let route = line["route"].as_str().unwrap_or_default();
        let run_events =
            ["run submitted", "run claimed", "run idle", "run completed", "cancel requested"];
        let of_run = run_events.contains(&&*message)
            || message == "request rejected" && route.ends_with("/steer");
        assert!(has_run || !of_run, "{line}");
        logged.push(message);
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
        assert!(logged.iter().any(|logged| logged == message), "{message}: {logged:?}");
    }
}

#[test]
fn text_log_lines_have_no_secret() {
    let project = project();
    let served = start_server(&project, "human");
    let secrets = exercise_server(&project, &served);
    let log = log_without_secrets(served, &secrets);
    let has = |text: &str| log.iter().any(|line| line.contains(text));
    for text in ["ready", "run claimed", "run completed", "request rejected", "broken.md"] {
        assert!(has(text), "{text}: {log:#?}");
    }
    // The login link is printed to a terminal only.
    assert!(!has("/?t="), "{log:#?}");
}

#[test]
fn startup_errors_are_json_log_lines() {
    let project = Project::new();
    let _served = TestServer::start(&project);
    let wrong = Project::new();
    wrong.write("longhaul.toml", "[server]\nlisen = \"x\"\n");
    let no_env = Project::new();
    no_env.write(".env", "no line of an env file\n");
    for (project, command, code, expected) in [
        (&project, "serve", 5, "is driven by"),
        (&wrong, "serve", 2, "lisen"),
        (&no_env, "dev", 2, ".env"),
    ] {
        let output = project.run(&[command, "--listen", "127.0.0.1:0"], code);
        assert!(output.err.contains(expected), "{output:?}");
        for line in output.err.lines() {
            let line: Value =
                serde_json::from_str(line).unwrap_or_else(|bad| panic!("{bad}: {line}"));
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
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{rest:#?}");
    assert!(rest.iter().any(|line| line.contains("stopped")), "{rest:#?}");
}
