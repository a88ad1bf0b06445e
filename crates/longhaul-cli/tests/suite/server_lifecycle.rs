//! A server's life as its surroundings see it: start, stop, drain, kill, and
//! everything that stands in its way.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::process::Stdio;

use serde_json::Value;

use super::fake_server::{FakeServer, json_response as answer};
use super::project::{CommandOutput, Project, has_status};
use super::server_harness::{TestServer, local_key, send_request};

/// The command to serve at any free port.
const SERVE_ARGS: &[&str] = &["serve", "--listen", "127.0.0.1:0", "--until-eof"];

fn file_mode(project: &Project, name: &str) -> u32 {
    let file = project.path().join(".longhaul").join(name);
    fs::metadata(file).unwrap().mode() & 0o777
}

/// Waits until a run asks its model.
fn wait_until_model_call(project: &Project, run: &str) {
    project.wait_until(run, |run| {
        let now = run["now"].as_str().unwrap_or_default();
        run["status"] == "running" && now.contains("asks the model")
    });
}

#[test]
fn a_server_prints_its_url_and_releases_its_runs_at_shutdown() {
    let project = Project::new();
    let mut served = TestServer::start(&project);
    for file in ["server.json", "local.key"] {
        assert_eq!(file_mode(&project, file), 0o600, "{file}");
    }
    let marker = fs::read_to_string(project.path().join(".longhaul/server.json")).unwrap();
    let marker: Value = serde_json::from_str(&marker).unwrap();
    assert_eq!(marker["url"], served.url.as_str());
    assert_eq!(marker["pid"], served.pid());
    assert_eq!(served.request("GET /readyz", &[], "").status, 200);
    let run = project.submit("chat", "milk");
    wait_until_model_call(&project, &run);
    served.signal("-TERM");
    served.wait_for_line("stopping");
    let ready = served.request("GET /readyz", &[], "");
    assert_eq!(ready.status, 503);
    assert_eq!(ready.json()["status"], "stopping");
    let (code, log) = served.wait_exit();
    assert_eq!(code, 0, "{log:#?}");
    assert!(!project.path().join(".longhaul/server.json").exists());
    // The answer that was paid for is kept; the rest is for the next one.
    let seen = project.json(&["show", &run, "--json"]);
    assert!(!has_status("completed")(&seen), "{seen}");
    let kinds: Vec<Value> = project.events(&run);
    let count = |kind: &str| kinds.iter().filter(|event| event["type"] == kind).count();
    assert_eq!(count("turn.completed"), 1, "{kinds:?}");
    let _next = TestServer::start(&project);
    let done = project.wait_until(&run, has_status("completed"));
    assert_eq!(done["turns"], 2);
    let asked = project.events(&run);
    let first = |event: &&Value| event["type"] == "turn.started" && event["turn"] == 1;
    assert_eq!(asked.iter().filter(first).count(), 1, "{asked:?}");
}

#[test]
fn a_second_sigterm_aborts_running_calls() {
    let project = Project::new();
    let mut served = TestServer::start(&project);
    let run = project.submit("slow", "milk");
    wait_until_model_call(&project, &run);
    served.signal("-TERM");
    served.wait_for_line("stopping");
    served.signal("-TERM");
    let (code, log) = served.wait_exit();
    assert_eq!(code, 0, "{log:#?}");
    assert!(log.last().unwrap().contains("stopped"), "{log:#?}");
    let seen = project.json(&["show", &run, "--json"]);
    assert!(!has_status("completed")(&seen) && !has_status("failed")(&seen), "{seen}");
    project.run(&["cancel", &run], 0);
}

#[test]
fn a_second_driver_is_refused_with_the_holder_of_the_first() {
    let project = Project::new();
    let served = TestServer::start(&project);
    let address = served.address().to_owned();
    let pid = format!("pid {}", served.pid());
    for args in [
        &["serve", "--listen", "127.0.0.1:0"][..],
        &["dev", "--listen", "127.0.0.1:0"],
        // The same port as well, as without `--listen`.
        &["serve", "--listen", &address],
        &["worker"],
    ] {
        let said = project.run(args, 5);
        for part in [&*pid, &*served.url, "longhaul ls"] {
            assert!(said.err.contains(part), "{args:?} {part}: {said:?}");
        }
    }
    // Another project's server is in the way by its port only.
    let other = Project::new();
    for command in ["serve", "dev"] {
        let said = other.run(&[command, "--listen", &address], 5);
        let hint = format!("longhaul {command} --listen 127.0.0.1:0");
        for part in [&*address, &*hint] {
            assert!(said.err.contains(part), "{part}: {said:?}");
        }
        assert!(!other.store().exists());
    }
    let said = other.run(&["serve", "--listen", "nonsense"], 2);
    assert!(said.err.contains("nonsense"), "{said:?}");
}

