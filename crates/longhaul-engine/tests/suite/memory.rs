//! What runs remember: threads and notes through the handle, and conversations
//! that are shortened before they fill the window.

use std::sync::atomic::Ordering;

use futures_util::FutureExt as _;
use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::event::steer::Delivery;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::event::turn::Purpose;
use longhaul_core::failure::FailureClass::{Auth, RateLimit};
use longhaul_core::id::{ResourceKey, ThreadKey};
use longhaul_core::message::Message;
use longhaul_core::note::{NewNote, Noted};
use longhaul_core::policy::effect::EffectClass::Pure;
use longhaul_core::raw::Body;
use longhaul_engine::Task;
use longhaul_engine::handle::Said;
use serde_json::json;

use crate::suite::house::model::{Line, heard};
use crate::suite::house::tool::{Deeds, Hand};
use crate::suite::house::{count, end, kinds, plan};
use longhaul_testkit::door::Door;

fn letters() -> ThreadKey {
    ThreadKey::new("letters").unwrap()
}

#[tokio::test]
async fn a_thread_is_what_completed_runs_and_programs_said() {
    let house = plan([Line::Text("Hello Ada.")]).at_work();
    let longhaul = &house.longhaul;
    let said = vec![
        Said::User("I am Ada.".into()),
        Said::Assistant("Noted.".into()),
    ];
    longhaul.add_to_thread(&letters(), said).await.unwrap();
    assert_eq!(longhaul.thread_len(&letters()).await.unwrap(), 2);
    let mut task = Task::new("tester", "Who am I?");
    task.thread = Some(letters());
    let run = longhaul.submit(task).await.unwrap();
    house.ended(run).await;
    assert_eq!(house.heard(), ["I am Ada.", "Who am I?"]);
    let thread = longhaul.thread(&letters(), 50).await.unwrap();
    assert_eq!(thread.len(), 4);
    assert_eq!(thread[2], Message::user("Who am I?"));
    let newest = longhaul.thread(&letters(), 1).await.unwrap();
    assert_eq!(newest, thread[3..]);
    longhaul.clear_thread(&letters()).await.unwrap();
    assert_eq!(longhaul.thread_len(&letters()).await.unwrap(), 0);
    let long = vec![Said::User("x".repeat(1_048_577))];
    let refused = longhaul.add_to_thread(&letters(), long).await.unwrap_err();
    assert_eq!(refused.code(), "too_long");
}

#[tokio::test]
async fn a_long_answer_is_remembered_with_what_was_said_before_it() {
    let report: &'static str = format!("The report. {}The end.", "word ".repeat(2_000)).leak();
    let house = plan([Line::Text(report), Line::Text("Shorter.")])
        .agent(|agent| {
            agent.prompt =
                "{% for one in memory %}<{{ one.role }}: {{ one.text[:11] }}>{% endfor %}".into();
        })
        .at_work();
    for said in ["Write the report.", "Now shorten it."] {
        let mut task = Task::new("tester", said);
        task.thread = Some(letters());
        let run = house.longhaul.submit(task).await.unwrap();
        house.ended(run).await;
    }
    let asked = house.actor.asked();
    let messages = &asked[1].messages;
    assert_eq!(messages.len(), 3);
    assert_eq!(*messages[0], Message::user("Write the report."));
    let Message::Assistant(reply) = &*messages[1] else {
        panic!("{messages:?}");
    };
    let told = reply.text();
    assert!(told.starts_with("The report. ") && told.ends_with("The end."));
    let of = format!(" of {} characters are left out here.", report.len());
    assert!(told.contains(&of) && told.len() < 8_000, "{told}");
    let Body::Inline(system) = &asked[1].system else {
        panic!("a model knows no blobs");
    };
    assert!(
        system.starts_with("<user: Write the r><assistant: The report.>"),
        "{system}"
    );
    // The thread itself has it whole.
    let thread = house.longhaul.thread(&letters(), 50).await.unwrap();
    assert!(matches!(&thread[1], Message::Assistant(reply) if reply.text() == report));
}

