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
use longhaul_engine::agent::wish::Every;
use longhaul_testkit::door::Door;
use serde_json::json;

use crate::suite::house::eye::{Sight, Witness};
use crate::suite::house::model::Line;
use crate::suite::house::shaky::Fault;
use crate::suite::house::tool::{Deeds, Hand};
use crate::suite::house::{SECRET, count, end, plan};

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
async fn a_call_is_heard_once_a_second() {
    let deeds = Deeds::default();
    let doors = [Door::shut(), Door::shut(), Door::shut()];
    let inside = doors.clone();
    let work = Hand::new("work", Keyed, &deeds).doing(move |_, around| {
        let doors = inside.clone();
        async move {
            around.progress.report(Some(10), "begun");
            doors[0].pass().await;
            for step in 11..60 {
                around.progress.report(Some(step), "going on");
            }
            doors[1].pass().await;
            around.progress.report(Some(200), &"ü".repeat(2_000));
            doors[2].pass().await;
            Ok(ToolOutput::text("worked"))
        }
        .boxed()
    });
    let house = plan([Line::call("work", json!({}))])
        .hands([work])
        .at_standing_clock()
        .at_work();
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
    assert_eq!(end(&journal), "done");
    assert_eq!(count(&journal, "tool.progress"), 3);
}

#[tokio::test]
async fn what_must_be_read_about_afterwards_is_never_left_out() {
    let work = Hand::new("work", Keyed, &Deeds::default()).doing(|input, around| {
        async move {
            around.progress.report(None, "going on");
            for at in 0..3 {
                let words = format!("{} asked {at}, with {SECRET}", input["text"]);
                around.progress.record(&words);
                around.progress.report(None, "going on");
            }
            Ok(ToolOutput::text("worked"))
        }
        .boxed()
    });
    let calls = ["a", "b", "c"].map(|name| ("work", json!({ "text": name })));
    // The clock stands, and every call is over at once.
    let house = plan([Line::Calls(calls.to_vec())])
        .hands([work])
        .at_standing_clock()
        .at_work();
    let run = house.submit().await;
    let journal = house.ended(run).await;
    assert_eq!(end(&journal), "done");
    let said: Vec<String> = reports(&journal)
        .into_iter()
        .map(|(_, said)| said)
        .collect();
    for name in ["a", "b", "c"] {
        for at in 0..3 {
            let words = format!("\"{name}\" asked {at}, with {{{{secret:WORD}}}}");
            let count = said.iter().filter(|said| **said == words).count();
            assert_eq!(count, 1, "{words}: {said:?}");
        }
    }
}

#[tokio::test]
async fn a_word_that_can_not_be_written_stops_nobody() {
    for (fault, words) in [
        (Fault::Busy, 0),
        (Fault::Full, 0),
        (Fault::Broken, 0),
        (Fault::Lost, 1),
    ] {
        let work = Hand::new("work", Pure, &Deeds::default()).doing(|_, around| {
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
        let plan = plan([Line::call("work", json!({}))]).hands([work]);
        let mut house = plan.at_standing_clock().open();
        house.store.fail_append("tool.progress", fault);
        house.hire(|_| {});
        let run = house.submit().await;
        let journal = house.ended(run).await;
        assert_eq!(end(&journal), "done", "{fault:?}");
        assert!(house.store.has_failed(), "{fault:?}");
        assert_eq!(count(&journal, "tool.progress"), words, "{fault:?}");
    }
}

#[tokio::test]
async fn a_tool_that_talks_on_after_its_end_is_not_heard() {
    let deeds = Deeds::default();
    let kept: Arc<Mutex<Option<Arc<dyn Progress>>>> = Arc::default();
    let hidden = Arc::clone(&kept);
    let talks = Hand::new("talks", Pure, &deeds).doing(move |_, around| {
        *hidden.lock().unwrap() = Some(around.progress.clone());
        async { Ok(ToolOutput::text("ended")) }.boxed()
    });
    let door = Door::shut();
    let waits = Hand::new("waits", Pure, &deeds).behind(&door);
    let both = Line::Calls(vec![("talks", json!({})), ("waits", json!({}))]);
    let house = plan([both]).hands([talks, waits]).at_work();
    let run = house.submit().await;
    house.until(run, "tool.completed").await;
    let progress = kept.lock().unwrap().clone().unwrap();
    for _ in 0..100 {
        progress.report(None, "still there");
        tokio::task::yield_now().await;
    }
    door.open();
    let journal = house.ended(run).await;
    assert_eq!(end(&journal), "done");
    assert_eq!(count(&journal, "tool.progress"), 0);
}

#[tokio::test]
async fn secrets_reach_neither_the_model_nor_the_journal() {
    let deeds = Deeds::default();
    let leaks = Hand::new("leaks", Pure, &deeds).doing(|_, around| {
        around.progress.report(None, SECRET);
        async {
            tokio::task::yield_now().await;
            Ok(ToolOutput::text(format!("The word is {SECRET}.")))
        }
        .boxed()
    });
    let seen = json!({ "sign": SECRET });
    let witness = Witness::of([Sight::World(seen.clone(), seen)]);
    let house = plan([Line::call("leaks", json!({}))])
        .hands([leaks])
        .looking(&witness, Every::Run)
        .at_work();
    let task = Task::new("tester", json!({ "say": SECRET }));
    let run = house.longhaul.submit(task).await.unwrap();
    let journal = house.ended(run).await;
    let said = "The word is {{secret:WORD}}.".to_owned();
    assert_eq!(house.results(), [(said, false)]);
    assert_eq!(house.heard(), [r#"{"say":"{{secret:WORD}}"}"#]);
    for entry in &journal {
        let written = entry.event.encode().unwrap();
        assert!(!written.contains(SECRET), "{written}");
    }
    let asked = format!("{:?}", house.actor.asked());
    assert!(!asked.contains(SECRET), "{asked}");
}

#[tokio::test]
async fn tools_that_go_wrong_leave_their_neighbours_alone() {
    let deeds = Deeds::default();
    let panics = Hand::new("panics", Pure, &deeds)
        .doing(|_, _| async { panic!("a tool with a mistake") }.boxed());
    let hangs = Hand::new("hangs", Pure, &deeds)
        .doing(|_, _| std::future::pending().boxed())
        .within(Millis(50));
    let floods = Hand::new("floods", Pure, &deeds).doing(|_, _| {
        // What is no text was made one by whoever read it.
        let flood = String::from_utf8_lossy(&[0xff; 1024]).repeat(100 * 1024 / 3);
        async move { Ok(ToolOutput::text(flood)) }.boxed()
    });
    let works = Hand::new("works", Pure, &deeds);
    let all = ["panics", "hangs", "floods", "works"].map(|name| (name, json!({})));
    let house = plan([Line::Calls(all.to_vec())])
        .hands([panics, hangs, floods, works])
        .at_work();
    let runs = [house.submit().await, house.submit().await];
    for run in runs {
        assert_eq!(end(&house.ended(run).await), "done");
    }
    let results = house.results();
    let errors: Vec<bool> = results.iter().map(|(_, is_error)| *is_error).collect();
    assert_eq!(errors, [true, true, false, false]);
    assert!(results[0].0.contains("a tool with a mistake"));
    assert!(results[1].0.contains("took longer than 50 ms"));
    assert!(results[2].0.len() < 32 * 1024);
    assert!(
        results[2].0.contains("between them are lost"),
        "{}",
        results[2].0.len()
    );
    assert_eq!(results[3].0, "{}");
}
