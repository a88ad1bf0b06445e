//! Tests of runs with an output schema.

use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::policy::gate::{
    ApprovalRequirement, GateDecision, GateTimeout, GateTimeoutAction, ResultApprovalGate,
};
use longhaul_core::raw::{RawJson, StoredText};
use longhaul_core::status::{RunOutcome, RunOutput};
use longhaul_run::Run;
use serde_json::{Value, json};

use crate::suite::harness::model::FakeReply;
use crate::suite::harness::{TestEngine, answer, count, engine_with, outcome_text};

fn engine_with_schema(replies: Vec<FakeReply>) -> TestEngine {
    engine_with(replies)
        .agent(|agent| {
            agent.tools = Vec::new();
            agent.output = Some(RawJson::from_serialize(&json!({
                "type": "object",
                "properties": {
                    "title": { "type": "string" },
                    "confidence": { "type": "number" },
                },
                "required": ["title"],
            })));
        })
        .start()
}

fn output(journal: &[JournalEntry]) -> RunOutput {
    let last = &journal.last().unwrap().event;
    let Event::RunCompleted(done) = last else {
        panic!("the run must complete: {last:?}");
    };
    done.output.clone()
}

fn data(journal: &[JournalEntry]) -> Value {
    output(journal).data.expect("data").to_value()
}

#[tokio::test]
async fn finish_accepts_only_valid_output() {
    let engine = engine_with_schema(vec![
        FakeReply::call("finish", json!({ "output": { "title": 7 } })),
        FakeReply::call("finish", json!({ "output": { "title": "A", "confidence": 90 } })),
    ]);
    let run = engine.submit().await;
    let journal = engine.ended(run).await;
    assert_eq!(data(&journal), json!({ "title": "A", "confidence": 90 }));
    assert_eq!(output(&journal).confidence, Some(90));
    let (text, is_error) = engine.results().remove(0);
    assert!(is_error && text.contains("/output/title"), "{text}");
    let requests = engine.model.requests();
    let StoredText::Inline(tools) = &requests[0].tools else {
        panic!("expected an inline text");
    };
    let tools: Value = serde_json::from_str(tools).unwrap();
    assert_eq!(tools.as_array().unwrap().len(), 1);
    let properties = &tools[0]["schema"]["properties"]["output"]["properties"];
    assert_eq!(properties["title"], json!({ "type": "string" }));
}

#[tokio::test]
async fn a_valid_final_text_is_accepted_and_an_invalid_one_sent_back() {
    let engine = engine_with_schema(vec![
        FakeReply::Text("Here is the title."),
        FakeReply::Text("```json\n{\"title\": \"A\"}\n```"),
    ]);
    let run = engine.submit().await;
    let journal = engine.ended(run).await;
    assert_eq!(data(&journal), json!({ "title": "A" }));
    assert_eq!(output(&journal).text, r#"{"title":"A"}"#);
    let texts = engine.user_texts();
    assert!(texts[1].contains("This does not end the run"), "{texts:?}");
}

#[tokio::test]
async fn invalid_output_is_corrected_three_times() {
    let engine = engine_with_schema((0..9).map(|_| FakeReply::Text("{}")).collect());
    let run = engine.submit().await;
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "output_invalid");
    assert_eq!(count(&journal, "turn.completed"), 4);
}

/// Returns a schema that would be evaluated some 70 billion times.
fn exponential() -> Value {
    let links = |n: usize| vec![json!({ "$ref": format!("#/$defs/d{n}") }); 8];
    let mut defs: serde_json::Map<String, Value> =
        (0..12).map(|n| (format!("d{n}"), json!({ "allOf": links(n + 1) }))).collect();
    defs.insert("d12".to_owned(), json!({ "type": "object" }));
    json!({ "type": "object", "$ref": "#/$defs/d0", "$defs": defs })
}

/// A run keeps the agent with which it was submitted, so a schema that another build accepted has
/// to be rejected here.
#[tokio::test]
async fn an_invalid_output_schema_is_reported() {
    for (schema, reason) in
        [(json!({ "type": "nonsense" }), "nonsense"), (exponential(), "more than 50000 parts")]
    {
        let engine = engine_with([])
            .agent(|agent| agent.output = Some(RawJson::from_serialize(&schema)))
            .start();
        let run = engine.submit().await;
        let gate = engine.gate(run).await;
        let prefix = "The output schema of agent `tester` is invalid:";
        assert!(gate.spec.ask.starts_with(prefix), "{}", gate.spec.ask);
        assert!(gate.spec.ask.contains(reason), "{}", gate.spec.ask);
    }
}

/// Returns the data and text of a run with this schema and this final reply.
async fn run_with_schema(schema: &Value, reply: FakeReply) -> (Value, String) {
    let schema = RawJson::from_serialize(schema);
    let engine = engine_with([reply]).agent(|agent| {
        agent.tools = Vec::new();
        agent.output = Some(schema);
    });
    let engine = engine.start();
    let run = engine.submit().await;
    let journal = engine.ended(run).await;
    let replayed = Run::replay(&journal).unwrap();
    let output = output(&journal);
    assert_eq!(replayed.outcome(), Some(&RunOutcome::Completed(output.clone())));
    (output.data.expect("data").to_value(), output.text)
}

#[tokio::test]
async fn every_output_type_works_by_final_text_and_by_finish() {
    let sentence = "Ada wrote it.";
    for (kind, reply, data, text) in [
        ("object", r#"{"a":[1]}"#, json!({ "a": [1] }), r#"{"a":[1]}"#),
        ("array", r#"["a",1]"#, json!(["a", 1]), r#"["a",1]"#),
        ("string", r#""Ada wrote it.""#, json!(sentence), sentence),
        ("string", sentence, json!(sentence), sentence),
        ("string", "42", json!("42"), "42"),
        ("number", "4.5", json!(4.5), "4.5"),
        ("integer", "```json\n42\n```", json!(42), "42"),
        ("boolean", "false", json!(false), "false"),
        ("null", "null", Value::Null, "null"),
    ] {
        let schema = json!({ "type": kind });
        let expect = (data.clone(), text.to_owned());
        assert_eq!(run_with_schema(&schema, FakeReply::Text(reply)).await, expect, "{reply}");
        let finish = FakeReply::call("finish", json!({ "output": data }));
        assert_eq!(run_with_schema(&schema, finish).await, expect, "finish {kind}");
    }
}

#[tokio::test]
async fn an_edited_result_must_match_the_schema() {
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    let gate = ResultApprovalGate {
        auto_approve: None,
        ask: "Is it good?".into(),
        timeout: Some(GateTimeout::Never),
        on_timeout: GateTimeoutAction::Reject,
        approvers: ApprovalRequirement::default(),
        tags: Vec::new(),
    };
    let engine = engine_with([FakeReply::Text(r#"{"n": 1}"#)])
        .agent(|agent| {
            agent.output = Some(RawJson::from_serialize(&schema));
            agent.result_gate = Some(gate);
        })
        .start();
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    let edit = |value: Value| answer(&gate, GateDecision::Edit(RawJson::from_serialize(&value)));
    for invalid in [json!({ "n": "two" }), json!({}), json!("a text"), json!({ "text": "x" })] {
        let result = engine.longhaul.answer_gate(gate.spec.id, edit(invalid.clone())).await;
        let message = result.unwrap_err().to_string();
        assert!(message.contains("the edited result is invalid"), "{invalid}: {message}");
    }
    engine.longhaul.answer_gate(gate.spec.id, edit(json!({ "n": 2 }))).await.unwrap();
    assert_eq!(data(&engine.ended(run).await), json!({ "n": 2 }));
}
