//! `log_interaction`: one line per call, with all its fields.

use std::fs;
use std::sync::Arc;

use serde_json::{Value, json};

use longhaul_core::id::{CallId, Epoch, RunId};
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{Tool, ToolContext};
use longhaul_core::raw::RawJson;
use longhaul_core::time::Clock;
use longhaul_testkit::clock::SimClock;
use longhaul_tool::LogInteractionTool;

fn tool_context(index: u16) -> ToolContext {
    let call = CallId { turn: 2, index };
    let mut ctx = ToolContext::new(RunId::from_bits(7), call, Epoch(1));
    ctx.context.insert("recipient".into(), RawJson::from_serialize(&"ann"));
    ctx.context.insert("token".into(), RawJson::from_serialize(&"hush"));
    ctx
}

fn tool(dir: &tempfile::TempDir) -> Arc<dyn Tool> {
    let clock: Arc<dyn Clock> = Arc::new(SimClock::new());
    LogInteractionTool::new_tool(dir.path().join(".longhaul/interactions.jsonl"), clock).unwrap()
}

fn lines(dir: &tempfile::TempDir) -> Vec<String> {
    let text = fs::read_to_string(dir.path().join(".longhaul/interactions.jsonl"));
    text.unwrap_or_default().lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_repeated_call_logs_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let tool = tool(&dir);
    let input = json!({ "summary": "Asked for tea.\nGot it.", "kind": "request", "details": { "cups": 2 } });
    for _ in 0..3 {
        tool.call(input.clone(), &tool_context(1)).await.unwrap();
    }
    let first = lines(&dir);
    assert_eq!(first.len(), 1);
    let line: Value = serde_json::from_str(&first[0]).unwrap();
    let around_one = tool_context(1);
    assert_eq!(
        line,
        json!({
            "key": around_one.idempotency_key,
            "run": around_one.run,
            "call": around_one.call,
            "at": "2026-01-01T00:00:00.000000Z",
            "kind": "request",
            "summary": "Asked for tea.\nGot it.",
            "details": { "cups": 2 },
            "thread": null,
            "resource": null,
            "recipient": "ann",
        })
    );
    tool.call(json!({ "summary": "Again." }), &tool_context(2)).await.unwrap();
    assert_eq!(lines(&dir).len(), 2);
}

#[tokio::test]
async fn a_torn_line_is_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let tool = tool(&dir);
    tool.call(json!({ "summary": "One." }), &tool_context(1)).await.unwrap();
    let path = dir.path().join(".longhaul/interactions.jsonl");
    let complete_line = fs::read_to_string(&path).unwrap();
    fs::write(&path, &complete_line[..complete_line.len() / 2]).unwrap();
    tool.call(json!({ "summary": "One." }), &tool_context(1)).await.unwrap();
    let current_lines = lines(&dir);
    assert_eq!(current_lines.len(), 2);
    assert_eq!(current_lines[1], complete_line.trim_end());
}

#[tokio::test]
async fn interaction_fields_are_limited() {
    let dir = tempfile::tempdir().unwrap();
    let tool = tool(&dir);
    for (input, expected) in [
        (json!({ "summary": " " }), "is empty"),
        (json!({ "summary": "x".repeat(4_001) }), "longer than 4000"),
        (json!({ "summary": "x", "kind": "k".repeat(65) }), "longer than 64"),
        (json!({ "summary": "x", "details": "d".repeat(70_000) }), "longer than 65536"),
        (json!({ "summary": "x", "who": "me" }), "unknown field"),
        (json!({}), "missing field"),
    ] {
        let error = tool.call(input, &tool_context(1)).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert!(lines(&dir).is_empty());
}

#[test]
fn log_interaction_has_an_effect_class_and_a_rule_match_text() {
    let dir = tempfile::tempdir().unwrap();
    let tool = tool(&dir);
    for (input, match_text) in [
        (json!({ "summary": "x" }), "note"),
        (json!({ "summary": "x", "kind": " " }), "note"),
        (json!({ "summary": "x", "kind": "call" }), "call"),
    ] {
        assert_eq!(tool.class(&input), EffectClass::Keyed);
        assert_eq!(tool.rule_match_texts(&input), [match_text]);
    }
}