#[test]
fn of_two_servers_starting_at_once_one_wins() {
    let project = Project::new();
    let both = [0, 1].map(|_| TestServer::spawn(project.command(SERVE_ARGS)));
    let mut won = 0;
    for mut served in both {
        // Each says one thing or the other as its first word.
        let word = served.wait_for_line("\"message\"");
        if word.contains("\"ready\"") {
            won += 1;
            continue;
        }
        assert!(word.contains("is driven by"), "{word}");
        assert_eq!(served.wait_exit().0, 5);
    }
    assert_eq!(won, 1);
}

#[test]
fn a_killed_server_does_not_block_the_next_one() {
    let project = Project::new();
    let served = TestServer::start(&project);
    let asked = project.run_until_gate("tidy");
    let run = project.submit("chat", "milk");
    wait_until_model_call(&project, &run);
    let address = served.address().to_owned();
    served.kill();
    for left in ["server.json", "driver.lock"] {
        assert!(project.path().join(".longhaul").join(left).exists(), "{left}");
    }
    // The store itself is asked at once.
    let said = project.run(&["why", &run], 0);
    assert!(said.out.contains("Nobody drives it now"), "{said:?}");
    project.run(&["approve", &asked, "--yes"], 0);
    let _next = TestServer::start_at(&project, &address);
    project.wait_until(&run, has_status("completed"));
    project.wait_until(&asked, has_status("completed"));
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
    let served = TestServer::start(&project);
    let run = project.submit("long", "milk");
    let mut watch = project.command(&["watch", &run, "--json"]);
    watch.stdout(Stdio::piped()).stderr(Stdio::piped());
    let watch = watch.spawn().unwrap();
    project.wait_until(&run, |run| run["turns"] == 1);
    let address = served.address().to_owned();
    served.kill();
    let _next = TestServer::start_at(&project, &address);
    let said = CommandOutput::from_output(&watch.wait_with_output().unwrap());
    assert_eq!(said.code, 0, "{said:?}");
    let journal = project.run(&["show", &run, "--events", "--json"], 0).out;
    assert_eq!(said.out, journal);
    let claims = journal.matches("\"run.claimed\"").count();
    assert_eq!(claims, 2, "it was not killed in the middle: {journal}");
}

#[test]
fn a_run_on_a_server_continues_after_its_client_detaches() {
    let project = Project::new();
    let _served = TestServer::start(&project);
    let said = project.run_and_interrupt(&["run", "chat", "milk"], &["run_"]);
    assert_eq!(said.code, 130, "{said:?}");
    assert!(said.err.contains("Detached. The run goes on"), "{said:?}");
    let run = project.json(&["show", "@last", "--json"]);
    let left = run["id"].as_str().unwrap();
    let args = ["run", "slow", "milk", "--timeout", "100ms", "--json"];
    let late = project.run(&args, 124).json();
    project.run(&["cancel", late["id"].as_str().unwrap()], 0);
    project.wait_until(left, has_status("completed"));
}

