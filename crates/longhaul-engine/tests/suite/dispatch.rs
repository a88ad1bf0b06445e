//! Tests of how the calls of a reply are run: concurrency, order of results, and failures.

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
    let effects = EffectLog::default();
    let latches: Vec<Latch> = NAMES.iter().map(|_| Latch::closed()).collect();
    let tools = NAMES.iter().zip(&latches);
    let tools = tools.map(|(name, latch)| FakeTool::new(name, Pure, &effects).after_latch(latch));
    let engine = engine_with([calls(&NAMES)]).tools(tools).start();
    let run = engine.submit().await;
    for latch in &latches {
        latch.reached(1).await;
    }
    // All six run at once. They end in reverse order, each committed before the next.
    let mut entries = engine.until(run, "tool.started").await;
    for latch in latches.iter().rev() {
        latch.open();
        let after = entries.last().unwrap().seq;
        entries = engine.until_after(run, after, "tool.completed").await;
    }
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "done");
    assert_eq!(count(&journal, "tool.started"), 6);
    let texts: Vec<String> = engine.results().into_iter().map(|(text, _)| text).collect();
    let expected: Vec<String> = (0..6).map(|n| json!({ "count": n }).to_string()).collect();
    assert_eq!(texts, expected);
}

/// Returns the call log of a reply with calls of these classes. Each call waits at its own latch,
/// which is opened as soon as the call has started.
async fn order(classes: &[EffectClass]) -> Vec<String> {
    const NAMES: [&str; 4] = ["a", "b", "c", "d"];
    let effects = EffectLog::default();
    let named: Vec<_> = NAMES.iter().zip(classes).collect();
    let tools = named.iter().map(|(name, class)| {
        FakeTool::new(name, **class, &effects).with_action(|_, _| {
            async {
                tokio::task::yield_now().await;
                Ok(ToolOutput::text("ok"))
            }
            .boxed()
        })
    });
    let names: Vec<&str> = named.iter().map(|(name, _)| **name).collect();
    let engine = engine_with([calls(&names)]).tools(tools).start();
    let run = engine.submit().await;
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "done", "{:?}", kinds(&journal));
    let all = effects.all().into_iter();
    all.map(|effect| effect.split(" {").next().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn once_calls_run_alone_and_in_the_models_order() {
    for (classes, expected) in [
        (&[Once, Once][..], &["a begins", "a ends", "b begins", "b ends"][..]),
        (&[Pure, Once, Keyed], &["a begins", "a ends", "b begins", "b ends", "c begins", "c ends"]),
        (&[Pure, Keyed, Once], &["a begins", "b begins", "a ends", "b ends", "c begins", "c ends"]),
    ] {
        assert_eq!(order(classes).await, expected, "{classes:?}");
    }
}

/// What the model reads after one call, and the calls of the tool.
struct ModelView {
    text: String,
    is_error: bool,
    effects: Vec<String>,
    kinds: Vec<&'static str>,
}

async fn call_and_read(
    configure: impl FnOnce(FakeTool) -> FakeTool,
    class: EffectClass,
    input: Value,
) -> ModelView {
    let effects = EffectLog::default();
    let configure = configure(FakeTool::new("act", class, &effects));
    let engine = engine_with([FakeReply::call("act", input)]).tools([configure]).start();
    let run = engine.submit().await;
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "done");
    let (text, is_error) = engine.results().remove(0);
    ModelView { text, is_error, effects: effects.all(), kinds: kinds(&journal) }
}

#[tokio::test]
async fn an_invalid_input_never_reaches_the_tool() {
    for (input, reason) in [
        (json!({ "count": "seven" }), "is not of type"),
        (json!({ "other": 1 }), "other"),
        (json!("words"), "is not of type"),
    ] {
        let outcome = call_and_read(|tool| tool, Once, input.clone()).await;
        assert!(outcome.is_error && outcome.text.contains(reason), "{input}: {}", outcome.text);
        assert!(outcome.text.contains("the input of act does not match its schema"));
        assert_eq!(outcome.effects, Vec::<String>::new());
        assert!(!outcome.kinds.contains(&"tool.started"), "{:?}", outcome.kinds);
    }
}

