//! The life of a server process: start, stop, drain, kill, and everything that prevents its start.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::process::Stdio;

use serde_json::Value;

use super::fake_server::{FakeServer, json_response as answer};
use super::project::{CommandOutput, Project, has_status};
use super::server_harness::{TestServer, local_key, send_request};

/// Arguments to serve on a free port.
const SERVE_ARGS: &[&str] = &["serve", "--listen", "127.0.0.1:0", "--until-eof"];

fn file_mode(project: &Project, name: &str) -> u32 {
    let file = project.path().join(".longhaul").join(name);
    fs::metadata(file).unwrap().mode() & 0o777
}

/// Waits until a model call of the run is in flight.
fn wait_until_model_call(project: &Project, run: &str) {
    project.wait_until(run, |run| {
        let activity = run["now"].as_str().unwrap_or_default();
        run["status"] == "running" && activity.contains("is calling the model")
    });
}

#[test]
fn a_server_prints_its_url_and_releases_its_runs_at_shutdown() {
    let project = Project::new();
    let mut server = TestServer::start(&project);
    for file in ["server.json", "local.key"] {
        assert_eq!(file_mode(&project, file), 0o600, "{file}");
    }
    let marker = fs::read_to_string(project.path().join(".longhaul/server.json")).unwrap();
    let marker: Value = serde_json::from_str(&marker).unwrap();
    assert_eq!(marker["url"], server.url.as_str());
    assert_eq!(marker["pid"], server.pid());
    let run = project.submit("chat", "milk");
    wait_until_model_call(&project, &run);
    assert_eq!(server.request("GET /readyz", &[], "").status, 200);
    server.signal("-TERM");
    server.wait_for_line("shutting down");
    let response = server.request("GET /readyz", &[], "");
    assert_eq!(response.status, 503);
    assert_eq!(response.json()["status"], "stopping");
    let (code, log) = server.wait_exit();
    assert_eq!(code, 0, "{log:#?}");
    assert!(!project.path().join(".longhaul/server.json").exists());
    // The reply that was paid for is recorded; the next server does the rest.
    let json = project.json(&["show", &run, "--json"]);
    assert!(!has_status("completed")(&json), "{json}");
    let kinds: Vec<Value> = project.events(&run);
    let count = |kind: &str| kinds.iter().filter(|event| event["type"] == kind).count();
    assert_eq!(count("turn.completed"), 1, "{kinds:?}");
    let _next = TestServer::start(&project);
    let finished_run = project.wait_until(&run, has_status("completed"));
    assert_eq!(finished_run["turns"], 2);
    let events = project.events(&run);
    let first = |event: &&Value| event["type"] == "turn.started" && event["turn"] == 1;
    assert_eq!(events.iter().filter(first).count(), 1, "{events:?}");
}

#[test]
fn a_second_sigterm_aborts_running_calls() {
    let project = Project::new();
    let mut server = TestServer::start(&project);
    let run = project.submit("slow", "milk");
    wait_until_model_call(&project, &run);
    server.signal("-TERM");
    server.wait_for_line("shutting down");
    server.signal("-TERM");
    let (code, log) = server.wait_exit();
    assert_eq!(code, 0, "{log:#?}");
    assert!(log.last().unwrap().contains("stopped"), "{log:#?}");
    let json = project.json(&["show", &run, "--json"]);
    assert!(!has_status("completed")(&json) && !has_status("failed")(&json), "{json}");
    project.run(&["cancel", &run], 0);
}

#[test]
fn a_second_driver_is_refused_with_the_holder_of_the_first() {
    let project = Project::new();
    let server = TestServer::start(&project);
    let address = server.address().to_owned();
    let pid = format!("pid {}", server.pid());
    for args in [
        &["serve", "--listen", "127.0.0.1:0"][..],
        &["dev", "--listen", "127.0.0.1:0"],
        // Also with the same port, as without `--listen`.
        &["serve", "--listen", &address],
        &["worker"],
    ] {
        let output = project.run(args, 5);
        for part in [&*pid, &*server.url, "longhaul ls"] {
            assert!(output.err.contains(part), "{args:?} {part}: {output:?}");
        }
    }
    // For another project only the port is a conflict.
    let other_project = Project::new();
    for command in ["serve", "dev"] {
        let output = other_project.run(&[command, "--listen", &address], 5);
        let hint = format!("longhaul {command} --listen 127.0.0.1:0");
        for part in [&*address, &*hint] {
            assert!(output.err.contains(part), "{part}: {output:?}");
        }
        assert!(!other_project.store().exists());
    }
    let output = other_project.run(&["serve", "--listen", "nonsense"], 2);
    assert!(output.err.contains("nonsense"), "{output:?}");
}

