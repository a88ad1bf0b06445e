//! The coding pipeline in a real sandbox: a real repository, real commands and real approvals. Only
//! the model is played by the scripts of `examples/pipeline`.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::project::Project;

/// Runs a script in a folder, and returns what it prints.
fn sh(folder: &Path, script: &str) -> String {
    let output = Command::new("sh").args(["-ec", script]).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{script}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Creates a project with the scripts of the example, and a bare repository of its sample.
fn pipeline_project() -> Project {
    let project = Project::new();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/pipeline");
    for folder in ["scripts", "sample"] {
        for entry in fs::read_dir(example.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            project.write(&format!("{folder}/{name}"), &fs::read_to_string(&path).unwrap());
        }
    }
    sh(
        project.path(),
        "export GIT_CONFIG_GLOBAL=/dev/null; git init -q --bare -b main sample.git; cd sample; git init -q -b main; git add .; \
         git -c user.name=A -c user.email=a@example.com commit -q -m first; git push -q ../sample.git main",
    );
    // The agents of the harness have other models.
    for agent in ["plan", "implement", "review", "bugfix"] {
        let model = format!("scripted/{agent}");
        project.run(&["agents", "new", agent, "--from", agent, "--model", &model], 0);
    }
    project
}

#[test]
fn a_task_becomes_a_pushed_branch_after_two_approvals() {
    let project = pipeline_project();
    let args = ["run", "--chain", "full-pipeline", "--repo", "sample.git", "Greet", "--no-input"];
    project.run(&args, 3);
    // The first approval is that of the plan.
    let gates = project.json(&["gates", "--json"]);
    assert_eq!(gates["data"][0]["tool"], serde_json::Value::Null, "{gates}");
    let payload = r#"{"reviewer":"ada"}"#;
    project.run(&["approve", "@last", "--yes", "--payload", payload], 0);
    project.run(&["watch", "@last", "--no-input"], 3);
    let gates = project.json(&["gates", "--json"]);
    assert_eq!(gates["data"].as_array().unwrap().len(), 1, "{gates}");
    let gate = gates["data"][0]["id"].as_str().unwrap();
    let run = gates["data"][0]["run"].as_str().unwrap();
    assert_eq!(gates["data"][0]["tool"], "git_push", "{gates}");
    let card = project.run(&["gates", "show", gate], 0).out;
    for shown in
        ["greet.sh", "test.sh (+1 -0 lines)", "+echo \"Hello${1:+, $1}.\"", "greet-by-name"]
    {
        assert!(card.contains(shown), "{shown}: {card}");
    }
    let origin = project.path().join("sample.git");
    assert_eq!(sh(&origin, "git branch --format='%(refname:short)'"), "main");
    project.run(&["approve", gate, "--yes"], 0);
    let output = project.run(&["watch", run, "--no-input", "--json"], 0);
    assert!(output.out.contains("run.completed"), "{output:?}");
    assert_eq!(sh(&origin, "git log --format=%s greet-by-name"), "greet: print the name\nfirst");
    let check =
        "git clone -q -b greet-by-name ../sample.git ../check && cd ../check && bash test.sh";
    assert!(sh(&origin, check).contains("All tests passed."));
    assert_eq!(sh(&origin, "git log --format=%s main"), "first");
    // The review has found nothing, so there was nothing to fix.
    let runs = project.json(&["ls", "--all", "--all-runs", "--json"]);
    let agents: Vec<&str> = runs["data"]
        .as_array()
        .unwrap()
        .iter()
        .rev()
        .map(|run| run["agent"].as_str().unwrap())
        .collect();
    assert_eq!(agents, ["plan", "implement", "review"]);
}

#[test]
fn a_repository_needs_a_sandbox_and_an_address_without_a_password() {
    let project = pipeline_project();
    let error = project.run(&["run", "plain", "x", "--repo", "."], 2);
    assert!(error.err.contains("needs an agent with a sandbox"), "{error:?}");
    let error = project.run(&["run", "plan", "x", "--repo", "https://a:b@host/r"], 2);
    assert!(error.err.contains("user name or a password"), "{error:?}");
    let error = project.run(&["run", "plan", "x", "--repo", "nowhere"], 2);
    assert!(error.err.contains("neither a URL"), "{error:?}");
}
