//! In-doubt calls: the texts for the people who are asked about them.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::project::Project;

const QUESTION: &str = "What was the outcome? Approve to run it again, reject if it did not happen and \
    should not, or answer with its result.";

/// A project with an agent that makes one call.
fn project(front: &str, call: &str) -> Project {
    let project = Project::new();
    let agent = format!("---\ndescription: A test.\nmodel: scripted/doubt\n{front}\n---\nYou.\n");
    project.write("agents/doubt.md", &agent);
    let script = format!("replies:\n- tools: [{call}]\n- text: 'Done: {{{{ last_result }}}}'\n");
    project.write("scripts/doubt.yaml", &script);
    project
}

/// Returns the question of the open gate, after checking that each command shows it.
fn gate_question(project: &Project) -> String {
    let gates = project.json(&["gates", "--json"]);
    let question = gates["data"][0]["ask"].as_str().unwrap().to_owned();
    let id = gates["data"][0]["id"].as_str().unwrap();
    for args in [&["gates", "show", id][..], &["why", "@last"]] {
        let stdout = project.run(args, 0).out.replace(['\n', '│'], " ");
        let stdout = stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(stdout.contains(&question), "{args:?}: {stdout}\n{question}");
    }
    question
}

#[test]
fn an_in_doubt_gate_names_the_mcp_server_that_died() {
    let call = "{ name: 'mcp:odd/die', input: {} }";
    let front = "tools: ['mcp:odd']\napprove: [{ tool: 'mcp:*', allow: true }]";
    let interop_dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/interop");
    let check = |front: &str, code: i32| {
        let project = project(front, call);
        let args = json!(["-B", interop_dir.join("hostile_mcp.py"), "default", project.path()]);
        let mcp = json!({ "mcpServers": { "odd": { "command": "python3", "args": args } } });
        project.write(".mcp.json", &mcp.to_string());
        project.run(&["trust", "--yes"], 0);
        let output = project.run(&["run", "doubt", "x", "--no-input"], code);
        (project, output)
    };
    // The server's stderr may arrive too late to be included.
    let reason = "he server `odd` disconnected: the server process ended (exit status: 7)";
    let (project, output) = check(front, 3);
    let line = "mcp:odd/die was started and its outcome is unknown (the server `odd` ";
    assert!(output.err.contains(line), "{}", output.err);
    let question = gate_question(&project);
    let prefix = format!("mcp:odd/die was started. T{reason}");
    assert!(
        question.starts_with(&prefix) && question.ends_with(&format!(". {QUESTION}")),
        "{question}"
    );
    let (_, output) = check(&front.replace("true", "true, in_doubt: tell"), 0);
    let expected = format!("its outcome is unknown. T{reason}");
    assert!(output.out.contains(&expected), "{}", output.out);
    let (_, output) = check(&front.replace("true", "true, in_doubt: fail"), 1);
    let line = "its outcome is unknown: the server `odd` disconnected: the";
    assert!(output.err.contains(line), "{}", output.err);
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
    // Killed with SIGKILL: the command that the worker started keeps running.
    drop(worker);
    let output = project.run(&["watch", &run, "--no-input"], 3);
    let pid = fs::read_to_string(pid).unwrap();
    let kill_status = Command::new("kill").arg(pid.trim()).status().unwrap();
    assert!(kill_status.success(), "the command was still running");
    assert!(output.err.contains("(its worker died or stopped responding"), "{}", output.err);
    assert_eq!(
        gate_question(&project),
        format!(
            "shell was started. Its worker died or stopped responding, and what it started may still be \
             running on that worker's machine. {QUESTION}"
        )
    );
}
