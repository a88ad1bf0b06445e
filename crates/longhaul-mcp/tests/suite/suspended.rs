//! Calls that wait for the server: for answers to its questions, or for its tasks. The state of such a
//! call is stored, and the call is continued with it, also by a new process.

use std::path::Path;

use longhaul_core::port::tool::{
    SuspendedCallWait, SuspendedToolCall, ToolFailure, ToolQuestionAnswer, ToolReply,
    ToolResumption,
};
use longhaul_core::raw::RawJson;
use longhaul_core::time::Millis;
use serde_json::{Value, json};

use super::harness::{
    call, hostile_spec, lines, packages, python_spec, single_server, text, tool, tool_context,
    within_timeout,
};

/// Calls a tool with a new process of the server, or continues the call.
async fn call_anew(
    dir: &Path,
    (name, input): (&str, &Value),
    resumption: Option<ToolResumption>,
) -> Result<ToolReply, ToolFailure> {
    let (servers, _) = single_server(hostile_spec("newer_protocol", dir));
    let tool = tool(&servers, name).await;
    let (ctx, _progress) = tool_context();
    let reply = within_timeout(tool.call_or_suspend(input.clone(), &ctx, resumption)).await;
    servers.close_all_servers().await;
    reply
}

fn suspended(reply: ToolReply) -> SuspendedToolCall {
    match reply {
        ToolReply::Suspended(suspended) => *suspended,
        ToolReply::Output(output) => panic!("not suspended: {}", text(&output)),
    }
}

fn output(reply: ToolReply) -> String {
    match reply {
        ToolReply::Output(output) => text(&output),
        ToolReply::Suspended(suspended) => panic!("suspended: {suspended:?}"),
    }
}

fn question() -> Value {
    json!({ "method": "elicitation/create", "params": {
        "mode": "form",
        "message": "who?",
        "requestedSchema": { "type": "object", "properties": { "name": { "type": "string" } } },
    } })
}

fn answered(name: &str) -> Option<ToolQuestionAnswer> {
    Some(ToolQuestionAnswer::Answered(RawJson::from_serialize(&json!({ "name": name }))))
}

fn resume(
    suspended: SuspendedToolCall,
    answer: Option<ToolQuestionAnswer>,
) -> Option<ToolResumption> {
    Some(ToolResumption { state: suspended.suspension.state, answer })
}

fn read(dir: &Path, file: &str) -> String {
    std::fs::read_to_string(dir.join(file)).unwrap_or_default()
}

#[tokio::test]
async fn a_call_is_sent_again_with_the_answers_and_the_state_of_the_request() {
    let dir = tempfile::tempdir().unwrap();
    let state = "opaque \u{1} \"é\"";
    let requests = json!({ "a": question(), "b": question(), "r": { "method": "roots/list" } });
    let input = json!({ "requests": requests, "state": state });
    let first = call_anew(dir.path(), ("require_input", &input), None).await.unwrap();
    let first = suspended(first);
    assert!(!first.suspension.may_repeat && !first.suspension.must_cancel);
    let SuspendedCallWait::Answer(prompt) = &first.wait else { panic!("no question: {first:?}") };
    assert_eq!(
        (prompt.asker.as_str(), prompt.message.as_str()),
        ("The MCP server `newer_protocol`", "who?")
    );
    let resumption = resume(first, answered("Ada"));
    let second = call_anew(dir.path(), ("require_input", &input), resumption).await.unwrap();
    // The second question is asked without another request to the server.
    assert_eq!(lines(dir.path(), "require_input_calls"), 1);
    let resumption = resume(suspended(second), Some(ToolQuestionAnswer::Declined));
    let reply = call_anew(dir.path(), ("require_input", &input), resumption).await.unwrap();
    let sent: Value = serde_json::from_str(output(reply).lines().last().unwrap()).unwrap();
    let expected = json!({
        "requestState": state,
        "inputResponses": {
            "a": { "action": "accept", "content": { "name": "Ada" } },
            "b": { "action": "decline" },
            "r": { "roots": [] },
        },
    });
    assert_eq!(sent, expected);
}

