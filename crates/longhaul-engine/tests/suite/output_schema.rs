//! Runs whose result must fit a schema.

use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::raw::{RawJson, StoredText};
use longhaul_core::status::{Outcome, Output};
use longhaul_run::Run;
use serde_json::{Value, json};

use crate::suite::harness::model::FakeReply;
use crate::suite::harness::{TestEngine, count, engine_with, outcome_text};

fn engine_with_schema(lines: Vec<FakeReply>) -> TestEngine {
    engine_with(lines)
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

fn output(journal: &[Entry]) -> Output {
    let last = &journal.last().unwrap().event;
    let Event::RunCompleted(done) = last else {
        panic!("it completes: {last:?}");
    };
    done.output.clone()
}

fn data(journal: &[Entry]) -> Value {
    output(journal).data.expect("data").to_value()
}

#[tokio::test]
async fn finish_accepts_only_valid_output() {
    let house = engine_with_schema(vec![
        FakeReply::call("finish", json!({ "output": { "title": 7 } })),
        FakeReply::call("finish", json!({ "output": { "title": "A", "confidence": 90 } })),
    ]);
    let run = house.submit().await;
    let journal = house.ended(run).await;
    assert_eq!(data(&journal), json!({ "title": "A", "confidence": 90 }));
    assert_eq!(output(&journal).confidence, Some(90));
    let (words, is_error) = house.results().remove(0);
    assert!(is_error && words.contains("/output/title"), "{words}");
    let asked = house.model.requests();
    let StoredText::Inline(tools) = &asked[0].tools else {
        panic!("a text");
    };
    let tools: Value = serde_json::from_str(tools).unwrap();
    assert_eq!(tools.as_array().unwrap().len(), 1);
    let typed = &tools[0]["schema"]["properties"]["output"]["properties"];
    assert_eq!(typed["title"], json!({ "type": "string" }));
}

#[tokio::test]
async fn a_valid_final_text_is_accepted_and_an_invalid_one_sent_back() {
    let house = engine_with_schema(vec![
        FakeReply::Text("Here is the title."),
        FakeReply::Text("```json\n{\"title\": \"A\"}\n```"),
    ]);
    let run = house.submit().await;
    let journal = house.ended(run).await;
    assert_eq!(data(&journal), json!({ "title": "A" }));
    assert_eq!(output(&journal).text, r#"{"title":"A"}"#);
    let told = house.user_texts();
    assert!(told[1].contains("This does not end the run"), "{told:?}");
}

#[tokio::test]
async fn invalid_output_is_corrected_three_times() {
    let house = engine_with_schema((0..9).map(|_| FakeReply::Text("{}")).collect());
    let run = house.submit().await;
    let journal = house.ended(run).await;
    assert_eq!(outcome_text(&journal), "output_invalid");
    assert_eq!(count(&journal, "turn.completed"), 4);
}

/// A schema that would be checked some 70 billion times.
fn exponential() -> Value {
    let links = |n: usize| vec![json!({ "$ref": format!("#/$defs/d{n}") }); 8];
    let mut defs: serde_json::Map<String, Value> =
        (0..12).map(|n| (format!("d{n}"), json!({ "allOf": links(n + 1) }))).collect();
    defs.insert("d12".to_owned(), json!({ "type": "object" }));
    json!({ "type": "object", "$ref": "#/$defs/d0", "$defs": defs })
}

/// The agent of a run is the one it was submitted with: what another build has let pass
/// is met here.
#[tokio::test]
async fn an_invalid_output_schema_is_reported() {
    for (schema, why) in
        [(json!({ "type": "nonsense" }), "nonsense"), (exponential(), "more than 50000 parts")]
    {
        let house = engine_with([])
            .agent(|agent| agent.output = Some(RawJson::from_serialize(&schema)))
            .start();
        let run = house.submit().await;
        let gate = house.gate(run).await;
        let opening = "The output schema of agent `tester` is broken:";
        assert!(gate.spec.ask.starts_with(opening), "{}", gate.spec.ask);
        assert!(gate.spec.ask.contains(why), "{}", gate.spec.ask);
    }
}

/// What a run with this schema gives back that ends with these words or this `finish`.
async fn run_with_schema(schema: &Value, line: FakeReply) -> (Value, String) {
    let schema = RawJson::from_serialize(schema);
    let house = engine_with([line]).agent(|agent| {
        agent.tools = Vec::new();
        agent.output = Some(schema);
    });
    let house = house.start();
    let run = house.submit().await;
    let journal = house.ended(run).await;
    let replayed = Run::replay(&journal).unwrap();
    let output = output(&journal);
    assert_eq!(replayed.outcome(), Some(&Outcome::Completed(output.clone())));
    (output.data.expect("data").to_value(), output.text)
}

#[tokio::test]
async fn every_output_type_works_by_final_text_and_by_finish() {
    let words = "Ada wrote it.";
    for (kind, said, data, text) in [
        ("object", r#"{"a":[1]}"#, json!({ "a": [1] }), r#"{"a":[1]}"#),
        ("array", r#"["a",1]"#, json!(["a", 1]), r#"["a",1]"#),
        ("string", r#""Ada wrote it.""#, json!(words), words),
        ("string", words, json!(words), words),
        ("string", "42", json!("42"), "42"),
        ("number", "4.5", json!(4.5), "4.5"),
        ("integer", "```json\n42\n```", json!(42), "42"),
        ("boolean", "false", json!(false), "false"),
        ("null", "null", Value::Null, "null"),
    ] {
        let schema = json!({ "type": kind });
        let expect = (data.clone(), text.to_owned());
        assert_eq!(run_with_schema(&schema, FakeReply::Text(said)).await, expect, "{said}");
        let finish = FakeReply::call("finish", json!({ "output": data }));
        assert_eq!(run_with_schema(&schema, finish).await, expect, "finish {kind}");
    }
}
