//! The command line before a server: the same words and exit codes as before the
//! store itself. The server is a stand-in that says what the store says.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::project::{Project, Said};
use super::stand_in::{Asked, StandIn, events, json as answer, nobody};

/// Says this to the binary, with this server named.
fn say_to(project: &Project, url: &str, args: &[&str]) -> Said {
    let mut command = project.command(args);
    command.env("LONGHAUL_URL", url);
    Said::of(&command.output().unwrap())
}

/// A stand-in that knows one run of a project, and cuts every stream after one event.
fn knows(project: &Project, run: &str) -> StandIn {
    let said = |args: &[&str]| project.say(args, 0).out;
    let whole = said(&["show", run, "--json"]);
    let transcript = said(&["show", run, "--transcript", "--json"]);
    let mut why: Value = project.json(&["why", run, "--json"]);
    if why["command"].is_null() {
        why["command"] = json!("");
    }
    let journal = project.events(run);
    let brief = brief(&whole, journal.len());
    let path = format!("GET /v1/runs/{run}");
    let run = run.to_owned();
    StandIn::new(move |asked| {
        let ok = |body: &str| answer("200 OK", body);
        let Some(side) = asked.line.strip_prefix(&path) else {
            return match asked.line.starts_with("GET /v1/runs?") {
                true if asked.line.contains("brief=true") => ok(&list(&brief)),
                true => ok(&list(&whole)),
                false => answer("404 Not Found", &no("not_found")),
            };
        };
        match side.split('?').next().unwrap_or_default() {
            "" => ok(&whole),
            "/why" => ok(&why.to_string()),
            "/transcript" => ok(&transcript),
            "/events" => match asked.header("accept") {
                Some("text/event-stream") => one_event(&journal, &run, asked),
                _ => ok(&page(&journal, asked)),
            },
            _ => answer("404 Not Found", &no("no_run")),
        }
    })
}

/// A run as lists have it.
fn brief(whole: &str, last: usize) -> String {
    let mut run: Value = serde_json::from_str(whole).unwrap();
    run["last"] = json!(last);
    let code = run["error"]["code"].clone();
    run["now"] = if code.is_null() { json!("done") } else { code };
    run.to_string()
}

fn list(one: &str) -> String {
    format!("{{\"data\":[{one}],\"next\":null}}")
}

fn no(code: &str) -> String {
    json!({ "code": code, "detail": format!("no: {code}"), "status": 400 }).to_string()
}

fn after(asked: &Asked) -> u64 {
    let (_, query) = asked.line.split_once('?').unwrap();
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let (_, after) = pairs.find(|(name, _)| *name == "after").unwrap();
    after.parse().unwrap()
}

fn page(journal: &[Value], asked: &Asked) -> String {
    let after = after(asked);
    let data: Vec<&Value> = journal
        .iter()
        .filter(|event| event["seq"].as_u64().unwrap() > after)
        .collect();
    json!({ "data": data, "next": null }).to_string()
}

/// The next event with much noise around it, and the end of the connection.
fn one_event(journal: &[Value], run: &str, asked: &Asked) -> String {
    let after = after(asked);
    assert_eq!(asked.header("last-event-id"), Some(&*after.to_string()));
    let seq = |event: &Value| event["seq"].as_u64().unwrap();
    let frame = |event: &Value| {
        let (seq, kind) = (seq(event), event["type"].as_str().unwrap());
        format!("id: {seq}\nevent: {kind}\ndata: {event}\n\n")
    };
    let delta = json!({ "run": run, "turn": 1, "attempt": 1, "offset": 0, "text": "wor" });
    let mut text = format!(": beat\n\nevent: message.delta\ndata: {delta}\n\n");
    // A server that tells the last one again is forgiven.
    let told = journal.iter().find(|event| seq(event) == after);
    text.extend(told.map(frame));
    match journal.iter().find(|event| seq(event) == after + 1) {
        Some(event) => {
            text.push_str(&frame(event));
            // The beginning of what the cut leaves out.
            text.push_str("id: 99\nevent: run.completed\nda");
        }
        None => text.push_str("event: end\ndata: {}\n\n"),
    }
    events(&text)
}

