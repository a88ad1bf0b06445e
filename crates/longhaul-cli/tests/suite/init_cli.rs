//! `longhaul init`: the first commands of a new user, in an empty folder and in one that has files.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use super::cli::longhaul_in;

/// Runs the binary, asserts its exit code, and returns stdout and stderr.
fn run(folder: &Path, args: &[&str], env: &[(&str, &str)], code: i32) -> (String, String) {
    // A home folder is refused as a project.
    let env = [&[("HOME", "/nonexistent")], env].concat();
    let output = longhaul_in(folder, args, &env);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{args:?}: {out}{err}");
    (out, err)
}

fn temp_dir() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// Runs the commands that `init` prints, except those that only show what could be done.
fn run_next_commands(folder: &Path, report: &Value) {
    for command in report["next"].as_array().unwrap() {
        let command = command.as_str().unwrap().split('#').next().unwrap().trim();
        let Some(args) = command.strip_prefix("longhaul ").filter(|args| !args.contains("NAME"))
        else {
            continue;
        };
        let (options, text) = args.split_once(" \"").unwrap_or((args, ""));
        let mut args: Vec<&str> = options.split(' ').collect();
        args.extend(text.strip_suffix('"'));
        run(folder, &args, &[], 0);
    }
}

#[test]
fn a_new_project_runs_at_once_without_a_key() {
    let folder = temp_dir();
    let (out, _) = run(folder.path(), &["init", "--json"], &[], 0);
    let report: Value = serde_json::from_str(&out).unwrap();
    let created = ["longhaul.toml", "agents/helper.md", "scripts/helper.yaml"];
    assert_eq!(report["created"], Value::from(created.to_vec()));
    assert!(report["found"][0].as_str().unwrap().contains("no API key"), "{report}");
    run_next_commands(folder.path(), &report);
    let (out, _) = run(folder.path(), &["run", "helper", "What is here?"], &[], 0);
    assert!(out.contains("You asked: What is here?") && out.contains("longhaul.toml"), "{out}");
    let (out, err) = run(folder.path(), &["agents", "check"], &[], 0);
    assert!(out.is_empty() && err.contains("agents without problems: 1"), "{out}{err}");
    // The second time nothing is created.
    let (out, _) = run(folder.path(), &["init", "--json"], &[], 0);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["created"], Value::from(Vec::<Value>::new()));
    run_next_commands(folder.path(), &report);
}

#[test]
fn a_key_makes_the_agent_use_its_model() {
    for is_in_dotenv in [false, true] {
        let folder = temp_dir();
        let project = folder.path().join("new project");
        let mut env = vec![("ANTHROPIC_API_KEY", "sk-s3cret")];
        if is_in_dotenv {
            env.clear();
            fs::create_dir(&project).unwrap();
            fs::write(project.join(".env"), "ANTHROPIC_API_KEY=sk-s3cret\n").unwrap();
        }
        let (out, err) = run(folder.path(), &["init", "new project"], &env, 0);
        assert!(out.contains("model: anthropic/"), "{out}{err}");
        assert!(out.contains("cd 'new project'"), "{out}{err}");
        assert!(!format!("{out}{err}").contains("s3cret"), "{out}{err}");
        let agent = fs::read_to_string(project.join("agents/helper.md")).unwrap();
        assert!(agent.contains("\n# model: ") && !agent.contains("MODEL"), "{agent}");
    }
}

#[test]
fn what_a_folder_has_is_found_and_kept() {
    let folder = temp_dir();
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    };
    let settings = "[models]\ndefault = \"scripted/x\"\n";
    write("longhaul.toml", settings);
    write(".claude/agents/DB Architect.md", "---\nname: DB Architect\n---\nYou.");
    write(".claude/skills/pdf/SKILL.md", "---\ndescription: PDF.\n---\n");
    write(".mcp.json", r#"{"mcpServers": {"time": {"command": "./gone"}}}"#);
    write("CLAUDE.md", "Be brief.");
    let (out, _) = run(folder.path(), &["init"], &[], 0);
    for expected in [
        "1 agent: db-architect",
        "1 skill: pdf",
        "1 MCP server in .mcp.json: time",
        "rules for every agent: CLAUDE.md",
        "longhaul trust ",
    ] {
        assert!(out.contains(expected), "{expected}: {out}");
    }
    assert!(!out.contains("created"), "{out}");
    assert_eq!(fs::read_to_string(folder.path().join("longhaul.toml")).unwrap(), settings);
    assert!(!folder.path().join("agents").exists());
}

#[test]
fn init_refuses_what_it_cannot_do() {
    let folder = temp_dir();
    let home = folder.path().to_str().unwrap();
    let (_, err) = run(folder.path(), &["init"], &[("HOME", home)], 2);
    assert!(err.contains("your home folder") && err.contains("longhaul init my-project"), "{err}");
    fs::write(folder.path().join("file"), "").unwrap();
    let (_, err) = run(folder.path(), &["init", "file"], &[], 2);
    assert!(err.contains("can't be created"), "{err}");
    fs::write(folder.path().join("longhaul.toml"), "[storr]\n").unwrap();
    let (_, err) = run(folder.path(), &["init"], &[], 2);
    assert!(err.contains("errors in the configuration") || err.contains("did you mean"), "{err}");
    fs::remove_file(folder.path().join("longhaul.toml")).unwrap();
    std::os::unix::fs::symlink("/nonexistent/agents", folder.path().join("agents")).unwrap();
    let (_, err) = run(folder.path(), &["init"], &[], 2);
    assert!(err.contains("can't be written"), "{err}");
}

#[test]
fn an_unknown_agent_in_an_empty_folder_hints_at_init() {
    let folder = temp_dir();
    let (_, err) = run(folder.path(), &["run", "tidyx", "hi"], &[], 2);
    assert!(err.contains("longhaul agents new NAME") && err.contains("longhaul init"), "{err}");
    fs::create_dir(folder.path().join("agents")).unwrap();
    fs::write(folder.path().join("agents/tidy.md"), "---\n---\nYou.").unwrap();
    let (_, err) = run(folder.path(), &["run", "tydi", "hi"], &[], 2);
    assert!(err.contains("longhaul run tidy") && !err.contains("longhaul init"), "{err}");
}
