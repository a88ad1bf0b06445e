//! `run --ephemeral`: the same output and exit codes as `run`, and nothing is stored.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::project::Project;

/// Returns every file and folder below a folder.
fn list_files(folder: &Path) -> BTreeSet<PathBuf> {
    let mut files = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(list_files(&path));
        }
        files.insert(path);
    }
    files
}

#[test]
fn an_ephemeral_run_ends_like_a_run_and_leaves_no_files() {
    let project = Project::new();
    let before = list_files(project.path());
    for (args, code, out, err) in [
        (["plain", "it"], 0, "Done: it\n", "nothing is stored"),
        (["locked", "it"], 1, "", ""),
        (["looping", "it"], 4, "", ""),
        (["nobody", "it"], 2, "", "nobody"),
        // Without a terminal nobody can be asked, and no other process can answer.
        (["tidy", "milk"], 3, "", "An ephemeral run can't wait"),
        (["ask", "it"], 3, "", "An ephemeral run can't wait"),
        (["stuck", "it"], 3, "", "An ephemeral run can't wait"),
    ] {
        let output = project.run(&["run", args[0], args[1], "--ephemeral"], code);
        assert_eq!(output.out, out, "{args:?}");
        assert!(output.err.contains(err), "{args:?}: {output:?}");
    }
    let output = project.run(&["run", "plain", "it", "--ephemeral", "--json"], 0);
    let run = output.json();
    assert_eq!((&run["status"], &run["output"]["text"]), (&"completed".into(), &"Done: it".into()));
    let output = project.run(&["run", "tidy", "milk", "--ephemeral", "--json"], 3);
    assert_eq!(output.json()["status"], "waiting");
    assert_eq!(list_files(project.path()), before, "nothing is left");
}

#[test]
fn effects_of_tools_stay() {
    let project = Project::new();
    project.write(
        "agents/noter.md",
        "---\ndescription: A test.\nmodel: scripted/tidy\ntools: [vault_write]\n---\nYou.\n",
    );
    project.run(&["run", "noter", "milk", "--ephemeral"], 0);
    let note = project.path().join(".longhaul/vault/Tasks/Buy milk.md");
    assert!(note.exists());
    assert!(!project.store().exists(), "only the tool's own file is left");
}

#[test]
fn a_history_is_loaded_and_an_invalid_one_refused() {
    let project = Project::new();
    let valid_history =
        r#"[{"role":"user","content":"I am Ada."},{"role":"assistant","content":"Hello."}]"#;
    project.write("good.json", valid_history);
    project.write("bad.json", r#"[{"role":"system","content":"a"}]"#);
    let run = |file: &str, code: i32| {
        let args = ["run", "plain", "it", "--ephemeral", "--history", file];
        project.run(&args, code)
    };
    // The script uses the input of this run, not the first message of the conversation.
    assert_eq!(run("good.json", 0).out, "Done: it\n");
    let stderr = run("bad.json", 2).err;
    assert!(stderr.contains("--history bad.json: the history is not a JSON list"), "{stderr}");
    assert!(run("none.json", 2).err.contains("can't be read"));
    project.write("mark.json", &format!("\u{feff}{valid_history}"));
    assert_eq!(run("mark.json", 0).out, "Done: it\n");
    let stdin = ["run", "plain", "it", "--ephemeral", "--history", "-"];
    assert_eq!(project.run_with_stdin(valid_history, &stdin, 0).out, "Done: it\n");
    let invalid_err = project.run_with_stdin("no list", &stdin, 2).err;
    assert!(invalid_err.contains("--history -: the history is not a JSON list"), "{invalid_err}");
    let stdin_twice = ["run", "plain", "-", "--ephemeral", "--history", "-"];
    let stdin_twice = project.run_with_stdin(valid_history, &stdin_twice, 2).err;
    assert!(stdin_twice.contains("stdin is used for the input already"), "{stdin_twice}");
    for args in [
        vec!["run", "plain", "it", "--ephemeral", "--thread", "t"],
        vec!["run", "plain", "it", "--ephemeral", "--inbox", "mail"],
        vec!["run", "plain", "it", "--ephemeral", "--record=x"],
    ] {
        project.run(&args, 2);
    }
}

#[test]
fn a_stored_run_can_start_with_a_history() {
    let project = Project::new();
    let history =
        r#"[{"role":"user","content":"I am Ada."},{"role":"assistant","content":"Hello, Ada."}]"#;
    project.write("before.json", history);
    let args = ["run", "plain", "it", "--history", "before.json", "--json"];
    let run = project.json(&args);
    let page = project.run(&["show", run["id"].as_str().unwrap(), "--transcript"], 0);
    assert!(page.out.contains("Hello, Ada."), "{page:?}");
    project.run(&["submit", "plain", "it", "--history", "none.json"], 2);
}

#[test]
fn a_timeout_ends_an_ephemeral_run() {
    let project = Project::new();
    let args = ["run", "slow", "it", "--ephemeral", "--timeout", "50ms"];
    let output = project.run(&args, 124);
    assert!(output.err.contains("nothing is stored"), "{output:?}");
    assert!(!project.path().join(".longhaul").exists());
}