#[test]
fn the_same_words_come_from_a_server_and_from_the_store() {
    let project = Project::new();
    for (agent, code) in [("plain", 0), ("locked", 1)] {
        project.say(&["run", agent, "milk", "--quiet"], code);
        let run = project.json(&["show", "@last", "--json"]);
        let id = run["id"].as_str().unwrap();
        let server = knows(&project, id);
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
            let here = Said::of(&project.command(args).output().unwrap());
            let there = say_to(&project, &server.url, args);
            assert_eq!(there.code, here.code, "{args:?}: {there:?}");
            assert_eq!(there.out, here.out, "{args:?}: {there:?}");
            assert_eq!(there.err, here.err, "{args:?}");
        }
    }
}

#[test]
fn each_fact_is_told_once_however_often_the_connection_is_lost() {
    let project = Project::new();
    project.say(&["run", "plain", "milk", "--quiet"], 0);
    let run = project.json(&["show", "@last", "--json"]);
    let id = run["id"].as_str().unwrap();
    let journal = project.say(&["show", id, "--events", "--json"], 0).out;
    let server = knows(&project, id);
    let said = say_to(&project, &server.url, &["watch", id, "--json"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(said.out, journal);
    assert_eq!(said.err.matches("was lost").count(), 1, "{said:?}");
    let told = say_to(&project, &server.url, &["watch", id]);
    assert_eq!(told.out, "Done: milk\n", "{told:?}");
}

#[test]
fn whoever_leaves_need_not_wait_for_a_server_that_is_away() {
    let project = Project::new();
    let run = project.submit("plain", "milk");
    let whole = project.say(&["show", &run, "--json"], 0).out;
    let tries = AtomicUsize::new(0);
    let server = StandIn::new(move |asked| {
        let streams = asked.header("accept") == Some("text/event-stream");
        match tries.fetch_add(1, Ordering::SeqCst) {
            0..3 if streams => events(": beat\n\n"),
            0..3 => answer("200 OK", &whole),
            _ => String::new(),
        }
    });
    let said = say_to(
        &project,
        &server.url,
        &["watch", &run, "--timeout", "300ms"],
    );
    assert_eq!(said.code, 124, "{said:?}");
    assert_eq!(said.err.matches("was lost").count(), 1, "{said:?}");
    assert!(said.err.contains("can't be reached"), "{said:?}");
}

#[test]
fn a_yes_over_the_wire_names_what_was_seen() {
    let project = Project::new();
    let run = project.until_asked("tidy");
    let gate = project.json(&["gates", "show", &run, "--json"]);
    let id = gate["id"].as_str().unwrap().to_owned();
    let kept = gate.to_string();
    let (path, answers) = (
        format!("GET /v1/gates/{id}"),
        format!("POST /v1/gates/{id}/answer"),
    );
    let server = StandIn::new(move |asked| match &*asked.line {
        line if line == path => answer("200 OK", &kept),
        line if line == answers => {
            let body = format!("{{\"verdict\":\"closed\",\"seq\":17,\"gate\":{kept}}}");
            answer("200 OK", &body)
        }
        "GET /readyz" => answer("200 OK", "{\"status\":\"ready\",\"driven\":true}"),
        _ => answer("200 OK", "{\"data\":[],\"next\":null}"),
    });
    for args in [
        &["gates", "show", &*id][..],
        &["gates", "show", &id, "--json"],
    ] {
        let here = project.say(args, 0).out;
        assert_eq!(say_to(&project, &server.url, args).out, here);
    }
    let said = say_to(
        &project,
        &server.url,
        &["approve", &id, "--yes", "--note", "go"],
    );
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.starts_with("Approved: vault_write "), "{said:?}");
    assert!(
        said.out.contains(&format!("{run} resumes at event 17.")),
        "{said:?}"
    );
    let asked = server.asked();
    let asked = asked.iter().find(|asked| asked.line.starts_with("POST"));
    let body: Value = serde_json::from_str(&asked.unwrap().body).unwrap();
    let wanted = json!({
        "decision": "approve", "scope": "once", "note": "go", "digest": gate["digest"],
    });
    assert_eq!(body, wanted);
}

#[test]
fn a_server_that_was_named_and_is_not_there_is_five() {
    let project = Project::new();
    let url = nobody();
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
        let said = Said::of(&command.output().unwrap());
        assert_eq!(said.code, 5, "{args:?}: {said:?}");
        for part in ["can't be reached", url.as_str(), "LONGHAUL_URL= longhaul"] {
            assert!(said.err.contains(part), "{part}: {said:?}");
        }
        assert!(!said.err.contains("secret"), "{said:?}");
        assert!(!project.store().exists(), "{args:?}");
    }
    let said = say_to(&project, "127.0.0.1:4700", &["ls"]);
    assert_eq!(said.code, 2, "{said:?}");
    assert_eq!(say_to(&project, "", &["ls"]).code, 0);
}