#[tokio::test]
async fn notes_are_kept_found_and_forgotten_by_programs() {
    let house = plan([]).open();
    let (longhaul, ada) = (&house.longhaul, ResourceKey::new("ada").unwrap());
    let note = |key: &str, text: &str| NewNote::new(key, text, Vec::new(), None).unwrap();
    let kept = longhaul
        .remember(&ada, note("1", "likes tea"))
        .await
        .unwrap();
    let Noted::Kept(id) = kept else {
        panic!("{kept:?}");
    };
    let again = longhaul.remember(&ada, note("1", "other")).await.unwrap();
    assert_eq!(again, Noted::Known(id));
    longhaul.remember(&ada, note("2", "naps")).await.unwrap();
    let found = longhaul.recall(&ada, "tea", 9).await.unwrap();
    assert_eq!((found.len(), found[0].id), (1, id));
    assert_eq!(longhaul.notes(&ada, None, 9).await.unwrap().len(), 2);
    assert!(longhaul.forget_note(id).await.unwrap());
    assert_eq!(longhaul.clear_notes(&ada).await.unwrap(), 1);
}

/// Two turns whose results fill a window of 10,000 tokens, and then this.
fn full(then: Vec<Line>) -> Vec<Line> {
    let turn = |n| Line::call("act", json!({ "count": n }));
    (0..2).map(turn).chain(then).collect()
}

/// A tool whose result is long, and names something.
fn long_hand() -> Hand {
    Hand::new("act", Pure, &Deeds::default()).doing(|input, _| {
        let count = input["count"].as_u64().unwrap_or_default();
        let text = format!("see src/part_{count}.rs {}", "word ".repeat(2_700));
        async move { Ok(ToolOutput::text(text)) }.boxed()
    })
}

fn starts(journal: &[Entry]) -> Vec<(Purpose, Option<String>)> {
    let starts = journal.iter().filter_map(|entry| {
        let Event::TurnStarted(data) = &entry.event else {
            return None;
        };
        Some((data.purpose, data.model.clone()))
    });
    starts.collect()
}

#[tokio::test]
async fn a_conversation_is_shortened_before_a_provider_refuses_it() {
    let door = Door::shut();
    let mut lines = full(vec![Line::Text("We looked twice."), Line::Text("finished")]);
    lines[0] = lines[0].clone().behind(&door);
    let house = plan(lines).narrow(10_000).hands([long_hand()]).at_work();
    let run = house.submit().await;
    door.reached(1).await;
    let steer = "Never touch port 4180.";
    let told = house
        .longhaul
        .steer(run, steer, Delivery::AfterBatch, "cli:anna");
    told.await.unwrap();
    door.open();
    let journal = house.ended(run).await;
    assert_eq!(end(&journal), "finished");
    assert_eq!(count(&journal, "memory.compacted"), 1);
    assert_eq!(count(&journal, "turn.failed"), 0, "{:?}", kinds(&journal));
    let purposes: Vec<Purpose> = starts(&journal).iter().map(|start| start.0).collect();
    use Purpose::{Compact, Think};
    assert_eq!(purposes, [Think, Think, Compact, Think]);
    let asked = house.actor.asked();
    let heard = heard(asked.last().unwrap());
    let [after, newest] = &heard[..] else {
        panic!("{heard:?}");
    };
    assert_eq!(newest, steer, "the newest is kept as it is");
    let wanted = [
        "Do it.",
        "[longhaul] A summary of what was said and done since:\n\nWe looked twice.",
        "[longhaul] Also mentioned, word for word:\n\n- src/part_0.rs",
    ];
    let mut rest = after.as_str();
    for part in wanted {
        let (_, then) = rest.split_once(part).unwrap_or_else(|| panic!("{after}"));
        rest = then;
    }
    assert_eq!(house.actor.wrong(), [""; 0]);
    // The whole conversation is still in the journal.
    assert_eq!(count(&journal, "tool.completed"), 2);
    let mut exchanges = 0;
    let told = house.longhaul.exchanges(run, |_, _| exchanges += 1);
    told.await.unwrap();
    assert_eq!(exchanges, 4);
}