#[test]
fn a_key_file_readable_by_others_is_refused() {
    let project = Project::new();
    let served = TestServer::start(&project);
    let run = project.submit("plain", "milk");
    let file = project.path().join(".longhaul/local.key");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    // Neither is it shown to a server, nor does the next one take it.
    let said = project.run(&["show", &run], 6);
    assert!(said.err.contains("may be read by others"), "{said:?}");
    drop(served);
    let refused = |word: &str| {
        let said = project.run(SERVE_ARGS, 2);
        assert!(said.err.contains(word), "{word}: {said:?}");
        let hint = format!("rm {}", file.display());
        assert!(said.err.contains(&hint), "{said:?}");
        assert!(!project.path().join(".longhaul/server.json").exists());
    };
    fs::remove_file(project.path().join(".longhaul/server.json")).unwrap();
    refused("may be read by others");
    let real = project.path().join("elsewhere.key");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(&file, &real).unwrap();
    symlink(&real, &file).unwrap();
    refused("can't be used");
    fs::remove_file(&file).unwrap();
    fs::write(&file, "nonsense\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    refused("holds no key");
}

#[test]
fn an_unwritable_folder_is_reported() {
    let project = Project::new();
    for command in ["serve", "dev"] {
        let mut command = project.command(&[command, "--listen", "127.0.0.1:0"]);
        // Also root can't write there.
        command.env("LONGHAUL_DATA", "/proc/longhaul");
        let said = CommandOutput::from_output(&command.output().unwrap());
        assert_eq!(said.code, 2, "{said:?}");
        assert!(said.err.contains("/proc/longhaul"), "{said:?}");
        assert!(said.err.contains("LONGHAUL_"), "{said:?}");
    }
}

#[test]
fn deleting_the_store_stops_the_server() {
    let project = Project::new();
    let served = TestServer::start(&project);
    fs::remove_file(project.store()).unwrap();
    let (code, log) = served.wait_exit();
    assert_eq!(code, 5, "{log:#?}");
    let told = log.iter().any(|line| line.contains("was moved or deleted"));
    assert!(told, "{log:#?}");
    for line in &log {
        serde_json::from_str::<Value>(line).unwrap_or_else(|bad| panic!("{bad}: {line}"));
    }
}

#[test]
fn a_key_grants_what_its_role_allows() {
    let project = Project::new();
    let served = TestServer::start(&project);
    let viewer = project.run(&["keys", "new", "eve", "--role", "viewer"], 0).out;
    let say = |key: &str, args: &[&str]| {
        let mut command = project.command(args);
        command.env("LONGHAUL_URL", &served.url);
        command.env("LONGHAUL_KEY", key);
        CommandOutput::from_output(&command.output().unwrap())
    };
    let wrong = format!("lh_{}", "0".repeat(52));
    for key in [&*wrong, "nonsense", "lh_\u{e4}"] {
        let said = say(key, &["ls"]);
        assert_eq!(said.code, 6, "{said:?}");
        assert!(said.err.contains("longhaul keys new"), "{said:?}");
    }
    assert_eq!(say(viewer.trim(), &["ls"]).code, 0);
    for args in [&["submit", "plain", "milk"][..], &["run", "plain", "milk"], &["keys", "ls"]] {
        let said = say(viewer.trim(), args);
        assert_eq!(said.code, 6, "{args:?}: {said:?}");
    }
    project.run(&["keys", "revoke", "eve"], 0);
    assert_eq!(say(viewer.trim(), &["ls"]).code, 6);
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
    let dev = ["dev", "--listen", "127.0.0.1:0", "--until-eof"];
    let served = TestServer::from_command(project.command(&dev));
    assert_eq!(turns(), 7);
    drop(served);
    let _served = TestServer::start(&project);
    assert_eq!(turns(), 200);
}

#[test]
fn watch_and_run_read_dotenv_and_a_worker_does_not() {
    let project = Project::new();
    project.write(".env", "no line of an env file\n");
    let run = project.submit("plain", "milk");
    for args in [&["watch", &*run][..], &["run", "plain", "milk"]] {
        let said = project.run(args, 2);
        assert!(said.err.contains(".env` has a line"), "{said:?}");
        assert!(!said.err.contains("no line of"), "{said:?}");
    }
    let worker = project.start_worker();
    project.wait_until(&run, has_status("completed"));
    project.run(&["watch", &run], 0);
    drop(worker);
    // Whoever only hands a task over has no use for it.
    let _served = TestServer::start(&project);
    project.run(&["run", "plain", "milk"], 0);
    project.submit("plain", "milk");
}

#[test]
fn a_link_opens_the_web_pages_once() {
    let project = Project::new();
    let said = project.run(&["keys", "link"], 2);
    assert!(said.err.contains("longhaul serve"), "{said:?}");
    assert!(!project.store().exists());
    let served = TestServer::start(&project);
    let said = project.run(&["keys", "link"], 0);
    assert!(said.err.contains("once") && said.err.contains("10 minutes"), "{said:?}");
    assert!(said.out.starts_with(&format!("{}/?t=", served.url)), "{said:?}");
    assert_opens_once(served.address(), said.out.trim());
    // As far as the key that asked for it.
    let viewer = project.run(&["keys", "new", "eve", "--role", "viewer"], 0).out;
    let mut command = project.command(&["keys", "link"]);
    command.env("LONGHAUL_URL", &served.url);
    command.env("LONGHAUL_KEY", viewer.trim());
    let said = CommandOutput::from_output(&command.output().unwrap());
    assert_opens_once(served.address(), said.out.trim());
}

/// Follows a link to the pages, twice.
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
    let list =
        |_: &super::fake_server::RecordedRequest| answer("200 OK", "{\"data\":[],\"next\":null}");
    let server = FakeServer::new(list);
    // The same machine under a name that does not say so.
    let open = server.url.replace("127.0.0.1", "0.0.0.0");
    for (url, key, warned) in
        [(&open, "lh_secret", 1), (&open, "", 0), (&server.url, "lh_secret", 0)]
    {
        let mut command = project.command(&["ls"]);
        command.env("LONGHAUL_URL", url).env("LONGHAUL_KEY", key);
        let said = CommandOutput::from_output(&command.output().unwrap());
        assert_eq!(said.code, 0, "{said:?}");
        let count = said.err.matches("without TLS").count();
        assert_eq!(count, warned, "{url}: {said:?}");
        assert!(!said.err.contains("lh_secret"), "{said:?}");
    }
}

#[test]
fn the_local_key_is_required_and_survives_a_restart() {
    let project = Project::new();
    let served = TestServer::start(&project);
    let key = format!("Bearer {}", local_key(&project));
    let asked = served.request("GET /v1/keys", &[("authorization", &key)], "");
    assert_eq!(asked.status, 200, "{asked:?}");
    assert_eq!(served.request("GET /v1/keys", &[], "").status, 401);
    // A next server keeps it, so that whoever holds it goes on.
    drop(served);
    let next = TestServer::start(&project);
    let asked = next.request("GET /v1/keys", &[("authorization", &key)], "");
    assert_eq!(asked.status, 200, "{asked:?}");
}
