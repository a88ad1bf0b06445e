//! Tests of deferred tools: the model sees their names, loads them when it needs them, and they stay in
//! the list of tools, after all others.

use longhaul_core::event::Event;
use longhaul_core::policy::gate::GateDecision;
use longhaul_core::port::model::ModelRequest;
use longhaul_core::raw::StoredText;
use serde_json::{Value, json};

use crate::suite::harness::model::{FakeReply, results};
use crate::suite::harness::tool_source::{FakeToolSource, SOURCE_NAME};
use crate::suite::harness::{TestEngineBuilder, answer, engine_with, outcome_text};

fn builder(source: &FakeToolSource, replies: Vec<FakeReply>) -> TestEngineBuilder {
    source.set_tools(Some(vec!["mcp:shop/buy", "mcp:shop/sell"]));
    let engine = engine_with(replies).external_tools(source);
    engine.agent(|agent| agent.deferred_tools.push(SOURCE_NAME.to_owned()))
}

fn tool_text(request: &ModelRequest) -> String {
    let StoredText::Inline(tools) = &request.tools else {
        panic!("expected an inline text");
    };
    tools.to_string()
}

fn find(query: &str) -> FakeReply {
    FakeReply::call("find_tools", json!({ "query": query }))
}

#[tokio::test]
async fn loaded_tools_are_added_to_the_end_and_stay_there() {
    let source = FakeToolSource::default();
    let replies = vec![
        find("sell something"),
        FakeReply::call("mcp__shop__sell", json!({ "count": 2 })),
        FakeReply::call("ask_human", json!({ "question": "Which?" })),
        FakeReply::Calls(vec![
            ("find_tools", json!({ "query": "mcp__shop__sell" })),
            ("find_tools", json!({ "query": "mcp__shop__buy" })),
        ]),
    ];
    let engine = builder(&source, replies).start();
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    let gate_answer = answer(&gate, GateDecision::Answer("B".into()));
    engine.longhaul.answer_gate(gate.spec.id, gate_answer).await.unwrap();
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "done");
    let tools: Vec<String> = engine.model.requests().iter().map(tool_text).collect();
    let names = |text: &str| -> Vec<String> {
        let list: Vec<Value> = serde_json::from_str(text).unwrap();
        let names = list.iter().map(|entry| entry["name"].as_str().unwrap().to_owned());
        names.filter(|name| name.contains("shop")).collect()
    };
    assert!(names(&tools[0]).is_empty());
    assert!(tools[0].contains("- mcp__shop__buy: made by a test"), "{}", tools[0]);
    assert_eq!(names(&tools[1]), ["mcp__shop__sell"]);
    assert_eq!(names(&tools[3]), ["mcp__shop__sell"], "also with another driver");
    assert_eq!(names(&tools[4]), ["mcp__shop__sell", "mcp__shop__buy"], "each of them once");
    for pair in tools.windows(2) {
        let kept = pair[0].strip_suffix(']').unwrap();
        assert!(pair[1].starts_with(kept), "the list is only added to");
    }
    let loaded = journal.iter().filter(|entry| {
        matches!(&entry.event, Event::ToolCompleted(ended) if !ended.output.loaded_tools.is_empty())
    });
    assert_eq!(loaded.count(), 3);
}

#[tokio::test]
async fn a_tool_that_is_not_loaded_runs_with_a_valid_input_only() {
    let source = FakeToolSource::default();
    let calls = vec![
        ("mcp__shop__buy", json!({ "count": 1 })),
        ("mcp__shop__buy", json!({ "amount": 1 })),
        ("find_tools", json!({ "query": "weather" })),
    ];
    let engine = builder(&source, vec![FakeReply::Calls(calls)]).start();
    let run = engine.submit().await;
    engine.ended(run).await;
    let results = results(engine.model.requests().last().unwrap());
    assert_eq!(results[0], (json!({ "count": 1 }).to_string(), false));
    let hint = "call `find_tools` with the name `mcp__shop__buy` to see its schema";
    assert!(results[1].1 && results[1].0.ends_with(hint), "{results:?}");
    assert!(results[2].1 && results[2].0.starts_with("no tool matches"), "{results:?}");
}

#[tokio::test]
async fn a_tool_that_is_listed_by_its_own_name_is_not_deferred() {
    let source = FakeToolSource::default();
    let engine = builder(&source, vec![]).agent(|agent| agent.tools.push("wait".to_owned()));
    let engine = engine.agent(|agent| agent.deferred_tools.push("finish".to_owned())).start();
    let run = engine.submit().await;
    engine.ended(run).await;
    let tools = tool_text(&engine.model.requests()[0]);
    assert!(tools.contains(r#""name":"wait""#) && !tools.contains(r#""name":"finish""#), "{tools}");
}
