//! An agent with the file tools in a real project: it works in the project's folder, and the
//! runtime's own files are protected wherever they are.

use std::fs;

use serde_json::json;

use crate::suite::project::{Project, has_status};

const FRONT: &str = "---
description: Keeps documents.
model: scripted/scribe
tools: [list_files, search_files, read_file, edit_file, write_file]
approve:
  - { tool: \"*_file\", match: \"src/*\", deny: hands off the sources }
---
You.
";

const SCRIPT: &str = "replies:
- tools: [{ name: write_file, input: { path: docs/a.md, content: \"one\\ntwo\\n\" } }]
- tools: [{ name: edit_file, input: { path: docs/a.md, old: two, new: zwei } }]
- tools:
    - { name: read_file, input: { path: ./docs//a.md } }
    - { name: search_files, input: { pattern: '^zw' } }
    - { name: read_file, input: { path: runs.db } }
    - { name: write_file, input: { path: driver.lock, content: x } }
    - { name: list_files, input: { path: state } }
    - { name: read_file, input: { path: ../secret } }
- tools: [{ name: write_file, input: { path: ./src//x.rs, content: x } }]
- text: Done.
";

#[test]
fn an_agent_works_on_the_files_of_its_project() {
    let project = Project::new();
    let settings = "data = \"state\"\n[store]\nurl = \"sqlite:runs.db\"\n";
    project.write("longhaul.toml", settings);
    project.write("agents/scribe.md", FRONT);
    project.write("scripts/scribe.yaml", SCRIPT);
    project.write("state/mine", "x");
    project.run(&["agents", "check", "scribe"], 0);
    project.run(&["run", "scribe", "go", "--no-input"], 0);
    let content = fs::read_to_string(project.path().join("docs/a.md")).unwrap();
    assert_eq!(content, "one\nzwei\n");
    assert!(!project.path().join("src").exists());
    let stdout = project.run(&["show", "@last", "--transcript"], 0).out;
    for expected in [
        "Created `docs/a.md` (8 bytes).",
        "Edited `docs/a.md` at line 2.",
        "[The whole file: 2 lines.]",
        "docs/a.md:2: zwei",
        "`runs.db` is the runtime's own data and is not accessible to agents",
        "`driver.lock` is the runtime's own data and is not accessible to agents",
        "`state` is the runtime's own data and is not accessible to agents",
        "`../secret` has `..` in it",
        "hands off the sources",
    ] {
        assert!(stdout.contains(expected), "{expected}: {stdout}");
    }
}

/// A gate shows the file, the lines and the diff of the call, and continues to show them after its
/// worker was killed and the file was changed.
#[test]
fn a_gate_keeps_the_facts_that_were_shown() {
    let project = Project::new();
    let front = "---\nmodel: scripted/scribe\ntools: [edit_file]\n\
                 approve: [{ tool: edit_file, ask: \"Change this file?\" }]\n---\nYou.\n";
    let script = "replies:\n\
                  - tools: [{ name: edit_file, input: { path: docs/a.md, old: two, new: zwei } }]\n\
                  - text: Done.\n";
    project.write("agents/scribe.md", front);
    project.write("scripts/scribe.yaml", script);
    project.write("docs/a.md", "one\ntwo\n");
    let worker = project.start_worker();
    let run = project.submit("scribe", "go");
    project.wait_until(&run, has_status("waiting"));
    let show = || project.json(&["gates", "show", &run, "--json"]);
    let gate = show();
    let file =
        json!({ "path": "docs/a.md", "change": "change", "lines_added": 1, "lines_removed": 1 });
    let undo = "apply the diff in reverse (patch -R -p1)";
    assert_eq!(gate["facts"], json!({ "files": [file], "network": [], "undo": undo }));
    let diff = "--- a/docs/a.md\n+++ b/docs/a.md\n@@ -1,2 +1,2 @@\n one\n-two\n+zwei\n";
    assert_eq!(gate["diff"], diff);
    let card = project.run(&["gates", "show", &run], 0).out;
    let expected = "  files: change docs/a.md (+1 -1 lines)\n  network: none\n  \
                    undo: apply the diff in reverse (patch -R -p1)\n  ┊ --- a/docs/a.md\n  ┊ +++ \
                    b/docs/a.md\n  ┊ @@ -1,2 +1,2 @@\n  ┊  one\n  ┊ -two\n  ┊ +zwei\n  │ path: \
                    docs/a.md\n";
    assert!(card.contains(expected) && card.contains("\n  Change this file?\n"), "{card}");
    // Dropping the worker kills its process.
    drop(worker);
    project.wait_until_no_driver();
    project.write("docs/a.md", "zero\none\ntwo\n");
    assert_eq!(show(), gate);
    let digest = &gate["digest"].as_str().unwrap()[..8];
    project.run(&["approve", &run, "--digest", digest], 0);
    project.run(&["watch", &run], 0);
    let text = fs::read_to_string(project.path().join("docs/a.md")).unwrap();
    assert_eq!(text, "zero\none\nzwei\n");
}
