//! An agent with the file tools in a real project: it works in the project's folder, and the
//! runtime's own files are protected wherever they are.

use std::fs;

use crate::suite::project::Project;

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
    let set = "data = \"state\"\n[store]\nurl = \"sqlite:runs.db\"\n";
    project.write("longhaul.toml", set);
    project.write("agents/scribe.md", FRONT);
    project.write("scripts/scribe.yaml", SCRIPT);
    project.write("state/mine", "x");
    project.run(&["agents", "check", "scribe"], 0);
    project.run(&["run", "scribe", "go", "--no-input"], 0);
    let held = fs::read_to_string(project.path().join("docs/a.md")).unwrap();
    assert_eq!(held, "one\nzwei\n");
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
