//! Tests of progress reports, and of calls that fail in various ways without affecting the run or
//! other calls.

use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;
use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::policy::effect::EffectClass::{Keyed, Pure};
use longhaul_core::port::tool::Progress;
use longhaul_core::time::Millis;
use longhaul_engine::Task;
use longhaul_engine::agent::config::PerceptionInterval;
use longhaul_testkit::latch::Latch;
use serde_json::json;

use crate::suite::harness::context_provider::{FakeContextProvider, FakePerception};
use crate::suite::harness::failing_store::StoreFault;
use crate::suite::harness::model::FakeReply;
use crate::suite::harness::tool::{EffectLog, FakeTool};
use crate::suite::harness::{SECRET, count, engine_with, outcome_text};

fn reports(journal: &[JournalEntry]) -> Vec<(Option<u8>, String)> {
    let reports = journal.iter().filter_map(|entry| {
        let Event::ToolProgress(progress) = &entry.event else {
            return None;
        };
        Some((progress.percent, progress.message.clone()))
    });
    reports.collect()
}

#[tokio::test]
async fn progress_of_a_call_is_throttled_to_once_a_second() {
    let effects = EffectLog::default();
    let latches = [Latch::closed(), Latch::closed(), Latch::closed()];
    let tool_latches = latches.clone();
    let work = FakeTool::new("work", Keyed, &effects).with_action(move |_, ctx| {
        let latches = tool_latches.clone();
        async move {
            ctx.progress.report(Some(10), "begun");
            latches[0].wait().await;
            for step in 11..60 {
                ctx.progress.report(Some(step), "going on");
            }
            latches[1].wait().await;
            ctx.progress.report(Some(200), &"ü".repeat(2_000));
            latches[2].wait().await;
            Ok(ToolOutput::text("worked"))
        }
        .boxed()
    });
    let engine =
        engine_with([FakeReply::call("work", json!({}))]).tools([work]).with_sim_clock().start();
    let run = engine.submit().await;
    let entries = engine.until(run, "tool.progress").await;
    assert_eq!(reports(&entries), [(Some(10), "begun".to_owned())]);
    latches[0].open();
    latches[1].reached(1).await;
    let clock = engine.clock.as_ref().unwrap();
    clock.advance(Millis::from_secs(1));
    let after = entries.last().unwrap().seq;
    let entries = engine.until_after(run, after, "tool.progress").await;
    assert_eq!(reports(&entries), [(Some(59), "going on".to_owned())]);
    latches[1].open();
    latches[2].reached(1).await;
    clock.advance(Millis::from_secs(1));
    let after = entries.last().unwrap().seq;
    let entries = engine.until_after(run, after, "tool.progress").await;
    assert_eq!(reports(&entries), [(Some(100), "ü".repeat(500))]);
    latches[2].open();
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "done");
    assert_eq!(count(&journal, "tool.progress"), 3);
}

#[tokio::test]
async fn durable_progress_is_never_dropped() {
    let work = FakeTool::new("work", Keyed, &EffectLog::default()).with_action(|input, ctx| {
        async move {
            ctx.progress.report(None, "going on");
            for at in 0..3 {
                let message = format!("{} asked {at}, with {SECRET}", input["text"]);
                ctx.progress.report_to_journal(&message);
                ctx.progress.report(None, "going on");
            }
            Ok(ToolOutput::text("worked"))
        }
        .boxed()
    });
    let calls = ["a", "b", "c"].map(|name| ("work", json!({ "text": name })));
    // The clock does not advance, and every call ends at once.
    let engine =
        engine_with([FakeReply::Calls(calls.to_vec())]).tools([work]).with_sim_clock().start();
    let run = engine.submit().await;
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "done");
    let messages: Vec<String> =
        reports(&journal).into_iter().map(|(_, messages)| messages).collect();
    for name in ["a", "b", "c"] {
        for at in 0..3 {
            let message = format!("\"{name}\" asked {at}, with {{{{secret:WORD}}}}");
            let count = messages.iter().filter(|messages| **messages == message).count();
            assert_eq!(count, 1, "{message}: {messages:?}");
        }
    }
}

#[tokio::test]
async fn progress_that_can_not_be_written_does_not_stop_the_call() {
    for (fault, expected) in [
        (StoreFault::Busy, 0),
        (StoreFault::Full, 0),
        (StoreFault::Broken, 0),
        (StoreFault::Lost, 1),
    ] {
        let work = FakeTool::new("work", Pure, &EffectLog::default()).with_action(|_, ctx| {
            ctx.progress.report(Some(10), "begun");
            async {
                for _ in 0..50 {
                    tokio::task::yield_now().await;
                }
                Ok(ToolOutput::text("worked"))
            }
            .boxed()
        });
        // The clock does not advance, so a wait for the store would never end.
        let builder = engine_with([FakeReply::call("work", json!({}))]).tools([work]);
        let mut engine = builder.with_sim_clock().build();
        engine.store.fail_append("tool.progress", fault);
        engine.spawn_worker(|_| {});
        let run = engine.submit().await;
        let journal = engine.ended(run).await;
        assert_eq!(outcome_text(&journal), "done", "{fault:?}");
        assert!(engine.store.has_failed(), "{fault:?}");
        assert_eq!(count(&journal, "tool.progress"), expected, "{fault:?}");
    }
}