#[test]
fn of_two_servers_starting_at_once_one_wins() {
    let project = Project::new();
    let servers = [0, 1].map(|_| TestServer::spawn(project.command(SERVE_ARGS)));
    // Kept until the end, because a winner that is dropped is killed and the other server can start.
    let mut winners = Vec::new();
    for mut server in servers {
        // The first log line of each shows success or failure.
        let line = server.wait_for_line("\"message\"");
        if line.contains("\"ready\"") {
            winners.push(server);
            continue;
        }
        assert!(line.contains("is driven by"), "{line}");
        assert_eq!(server.wait_exit().0, 5);
    }
    assert_eq!(winners.len(), 1);
}

#[test]
fn a_killed_server_does_not_block_the_next_one() {
    let project = Project::new();
    let server = TestServer::start(&project);
    let waiting_run = project.run_until_gate("tidy");
    let run = project.submit("chat", "milk");
    wait_until_model_call(&project, &run);
    let address = server.address().to_owned();
    server.kill();
    for file_name in ["server.json", "driver.lock"] {
        assert!(project.path().join(".longhaul").join(file_name).exists(), "{file_name}");
    }
    // Commands use the store itself at once.
    let output = project.run(&["why", &run], 0);
    assert!(output.out.contains("No worker drives the run now"), "{output:?}");
    project.run(&["approve", &waiting_run, "--yes"], 0);
    let _next = TestServer::start_at(&project, &address);
    project.wait_until(&run, has_status("completed"));
    project.wait_until(&waiting_run, has_status("completed"));
}

#[test]
fn watch_misses_no_event_when_the_server_is_killed() {
    let project = Project::new();
    project.write(
        "scripts/long.yaml",
        "replies:\n- { text: One., delay: 300ms, tools: [{ name: vault_list, input: {} }] }\n- { text: Two., delay: 300ms, tools: [{ name: vault_list, input: {} }] }\n- text: Done.\n",
    );
    project.write(
        "agents/long.md",
        "---\ndescription: A test.\nmodel: scripted/long\ntools: [vault_list]\n---\nYou.\n",
    );
    let server = TestServer::start(&project);
    let run = project.submit("long", "milk");
    let mut watch_command = project.command(&["watch", &run, "--json"]);
    watch_command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let watch_command = watch_command.spawn().unwrap();
    project.wait_until(&run, |run| run["turns"] == 1);
    let address = server.address().to_owned();
    server.kill();
    let _next = TestServer::start_at(&project, &address);
    let output = CommandOutput::from_output(&watch_command.wait_with_output().unwrap());
    assert_eq!(output.code, 0, "{output:?}");
    let journal = project.run(&["show", &run, "--events", "--json"], 0).out;
    assert_eq!(output.out, journal);
    let claims = journal.matches("\"run.claimed\"").count();
    assert_eq!(claims, 2, "it was not killed in the middle: {journal}");
}

#[test]
fn a_run_on_a_server_continues_after_its_client_detaches() {
    let project = Project::new();
    let _server = TestServer::start(&project);
    let output = project.run_and_interrupt(&["run", "chat", "milk"], &["run_"]);
    assert_eq!(output.code, 130, "{output:?}");
    assert!(output.err.contains("Detached. The run continues"), "{output:?}");
    let run = project.json(&["show", "@last", "--json"]);
    let detached_run = run["id"].as_str().unwrap();
    let args = ["run", "slow", "milk", "--timeout", "100ms", "--json"];
    let late_run = project.run(&args, 124).json();
    project.run(&["cancel", late_run["id"].as_str().unwrap()], 0);
    project.wait_until(detached_run, has_status("completed"));
}