#[test]
fn a_key_that_is_wrong_is_six() {
    let project = Project::new();
    for (status, code) in [
        ("401 Unauthorized", "unauthorized"),
        ("403 Forbidden", "forbidden"),
    ] {
        let server = StandIn::new(move |_| answer(status, &no(code)));
        let said = say_to(&project, &server.url, &["ls"]);
        assert_eq!(said.code, 6, "{said:?}");
        for part in ["longhaul keys new", "LONGHAUL_KEY="] {
            assert!(said.err.contains(part), "{part}: {said:?}");
        }
    }
}

#[test]
fn a_submit_whose_answer_is_lost_is_sent_again_under_its_key() {
    let project = Project::new();
    let run = project.submit("plain", "milk");
    let whole = project.say(&["show", &run, "--json"], 0).out;
    let tries = AtomicUsize::new(0);
    let server = StandIn::new(move |_| match tries.fetch_add(1, Ordering::SeqCst) {
        0 => String::new(),
        1 => answer("503 Service Unavailable", &no("draining")),
        2 => answer("409 Conflict", &no("idempotency_running")),
        _ => answer("201 Created", &whole),
    });
    // An agent of the server's own, which this folder does not know.
    let said = say_to(
        &project,
        &server.url,
        &["submit", "theirs", "milk", "--lane", "a"],
    );
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(said.out.trim(), run);
    let asked = server.asked();
    assert_eq!(asked.len(), 4);
    let key = asked[0].header("idempotency-key").unwrap();
    assert!(!key.is_empty());
    for one in &asked {
        assert_eq!(one.line, "POST /v1/runs");
        assert_eq!(one.header("idempotency-key"), Some(key));
        let body: Value = serde_json::from_str(&one.body).unwrap();
        assert_eq!(
            body,
            json!({ "agent": "theirs", "input": "milk", "lane": "a" })
        );
    }
    let args = ["submit", "theirs", "milk", "--idempotency-key", "mine"];
    say_to(&project, &server.url, &args);
    let last = server.asked().pop().unwrap();
    assert_eq!(last.header("idempotency-key"), Some("mine"));
}

#[test]
fn a_word_that_may_not_be_said_twice_is_said_once() {
    let project = Project::new();
    let run = project.submit("plain", "milk");
    let whole = project.say(&["show", &run, "--json"], 0).out;
    let server = StandIn::new(move |asked| match asked.line.starts_with("GET") {
        true => answer("200 OK", &whole),
        false => String::new(),
    });
    let said = say_to(&project, &server.url, &["steer", &run, "left"]);
    assert_eq!(said.code, 5, "{said:?}");
    assert!(said.err.contains("nobody knows"), "{said:?}");
    assert_eq!(server.asked().len(), 1);
}

/// A server that died leaves its marker, and a stranger may listen there now.
#[test]
fn a_marker_counts_only_for_the_one_who_drives() {
    let project = Project::new();
    let run = project.submit("slow", "milk");
    let whole = project.say(&["show", &run, "--json"], 0).out;
    let stranger = StandIn::new(move |asked| match asked.line.as_str() {
        "GET /livez" => answer("200 OK", "{\"status\":\"ok\"}"),
        _ => answer("200 OK", &whole),
    });
    let key = format!("lh_{}", "0".repeat(52));
    project.write(".longhaul/local.key", &key);
    let file = project.path().join(".longhaul/local.key");
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
    let marker = json!({ "url": stranger.url, "pid": 1, "store": project.store() });
    project.write(".longhaul/server.json", &marker.to_string());
    let looks = || {
        let said = project.say(&["show", &run, "--json"], 0);
        assert_eq!(said.json()["id"], run.as_str());
        assert!(stranger.asked().is_empty());
    };
    looks();
    let _worker = project.worker();
    looks();
    // Also whoever is named gets the machine's key only if they drive this store.
    let said = say_to(&project, &stranger.url, &["show", &run, "--json"]);
    assert_eq!(said.code, 0, "{said:?}");
    for asked in stranger.asked() {
        assert_eq!(asked.header("authorization"), None, "{}", asked.line);
    }
}

