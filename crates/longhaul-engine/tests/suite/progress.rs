//! Calls that say how far they are, and calls that go wrong in every other way:
//! the run goes on, and its neighbours feel nothing.

use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;
use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
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

fn reports(journal: &[Entry]) -> Vec<(Option<u8>, String)> {
    let reports = journal.iter().filter_map(|entry| {
        let Event::ToolProgress(said) = &entry.event else {
            return None;
        };
        Some((said.percent, said.message.clone()))
    });
    reports.collect()
}

#[tokio::test]
async fn progress_of_a_call_is_throttled_to_once_a_second() {
    let deeds = EffectLog::default();
    let doors = [Latch::new(), Latch::new(), Latch::new()];
    let inside = doors.clone();
    let work = FakeTool::new("work", Keyed, &deeds).with_action(move |_, around| {
        let doors = inside.clone();
        async move {
            around.progress.report(Some(10), "begun");
            doors[0].wait().await;
            for step in 11..60 {
                around.progress.report(Some(step), "going on");
            }
            doors[1].wait().await;
            around.progress.report(Some(200), &"ü".repeat(2_000));
            doors[2].wait().await;
            Ok(ToolOutput::text("worked"))
        }
        .boxed()
    });
    let house =
        engine_with([FakeReply::call("work", json!({}))]).tools([work]).with_sim_clock().start();
    let run = house.submit().await;
    let seen = house.until(run, "tool.progress").await;
    assert_eq!(reports(&seen), [(Some(10), "begun".to_owned())]);
    doors[0].open();
    doors[1].reached(1).await;
    let clock = house.clock.as_ref().unwrap();
    clock.advance(Millis::from_secs(1));
    let after = seen.last().unwrap().seq;
    let seen = house.until_after(run, after, "tool.progress").await;
    assert_eq!(reports(&seen), [(Some(59), "going on".to_owned())]);
    doors[1].open();
    doors[2].reached(1).await;
    clock.advance(Millis::from_secs(1));
    let after = seen.last().unwrap().seq;
    let seen = house.until_after(run, after, "tool.progress").await;
    assert_eq!(reports(&seen), [(Some(100), "ü".repeat(500))]);
    doors[2].open();
    let journal = house.ended(run).await;
    assert_eq!(outcome_text(&journal), "done");
    assert_eq!(count(&journal, "tool.progress"), 3);
}

#[tokio::test]
async fn durable_progress_is_never_dropped() {
    let work = FakeTool::new("work", Keyed, &EffectLog::default()).with_action(|input, around| {
        async move {
            around.progress.report(None, "going on");
            for at in 0..3 {
                let words = format!("{} asked {at}, with {SECRET}", input["text"]);
                around.progress.report_durable(&words);
                around.progress.report(None, "going on");
            }
            Ok(ToolOutput::text("worked"))
        }
        .boxed()
    });
    let calls = ["a", "b", "c"].map(|name| ("work", json!({ "text": name })));
    // The clock stands, and every call is over at once.
    let house =
        engine_with([FakeReply::Calls(calls.to_vec())]).tools([work]).with_sim_clock().start();
    let run = house.submit().await;
    let journal = house.ended(run).await;
    assert_eq!(outcome_text(&journal), "done");
    let said: Vec<String> = reports(&journal).into_iter().map(|(_, said)| said).collect();
    for name in ["a", "b", "c"] {
        for at in 0..3 {
            let words = format!("\"{name}\" asked {at}, with {{{{secret:WORD}}}}");
            let count = said.iter().filter(|said| **said == words).count();
            assert_eq!(count, 1, "{words}: {said:?}");
        }
    }
}

#[tokio::test]
async fn progress_that_can_not_be_written_does_not_stop_the_call() {
    for (fault, words) in [
        (StoreFault::Busy, 0),
        (StoreFault::Full, 0),
        (StoreFault::Broken, 0),
        (StoreFault::Lost, 1),
    ] {
        let work = FakeTool::new("work", Pure, &EffectLog::default()).with_action(|_, around| {
            around.progress.report(Some(10), "begun");
            async {
                for _ in 0..50 {
                    tokio::task::yield_now().await;
                }
                Ok(ToolOutput::text("worked"))
            }
            .boxed()
        });
        // The clock stands: whoever waits for the store waits for ever.
        let plan = engine_with([FakeReply::call("work", json!({}))]).tools([work]);
        let mut house = plan.with_sim_clock().build();
        house.store.fail_append("tool.progress", fault);
        house.spawn_worker(|_| {});
        let run = house.submit().await;
        let journal = house.ended(run).await;
        assert_eq!(outcome_text(&journal), "done", "{fault:?}");
        assert!(house.store.has_failed(), "{fault:?}");
        assert_eq!(count(&journal, "tool.progress"), words, "{fault:?}");
    }
}

