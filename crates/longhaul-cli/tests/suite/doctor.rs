//! `longhaul doctor`: what it says about the store, the agents and the sandboxes.

use std::path::Path;

use serde_json::Value;

use super::project::{CommandOutput, Project};

/// Runs `doctor` as on a machine whose programs are in this folder.
fn doctor_with_path(project: &Project, path: &Path, args: &[&str]) -> CommandOutput {
    let args = [&["doctor"], args].concat();
    let output = project.command(&args).env("PATH", path).output().unwrap();
    CommandOutput::from_output(&output)
}

fn add_sandboxed_agent(project: &Project, name: &str, sandbox: &str) {
    let text = format!(
        "---\nmodel: scripted/chat\ntools: [shell]\nsandbox: {{ {sandbox} }}\n---\nYou work.\n"
    );
    project.write(&format!("agents/{name}.md"), &text);
}

/// Returns the lines of one check without the sign and the name.
fn check_lines(output: &CommandOutput, name: &str) -> Vec<String> {
    let is_first = |line: &str| line.chars().skip(2).collect::<String>().starts_with(name);
    let mut lines = output.out.lines().skip_while(|line| !is_first(line));
    let first = lines.next().unwrap_or_else(|| panic!("no check {name}: {output:?}"));
    let others = lines.take_while(|line| line.starts_with("           "));
    let text = |line: &str| line.chars().skip(11).collect();
    std::iter::once(first).chain(others).map(text).collect()
}

#[test]
fn doctor_says_how_well_the_local_provider_isolates() {
    let project = Project::new();
    let output = project.run(&["doctor"], 0);
    let lines = check_lines(&output, "sandbox");
    let expected = "`local`: isolation `bubblewrap`, no agent of this project uses it";
    assert_eq!(lines[0], expected, "{output:?}");
    assert!(lines[1].starts_with("memory"), "{output:?}");
    assert!(lines[2].starts_with("bubblewrap shares the kernel"), "{output:?}");
    assert!(!project.path().join(".longhaul").exists(), "no data folder is created");
}

/// Without bubblewrap, a project whose agents need no sandbox has no problem.
#[test]
fn missing_isolation_is_a_problem_only_for_agents_that_need_it() {
    let project = Project::new();
    let empty = tempfile::tempdir().unwrap();
    let output = doctor_with_path(&project, empty.path(), &[]);
    assert_eq!(output.code, 0, "{output:?}");
    assert!(output.out.contains("! sandbox  `local`: not available, no agent"), "{output:?}");
    assert!(output.out.contains("apt-get install bubblewrap"), "{output:?}");
    assert!(!output.out.contains("shares the kernel"), "{output:?}");

    add_sandboxed_agent(&project, "contained", "isolation: container, network: host");
    let output = doctor_with_path(&project, empty.path(), &[]);
    assert_eq!(output.code, 0, "{output:?}");

    add_sandboxed_agent(&project, "builder", "provider: local");
    let output = doctor_with_path(&project, empty.path(), &[]);
    assert_eq!(output.code, 1, "{output:?}");
    let lines = check_lines(&output, "sandbox");
    assert_eq!(lines[0], "`local`: not available, used by builder, contained", "{output:?}");
    let refused =
        "the sandbox of these agents is refused, because they need more isolation: builder";
    assert_eq!(lines.last().unwrap(), refused, "{output:?}");

    let output = doctor_with_path(&project, empty.path(), &["--json"]);
    let json: Value = output.json();
    assert_eq!(json["ok"], false, "{json}");
    let statuses: Vec<_> = json["checks"].as_array().unwrap().iter().collect();
    let sandbox = statuses.iter().find(|check| check["name"] == "sandbox").unwrap();
    assert_eq!(sandbox["status"], "problem", "{json}");
}

#[test]
fn an_agent_that_needs_more_isolation_than_its_provider_has_is_a_problem() {
    let project = Project::new();
    add_sandboxed_agent(&project, "builder", "provider: local, min_isolation: remote");
    add_sandboxed_agent(&project, "fetcher", "provider: local, network: host");
    let output = project.run(&["doctor"], 1);
    let lines = check_lines(&output, "sandbox");
    assert_eq!(lines[0], "`local`: isolation `bubblewrap`, used by builder, fetcher", "{output:?}");
    assert!(lines.last().unwrap().ends_with("need more isolation: builder"), "{output:?}");
    assert!(output.out.contains("listen on loopback only: fetcher"), "{output:?}");
}

#[test]
fn doctor_checks_models_servers_clock_and_disk() {
    let project = Project::new();
    let output = project.run(&["doctor"], 0);
    assert!(check_lines(&output, "server")[0].contains("start one with `longhaul serve`"));
    assert!(check_lines(&output, "models")[0].contains("with a key or a script"), "{output:?}");
    assert!(check_lines(&output, "disk")[0].ends_with("GiB free"), "{output:?}");
    assert!(check_lines(&output, "clock")[0].starts_with("20"), "{output:?}");
    assert!(!output.out.contains("mcp"), "{output:?}");

    project.write("agents/keyless.md", "---\nmodel: anthropic/claude-sonnet-5-5\n---\nYou.\n");
    project.write(".mcp.json", r#"{"mcpServers": {"time": {"command": "./gone"}}}"#);
    let output = project.run(&["doctor"], 1);
    let models = check_lines(&output, "models");
    assert!(models[1].starts_with("used by keyless: "), "{output:?}");
    assert!(models[1].contains("set ANTHROPIC_API_KEY"), "{output:?}");
    let servers = check_lines(&output, "mcp");
    assert_eq!(servers[0], "0 of 1 server respond", "{output:?}");
    assert!(servers[1].contains("`longhaul trust`"), "{output:?}");

    let command = &mut project.command(&["doctor"]);
    let output = command.env("LONGHAUL_URL", "http://127.0.0.1:9").output().unwrap();
    let output = CommandOutput::from_output(&output);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(check_lines(&output, "server")[0].contains("can't be reached"), "{output:?}");
}

#[test]
fn doctor_reports_the_store_and_the_problems_of_agents() {
    let project = Project::new();
    let output = project.run(&["doctor"], 0);
    assert!(check_lines(&output, "store")[0].contains("does not exist yet"), "{output:?}");
    assert!(check_lines(&output, "agents")[0].ends_with("no problems"), "{output:?}");
    project.run(&["run", "plain", "x"], 0);
    project.write("agents/odd.md", "---\nmodel: [\n---\nYou.\n");
    let output = project.run(&["doctor"], 1);
    assert!(
        check_lines(&output, "store")[0].contains("no process executes its runs"),
        "{output:?}"
    );
    let agents = &check_lines(&output, "agents")[0];
    assert!(agents.ends_with("1 problem: see them with `longhaul agents check`"), "{output:?}");
}