#[tokio::test]
async fn tool_failures_and_panics_are_results() {
    let input = json!({ "text": "x" });
    let failing = |tool: FakeTool| {
        tool.with_action(|_, _| async { Err(ToolFailure::new("the shop is closed")) }.boxed())
    };
    let view = call_and_read(failing, Pure, input.clone()).await;
    assert_eq!((view.text.as_str(), view.is_error), ("the shop is closed", true));
    assert!(view.kinds.contains(&"tool.failed"));
    let panics =
        |tool: FakeTool| tool.with_action(|_, _| async { panic!("a stone fell on it") }.boxed());
    for class in [Pure, Once] {
        let view = call_and_read(panics, class, input.clone()).await;
        assert_eq!(view.text, "the tool panicked: a stone fell on it");
        assert!(view.is_error && view.kinds.contains(&"tool.failed"));
    }
}

#[tokio::test]
async fn a_panic_during_classification_is_a_result() {
    let view = call_and_read(|tool| tool, Pure, json!({ "text": "unspeakable" })).await;
    assert!(view.text.contains("a bug in the tool's rule match texts"), "{}", view.text);
    assert!(view.is_error);
    assert_eq!(view.effects, Vec::<String>::new());
}

#[tokio::test]
async fn a_pure_or_keyed_call_that_takes_too_long_has_failed() {
    for class in [Pure, Keyed] {
        let latch = Latch::closed();
        let slow = |tool: FakeTool| tool.after_latch(&latch).with_timeout(Millis(20));
        let view = call_and_read(slow, class, json!({})).await;
        assert!(view.is_error && view.text.contains("timed out after 20ms"), "{}", view.text);
        assert_eq!(view.effects, ["act begins {}"]);
    }
}

#[tokio::test]
async fn an_unknown_tool_is_reported_with_the_available_ones() {
    let engine = engine_with([FakeReply::call("fly", json!({}))]).start();
    let run = engine.submit().await;
    engine.ended(run).await;
    let (text, is_error) = engine.results().remove(0);
    assert!(is_error && text.contains("there is no tool `fly`; the available tools"), "{text}");
    assert!(text.contains("ask_human") && text.contains("read_output"), "{text}");
}

#[tokio::test]
async fn the_model_can_not_set_injected_arguments() {
    let effects = EffectLog::default();
    let tool = FakeTool::new("act", Once, &effects).with_action(|_, ctx| {
        let recipient = ctx.context.get("recipient").map(|raw| raw.as_str().to_owned());
        let other = ctx.context.contains_key("unlisted");
        async move { Ok(ToolOutput::text(format!("{recipient:?} {other}"))) }.boxed()
    });
    let engine =
        engine_with([FakeReply::call("act", json!({ "text": "hi", "recipient": "mallory" }))])
            .tools([tool])
            .agent(|agent| agent.context = vec!["recipient".into()])
            .start();
    let mut task = Task::new("tester", "Do it.");
    task.context.insert("recipient".into(), RawJson::from_serialize(&"anna"));
    task.context.insert("unlisted".into(), RawJson::from_serialize(&1));
    let run = engine.longhaul.submit(task).await.unwrap();
    engine.ended(run).await;
    assert_eq!(effects.all()[0], r#"act begins {"text":"hi"}"#);
    assert_eq!(engine.results(), [(r#"Some("\"anna\"") false"#.to_owned(), false)]);
}

#[tokio::test]
async fn effect_rules_of_the_agent_override_the_tools_class() {
    let effect_log = EffectLog::default();
    let latch = Latch::closed();
    let tool = FakeTool::new("shell", Once, &effect_log).after_latch(&latch);
    let effects = [("ls*", Pure), ("*", Once)].map(|(match_glob, class)| EffectRule {
        tool: "shell".into(),
        match_glob: Some(match_glob.into()),
        class: Some(class),
        key: None,
    });
    let engine = engine_with([FakeReply::Calls(vec![
        ("shell", json!({ "text": "ls a" })),
        ("shell", json!({ "text": "ls b" })),
        ("shell", json!({ "text": "rm a" })),
    ])])
    .tools([tool])
    .agent(|agent| agent.effects = effects.to_vec())
    .start();
    let run = engine.submit().await;
    latch.reached(2).await;
    assert_eq!(effect_log.count("shell begins"), 2, "the `once` call waits for the pure call");
    latch.open();
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "done");
    assert_eq!(effect_log.all().last().unwrap(), r#"shell ends {"text":"rm a"}"#);
}