#[tokio::test]
async fn progress_after_the_end_of_a_call_is_ignored() {
    let deeds = EffectLog::default();
    let kept: Arc<Mutex<Option<Arc<dyn Progress>>>> = Arc::default();
    let hidden = Arc::clone(&kept);
    let talks = FakeTool::new("talks", Pure, &deeds).with_action(move |_, around| {
        *hidden.lock().unwrap() = Some(around.progress.clone());
        async { Ok(ToolOutput::text("ended")) }.boxed()
    });
    let door = Latch::new();
    let waits = FakeTool::new("waits", Pure, &deeds).after_latch(&door);
    let both = FakeReply::Calls(vec![("talks", json!({})), ("waits", json!({}))]);
    let house = engine_with([both]).tools([talks, waits]).start();
    let run = house.submit().await;
    house.until(run, "tool.completed").await;
    let progress = kept.lock().unwrap().clone().unwrap();
    for _ in 0..100 {
        progress.report(None, "still there");
        tokio::task::yield_now().await;
    }
    door.open();
    let journal = house.ended(run).await;
    assert_eq!(outcome_text(&journal), "done");
    assert_eq!(count(&journal, "tool.progress"), 0);
}

#[tokio::test]
async fn secrets_reach_neither_the_model_nor_the_journal() {
    let deeds = EffectLog::default();
    let leaks = FakeTool::new("leaks", Pure, &deeds).with_action(|_, around| {
        around.progress.report(None, SECRET);
        async {
            tokio::task::yield_now().await;
            Ok(ToolOutput::text(format!("The word is {SECRET}.")))
        }
        .boxed()
    });
    let seen = json!({ "sign": SECRET });
    let witness = FakeContextProvider::new([FakePerception::World(seen.clone(), seen)]);
    let house = engine_with([FakeReply::call("leaks", json!({}))])
        .tools([leaks])
        .perception(&witness, PerceptionInterval::Run)
        .start();
    let task = Task::new("tester", json!({ "say": SECRET }));
    let run = house.longhaul.submit(task).await.unwrap();
    let journal = house.ended(run).await;
    let said = "The word is {{secret:WORD}}.".to_owned();
    assert_eq!(house.results(), [(said, false)]);
    assert_eq!(house.user_texts(), [r#"{"say":"{{secret:WORD}}"}"#]);
    for entry in &journal {
        let written = entry.event.encode().unwrap();
        assert!(!written.contains(SECRET), "{written}");
    }
    let asked = format!("{:?}", house.model.requests());
    assert!(!asked.contains(SECRET), "{asked}");
}

#[tokio::test]
async fn failing_tools_do_not_affect_parallel_calls() {
    let deeds = EffectLog::default();
    let panics = FakeTool::new("panics", Pure, &deeds)
        .with_action(|_, _| async { panic!("a tool with a mistake") }.boxed());
    let hangs = FakeTool::new("hangs", Pure, &deeds)
        .with_action(|_, _| std::future::pending().boxed())
        .with_timeout(Millis(50));
    let floods = FakeTool::new("floods", Pure, &deeds).with_action(|_, _| {
        // What is no text was made one by whoever read it.
        let flood = String::from_utf8_lossy(&[0xff; 1024]).repeat(100 * 1024 / 3);
        async move { Ok(ToolOutput::text(flood)) }.boxed()
    });
    let works = FakeTool::new("works", Pure, &deeds);
    let all = ["panics", "hangs", "floods", "works"].map(|name| (name, json!({})));
    let house =
        engine_with([FakeReply::Calls(all.to_vec())]).tools([panics, hangs, floods, works]).start();
    let runs = [house.submit().await, house.submit().await];
    for run in runs {
        assert_eq!(outcome_text(&house.ended(run).await), "done");
    }
    let results = house.results();
    let errors: Vec<bool> = results.iter().map(|(_, is_error)| *is_error).collect();
    assert_eq!(errors, [true, true, false, false]);
    assert!(results[0].0.contains("a tool with a mistake"));
    assert!(results[1].0.contains("took longer than 50 ms"));
    assert!(results[2].0.len() < 32 * 1024);
    assert!(results[2].0.contains("between them are lost"), "{}", results[2].0.len());
    assert_eq!(results[3].0, "{}");
}
