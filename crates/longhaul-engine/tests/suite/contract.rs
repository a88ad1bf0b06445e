//! Runs whose result must fit a schema.

use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::raw::{Body, RawJson};
use longhaul_core::status::{Outcome, Output};
use longhaul_run::Run;
use serde_json::{Value, json};

use crate::suite::house::model::Line;
use crate::suite::house::{House, count, end, plan};

fn judged(lines: Vec<Line>) -> House {
    plan(lines)
        .agent(|agent| {
            agent.tools = Vec::new();
            agent.output = Some(RawJson::of(&json!({
                "type": "object",
                "properties": {
                    "title": { "type": "string" },
                    "confidence": { "type": "number" },
                },
                "required": ["title"],
            })));
        })
        .at_work()
}

fn output(journal: &[Entry]) -> Output {
    let last = &journal.last().unwrap().event;
    let Event::RunCompleted(done) = last else {
        panic!("it completes: {last:?}");
    };
    done.output.clone()
}

fn data(journal: &[Entry]) -> Value {
    output(journal).data.expect("data").value()
}

#[tokio::test]
async fn finish_takes_only_what_fits() {
    let house = judged(vec![
        Line::call("finish", json!({ "output": { "title": 7 } })),
        Line::call(
            "finish",
            json!({ "output": { "title": "A", "confidence": 90 } }),
        ),
    ]);
    let run = house.submit().await;
    let journal = house.ended(run).await;
    assert_eq!(data(&journal), json!({ "title": "A", "confidence": 90 }));
    assert_eq!(output(&journal).confidence, Some(90));
    let (words, is_error) = house.results().remove(0);
    assert!(is_error && words.contains("/output/title"), "{words}");
    let asked = house.actor.asked();
    let Body::Inline(tools) = &asked[0].tools else {
        panic!("a text");
    };
    let tools: Value = serde_json::from_str(tools).unwrap();
    assert_eq!(tools.as_array().unwrap().len(), 1);
    let typed = &tools[0]["schema"]["properties"]["output"]["properties"];
    assert_eq!(typed["title"], json!({ "type": "string" }));
}

#[tokio::test]
async fn a_last_word_that_fits_is_taken_and_another_is_sent_back() {
    let house = judged(vec![
        Line::Text("Here is the title."),
        Line::Text("```json\n{\"title\": \"A\"}\n```"),
    ]);
    let run = house.submit().await;
    let journal = house.ended(run).await;
    assert_eq!(data(&journal), json!({ "title": "A" }));
    assert_eq!(output(&journal).text, r#"{"title":"A"}"#);
    let told = house.heard();
    assert!(told[1].contains("This does not end the run"), "{told:?}");
}

#[tokio::test]
async fn whoever_never_fits_is_told_three_times() {
    let house = judged((0..9).map(|_| Line::Text("{}")).collect());
    let run = house.submit().await;
    let journal = house.ended(run).await;
    assert_eq!(end(&journal), "output_invalid");
    assert_eq!(count(&journal, "turn.completed"), 4);
}

/// A schema that would be checked some 70 billion times.
fn exponential() -> Value {
    let links = |n: usize| vec![json!({ "$ref": format!("#/$defs/d{n}") }); 8];
    let mut defs: serde_json::Map<String, Value> = (0..12)
        .map(|n| (format!("d{n}"), json!({ "allOf": links(n + 1) })))
        .collect();
    defs.insert("d12".to_owned(), json!({ "type": "object" }));
    json!({ "type": "object", "$ref": "#/$defs/d0", "$defs": defs })
}

/// The agent of a run is the one it was submitted with: what another build has let pass
/// is met here.
#[tokio::test]
async fn a_schema_that_is_broken_is_said() {
    for (schema, why) in [
        (json!({ "type": "nonsense" }), "nonsense"),
        (exponential(), "more than 50000 parts"),
    ] {
        let house = plan([])
            .agent(|agent| agent.output = Some(RawJson::of(&schema)))
            .at_work();
        let run = house.submit().await;
        let gate = house.gate(run).await;
        let opening = "The output schema of agent `tester` is broken:";
        assert!(gate.spec.ask.starts_with(opening), "{}", gate.spec.ask);
        assert!(gate.spec.ask.contains(why), "{}", gate.spec.ask);
    }
}

/// What a run with this schema gives back that ends with these words or this `finish`.
async fn given(schema: &Value, line: Line) -> (Value, String) {
    let schema = RawJson::of(schema);
    let house = plan([line]).agent(|agent| {
        agent.tools = Vec::new();
        agent.output = Some(schema);
    });
    let house = house.at_work();
    let run = house.submit().await;
    let journal = house.ended(run).await;
    let replayed = Run::replay(&journal).unwrap();
    let output = output(&journal);
    assert_eq!(
        replayed.outcome(),
        Some(&Outcome::Completed(output.clone()))
    );
    (output.data.expect("data").value(), output.text)
}

#[tokio::test]
async fn every_kind_of_result_is_data_by_words_and_by_finish() {
    let words = "Ada wrote it.";
    for (kind, said, data, text) in [
        (
            "object",
            r#"{"a":[1]}"#,
            json!({ "a": [1] }),
            r#"{"a":[1]}"#,
        ),
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
        assert_eq!(given(&schema, Line::Text(said)).await, expect, "{said}");
        let finish = Line::call("finish", json!({ "output": data }));
        assert_eq!(given(&schema, finish).await, expect, "finish {kind}");
    }
}