/// A key as answers have it.
fn a_key() -> Value {
    json!({
        "name": "c/i", "role": "approver", "status": "active", "by": "cli:anna",
        "created_at": "2026-11-15T09:00:00.000000Z", "expires_at": null,
        "revoked_at": null, "used_at": null,
    })
}

/// A stand-in that has one key, and one name that is taken.
fn has_keys() -> StandIn {
    StandIn::new(|asked| match asked.line.split(' ').next() {
        Some("POST") if asked.body.contains("taken") => answer("409 Conflict", &no("key_taken")),
        Some("POST") => {
            let made = json!({ "secret": "lh_shown_once", "key": a_key() });
            answer("201 Created", &made.to_string())
        }
        Some("GET") => answer("200 OK", &list(&a_key().to_string())),
        _ => answer("200 OK", &a_key().to_string()),
    })
}

#[test]
fn keys_are_made_listed_and_revoked() {
    let project = Project::new();
    let server = has_keys();
    let say = |args: &[&str], code| {
        let said = say_to(&project, &server.url, args);
        assert_eq!(said.code, code, "{args:?}: {said:?}");
        said
    };
    let new = [
        "keys",
        "new",
        "c/i",
        "--role",
        "approver",
        "--expires",
        "90d",
    ];
    let said = say(&new, 0);
    assert_eq!(said.out, "lh_shown_once\n");
    assert!(said.err.contains("export LONGHAUL_URL="), "{said:?}");
    assert!(said.err.contains("curl -H"), "{said:?}");
    assert!(!said.err.contains("lh_shown_once"), "{said:?}");
    let said = say(&[&new[..], &["--json"]].concat(), 0);
    let made = json!({ "secret": "lh_shown_once", "key": a_key() });
    assert_eq!(said.json(), made);
    let said = say(&["keys", "new", "taken"], 2);
    assert!(said.err.contains("longhaul keys revoke taken"), "{said:?}");
    let said = say(&["keys", "ls"], 0);
    assert!(said.out.contains("approver  active  cli:anna"), "{said:?}");
    let said = say(&["keys", "ls", "--json"], 0);
    assert_eq!(said.json()["data"], json!([a_key()]));
    let said = say(&["keys", "revoke", "c/i"], 0);
    assert!(said.out.contains("`c/i` opens nothing"), "{said:?}");
    let asked = server.asked();
    let body = |at: usize| serde_json::from_str::<Value>(&asked[at].body).unwrap();
    let span = 90_u64 * 24 * 60 * 60 * 1_000;
    let wanted = json!({ "name": "c/i", "role": "approver", "expires_in_ms": span });
    assert_eq!(body(0), wanted);
    assert_eq!(body(2), json!({ "name": "taken", "role": "operator" }));
    assert_eq!(asked.last().unwrap().line, "DELETE /v1/keys/c%2Fi");
}

#[test]
fn a_key_that_can_not_be_is_not_asked_for() {
    let project = Project::new();
    let server = has_keys();
    for wrong in [
        &["keys", "new", "x", "--role", "root"][..],
        &["keys", "new", "x", "--expires", "soon"],
        &["keys", "new", "x", "--expires", "0s"],
        &["keys", "new", ""],
    ] {
        let said = say_to(&project, &server.url, wrong);
        assert_eq!(said.code, 2, "{wrong:?}: {said:?}");
    }
    assert!(server.asked().is_empty());
}

#[test]
fn looking_for_keys_makes_no_store() {
    let project = Project::new();
    let said = project.say(&["keys", "ls"], 0);
    assert!(said.err.contains("longhaul keys new NAME"), "{said:?}");
    project.say(&["keys", "revoke", "ci"], 2);
    assert!(!project.store().exists());
}
