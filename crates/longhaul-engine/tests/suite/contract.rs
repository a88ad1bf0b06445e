//! Runs whose result must fit a schema.

use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::raw::{Body, RawJson};
use longhaul_core::status::Output;
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

#[tokio::test]
async fn a_schema_that_is_broken_is_said() {
    let house = plan([])
        .agent(|agent| agent.output = Some(RawJson::of(&json!({ "type": "nonsense" }))))
        .at_work();
    let run = house.submit().await;
    let gate = house.gate(run).await;
    let opening = "The output schema of agent `tester` is broken:";
    assert!(gate.spec.ask.starts_with(opening), "{}", gate.spec.ask);
}
