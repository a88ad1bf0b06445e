//! Start, stop and kill of the mock, and errors at its start.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use super::{chat_request, project, start};
use crate::suite::project::Project;
use crate::suite::server_harness::TestServer;

#[test]
fn the_mock_prints_its_url_and_exits_cleanly() {
    let project = project();
    for signal in ["-TERM", "-INT"] {
        let mut server = start(&project, &[]);
        for client in ["Anthropic SDK", "OpenAI SDK", "Longhaul"] {
            let line = server.wait_for_line(client);
            assert!(line.contains(&server.url), "{line}");
        }
        assert_eq!(server.request("GET /livez", &[], "").json()["status"], "ok");
        server.signal(signal);
        let (code, log) = server.wait_exit();
        assert_eq!((code, log.len()), (0, 4), "{log:#?}");
    }
}

#[test]
fn json_output_has_one_ready_line_and_eof_stops_the_mock() {
    let project = project();
    let args = ["mock-model", "--listen", "127.0.0.1:0", "--json", "--until-eof"];
    let mut command = project.command(&args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(ready["message"], "ready");
    assert_eq!(ready["pid"], child.id());
    assert!(ready["url"].as_str().unwrap().starts_with("http://127.0.0.1:"));
    let models = ready["models"].as_array().unwrap();
    assert!(models.contains(&"look".into()), "{ready}");
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

#[test]
fn a_restarted_mock_continues_a_conversation() {
    let project = project();
    let server = start(&project, &[]);
    let line = "POST /v1/chat/completions";
    let mut question = chat_request("look", false);
    let response = server.request(line, &[], &question.to_string()).json();
    let message = response["choices"][0]["message"].clone();
    let id = message["tool_calls"][0]["id"].clone();
    let address = server.address().to_owned();
    server.kill();
    let args = ["mock-model", "--listen", &address, "--until-eof"];
    let server = TestServer::from_command(project.command(&args));
    // The first request gets exactly the same reply again, including ids.
    let second_response = server.request(line, &[], &question.to_string()).json();
    assert_eq!(second_response["choices"], response["choices"]);
    let messages = question["messages"].as_array_mut().unwrap();
    messages.push(message);
    messages.push(json!({ "role": "tool", "tool_call_id": id, "content": "under the mat" }));
    let response = server.request(line, &[], &question.to_string()).json();
    assert_eq!(response["choices"][0]["message"]["content"], "Found: under the mat");
}

#[test]
fn listening_on_all_interfaces_prints_a_warning() {
    let project = project();
    let mut command = project.command(&["mock-model", "--listen", "0.0.0.0:0", "--until-eof"]);
    command.env("NO_COLOR", "1");
    let server = TestServer::from_command(command);
    assert!(server.log[0].starts_with("warning: "), "{:?}", server.log);
    assert!(server.url.starts_with("http://127.0.0.1:"), "{}", server.url);
}

#[test]
fn startup_errors_name_their_cause() {
    let project = project();
    let server = start(&project, &[]);
    let used_address = server.address();
    let check = |args: &[&str], code: i32, expected: &str| {
        let args = [&["mock-model", "--until-eof"], args].concat();
        let output = project.run(&args, code);
        assert!(output.err.contains(expected), "{args:?}: {output:?}");
    };
    check(&["--listen", used_address], 5, "--listen 127.0.0.1:0");
    check(&["--listen", "nowhere"], 2, "can't listen on nowhere");
    check(&["--scripts", "nothing-here"], 2, "no script folder `nothing-here`");
    check(&["--latency", "50"], 2, "such as 50ms");
    check(&["--fail-status", "503"], 2, "--fail-every");
    check(&["--fail-status", "200", "--fail-every", "1"], 2, "200");
    check(&["--cut-every", "0"], 2, "cut-every");
}

#[test]
fn a_scripts_folder_needs_no_valid_project() {
    let project = Project::new();
    project.write("longhaul.toml", "this is no TOML");
    project.write("elsewhere/hello.yaml", "replies: [{ text: Hello. }]");
    let server = start(&project, &["--scripts", "elsewhere"]);
    let body = chat_request("hello", false).to_string();
    let answer = server.request("POST /v1/messages", &[], &body);
    assert_eq!(answer.json()["content"][0]["text"], "Hello.");
    assert_eq!(answer.json()["stop_reason"], "end_turn");
}
