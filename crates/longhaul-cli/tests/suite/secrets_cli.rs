//! A known secret, passed in at every entry point of the command line, is never stored in the
//! project's data.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tempfile::TempDir;

use super::cli::longhaul_in;
use super::fake_server::{FakeServer, json_response};

const SECRET: &str = "tok-\"very\"/secret-0123";

/// The secret as it is, and encoded for JSON, as base64 and for URLs.
const ENCODINGS: [&str; 4] = [
    SECRET,
    r#"tok-\"very\"/secret-0123"#,
    "dG9rLSJ2ZXJ5Ii9zZWNyZXQtMDEyM",
    "tok-%22very%22%2Fsecret-0123",
];

fn project(model: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let toml = format!(
        "[secrets]\nnames = [\"MY_TOKEN\"]\n[providers.far]\napi = \"chat\"\nbase_url = \"{model}/v1\"\nkey_env = \"FAR_KEY\"\n[retry]\nmax_retries = 0\n"
    );
    let provider_script = format!("#!/bin/sh\ncat <<'END'\n{}\nEND\n", context_response());
    let skill = format!("---\nname: knots\ndescription: Ties {SECRET}.\n---\nBody {SECRET}.\n");
    for (name, text) in [
        ("longhaul.toml", toml.as_str()),
        ("AGENTS.md", &format!("Never say {SECRET}.\n").repeat(100)),
        ("agents/plain.md", &agent_file("scripted/plain", "skills: [knots]")),
        ("agents/far.md", &agent_file("far/m", "skills: []")),
        ("agents/looks.md", &agent_file("scripted/plain", "perception: { command: [./look] }")),
        (
            "scripts/plain.yaml",
            "replies:\n  - tools: [{ name: read_skill, input: { name: knots } }]\n  - text: 'Done: {{ last_result }}'\n",
        ),
        ("skills/knots/SKILL.md", &skill),
        ("look", &provider_script),
    ] {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    let provider_script = folder.path().join("look");
    fs::set_permissions(provider_script, fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

fn agent_file(model: &str, extra_front: &str) -> String {
    format!(
        "---\ndescription: Knows {SECRET}.\nmodel: {model}\ntools: [vault_list]\ncontext: [who]\n{extra_front}\n---\nYou know {SECRET}; {{{{ context }}}}.\n"
    )
}

fn context_response() -> String {
    let data = serde_json::json!({ "world": { "at": SECRET }, "context": { "who": SECRET } });
    data.to_string()
}

/// Returns every file below a folder that holds the secret in one of its encodings.
fn find_leaks(folder: &Path) -> Vec<String> {
    let mut leaks = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            leaks.extend(find_leaks(&path));
            continue;
        }
        let Ok(bytes) = fs::read(&path) else { continue };
        for encoding in ENCODINGS {
            let mut windows = bytes.windows(encoding.len());
            if windows.any(|window| window == encoding.as_bytes()) {
                leaks.push(format!("{}: {encoding}", path.display()));
            }
        }
    }
    leaks
}

#[test]
fn no_secret_is_stored() {
    let remote_server = FakeServer::new(|_| {
        let body = serde_json::json!({ "error": { "message": format!("bad key {SECRET}") } });
        json_response("400 Bad Request", &body.to_string())
    });
    let folder = project(&remote_server.url);
    let folder = folder.path();
    let env = [("MY_TOKEN", SECRET), ("FAR_KEY", "sk-another-0123456789"), ("LONGHAUL_TRUST", "1")];
    let actor = format!("{{\"name\": {}}}", serde_json::json!(SECRET));
    let plain_args = ["run", "plain", "Do it.", "--no-input"];
    let table: [(&str, Vec<&str>, &str); 6] = [
        ("files", plain_args.to_vec(), "completed"),
        ("the input", vec!["run", "plain", SECRET, "--no-input"], "completed"),
        ("the actor", [&plain_args[..], &["--actor", &actor]].concat(), "completed"),
        ("perception", vec!["run", "looks", "Do it.", "--no-input"], "completed"),
        ("a provider", vec!["run", "far", "Do it.", "--no-input"], "failed"),
        ("a message", vec!["submit", "plain", "Do it."], "queued"),
    ];
    for (place, args, expected) in table {
        let output = longhaul_in(folder, &args, &env);
        if place == "a message" {
            for args in [["steer", "@last", SECRET], ["cancel", "@last", "--yes"]] {
                longhaul_in(folder, &args, &env);
            }
        }
        let view = longhaul_in(folder, &["show", "@last", "--json"], &env);
        let view: serde_json::Value = serde_json::from_slice(&view.stdout).unwrap();
        if place != "a message" {
            assert_eq!(view["status"], expected, "{place}: {output:?} {view}");
        }
        assert_eq!(find_leaks(&folder.join(".longhaul")), Vec::<String>::new(), "{place}");
    }
    let stored_bytes = fs::read(folder.join(".longhaul/longhaul.db")).unwrap();
    let wal = fs::read(folder.join(".longhaul/longhaul.db-wal")).unwrap_or_default();
    let stored_bytes = [stored_bytes, wal].concat();
    let placeholder = b"{{secret:MY_TOKEN}}";
    let has_placeholder =
        stored_bytes.windows(placeholder.len()).any(|window| window == placeholder);
    assert!(has_placeholder, "the placeholder is stored");
}

#[test]
fn a_secret_is_refused_in_names_and_context() {
    let folder = project("http://127.0.0.1:1");
    let folder = folder.path();
    let secret = "tok-very-secret-0123";
    let context = format!("who={secret}");
    let env = [("MY_TOKEN", secret)];
    for (option, field) in [
        ("--context", "`who` of the context"),
        ("--thread", "the thread"),
        ("--resource", "the resource"),
        ("--lane", "the lane"),
        ("--tag", "a tag"),
        ("--type", "the type"),
        ("--idempotency-key", "the idempotency key"),
    ] {
        let value = if option == "--context" { context.as_str() } else { secret };
        let args = ["submit", "plain", "x", option, value];
        let output = longhaul_in(folder, &args, &env);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{option}: {stderr}");
        let expected = format!("{field} holds the secret `MY_TOKEN`");
        assert!(stderr.contains(&expected) && !stderr.contains(secret), "{stderr}");
    }
    let db = fs::read(folder.join(".longhaul/longhaul.db")).unwrap();
    assert!(!db.windows(secret.len()).any(|window| window == secret.as_bytes()));
}

#[test]
fn an_env_reference_is_refused_in_context() {
    let folder = project("http://127.0.0.1:1");
    let args = ["submit", "plain", "x", "--context", "who=env:MY_TOKEN"];
    let output = longhaul_in(folder.path(), &args, &[]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    for expected in ["stored with the run", "--context who=\"$NAME\"", ".mcp.json"] {
        assert!(stderr.contains(expected), "{expected}: {stderr}");
    }
}

#[test]
fn secrets_of_dotenv_are_redacted_by_every_command() {
    let folder = project("http://127.0.0.1:1");
    let folder = folder.path();
    fs::write(folder.join(".env"), format!("MY_TOKEN='{SECRET}'\n")).unwrap();
    let asking_agent = "---\nmodel: scripted/asks\ntools: [vault_write]\napprove:\n  - { tool: vault_write, ask: 'Write?' }\n---\nYou.\n";
    fs::write(folder.join("agents/asks.md"), asking_agent).unwrap();
    let script = "replies:\n  - tools: [{ name: vault_write, input: { folder: Tasks, title: T, content: a, tags: [], confidence: 90 } }]\n  - text: Done.\n";
    fs::write(folder.join("scripts/asks.yaml"), script).unwrap();
    let run_cli = |args: &[&str], code: i32| {
        let output = longhaul_in(folder, args, &[]);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
        assert_eq!(find_leaks(&folder.join(".longhaul")), Vec::<String>::new(), "{args:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    run_cli(&["submit", "plain", SECRET], 0);
    run_cli(&["steer", "@last", SECRET], 0);
    let output = longhaul_in(folder, &["run", "asks", "x", "--no-input"], &[]);
    assert!(output.status.code().is_some(), "{output:?}");
    let gates = run_cli(&["gates", "--json"], 0);
    assert!(gates.contains("Write?"), "{gates} {output:?}");
    run_cli(&["reject", "@last", "--note", SECRET], 0);
    run_cli(&["submit", "plain", "x", "--thread", "t"], 0);
    let args = ["submit", "plain", "x", "--thread", SECRET];
    run_cli(&args, 2);
}

#[test]
fn a_secret_name_without_a_value_is_noted_once() {
    let folder = project("http://127.0.0.1:1");
    let folder = folder.path();
    let check = |args: &[&str], env: &[(&str, &str)], expected: Option<&str>| {
        let output = longhaul_in(folder, args, env);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let count = stderr.matches("`[secrets] names` lists MY_TOKEN").count();
        assert_eq!(count, usize::from(expected.is_some()), "{args:?}: {stderr}");
        assert!(stderr.contains(expected.unwrap_or_default()), "{args:?}: {stderr}");
    };
    let run = ["run", "plain", "x", "--no-input"];
    let submit = ["submit", "plain", "x"];
    for args in [&run[..], &submit[..], &["config", "show"], &["agents", "check"]] {
        check(args, &[], Some("MY_TOKEN, which has no value here"));
        check(args, &[("MY_TOKEN", "short")], Some("MY_TOKEN, whose value has fewer than 6 bytes"));
        check(args, &[("MY_TOKEN", "longer")], None);
        check(args, &[("MY_TOKEN", "schön")], None);
    }
    check(&["ls"], &[], None);
    fs::write(folder.join(".env"), "MY_TOKEN=longer\n").unwrap();
    check(&submit, &[], None);
}
