//! Calls that nobody knows the end of, as whoever is asked about them reads it.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::project::Project;

const QUESTION: &str = "What came of it? Approve to run it again, reject if it did not happen and \
    should not, or answer with its result.";

/// A project with an agent that makes one call, and whom a person trusts.
fn project(front: &str, call: &str) -> Project {
    let project = Project::new();
    let agent = format!("---\ndescription: A test.\nmodel: scripted/doubt\n{front}\n---\nYou.\n");
    project.write("agents/doubt.md", &agent);
    let script = format!("replies:\n- tools: [{call}]\n- text: 'Done: {{{{ last_result }}}}'\n");
    project.write("scripts/doubt.yaml", &script);
    project
}

/// What the open gate asks, as each surface says it.
fn gate_question(project: &Project) -> String {
    let gates = project.json(&["gates", "--json"]);
    let ask = gates["data"][0]["ask"].as_str().unwrap().to_owned();
    let id = gates["data"][0]["id"].as_str().unwrap();
    for args in [&["gates", "show", id][..], &["why", "@last"]] {
        let said = project.run(args, 0).out.replace(['\n', '│'], " ");
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(&ask), "{args:?}: {said}\n{ask}");
    }
    ask
}

#[test]
fn an_in_doubt_gate_names_the_mcp_server_that_died() {
    let call = "{ name: 'mcp:odd/die', input: {} }";
    let front = "tools: ['mcp:odd']\napprove: [{ tool: 'mcp:*', allow: true }]";
    let judges = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/interop");
    let check = |front: &str, code: i32| {
        let project = project(front, call);
        let args = json!(["-B", judges.join("hostile_mcp.py"), "any", project.path()]);
        let mcp = json!({ "mcpServers": { "odd": { "command": "python3", "args": args } } });
        project.write(".mcp.json", &mcp.to_string());
        project.run(&["trust", "--yes"], 0);
        let said = project.run(&["run", "doubt", "x", "--no-input"], code);
        (project, said)
    };
    // Its last words may come too late to be heard.
    let why = "he server `odd` broke off: its process ended (exit status: 7)";
    let (project, said) = check(front, 3);
    let line = "mcp:odd/die had begun and nobody knows whether it happened (the server `odd` ";
    assert!(said.err.contains(line), "{}", said.err);
    let ask = gate_question(&project);
    let begins = format!("mcp:odd/die was begun. T{why}");
    assert!(ask.starts_with(&begins) && ask.ends_with(&format!(". {QUESTION}")), "{ask}");
    let (_, said) = check(&front.replace("true", "true, in_doubt: tell"), 0);
    let read = format!("its outcome is unknown. T{why}");
    assert!(said.out.contains(&read), "{}", said.out);
    let (_, said) = check(&front.replace("true", "true, in_doubt: fail"), 1);
    let line = "its outcome is unknown: the server `odd` broke off: its process end";
    assert!(said.err.contains(line), "{}", said.err);
}

#[test]
fn an_in_doubt_gate_of_a_command_warns_that_it_may_still_run() {
    let front =
        "tools: [shell]\nsandbox: { isolation: none }\napprove: [{ tool: shell, allow: true }]";
    let call = "{ name: shell, input: { command: 'echo $$ > part; mv part pid; exec sleep 300' } }";
    let project = project(front, call);
    project.run(&["trust", "--yes"], 0);
    let worker = project.start_worker();
    let run = project.submit("doubt", "x");
    let pid = project.path().join("pid");
    project.wait_until(&run, |_| pid.exists());
    // Killed with SIGKILL: what it had begun goes on.
    drop(worker);
    let said = project.run(&["watch", &run, "--no-input"], 3);
    let pid = fs::read_to_string(pid).unwrap();
    let ended = Command::new("kill").arg(pid.trim()).status().unwrap();
    assert!(ended.success(), "it went on");
    assert!(said.err.contains("(its worker was cut off"), "{}", said.err);
    assert_eq!(
        gate_question(&project),
        format!(
            "shell was begun. Its worker was cut off, and what it has begun may still be running \
             on the machine of that worker. {QUESTION}"
        )
    );
}