#[tokio::test]
async fn a_server_that_asks_too_much_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let input = json!({ "requests": { "a": question() }, "times": 100 });
    let mut resumption = None;
    let mut questions = 0;
    let failure = loop {
        match call_anew(dir.path(), ("require_input", &input), resumption).await {
            Ok(reply) => resumption = resume(suspended(reply), answered("Ada")),
            Err(failure) => break failure,
        }
        questions += 1;
    };
    assert_eq!((questions, lines(dir.path(), "require_input_calls")), (8, 9));
    assert!(failure.message().contains("more than 8 times"), "{failure}");
    // Each retry has the state of the request before it.
    assert!(
        read(dir.path(), "require_input_calls")
            .lines()
            .last()
            .unwrap()
            .contains("\"requestState\": \"s8\"")
    );
    for (input, problem) in [
        (json!({ "state": "x".repeat(70_000), "times": 100 }), "longer than 65536 bytes"),
        (
            json!({ "requests": { "a": { "method": "sampling/createMessage", "params": {
            "messages": [], "maxTokens": 5 } } }, "times": 100 }),
            "model response",
        ),
        (json!({ "times": 100 }), "more than 8 times"),
    ] {
        let result = call_anew(dir.path(), ("require_input", &input), None).await;
        let failure = result.unwrap_err();
        assert!(failure.message().contains(problem) && !failure.is_outcome_unknown(), "{failure}");
    }
}

#[tokio::test]
async fn only_the_newer_protocol_offers_questions_and_tasks() {
    let dir = tempfile::tempdir().unwrap();
    let (servers, _) = single_server(hostile_spec("default", dir.path()));
    call(&servers, "hello", json!({})).await.unwrap();
    assert_eq!(read(dir.path(), "initialize_capabilities").trim(), "{}");
    let input = json!({ "script": [{ "status": "working" }] });
    call_anew(dir.path(), ("task", &input), None).await.unwrap();
    let offered: Value = serde_json::from_str(&read(dir.path(), "task_call_capabilities")).unwrap();
    let expected =
        json!({ "elicitation": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } });
    assert_eq!(offered, expected);
}

#[tokio::test]
async fn a_task_is_asked_about_by_its_id_until_it_ends() {
    let dir = tempfile::tempdir().unwrap();
    let result = json!({ "content": [{ "type": "text", "text": "finished" }] });
    let input = json!({
        "task": { "pollIntervalMs": 700, "ttlMs": 60_000, "statusMessage": "begins" },
        "script": [
            { "status": "working", "statusMessage": "half\u{1b}way", "pollIntervalMs": 0 },
            "die",
            { "code": -32603, "message": "busy" },
            { "status": "completed", "result": result },
        ],
    });
    let mut reply = call_anew(dir.path(), ("task", &input), None).await.unwrap();
    let mut waits = Vec::new();
    while let ToolReply::Suspended(stored) = reply {
        assert!(stored.suspension.may_repeat && stored.suspension.must_cancel);
        waits.push(stored.wait.clone());
        reply = call_anew(dir.path(), ("task", &input), resume(*stored, None)).await.unwrap();
    }
    assert_eq!(output(reply), "finished");
    let poll = |millis, ttl: Option<u64>, message: &str| (millis, ttl, message.to_owned());
    let waits: Vec<(u64, Option<u64>, String)> = waits
        .into_iter()
        .map(|wait| match wait {
            SuspendedCallWait::Poll { after: Millis(after), ttl, message } => {
                let message = message.unwrap_or_default().chars().take(45).collect();
                (after, ttl.map(|ttl| ttl.0), message)
            }
            SuspendedCallWait::Answer(question) => panic!("{question:?}"),
        })
        .collect();
    let expected = [
        poll(700, Some(60_000), "begins"),
        poll(0, None, "half way"),
        poll(10_000, None, "a request to the server about its task failed"),
        poll(20_000, None, "a request to the server about its task failed"),
    ];
    assert_eq!(waits, expected);
    assert_eq!(
        (lines(dir.path(), "task_call_capabilities"), lines(dir.path(), "task_polls")),
        (1, 4)
    );
}