#[tokio::test]
async fn progress_after_the_end_of_a_call_is_ignored() {
    let effects = EffectLog::default();
    let stored: Arc<Mutex<Option<Arc<dyn Progress>>>> = Arc::default();
    let hidden = Arc::clone(&stored);
    let reporting_tool = FakeTool::new("talks", Pure, &effects).with_action(move |_, ctx| {
        *hidden.lock().unwrap() = Some(ctx.progress.clone());
        async { Ok(ToolOutput::text("ended")) }.boxed()
    });
    let latch = Latch::closed();
    let waits = FakeTool::new("waits", Pure, &effects).after_latch(&latch);
    let calls = FakeReply::Calls(vec![("talks", json!({})), ("waits", json!({}))]);
    let engine = engine_with([calls]).tools([reporting_tool, waits]).start();
    let run = engine.submit().await;
    engine.until(run, "tool.completed").await;
    let progress = stored.lock().unwrap().clone().unwrap();
    for _ in 0..100 {
        progress.report(None, "still there");
        tokio::task::yield_now().await;
    }
    latch.open();
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "done");
    assert_eq!(count(&journal, "tool.progress"), 0);
}

#[tokio::test]
async fn secrets_reach_neither_the_model_nor_the_journal() {
    let effects = EffectLog::default();
    let leaks = FakeTool::new("leaks", Pure, &effects).with_action(|_, ctx| {
        ctx.progress.report(None, SECRET);
        async {
            tokio::task::yield_now().await;
            Ok(ToolOutput::text(format!("The word is {SECRET}.")))
        }
        .boxed()
    });
    let context = json!({ "sign": SECRET });
    let provider = FakeContextProvider::new([FakePerception::World(context.clone(), context)]);
    let engine = engine_with([FakeReply::call("leaks", json!({}))])
        .tools([leaks])
        .perception(&provider, PerceptionInterval::Run)
        .start();
    let task = Task::new("tester", json!({ "say": SECRET }));
    let run = engine.longhaul.submit(task).await.unwrap();
    let journal = engine.ended(run).await;
    let expected = "The word is {{secret:WORD}}.".to_owned();
    assert_eq!(engine.results(), [(expected, false)]);
    assert_eq!(engine.user_texts(), [r#"{"say":"{{secret:WORD}}"}"#]);
    for entry in &journal {
        let event = entry.event.encode().unwrap();
        assert!(!event.contains(SECRET), "{event}");
    }
    let requests = format!("{:?}", engine.model.requests());
    assert!(!requests.contains(SECRET), "{requests}");
}

#[tokio::test]
async fn failing_tools_do_not_affect_parallel_calls() {
    let effects = EffectLog::default();
    let panics = FakeTool::new("panics", Pure, &effects)
        .with_action(|_, _| async { panic!("a bug in the tool") }.boxed());
    let hangs = FakeTool::new("hangs", Pure, &effects)
        .with_action(|_, _| std::future::pending().boxed())
        .with_timeout(Millis(50));
    let floods = FakeTool::new("floods", Pure, &effects).with_action(|_, _| {
        // Invalid UTF-8 was replaced by the reader.
        let flood = String::from_utf8_lossy(&[0xff; 1024]).repeat(100 * 1024 / 3);
        async move { Ok(ToolOutput::text(flood)) }.boxed()
    });
    let works = FakeTool::new("works", Pure, &effects);
    let all = ["panics", "hangs", "floods", "works"].map(|name| (name, json!({})));
    let engine =
        engine_with([FakeReply::Calls(all.to_vec())]).tools([panics, hangs, floods, works]).start();
    let runs = [engine.submit().await, engine.submit().await];
    for run in runs {
        assert_eq!(outcome_text(&engine.ended(run).await), "done");
    }
    let results = engine.results();
    let errors: Vec<bool> = results.iter().map(|(_, is_error)| *is_error).collect();
    assert_eq!(errors, [true, true, false, false]);
    assert!(results[0].0.contains("a bug in the tool"));
    assert!(results[1].0.contains("timed out after 50ms"));
    assert!(results[2].0.len() < 32 * 1024);
    assert!(results[2].0.contains("between them were discarded"), "{}", results[2].0.len());
    assert_eq!(results[3].0, "{}");
}
