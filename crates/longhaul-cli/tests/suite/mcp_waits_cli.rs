//! Calls of MCP servers that wait: a server's question is answered at the command line, and a task is
//! cancelled with its run.

use std::path::Path;

use serde_json::json;

use super::project::Project;

/// A project whose agent calls one tool of a server that speaks the newer protocol.
fn project(call: &str) -> Project {
    let project = Project::new();
    let agent = "---\ndescription: A test.\nmodel: scripted/a\ntools: ['mcp:odd']\n\
                 approve: [{ tool: 'mcp:*', allow: true }]\n---\nYou.\n";
    project.write("agents/a.md", agent);
    let script = format!("replies:\n- tools: [{call}]\n- text: 'Done: {{{{ last_result }}}}'\n");
    project.write("scripts/a.yaml", &script);
    let interop_dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/interop");
    let args = json!(["-B", interop_dir.join("hostile_mcp.py"), "newer_protocol", project.path()]);
    let mcp = json!({ "mcpServers": { "odd": { "command": "python3", "args": args } } });
    project.write(".mcp.json", &mcp.to_string());
    project.run(&["trust", "--yes"], 0);
    project
}

#[test]
fn the_question_of_a_server_is_answered_at_the_command_line() {
    let project = project("{ name: 'mcp:odd/elicit_with_defaults', input: {} }");
    let output = project.run(&["run", "a", "x", "--no-input"], 3);
    let ask = "The MCP server `odd` asks, in its own words: who?";
    assert!(output.err.contains(ask), "{}", output.err);
    let gates = project.json(&["gates", "--json"]);
    assert_eq!(gates["data"][0]["ask"], ask);
    assert_eq!(gates["data"][0]["kind"], "question");
    assert!(project.run(&["why", "@last"], 0).out.contains("in its own words: who?"));
    let invalid_answer = project.run(&["answer", "@last", "--answer", r#"{"age": "old"}"#], 2);
    assert!(invalid_answer.err.contains("`age` must be a whole number"), "{}", invalid_answer.err);
    project.run(&["answer", "@last", "--answer", r#"{"age": 36}"#], 0);
    let output = project.run(&["watch", "@last", "--no-input"], 0);
    for expected in [r#"{"elicitation": {"action": "accept""#, r#""age": 36"#, r#""name": "Ada""#] {
        assert!(output.out.contains(expected), "{}", output.out);
    }
}

#[test]
fn a_run_that_waits_for_a_task_is_cancelled_with_the_task() {
    let call = "{ name: 'mcp:odd/task', input: { script: [{ status: working }], task: { pollIntervalMs: 3600000 } } }";
    let project = project(call);
    let worker = project.start_worker();
    let run = project.submit("a", "x");
    project.wait_until(&run, |view| view["reason"] == "tool");
    let why = project.run(&["why", &run], 0).out;
    assert!(why.contains("waits for the result of `mcp:odd/task`"), "{why}");
    project.run(&["cancel", &run], 0);
    project.wait_until(&run, |view| view["status"] == "cancelled");
    drop(worker);
    let cancelled = std::fs::read_to_string(project.path().join("task_cancellations")).unwrap();
    assert_eq!(cancelled, "task-7\n");
}