#[test]
fn a_key_file_readable_by_others_is_refused() {
    let project = Project::new();
    let server = TestServer::start(&project);
    let run = project.submit("plain", "milk");
    let file = project.path().join(".longhaul/local.key");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    // The key is neither sent to a server nor used by the next server.
    let output = project.run(&["show", &run], 6);
    assert!(output.err.contains("is readable by other users"), "{output:?}");
    drop(server);
    let assert_refused = |expected: &str| {
        let output = project.run(SERVE_ARGS, 2);
        assert!(output.err.contains(expected), "{expected}: {output:?}");
        let hint = format!("rm {}", file.display());
        assert!(output.err.contains(&hint), "{output:?}");
        assert!(!project.path().join(".longhaul/server.json").exists());
    };
    fs::remove_file(project.path().join(".longhaul/server.json")).unwrap();
    assert_refused("is readable by other users");
    let real_file = project.path().join("elsewhere.key");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(&file, &real_file).unwrap();
    symlink(&real_file, &file).unwrap();
    assert_refused("can't be used");
    fs::remove_file(&file).unwrap();
    fs::write(&file, "nonsense\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    assert_refused("does not contain a valid key");
}

#[test]
fn an_unwritable_folder_is_reported() {
    let project = Project::new();
    for command in ["serve", "dev"] {
        let mut command = project.command(&[command, "--listen", "127.0.0.1:0"]);
        // Even root can't write there.
        command.env("LONGHAUL_DATA", "/proc/longhaul");
        let output = CommandOutput::from_output(&command.output().unwrap());
        assert_eq!(output.code, 2, "{output:?}");
        assert!(output.err.contains("/proc/longhaul"), "{output:?}");
        assert!(output.err.contains("LONGHAUL_"), "{output:?}");
    }
}

#[test]
fn deleting_the_store_stops_the_server() {
    let project = Project::new();
    let server = TestServer::start(&project);
    fs::remove_file(project.store()).unwrap();
    let (code, log) = server.wait_exit();
    assert_eq!(code, 5, "{log:#?}");
    let is_logged = log.iter().any(|line| line.contains("was moved or deleted"));
    assert!(is_logged, "{log:#?}");
    for line in &log {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
}

#[test]
fn a_key_grants_what_its_role_allows() {
    let project = Project::new();
    let server = TestServer::start(&project);
    let viewer = project.run(&["keys", "new", "eve", "--role", "viewer"], 0).out;
    let run_cli = |key: &str, args: &[&str]| {
        let mut command = project.command(args);
        command.env("LONGHAUL_URL", &server.url);
        command.env("LONGHAUL_KEY", key);
        CommandOutput::from_output(&command.output().unwrap())
    };
    let wrong_key = format!("lh_{}", "0".repeat(52));
    for key in [&*wrong_key, "nonsense", "lh_\u{e4}"] {
        let output = run_cli(key, &["ls"]);
        assert_eq!(output.code, 6, "{output:?}");
        assert!(output.err.contains("longhaul keys new"), "{output:?}");
    }
    assert_eq!(run_cli(viewer.trim(), &["ls"]).code, 0);
    for args in [&["submit", "plain", "milk"][..], &["run", "plain", "milk"], &["keys", "ls"]] {
        let output = run_cli(viewer.trim(), args);
        assert_eq!(output.code, 6, "{args:?}: {output:?}");
    }
    project.run(&["keys", "revoke", "eve"], 0);
    assert_eq!(run_cli(viewer.trim(), &["ls"]).code, 6);
}

#[test]
fn dev_and_run_read_dotenv_and_serve_does_not() {
    let project = Project::new();
    project.write(".env", "LONGHAUL_BUDGET_TURNS=7\n");
    let turns = || {
        let run = project.json(&["run", "plain", "milk", "--json"]);
        run["budget"]["turns"].clone()
    };
    assert_eq!(turns(), 7);
    let dev_args = ["dev", "--listen", "127.0.0.1:0", "--until-eof"];
    let server = TestServer::from_command(project.command(&dev_args));
    assert_eq!(turns(), 7);
    drop(server);
    let _server = TestServer::start(&project);
    assert_eq!(turns(), 200);
}

#[test]
fn watch_and_run_read_dotenv_and_a_worker_does_not() {
    let project = Project::new();
    project.write(".env", "no line of an env file\n");
    let run = project.submit("plain", "milk");
    for args in [&["watch", &*run][..], &["run", "plain", "milk"]] {
        let output = project.run(args, 2);
        assert!(output.err.contains(".env` has a line"), "{output:?}");
        assert!(!output.err.contains("no line of"), "{output:?}");
    }
    let worker = project.start_worker();
    project.wait_until(&run, has_status("completed"));
    project.run(&["watch", &run], 0);
    drop(worker);
    // Commands that only submit a task to a server ignore it.
    let _server = TestServer::start(&project);
    project.run(&["run", "plain", "milk"], 0);
    project.submit("plain", "milk");
}

#[test]
fn a_link_opens_the_web_pages_once() {
    let project = Project::new();
    let output = project.run(&["keys", "link"], 2);
    assert!(output.err.contains("longhaul serve"), "{output:?}");
    assert!(!project.store().exists());
    let server = TestServer::start(&project);
    let output = project.run(&["keys", "link"], 0);
    assert!(output.err.contains("once") && output.err.contains("10 minutes"), "{output:?}");
    assert!(output.out.starts_with(&format!("{}/?t=", server.url)), "{output:?}");
    assert_opens_once(server.address(), output.out.trim());
    // The link has the role of the key that requested it.
    let viewer = project.run(&["keys", "new", "eve", "--role", "viewer"], 0).out;
    let mut command = project.command(&["keys", "link"]);
    command.env("LONGHAUL_URL", &server.url);
    command.env("LONGHAUL_KEY", viewer.trim());
    let output = CommandOutput::from_output(&command.output().unwrap());
    assert_opens_once(server.address(), output.out.trim());
}

/// Asserts that a link to the pages works exactly once.
pub(crate) fn assert_opens_once(address: &str, link: &str) {
    let path = &link[link.find("/?t=").unwrap()..];
    let first = send_request(address, &format!("GET {path}"), &[], "");
    assert_eq!(first.status, 303, "{first:?}");
    assert_eq!(first.header("location"), Some("/"));
    let cookie = first.header("set-cookie").unwrap();
    let cookie = cookie.split(';').next().unwrap();
    let page = send_request(address, "GET /", &[("cookie", cookie)], "");
    assert_eq!(page.status, 200, "{page:?}");
    assert_eq!(send_request(address, "GET /", &[], "").status, 401);
    let second = send_request(address, &format!("GET {path}"), &[], "");
    assert_eq!(second.status, 410, "{second:?}");
}

#[test]
fn sending_a_key_unencrypted_prints_a_warning() {
    let project = Project::new();
    let body = "{\"data\":[],\"next\":null,\"total\":0,\"open\":0,\"waiting_for_person\":0,\
                \"failed\":0,\"cost_usd\":0.0,\"unpriced\":0}";
    let list = |_: &super::fake_server::RecordedRequest| answer("200 OK", body);
    let server = FakeServer::new(list);
    // The same machine under an address that is not loopback.
    let remote_url = server.url.replace("127.0.0.1", "0.0.0.0");
    for (url, key, warnings) in
        [(&remote_url, "lh_secret", 1), (&remote_url, "", 0), (&server.url, "lh_secret", 0)]
    {
        let mut command = project.command(&["ls"]);
        command.env("LONGHAUL_URL", url).env("LONGHAUL_KEY", key);
        let output = CommandOutput::from_output(&command.output().unwrap());
        assert_eq!(output.code, 0, "{output:?}");
        let count = output.err.matches("without TLS").count();
        assert_eq!(count, warnings, "{url}: {output:?}");
        assert!(!output.err.contains("lh_secret"), "{output:?}");
    }
}

#[test]
fn the_local_key_is_required_and_survives_a_restart() {
    let project = Project::new();
    let server = TestServer::start(&project);
    let key = format!("Bearer {}", local_key(&project));
    let response = server.request("GET /v1/keys", &[("authorization", &key)], "");
    assert_eq!(response.status, 200, "{response:?}");
    assert_eq!(server.request("GET /v1/keys", &[], "").status, 401);
    // The next server uses the same key, so that clients can keep using it.
    drop(server);
    let next = TestServer::start(&project);
    let response = next.request("GET /v1/keys", &[("authorization", &key)], "");
    assert_eq!(response.status, 200, "{response:?}");
}
