//! JSON with line breaks, from people and from models, breaks no format with one JSON object per
//! line: event streams, `--json` output, cassettes.

use serde_json::{Value, json};

use super::fake_server::{FakeServer, RecordedRequest, event_stream};
use super::project::{CommandOutput, Project};
use super::server_harness::TestServer;

const INPUT: &str = "{\r\n\t\"title\": \"two\\nlines\",\n  \"size\": 1.50,\r  \"list\": [\n ]\n}\n";

const COMPACT_INPUT: &str = r#"{"title":"two\nlines","size":1.50,"list":[]}"#;

const ARGUMENTS: &str = "{\n  \"folder\": \"Tasks\"\r\n}";

const RESULT: &str = "{\n  \"path\": \"a  b.md\"\n}";

/// Returns the reply of a Chat server: a tool call, then the result, both as JSON with line breaks.
fn chat_reply(request: &RecordedRequest) -> String {
    let is_last = request.body.contains(r#""role":"tool""#);
    let function = json!({ "name": "vault_list", "arguments": ARGUMENTS });
    let call = json!({ "index": 0, "id": "call_1", "type": "function", "function": function });
    let (delta, reason) = match is_last {
        true => (json!({ "role": "assistant", "content": RESULT }), "stop"),
        false => (json!({ "role": "assistant", "tool_calls": [call] }), "tool_calls"),
    };
    let chunk = json!({
        "id": "c1", "object": "chat.completion.chunk", "created": 0, "model": "m",
        "choices": [{ "index": 0, "delta": delta, "finish_reason": reason }],
    });
    event_stream(&format!("data: {chunk}\n\ndata: [DONE]\n\n"))
}

/// Runs the agent `writer` with the input on stdin.
fn run_writer(project: &Project, args: &[&str]) -> CommandOutput {
    let args = [&["run", "writer", "-", "--no-input", "--json"], args].concat();
    project.run_with_stdin(INPUT, &args, 0)
}

/// Parses every line as JSON.
fn parse_lines(text: &str) -> Vec<Value> {
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    text.lines().map(parse).collect()
}

#[test]
fn json_with_line_breaks_breaks_no_line_format() {
    let project = Project::new();
    let chat_server = FakeServer::new(chat_reply);
    let provider =
        format!("[providers.fake]\napi = \"chat\"\nbase_url = \"{}\"\n", chat_server.url);
    project.write(".config/longhaul/longhaul.toml", &provider);
    let schema = "{ type: object, properties: { path: { type: string } }, required: [path] }";
    let agent = format!(
        "---\nmodel: fake/m\ntools: [vault_list]\noutput: {{ schema: {schema} }}\n---\nYou.\n"
    );
    project.write("agents/writer.md", &agent);

    let run = run_writer(&project, &["--record=live"]).json();
    assert_eq!(run["output"]["data"], json!({ "path": "a  b.md" }), "{run}");
    let id = run["id"].as_str().unwrap();
    let events = project.run(&["show", id, "--events", "--json"], 0).out;
    assert!(events.contains(COMPACT_INPUT), "{events}");
    let sequence: Vec<_> = parse_lines(&events).iter().map(|event| event["seq"].clone()).collect();
    assert_eq!(sequence, (1..=sequence.len()).map(|seq| json!(seq)).collect::<Vec<_>>());
    assert_eq!(project.run(&["watch", id, "--json", "--no-input"], 0).out, events);

    project.run(&["export", id, "--cassette", "exported"], 0);
    for cassette in ["live", "exported"] {
        let file = project.path().join(format!(".longhaul/cassettes/{cassette}.jsonl"));
        assert_eq!(parse_lines(&std::fs::read_to_string(file).unwrap()).len(), 3, "{cassette}");
        let replayed = run_writer(&project, &["--replay", cassette]).json();
        assert_eq!(replayed["output"], run["output"], "{cassette}");
    }

    let form = project.run_until_gate("form");
    project.run(&["answer", &form, "--answer", "{\n\"city\":\r\"A  B\" }"], 0);
    let events = project.run(&["show", &form, "--events", "--json"], 0).out;
    assert!(parse_lines(&events).iter().any(|event| event["type"] == "gate.answered"), "{events}");
}

#[test]
fn a_client_follows_a_run_with_multi_line_json_over_a_server() {
    let project = Project::new();
    let _server = TestServer::start(&project);
    let args = ["run", "plain", "-", "--no-input", "--json"];
    let run = project.run_with_stdin(INPUT, &args, 0).json();
    assert_eq!(run["status"], "completed", "{run}");
    let id = run["id"].as_str().unwrap();
    let events = project.run(&["watch", id, "--json", "--no-input"], 0).out;
    assert!(events.contains(COMPACT_INPUT), "{events}");
    parse_lines(&events);
}