#[tokio::test]
async fn a_task_that_ends_without_a_result_is_a_failure_with_a_reason() {
    for (task, problem, is_unknown) in [
        (json!({ "code": -32602, "message": "no such task" }), "does not know its task", false),
        (
            json!({ "status": "failed", "error": { "code": -32603, "message": "out of ink" } }),
            "task failed: out of ink",
            false,
        ),
        (
            json!({ "status": "cancelled", "statusMessage": "by the owner" }),
            "cancelled its task: by the owner",
            false,
        ),
        (
            json!({ "status": "completed",
                    "result": { "content": [{ "type": "text", "text": "no" }], "isError": true } }),
            "no",
            false,
        ),
        (json!({ "status": "completed" }), "completed, but has no result", false),
        (json!({ "status": "asleep" }), "status of its task is invalid", true),
        (json!({ "status": "working", "taskId": "task-8" }), "about another task", true),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let input = json!({ "script": [task] });
        let stored = suspended(call_anew(dir.path(), ("task", &input), None).await.unwrap());
        let result = call_anew(dir.path(), ("task", &input), resume(stored, None)).await;
        let failure = result.unwrap_err();
        assert!(failure.message().contains(problem), "{failure}");
        assert_eq!(failure.is_outcome_unknown(), is_unknown, "{failure}");
    }
}

#[tokio::test]
async fn the_question_of_a_task_is_answered_with_an_update() {
    let dir = tempfile::tempdir().unwrap();
    let input_required =
        json!({ "status": "input_required", "inputRequests": { "q": question() } });
    let completed = json!({ "status": "completed",
                       "result": { "content": [{ "type": "text", "text": "thanks" }] } });
    let input = json!({ "script": [input_required, input_required, completed] });
    let first = suspended(call_anew(dir.path(), ("task", &input), None).await.unwrap());
    let prompt = call_anew(dir.path(), ("task", &input), resume(first, None)).await.unwrap();
    let prompt = suspended(prompt);
    assert!(matches!(prompt.wait, SuspendedCallWait::Answer(_)) && prompt.suspension.must_cancel);
    let resumption = resume(prompt, answered("Ada"));
    // The server still lists the question, which is not asked again.
    let polling = suspended(call_anew(dir.path(), ("task", &input), resumption).await.unwrap());
    assert!(matches!(polling.wait, SuspendedCallWait::Poll { .. }), "{polling:?}");
    let reply = call_anew(dir.path(), ("task", &input), resume(polling, None)).await.unwrap();
    assert_eq!(output(reply), "thanks");
    let updated: Value = serde_json::from_str(&read(dir.path(), "task_updates")).unwrap();
    assert_eq!(updated, json!({ "q": { "action": "accept", "content": { "name": "Ada" } } }));
}

#[tokio::test]
async fn a_task_is_cancelled_by_its_id() {
    let dir = tempfile::tempdir().unwrap();
    let input = json!({ "script": [{ "status": "working" }] });
    let stored = suspended(call_anew(dir.path(), ("task", &input), None).await.unwrap());
    let (servers, _) = single_server(hostile_spec("newer_protocol", dir.path()));
    let task = tool(&servers, "task").await;
    let (ctx, _progress) = tool_context();
    within_timeout(task.cancel_suspended(&stored.suspension.state, &ctx)).await.unwrap();
    assert_eq!(read(dir.path(), "task_cancellations"), "task-7\n");
    // A caller that can't wait for the result cancels the task too.
    let failure = call(&servers, "task", input).await.unwrap_err();
    assert!(failure.message().contains("comes later"), "{failure}");
    assert_eq!(lines(dir.path(), "task_cancellations"), 2);
}

#[tokio::test]
async fn the_question_of_a_server_of_the_official_sdk_is_answered_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let program =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/interop/elicitation_mcp.py");
    packages();
    let mut resumption = None;
    for round in 0..2 {
        let spec = python_spec("sdk", &["-B", program.to_str().unwrap(), "stdio"]);
        let (servers, _) = single_server(spec);
        let reservation_tool = tool(&servers, "reserve_table").await;
        let (ctx, _progress) = tool_context();
        let input = json!({ "date": "2026-12-24" });
        let reply =
            within_timeout(reservation_tool.call_or_suspend(input, &ctx, resumption.take()))
                .await
                .unwrap();
        servers.close_all_servers().await;
        match round {
            0 => {
                let stored = suspended(reply);
                let answer = RawJson::from_serialize(&json!({ "people": 4 }));
                resumption = resume(stored, Some(ToolQuestionAnswer::Answered(answer)));
            }
            _ => assert_eq!(output(reply), "reserved 2026-12-24 for 4"),
        }
    }
    drop(dir);
}
