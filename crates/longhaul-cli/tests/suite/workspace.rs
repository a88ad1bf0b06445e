//! The files that a run changes in its sandbox: shown by turn, and restored in a fork and after the
//! loss of the sandbox.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::project::Project;

/// Creates a project with an agent whose model makes these calls, one per turn.
fn project_with_calls(calls: &[&str]) -> Project {
    let project = Project::new();
    let agent = "---\nname: coder\nmodel: scripted/coder\ntools: [shell, write_file, ask_human]\n\
                 sandbox: { provider: local }\napprove:\n  - { tool: shell, match: \"deploy*\", \
                 ask: \"Deploy?\" }\n  - { tool: shell, allow: true }\n  - { tool: write_file, \
                 allow: true }\n---\nWork.\n";
    project.write("agents/coder.md", agent);
    let calls = calls.iter().map(|call| format!("  - tools: [{call}]\n"));
    let calls: String = calls.collect();
    project.write("scripts/coder.yaml", &format!("replies:\n{calls}  - text: Done.\n"));
    project
}

fn shell_call(command: &str) -> String {
    format!("{{ name: shell, input: {{ command: {command:?} }} }}")
}

fn events(project: &Project, run: &str) -> Vec<Value> {
    let events = project.run(&["show", run, "--events", "--json"], 0).out;
    events.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the event with which a turn starts.
fn turn_start(project: &Project, run: &str, turn: u64) -> String {
    let events = events(project, run);
    let is_start =
        |event: &&Value| event["type"] == "turn.started" && event["data"]["turn"] == turn;
    events.iter().find(is_start).unwrap()["seq"].to_string()
}

/// Returns the texts of all results of calls.
fn results(project: &Project, run: &str) -> String {
    let events = events(project, run);
    let ended = events.iter().filter(|event| event["type"] == "tool.completed");
    ended.map(|event| event["data"]["output"].to_string()).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_fork_has_the_files_of_its_turn() {
    let project = project_with_calls(&[
        &shell_call(
            "echo one > a.txt; mkdir d build; echo x > d/b; echo build > .gitignore; echo o > build/o",
        ),
        "{ name: write_file, input: { path: a.txt, content: \"one\\ntwo\\n\" } }",
        &shell_call("cat a.txt d/b; rm d/b; ls build; true"),
    ]);
    let run = project.json(&["run", "coder", "go", "--json"]);
    let run = run["id"].as_str().unwrap();
    let files = project.run(&["diff", run], 0).out;
    let expected = "turn 1    create .gitignore (+1 -0 lines), create a.txt (+1 -0 lines), create d/b (+1 -0 lines)\n\
                    turn 2    change a.txt (+1 -0 lines)\nturn 3    delete d/b (+0 -1 lines)\n";
    assert_eq!(files, expected);
    let diff = project.run(&["diff", run, "--turn", "2"], 0).out;
    assert!(diff.contains("--- a/a.txt\n+++ b/a.txt\n") && diff.contains("+two\n"), "{diff}");
    let nothing = project.run(&["diff", run, "--turn", "9"], 0).out;
    assert_eq!(nothing, "No text was changed in turn 9.\n");
    let before = turn_start(&project, run, 3);
    let fork = project.json(&["fork", run, "--before", &before, "--json"]);
    let fork = fork["id"].as_str().unwrap();
    project.run(&["watch", fork], 0);
    let results = results(&project, fork);
    assert!(results.contains("one\\ntwo\\nx"), "{results}");
    assert!(results.contains("cannot access 'build'"), "ignored files are left out: {results}");
    let same = project.run(&["diff", run, fork], 0).out;
    assert!(same.contains("   2 = write_file"), "{same}");
}

/// Creates a repository with one commit in the folder `sample`.
fn create_sample(project: &Project) {
    let script = "git init -q -b main sample; cd sample; echo a > a.txt; git add .; \
                  git -c user.name=A -c user.email=a@example.com commit -q -m first";
    let mut git = Command::new("sh");
    assert!(git.args(["-ec", script]).current_dir(project.path()).status().unwrap().success());
}

#[test]
fn a_fork_has_the_commits_of_its_turn() {
    let project = project_with_calls(&[
        &shell_call(
            "git checkout -q -b work; echo new > new.txt; git add .; git commit -qm second; echo open > open.txt",
        ),
        &shell_call("git log --format=%s; git status --short --branch; cat new.txt"),
    ]);
    create_sample(&project);
    let run = project.json(&["run", "coder", "go", "--repo", "sample", "--json"]);
    let run = run["id"].as_str().unwrap();
    let expected = "second\\nfirst\\n## work\\n?? open.txt\\nnew";
    assert!(results(&project, run).contains(expected), "{}", results(&project, run));
    let files = project.run(&["diff", run], 0).out;
    assert_eq!(files, "turn 1    create new.txt (+1 -0 lines), create open.txt (+1 -0 lines)\n");
    let before = turn_start(&project, run, 2);
    let fork = project.json(&["fork", run, "--before", &before, "--json"]);
    let fork = fork["id"].as_str().unwrap();
    project.run(&["watch", fork], 0);
    assert!(results(&project, fork).contains(expected), "{}", results(&project, fork));
}

#[test]
fn a_lost_sandbox_is_replaced_by_one_with_the_files() {
    // The files are saved before the run waits in the middle of a turn.
    let calls = [shell_call("echo kept > a.txt"), shell_call("deploy 2>/dev/null; cat a.txt")];
    let project = project_with_calls(&[&calls.join(", ")]);
    project.run(&["run", "coder", "go", "--no-input"], 3);
    let sandboxes = project.path().join(".longhaul/sandboxes");
    let is_sandbox = |path: &Path| path.join("workspace").is_dir();
    let folders = fs::read_dir(&sandboxes).unwrap().map(|entry| entry.unwrap().path());
    let folders: Vec<_> = folders.filter(|path| is_sandbox(path)).collect();
    assert_eq!(folders.len(), 1);
    fs::remove_dir_all(&folders[0]).unwrap();
    project.run(&["approve", "@last", "--yes"], 0);
    project.run(&["watch", "@last", "--no-input"], 0);
    let kinds = events(&project, "@last");
    assert!(kinds.iter().any(|event| event["type"] == "sandbox.lost"), "{kinds:?}");
    assert!(results(&project, "@last").contains("kept"), "{}", results(&project, "@last"));
}

#[test]
fn an_agent_may_delete_the_cloned_repository() {
    let project = project_with_calls(&[
        &shell_call("rm -rf .git; echo new > a.txt; echo '*.txt text eol=crlf' > .gitattributes"),
        &shell_call("deploy 2>/dev/null; cat a.txt; ls -A; rm a.txt"),
    ]);
    create_sample(&project);
    project.run(&["run", "coder", "go", "--repo", "sample", "--no-input"], 3);
    project.run(&["approve", "@last", "--yes"], 0);
    project.run(&["watch", "@last", "--no-input"], 0);
    let seen = results(&project, "@last");
    assert!(seen.contains("new\\n.gitattributes\\na.txt"), "{seen}");
    let files = project.run(&["diff", "@last"], 0).out;
    assert!(files.contains("turn 2    delete a.txt"), "{files}");
    let run = project.json(&["show", "@last", "--json"])["id"].as_str().unwrap().to_owned();
    let before = turn_start(&project, &run, 2);
    let fork = project.json(&["fork", &run, "--before", &before, "--json"]);
    let fork = fork["id"].as_str().unwrap();
    project.run(&["watch", fork, "--no-input"], 3);
    project.run(&["approve", fork, "--yes"], 0);
    project.run(&["watch", fork, "--no-input"], 0);
    assert!(results(&project, fork).contains("new\\n.git"), "{}", results(&project, fork));
}

#[test]
fn files_that_are_not_saved_have_a_reason() {
    let project = project_with_calls(&[&shell_call("git clone -q . sub")]);
    create_sample(&project);
    project.run(&["run", "coder", "go", "--repo", "sample"], 0);
    let reason = "not saved: the folder sub is a git repository of its own";
    assert_eq!(project.run(&["diff", "@last"], 0).out, format!("turn 1    {reason}\n"));
    let turn = project.run(&["diff", "@last", "--turn", "1"], 0).out;
    assert_eq!(turn, format!("The files of turn 1 were {reason}\n"));
}