#[tokio::test]
async fn a_summary_that_fails_or_is_no_gain_changes_nothing() {
    let long: &'static str = "word ".repeat(10_000).leak();
    for line in [
        Line::Text(""),
        Line::Text(long),
        Line::CutShort("We looked tw"),
        Line::Fail(Auth),
        Line::Fail(RateLimit),
        Line::Panic,
    ] {
        let what = format!("{line:.20?}");
        let lines = full(vec![line, Line::Text("finished")]);
        let house = plan(lines).narrow(10_000).hands([long_hand()]).at_work();
        let run = house.submit().await;
        let journal = house.ended(run).await;
        assert_eq!(end(&journal), "finished", "{what}");
        assert_eq!(count(&journal, "memory.compacted"), 0, "{what}");
        assert_eq!(count(&journal, "turn.failed"), 1, "{what}");
        let asked = house.actor.asked();
        let last = asked.last().unwrap();
        assert_eq!(last.messages.len(), 5, "{what}: all of it is asked");
    }
}

#[tokio::test]
async fn another_model_sums_up_and_the_own_stands_in_for_it() {
    let check = async |helper: Line, sums: usize, own: usize| {
        let lines = full(vec![Line::Text("own summary"), Line::Text("finished")]);
        let lines = match own {
            0 => full(vec![Line::Text("finished")]),
            _ => lines,
        };
        let house = plan(lines)
            .narrow(10_000)
            .helped_by([helper])
            .hands([long_hand()])
            .at_work();
        let run = house.submit().await;
        let journal = house.ended(run).await;
        assert_eq!(end(&journal), "finished");
        assert_eq!(count(&journal, "memory.compacted"), 1);
        // The journal has one name for it, whatever it calls itself.
        let model = journal.iter().find_map(|entry| {
            let Event::MemoryCompacted(data) = &entry.event else {
                return None;
            };
            Some(data.model.as_str())
        });
        let own_name = house.actor.asked()[0].model.clone();
        let expected = if own == 0 { "other/helper" } else { &own_name };
        assert_eq!(model, Some(expected));
        let helped = house.models.helper.as_ref().unwrap().asked();
        assert_eq!(helped.len(), sums);
        assert_eq!(helped[0].model, "other/helper");
        assert!(heard(&helped[0]).last().unwrap().contains("Sum up all"));
        let named: Vec<_> = starts(&journal).into_iter().map(|start| start.1).collect();
        assert_eq!(named[2].as_deref(), Some("other/helper"));
        assert_eq!(named.iter().flatten().count(), 1);
        assert_eq!(house.actor.asked().len(), 3 + own);
    };
    check(Line::Text("helper's summary"), 1, 0).await;
    check(Line::Fail(Auth), 1, 1).await;
    check(Line::Text(" "), 1, 1).await;
}

#[tokio::test]
async fn a_worker_without_who_sums_up_says_so_and_asks_the_own_model() {
    let lines = full(vec![Line::Text("own summary"), Line::Text("finished")]);
    let plan = plan(lines).narrow(10_000).helped_by([]);
    let mut house = plan.hands([long_hand()]).open();
    house.models.helper_left.store(true, Ordering::Relaxed);
    house.hire(|_| {});
    let run = house.submit().await;
    let journal = house.ended(run).await;
    assert_eq!(end(&journal), "finished");
    let named: Vec<_> = starts(&journal).into_iter().map(|start| start.1).collect();
    let helper = || Some("other/helper".to_owned());
    assert_eq!(named, [None, None, helper(), None, None]);
    assert_eq!(count(&journal, "turn.failed"), 1, "{:?}", kinds(&journal));
    assert_eq!(count(&journal, "memory.compacted"), 1);
    assert_eq!(house.models.helper.as_ref().unwrap().asked().len(), 0);
}
