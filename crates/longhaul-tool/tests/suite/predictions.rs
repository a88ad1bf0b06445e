//! What the built-in tools predict about their calls, from the input and the files on disk.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;

use longhaul_core::id::{CallId, Epoch, RunId};
use longhaul_core::policy::effect_facts::{FileContent, PredictedEffects};
use longhaul_core::port::tool::{Tool, ToolContext};
use longhaul_core::time::Clock;
use longhaul_testkit::clock::SimClock;
use longhaul_testkit::mem_store::MemStore;
use longhaul_tool::memory::memory_tools;
use longhaul_tool::message::{SendMessageConfig, SendMessageTool};
use longhaul_tool::{HttpFetchTool, ShellTool, file_tools, vault_tools};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::suite::harness::shared_client;

const NOT_KNOWN: &str = "files ?; network ?";

/// All tools that can predict something, in one directory.
struct Fixture {
    dir: TempDir,
    tools: Vec<Arc<dyn Tool>>,
}

impl Fixture {
    fn new(deliver: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let sim_clock = SimClock::new();
        let clock: Arc<dyn Clock> = Arc::new(sim_clock.clone());
        let messages = SendMessageConfig {
            target: deliver.parse().unwrap(),
            log: "deliveries.jsonl".into(),
            root: "/w".into(),
            allow_private: false,
        };
        let mut tools = file_tools(dir.path(), Vec::new(), Arc::clone(&clock)).unwrap();
        tools.extend(vault_tools(dir.path().join("vault"), Arc::clone(&clock)).unwrap());
        let records = Arc::new(MemStore::new(sim_clock));
        tools.extend(memory_tools(records).unwrap());
        tools.push(Arc::new(HttpFetchTool::new(shared_client()).unwrap()));
        tools.push(Arc::new(ShellTool::new(dir.path(), [], Arc::clone(&clock)).unwrap()));
        tools.push(Arc::new(SendMessageTool::new(messages, clock, shared_client()).unwrap()));
        Self { dir, tools }
    }

    async fn predict(&self, name: &str, input: Value) -> String {
        let tool = self.tools.iter().find(|tool| tool.spec().name.as_str() == name).unwrap();
        let call = CallId { turn: 1, index: 1 };
        let ctx = ToolContext::new(RunId::from_bits(7), call, Epoch(1));
        describe(&tool.predict_effects(&input, &ctx).await)
    }
}

fn describe(effects: &PredictedEffects) -> String {
    let content = |content: &FileContent| match content {
        FileContent::Absent => "absent".to_owned(),
        FileContent::Text(text) => format!("{text:?}"),
        FileContent::Unknown => "unknown".to_owned(),
    };
    let list = |list: &Option<Vec<String>>| match list {
        None => "?".to_owned(),
        Some(list) => format!("[{}]", list.join(", ")),
    };
    let files = effects.files.as_ref().map(|files| {
        let files = files.iter();
        let text = files.map(|file| {
            format!("{}: {} -> {}", file.path, content(&file.before), content(&file.after))
        });
        text.collect()
    });
    let mut text = format!("files {}; network {}", list(&files), list(&effects.network));
    if !effects.protected_paths.is_empty() {
        text.push_str(&format!("; protected {}", effects.protected_paths.join(" ")));
    }
    if let Some(undo) = &effects.undo {
        text.push_str(&format!("; undo {undo}"));
    }
    text
}

