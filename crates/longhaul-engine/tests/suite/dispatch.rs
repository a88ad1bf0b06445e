//! How the calls of a reply are made: side by side or alone, in which order
//! the model reads what came of them, and what it reads when they go wrong.

use futures_util::FutureExt as _;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::policy::effect::EffectClass::{self, Keyed, Once, Pure};
use longhaul_core::port::tool::ToolFailure;
use longhaul_core::raw::RawJson;
use longhaul_core::time::Millis;
use longhaul_engine::Task;
use longhaul_engine::agent::EffectRule;
use serde_json::{Value, json};

use crate::suite::harness::model::FakeReply;
use crate::suite::harness::tool::{EffectLog, FakeTool};
use crate::suite::harness::{count, engine_with, kinds, outcome_text};
use longhaul_testkit::latch::Latch;

fn calls(tools: &[&'static str]) -> FakeReply {
    let numbered = tools.iter().enumerate();
    FakeReply::Calls(numbered.map(|(n, tool)| (*tool, json!({ "count": n }))).collect())
}

#[tokio::test]
async fn six_pure_calls_run_side_by_side_and_are_read_in_the_models_order() {
    const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    let deeds = EffectLog::default();
    let doors: Vec<Latch> = NAMES.iter().map(|_| Latch::new()).collect();
    let hands = NAMES.iter().zip(&doors);
    let hands = hands.map(|(name, door)| FakeTool::new(name, Pure, &deeds).after_latch(door));
    let house = engine_with([calls(&NAMES)]).tools(hands).start();
    let run = house.submit().await;
    for door in &doors {
        door.reached(1).await;
    }
    // All six are inside at once; they end in reverse, each told before the next.
    let mut seen = house.until(run, "tool.started").await;
    for door in doors.iter().rev() {
        door.open();
        let after = seen.last().unwrap().seq;
        seen = house.until_after(run, after, "tool.completed").await;
    }
    let journal = house.ended(run).await;
    assert_eq!(outcome_text(&journal), "done");
    assert_eq!(count(&journal, "tool.started"), 6);
    let read: Vec<String> = house.results().into_iter().map(|(text, _)| text).collect();
    let wanted: Vec<String> = (0..6).map(|n| json!({ "count": n }).to_string()).collect();
    assert_eq!(read, wanted);
}

/// What was done when a reply asks for these classes, each behind its own door
/// that is opened as soon as somebody stands there.
async fn order(classes: &[EffectClass]) -> Vec<String> {
    const NAMES: [&str; 4] = ["a", "b", "c", "d"];
    let deeds = EffectLog::default();
    let named: Vec<_> = NAMES.iter().zip(classes).collect();
    let hands = named.iter().map(|(name, class)| {
        FakeTool::new(name, **class, &deeds).with_action(|_, _| {
            async {
                tokio::task::yield_now().await;
                Ok(ToolOutput::text("ok"))
            }
            .boxed()
        })
    });
    let names: Vec<&str> = named.iter().map(|(name, _)| **name).collect();
    let house = engine_with([calls(&names)]).tools(hands).start();
    let run = house.submit().await;
    let journal = house.ended(run).await;
    assert_eq!(outcome_text(&journal), "done", "{:?}", kinds(&journal));
    let all = deeds.all().into_iter();
    all.map(|deed| deed.split(" {").next().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn once_calls_run_alone_and_in_the_models_order() {
    for (classes, wanted) in [
        (&[Once, Once][..], &["a begins", "a ends", "b begins", "b ends"][..]),
        (&[Pure, Once, Keyed], &["a begins", "a ends", "b begins", "b ends", "c begins", "c ends"]),
        (&[Pure, Keyed, Once], &["a begins", "b begins", "a ends", "b ends", "c begins", "c ends"]),
    ] {
        assert_eq!(order(classes).await, wanted, "{classes:?}");
    }
}

/// What the model reads after one call, and what the tool was given.
struct ModelView {
    text: String,
    is_error: bool,
    effects: Vec<String>,
    kinds: Vec<&'static str>,
}

async fn call_and_read(
    hand: impl FnOnce(FakeTool) -> FakeTool,
    class: EffectClass,
    input: Value,
) -> ModelView {
    let deeds = EffectLog::default();
    let hand = hand(FakeTool::new("act", class, &deeds));
    let house = engine_with([FakeReply::call("act", input)]).tools([hand]).start();
    let run = house.submit().await;
    let journal = house.ended(run).await;
    assert_eq!(outcome_text(&journal), "done");
    let (text, is_error) = house.results().remove(0);
    ModelView { text, is_error, effects: deeds.all(), kinds: kinds(&journal) }
}

#[tokio::test]
async fn an_invalid_input_never_reaches_the_tool() {
    for (input, why) in [
        (json!({ "count": "seven" }), "is not of type"),
        (json!({ "other": 1 }), "other"),
        (json!("words"), "is not of type"),
    ] {
        let read = call_and_read(|hand| hand, Once, input.clone()).await;
        assert!(read.is_error && read.text.contains(why), "{input}: {}", read.text);
        assert!(read.text.contains("the input of act does not fit its schema"));
        assert_eq!(read.effects, Vec::<String>::new());
        assert!(!read.kinds.contains(&"tool.started"), "{:?}", read.kinds);
    }
}

#[tokio::test]
async fn tool_failures_and_panics_are_results() {
    let input = json!({ "text": "x" });
    let fails = |hand: FakeTool| {
        hand.with_action(|_, _| async { Err(ToolFailure::new("the shop is closed")) }.boxed())
    };
    let seen = call_and_read(fails, Pure, input.clone()).await;
    assert_eq!((seen.text.as_str(), seen.is_error), ("the shop is closed", true));
    assert!(seen.kinds.contains(&"tool.failed"));
    let panics =
        |hand: FakeTool| hand.with_action(|_, _| async { panic!("a stone fell on it") }.boxed());
    for class in [Pure, Once] {
        let seen = call_and_read(panics, class, input.clone()).await;
        assert_eq!(seen.text, "the tool panicked: a stone fell on it");
        assert!(seen.is_error && seen.kinds.contains(&"tool.failed"));
    }
}

#[tokio::test]
async fn a_panic_during_classification_is_a_result() {
    let seen = call_and_read(|hand| hand, Pure, json!({ "text": "unspeakable" })).await;
    assert!(seen.text.contains("a tool with a mistake in its reading"), "{}", seen.text);
    assert!(seen.is_error);
    assert_eq!(seen.effects, Vec::<String>::new());
}

#[tokio::test]
async fn a_pure_or_keyed_call_that_takes_too_long_has_failed() {
    for class in [Pure, Keyed] {
        let never = Latch::new();
        let slow = |hand: FakeTool| hand.after_latch(&never).with_timeout(Millis(20));
        let seen = call_and_read(slow, class, json!({})).await;
        assert!(seen.is_error && seen.text.contains("it took longer than 20 ms"), "{}", seen.text);
        assert_eq!(seen.effects, ["act begins {}"]);
    }
}

#[tokio::test]
async fn an_unknown_tool_is_reported_with_the_available_ones() {
    let house = engine_with([FakeReply::call("fly", json!({}))]).start();
    let run = house.submit().await;
    house.ended(run).await;
    let (text, is_error) = house.results().remove(0);
    assert!(is_error && text.contains("there is no tool `fly`; there is"), "{text}");
    assert!(text.contains("ask_human") && text.contains("read_output"), "{text}");
}

#[tokio::test]
async fn the_model_can_not_set_injected_arguments() {
    let deeds = EffectLog::default();
    let hand = FakeTool::new("act", Once, &deeds).with_action(|_, around| {
        let recipient = around.context.get("recipient").map(|raw| raw.as_str().to_owned());
        let other = around.context.contains_key("unlisted");
        async move { Ok(ToolOutput::text(format!("{recipient:?} {other}"))) }.boxed()
    });
    let house =
        engine_with([FakeReply::call("act", json!({ "text": "hi", "recipient": "mallory" }))])
            .tools([hand])
            .agent(|agent| agent.context = vec!["recipient".into()])
            .start();
    let mut task = Task::new("tester", "Do it.");
    task.context.insert("recipient".into(), RawJson::from_serialize(&"anna"));
    task.context.insert("unlisted".into(), RawJson::from_serialize(&1));
    let run = house.longhaul.submit(task).await.unwrap();
    house.ended(run).await;
    assert_eq!(deeds.all()[0], r#"act begins {"text":"hi"}"#);
    assert_eq!(house.results(), [(r#"Some("\"anna\"") false"#.to_owned(), false)]);
}

#[tokio::test]
async fn effect_rules_of_the_agent_override_the_tools_class() {
    let deeds = EffectLog::default();
    let door = Latch::new();
    let hand = FakeTool::new("shell", Once, &deeds).after_latch(&door);
    let effects = [("ls*", Pure), ("*", Once)].map(|(subject, class)| EffectRule {
        tool: "shell".into(),
        subject: Some(subject.into()),
        class,
    });
    let house = engine_with([FakeReply::Calls(vec![
        ("shell", json!({ "text": "ls a" })),
        ("shell", json!({ "text": "ls b" })),
        ("shell", json!({ "text": "rm a" })),
    ])])
    .tools([hand])
    .agent(|agent| agent.effects = effects.to_vec())
    .start();
    let run = house.submit().await;
    door.reached(2).await;
    assert_eq!(deeds.count("shell begins"), 2, "what is once waits for what is pure");
    door.open();
    let journal = house.ended(run).await;
    assert_eq!(outcome_text(&journal), "done");
    assert_eq!(deeds.all().last().unwrap(), r#"shell ends {"text":"rm a"}"#);
}
