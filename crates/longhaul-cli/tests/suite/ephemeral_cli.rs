//! `run --ephemeral`: the same words and exit codes as `run`, and nothing kept.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::project::Project;

/// Every file and folder below.
fn all(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(all(&path));
        }
        found.insert(path);
    }
    found
}

#[test]
fn it_ends_as_run_does_and_leaves_nothing() {
    let project = Project::new();
    let before = all(project.path());
    for (args, code, out, err) in [
        (["plain", "it"], 0, "Done: it\n", "nothing of it is kept"),
        (["locked", "it"], 1, "", ""),
        (["circle", "it"], 4, "", ""),
        (["nobody", "it"], 2, "", "nobody"),
        // Nobody can be asked, and nobody else can answer.
        (["tidy", "milk"], 3, "", "An ephemeral run can't wait"),
        (["ask", "it"], 3, "", "An ephemeral run can't wait"),
        (["stuck", "it"], 3, "", "An ephemeral run can't wait"),
    ] {
        let said = project.say(&["run", args[0], args[1], "--ephemeral"], code);
        assert_eq!(said.out, out, "{args:?}");
        assert!(said.err.contains(err), "{args:?}: {said:?}");
    }
    let said = project.say(&["run", "plain", "it", "--ephemeral", "--json"], 0);
    let run = said.json();
    assert_eq!(
        (&run["status"], &run["output"]["text"]),
        (&"completed".into(), &"Done: it".into())
    );
    let said = project.say(&["run", "tidy", "milk", "--ephemeral", "--json"], 3);
    assert_eq!(said.json()["status"], "waiting");
    assert_eq!(all(project.path()), before, "nothing is left");
}

#[test]
fn what_tools_write_stays() {
    let project = Project::new();
    project.write(
        "agents/noter.md",
        "---\ndescription: A test.\nmodel: scripted/tidy\ntools: [vault_write]\n---\nYou.\n",
    );
    project.say(&["run", "noter", "milk", "--ephemeral"], 0);
    let note = project.path().join(".longhaul/vault/Tasks/Buy milk.md");
    assert!(note.exists());
    assert!(!project.store().exists(), "only the effect stays");
}

#[test]
fn a_history_is_read_and_a_bad_one_refused() {
    let project = Project::new();
    let good = r#"[{"role":"user","content":"I am Ada."},{"role":"assistant","content":"Hello."}]"#;
    project.write("good.json", good);
    project.write("bad.json", r#"[{"role":"system","content":"a"}]"#);
    let run = |file: &str, code: i32| {
        let args = ["run", "plain", "it", "--ephemeral", "--history", file];
        project.say(&args, code)
    };
    // The script says what this run was asked, and not what the conversation began with.
    assert_eq!(run("good.json", 0).out, "Done: it\n");
    let said = run("bad.json", 2).err;
    assert!(
        said.contains("--history bad.json: is no JSON list"),
        "{said}"
    );
    assert!(run("none.json", 2).err.contains("can't be read"));
    project.write("mark.json", &format!("\u{feff}{good}"));
    assert_eq!(run("mark.json", 0).out, "Done: it\n");
    let stdin = ["run", "plain", "it", "--ephemeral", "--history", "-"];
    assert_eq!(project.say_with(good, &stdin, 0).out, "Done: it\n");
    let bad = project.say_with("no list", &stdin, 2).err;
    assert!(bad.contains("--history -: is no JSON list"), "{bad}");
    let both = ["run", "plain", "-", "--ephemeral", "--history", "-"];
    let both = project.say_with(good, &both, 2).err;
    assert!(both.contains("stdin is the input already"), "{both}");
    for args in [
        vec!["run", "plain", "it", "--history", "good.json"],
        vec!["run", "plain", "it", "--ephemeral", "--thread", "t"],
        vec!["run", "plain", "it", "--ephemeral", "--inbox", "mail"],
        vec!["run", "plain", "it", "--ephemeral", "--record=x"],
    ] {
        project.say(&args, 2);
    }
}

#[test]
fn who_leaves_it_ends_it() {
    let project = Project::new();
    let args = ["run", "slow", "it", "--ephemeral", "--timeout", "50ms"];
    let said = project.say(&args, 124);
    assert!(said.err.contains("nothing of it is kept"), "{said:?}");
    assert!(!project.path().join(".longhaul").exists());
}
