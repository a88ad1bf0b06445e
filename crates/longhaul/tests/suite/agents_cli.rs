//! `longhaul agents` as a person meets it.

use std::fs;
use std::path::Path;

use super::agents::folder;
use super::front::longhaul_in;

fn run(folder: &Path, args: &[&str], code: i32) -> (String, String) {
    let output = longhaul_in(folder, args, &[]);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{args:?}: {out}{err}");
    (out, err)
}

#[test]
fn the_binary_lists_checks_and_shows() {
    let folder = folder(&[
        ("tidy.md", b"---\ndescription: Tidies.\ntools: [vault_write]\nmodel: scripted/tidy\n---\nYou tidy."),
        ("bad.md", b"---\ntools: [vault_wirte]\n---\n"),
    ]);
    let folder = folder.path();
    fs::write(folder.join("longhaul.toml"), "").unwrap();
    let (out, _) = run(folder, &["agents"], 0);
    assert_eq!(
        out,
        "bad   project  broken, 1 to mend: longhaul agents check bad\ntidy  project  Tidies.\n"
    );
    assert_eq!(run(folder, &["agents", "ls"], 0).0, out);
    let json = |args: &[&str], code| -> serde_json::Value {
        serde_json::from_str(&run(folder, args, code).0).unwrap()
    };
    assert_eq!(json(&["agents", "--json"], 0)["agents"][0]["name"], "tidy");
    let problem = "agents/bad.md:2:9: unknown tool `vault_wirte`, did you mean `vault_write`?\n";
    let (out, err) = run(folder, &["agents", "check"], 2);
    assert!(out.starts_with(problem), "{out}");
    assert!(err.contains("1 problem"), "{err}");
    assert_eq!(
        json(&["agents", "check", "--json"], 2)["problems"][0]["line"],
        2
    );
    assert_eq!(run(folder, &["agents", "check", "bad"], 2).0, problem);
    let (out, _) = run(folder, &["agents", "check", "tidy"], 0);
    assert!(
        out.contains("no script for the model `scripted/tidy`"),
        "{out}"
    );
    fs::create_dir(folder.join("scripts")).unwrap();
    fs::write(
        folder.join("scripts/tidy.yaml"),
        "replies: [{ text: Done. }]\n",
    )
    .unwrap();
    assert_eq!(run(folder, &["agents", "check", "tidy"], 0).0, "");
    let (_, err) = run(folder, &["agents", "check", "tidi"], 2);
    assert!(
        err.contains("unknown agent `tidi`, did you mean `tidy`?"),
        "{err}"
    );
    let (out, _) = run(folder, &["agents", "show", "tidy"], 0);
    assert!(out.ends_with("\nYou tidy.\n"), "{out}");
    assert_eq!(
        json(&["agents", "show", "tidy", "--json"], 0)["agent"]["prompt"],
        "You tidy."
    );
    let (_, err) = run(folder, &["agents", "show", "bad"], 2);
    assert!(err.contains(problem.trim_end()), "{err}");
    assert!(
        run(folder, &["agents", "--help"], 0)
            .0
            .contains("Examples:")
    );
    let below = folder.join("src");
    fs::create_dir(&below).unwrap();
    assert!(run(&below, &["agents"], 0).0.contains("tidy"));
}

#[test]
fn tools_are_those_that_this_project_has() {
    let agent: &[u8] = b"---\nmodel: scripted/x\ntools: [witness_send, witness_put]\n---\nGo.\n";
    let folder = folder(&[("careful.md", agent)]);
    let folder = folder.path();
    fs::write(folder.join("longhaul.toml"), "").unwrap();
    let (out, _) = run(folder, &["agents", "check"], 2);
    assert!(out.contains("unknown tool `witness_send`"), "{out}");
    let set = "[tools.witness]\nfile = \"witness.jsonl\"\n";
    fs::write(folder.join("longhaul.toml"), set).unwrap();
    let (out, err) = run(folder, &["agents", "check"], 0);
    let said = format!("{out}{err}");
    // Of the two only one must not be repeated, and no rule speaks of it.
    assert!(said.contains("witness_send"), "{said}");
    assert!(!said.contains("witness_put"), "{said}");
}

#[test]
fn every_model_of_the_list_is_looked_at() {
    let folder = folder(&[]);
    let folder = folder.path();
    fs::write(folder.join("longhaul.toml"), "").unwrap();
    fs::create_dir(folder.join("scripts")).unwrap();
    let script = "replies: [{ text: Done. }]\n";
    fs::write(folder.join("scripts/tidy.yaml"), script).unwrap();
    fs::create_dir_all(folder.join("agents")).unwrap();
    for (models, said) in [
        ("scripted/tidy", None),
        (
            "[scripted/tidy, nosuch/x]",
            Some("its model `nosuch/x` can't be asked. There is no provider `nosuch`."),
        ),
        (
            "[scripted/tidy, openai/x]",
            Some(
                "its model `openai/x` can't be asked. There is no key for `openai`: set OPENAI_API_KEY.",
            ),
        ),
        (
            "[openai/x, scripted/tidy]",
            Some("its model `openai/x` can't be asked. There is no key"),
        ),
    ] {
        let agent = format!("---\nmodel: {models}\n---\nYou tidy.");
        fs::write(folder.join("agents/a.md"), agent).unwrap();
        let (out, _) = run(folder, &["agents", "check"], 0);
        let notes: Vec<&str> = out.lines().filter(|line| line.contains("note:")).collect();
        match said {
            Some(said) => assert!(notes.len() == 1 && notes[0].contains(said), "{out}"),
            None => assert_eq!(out, "", "{models}"),
        }
    }
    fs::write(folder.join("agents/a.md"), "---\nmodel: []\n---\nYou tidy.").unwrap();
    let (out, _) = run(folder, &["agents", "check"], 2);
    assert!(
        out.starts_with("agents/a.md:2:8: `model` names no model"),
        "{out}"
    );
}