#[tokio::test]
async fn each_tool_predicts_its_effects() {
    let check = async |tool: &str, input: Value, files: &[(&str, &str)], expected: &str| {
        let fixture = Fixture::new("webhook:https://hooks.example:8443/secret/path");
        for (path, content) in files {
            let path = fixture.dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let before = list_tree(fixture.dir.path());
        assert_eq!(fixture.predict(tool, input.clone()).await, expected, "{tool} {input}");
        assert_eq!(list_tree(fixture.dir.path()), before, "{tool} only reads");
    };
    let write = |path: &str| json!({ "path": path, "content": "new\n" });
    let new_file = r#"files [src/a.md: absent -> "new\n"]; network []; undo delete src/a.md"#;
    check("write_file", write("./src//a.md"), &[], new_file).await;
    let a = [("a.md", "one\ntwo\n")];
    let changed = r#"files [a.md: "one\ntwo\n" -> "new\n"]; network []"#;
    check("write_file", write("a.md"), &a, changed).await;
    for protected in [".git/config", "agents/me.md", ".env"] {
        let fixture = Fixture::new("file:out.jsonl");
        let predicted = fixture.predict("write_file", write(protected)).await;
        let expected = format!(
            "files []; network []; protected {protected}; undo nothing to undo, because the call \
             fails: `{protected}` "
        );
        assert!(predicted.starts_with(&expected), "{predicted}");
    }
    let outside = "files []; network []; undo nothing to undo, because the call fails: `../a.md` has \
                   `..` in it; write the path relative to the top of the workspace, such as \
                   `src/main.rs`";
    check("write_file", write("../a.md"), &[], outside).await;
    let edit = |old: &str, all: bool| json!({"path": "a.md", "old": old, "new": "1", "all": all});
    let edited_file = r#"files [a.md: "one\ntwo\n" -> "1\ntwo\n"]; network []"#;
    check("edit_file", edit("one", false), &a, edited_file).await;
    let edited_file = r#"files [a.md: "one\ntwo\n" -> "1ne\ntw1\n"]; network []"#;
    check("edit_file", edit("o", true), &a, edited_file).await;
    for call_that_fails in [edit("o", false), edit("three", false), edit("", true)] {
        check("edit_file", call_that_fails, &a, NOT_KNOWN).await;
    }
    check("edit_file", edit("one", false), &[], NOT_KNOWN).await;
    let no_effect = "files []; network []; undo nothing to undo";
    check("read_file", json!({ "path": "a.md" }), &a, no_effect).await;
    let secret = "files []; network []; protected .env; undo nothing to undo";
    check("read_file", json!({ "path": ".env" }), &a, secret).await;
    let fetch = json!({ "url": "https://EXAMPLE.com:8443/a?key=1", "method": "POST" });
    check("http_fetch", fetch, &[], "files []; network [https://example.com:8443]").await;
    let command = "cat ./.env && git -C sub/.git push >x; cp a ~/.ssh/id_rsa \"$HOME/agents\"";
    let expected = "files ?; network [*]; protected ./.env sub/.git ~/.ssh/id_rsa";
    check("shell", json!({ "command": command }), &[], expected).await;
    let command = "rm src/../agents/a.md ../longhaul.toml ./src/agents/b.md agents/../src";
    let expected = "files ?; network [*]; protected ../longhaul.toml src/../agents/a.md";
    check("shell", json!({ "command": command }), &[], expected).await;
    let fixture = Fixture::new("file:out.jsonl");
    let path = fixture.dir.path().join("longhaul.toml").display().to_string();
    let predicted = fixture.predict("shell", json!({ "command": format!("rm {path}") })).await;
    assert_eq!(predicted, format!("files ?; network [*]; protected {path}"));
    let sent_message = "files []; network [https://hooks.example:8443]; undo impossible: a sent message \
                can't be revoked";
    check("send_message", json!({ "text": "hi" }), &[], sent_message).await;
    let saved_note =
        "files []; network []; undo longhaul memory forget NOTE, with the id in the result";
    check("remember", json!({ "text": "hi" }), &[], saved_note).await;
    check("write_file", json!({ "path": 1 }), &[], NOT_KNOWN).await;
}

#[tokio::test]
async fn the_delivery_target_decides_what_a_message_changes() {
    let check = async |target: &str, expected: &str| {
        let predicted = Fixture::new(target).predict("send_message", json!({ "text": "hi" })).await;
        let undo = "undo impossible: a sent message can't be revoked";
        assert_eq!(predicted, format!("{expected}; {undo}"), "{target}");
    };
    check("file:out.jsonl", "files [/w/out.jsonl: unknown -> unknown]; network []").await;
    check("command:notify --all", NOT_KNOWN).await;
}

#[tokio::test]
async fn notes_are_predicted_with_their_front_matter() {
    let fixture = Fixture::new("file:out.jsonl");
    let note = |content: &str| {
        json!({ "folder": "Tasks", "title": "Milk", "content": content, "tags": [],
                "confidence": 90 })
    };
    let predicted = fixture.predict("vault_write", note("Two litres.")).await;
    assert!(predicted.starts_with("files [Tasks/Milk.md: absent -> \"---\\n"), "{predicted}");
    assert!(predicted.ends_with("Two litres.\"]; network []; undo delete Tasks/Milk.md"));
    let vault = fixture.dir.path().join("vault");
    assert!(!vault.exists());
    fs::create_dir_all(vault.join("Tasks")).unwrap();
    fs::write(vault.join("Tasks/Milk.md"), "by hand").unwrap();
    let predicted = fixture.predict("vault_write", note("Two litres.")).await;
    assert!(predicted.starts_with("files [Tasks/Milk.md: \"by hand\" -> \"---\\n"), "{predicted}");
    for invalid_input in [json!({ "folder": "../x", "title": "a" }), note("\0")] {
        assert_eq!(fixture.predict("vault_write", invalid_input).await, NOT_KNOWN);
    }
}

#[tokio::test]
async fn hostile_files_are_not_known() {
    let fixture = Fixture::new("file:out.jsonl");
    let root = fixture.dir.path().join("w");
    let outside = fixture.dir.path().join("outside");
    fs::create_dir_all(&root).unwrap();
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("secret.txt"), "the secret").unwrap();
    // A file of 1 GB without content: it takes no space.
    fs::File::create(root.join("huge")).unwrap().set_len(1 << 30).unwrap();
    fs::write(root.join("binary"), b"a\0b").unwrap();
    fs::write(root.join("latin1"), b"caf\xe9").unwrap();
    fs::write(root.join("closed"), "x").unwrap();
    fs::set_permissions(root.join("closed"), fs::Permissions::from_mode(0o000)).unwrap();
    let pipe = root.join("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    symlink(outside.join("secret.txt"), root.join("link")).unwrap();
    symlink(&outside, root.join("folder")).unwrap();
    let files = file_tools(&root, Vec::new(), Arc::new(SimClock::new())).unwrap();
    let fixture = Fixture { tools: files, dir: fixture.dir };
    let check = async |path: &str, expected_write: &str, expected_edit: &str| {
        let input = json!({ "path": path, "content": "x" });
        assert_eq!(fixture.predict("write_file", input).await, expected_write, "{path}");
        let input = json!({ "path": path, "old": "x", "new": "y" });
        assert_eq!(fixture.predict("edit_file", input).await, expected_edit, "{path}");
    };
    for path in ["huge", "binary", "latin1"] {
        let expected_write = format!("files [{path}: unknown -> \"x\"]; network []");
        let expected_edit = format!("files [{path}: unknown -> unknown]; network []");
        check(path, &expected_write, &expected_edit).await;
    }
    for path in ["pipe", "link", "folder/secret.txt", "folder"] {
        check(path, NOT_KNOWN, NOT_KNOWN).await;
    }
    // The superuser may read every file.
    if !rustix::process::geteuid().is_root() {
        check("closed", NOT_KNOWN, NOT_KNOWN).await;
    }
}

/// Returns all paths below a folder, sorted.
fn list_tree(folder: &Path) -> Vec<String> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        paths.push(path.display().to_string());
        if path.is_dir() {
            paths.extend(list_tree(&path));
        }
    }
    paths.sort();
    paths
}
