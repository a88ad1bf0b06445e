//! A cloned repository against the commands that copy, play or replace files: `chaos`, `demo`,
//! `mock-model` and `db`.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::cli::{command_in, longhaul_in};
use super::project::Project;

/// Text outside the repository.
const PRIVATE: &str = "private-0f9a";

/// A repository in a folder, beside a folder that it must not read.
fn create_repository(folder: &Path) -> PathBuf {
    let root = folder.join("repository");
    for (name, text) in [
        ("victim/id", PRIVATE),
        ("victim/agents/x.md", PRIVATE),
        ("victim/skills/x/SKILL.md", PRIVATE),
        ("victim/x.yaml", PRIVATE),
        ("tmp/keep", ""),
        ("repository/longhaul.toml", ""),
        ("repository/agents/helper.md", "---\nmodel: scripted/helper\n---\nYou help.\n"),
        ("repository/scripts/helper.yaml", "replies:\n  - text: Done.\n"),
    ] {
        let file = folder.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    root
}

/// Collects all files below a folder that can be read as text; symlinks are followed.
fn collect_texts(folder: &Path, texts: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_texts(&path, texts);
        } else if let Ok(bytes) = fs::read(&path) {
            texts.push((path, String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
}

/// Runs `chaos` with the agent `helper`. Returns its output and the texts of the folder that it
/// keeps.
fn run_chaos(root: &Path) -> (String, Vec<(PathBuf, String)>) {
    let temp = root.parent().unwrap().join("tmp");
    let args = ["chaos", "helper", "--runs", "1", "--kills", "0", "--keep"];
    let output = longhaul_in(root, &args, &[("TMPDIR", temp.to_str().unwrap())]);
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}");
    let mut texts = Vec::new();
    collect_texts(&temp, &mut texts);
    assert!(texts.len() > 3, "the copy is kept: {texts:?}");
    (text, texts)
}

#[test]
fn chaos_copies_nothing_from_outside_the_project() {
    for (name, target) in [
        ("skills", "../victim/skills"),
        (".claude", "../victim"),
        ("agents/deep", "../../victim"),
        ("agents/x.md", "../../victim/id"),
        ("scripts/x.yaml", "../../victim/x.yaml"),
        ("AGENTS.md", "../victim/id"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let root = create_repository(folder.path());
        symlink(target, root.join(name)).unwrap();
        let (output, texts) = run_chaos(&root);
        assert!(output.contains("is not copied"), "{name}: {output}");
        let leak = texts.iter().find(|(_, text)| text.contains(PRIVATE));
        assert!(leak.is_none(), "{name}: {leak:?}");
    }
}

#[test]
fn chaos_copies_what_is_linked_inside_the_project() {
    let folder = tempfile::tempdir().unwrap();
    let root = create_repository(folder.path());
    fs::write(root.join("rules.md"), "Be brief.").unwrap();
    symlink("rules.md", root.join("AGENTS.md")).unwrap();
    let script = root.join("skills/tidy/run.sh");
    fs::create_dir_all(script.parent().unwrap()).unwrap();
    fs::write(&script, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let (_, texts) = run_chaos(&root);
    let find_by_suffix = |suffix: &str| texts.iter().find(|(path, _)| path.ends_with(suffix));
    assert_eq!(find_by_suffix("AGENTS.md").unwrap().1, "Be brief.");
    let mode = fs::metadata(&find_by_suffix("run.sh").unwrap().0).unwrap();
    assert_eq!(mode.permissions().mode() & 0o777, 0o755);
}

#[test]
fn the_demo_asks_no_real_model_that_a_planted_agent_names() {
    let folder = tempfile::tempdir().unwrap();
    let root = create_repository(folder.path());
    let planted_agent = root.join(".longhaul/demo/agents/demo-tidier.md");
    fs::create_dir_all(planted_agent.parent().unwrap()).unwrap();
    let agent = "---\nmodel: openai/gpt-x\ntools: [vault_list, vault_read, vault_write]\n---\nYou.";
    fs::write(&planted_agent, agent).unwrap();
    let mut command = command_in(&root, &["demo"], &[("OPENAI_API_KEY", PRIVATE)]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(stdout.contains("no AI is called in this demo"), "{stdout}");
    assert!(!stdout.contains("openai"), "{stdout}");
    assert!(stdout.contains("on a new worker"), "{stdout}");
    // The planted file is unchanged.
    assert_eq!(fs::read_to_string(planted_agent).unwrap(), agent);
}

#[test]
fn a_mock_model_loads_no_scripts_from_outside_the_project() {
    let folder = tempfile::tempdir().unwrap();
    let root = create_repository(folder.path());
    fs::remove_dir_all(root.join("scripts")).unwrap();
    symlink("../victim", root.join("scripts")).unwrap();
    let mut command =
        command_in(&root, &["mock-model", "--listen", "127.0.0.1:0", "--until-eof"], &[]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("leads out of the project"), "{stderr}");
}

#[test]
fn a_backup_replaces_no_file_of_the_runtime_and_no_folder() {
    let project = Project::new();
    project.run(&["run", "plain", "bread"], 0);
    let data = project.path().join(".longhaul");
    fs::write(data.join("server.json"), "{}").unwrap();
    for name in [
        "driver.lock",
        "local.key",
        "server.json",
        "longhaul.db",
        "longhaul.db-wal",
        "longhaul.db-shm",
        "longhaul.db-journal",
    ] {
        let before = fs::read(data.join(name)).ok();
        for target in [format!(".longhaul/{name}"), format!("./.longhaul/../.longhaul/{name}")] {
            let output = project.run(&["db", "backup", &target, "--force"], 2);
            let reasons = ["used by the runtime", "the store itself"];
            assert!(reasons.iter().any(|reason| output.err.contains(reason)), "{output:?}");
        }
        assert_eq!(fs::read(data.join(name)).ok(), before, "{name}");
    }
    for flags in [&["db", "backup", "agents"][..], &["db", "backup", "agents", "--force"]] {
        let output = project.run(flags, 2);
        assert!(output.err.contains("`agents` is a folder"), "{output:?}");
    }
    project.run(&["db", "backup", ".longhaul/copy.db"], 0);
}

#[test]
fn json_output_of_db_has_no_terminal_control_characters() {
    let project = Project::new();
    project.run(&["run", "plain", "bread"], 0);
    let name = "copy\u{9b}2J\u{202e}.db";
    for args in [["db", "backup", name, "--json"], ["db", "check", name, "--json"]] {
        let output = project.run(&args, 0);
        assert!(!output.out.contains(['\u{9b}', '\u{202e}']), "{output:?}");
        assert_eq!(output.json()["file"], name);
    }
}
