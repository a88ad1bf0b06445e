//! Tests of memory: threads and notes through the handle, and compaction of long conversations.

use std::sync::atomic::Ordering;

use futures_util::FutureExt as _;
use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::event::run::CompactionPolicy;
use longhaul_core::event::steer::SteerDelivery;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::event::turn::ModelCallPurpose;
use longhaul_core::failure::FailureClass::{Auth, RateLimit};
use longhaul_core::id::{ResourceKey, ThreadKey};
use longhaul_core::message::Message;
use longhaul_core::note::{AddNoteOutcome, NewMemoryNote};
use longhaul_core::policy::effect::EffectClass::Pure;
use longhaul_core::raw::StoredText;
use longhaul_engine::Task;
use longhaul_engine::handle::ThreadMessage;
use serde_json::json;

use crate::suite::harness::model::{FakeReply, user_texts};
use crate::suite::harness::tool::{EffectLog, FakeTool};
use crate::suite::harness::{count, engine_with, kinds, outcome_text};
use longhaul_testkit::latch::Latch;

fn thread_key() -> ThreadKey {
    ThreadKey::new("support").unwrap()
}

#[tokio::test]
async fn a_thread_has_the_messages_of_completed_runs_and_programs() {
    let engine = engine_with([FakeReply::Text("Hello Ada.")]).start();
    let longhaul = &engine.longhaul;
    let messages =
        vec![ThreadMessage::User("I am Ada.".into()), ThreadMessage::Assistant("Noted.".into())];
    longhaul.append_to_thread(&thread_key(), messages).await.unwrap();
    assert_eq!(longhaul.thread_message_count(&thread_key()).await.unwrap(), 2);
    let mut task = Task::new("tester", "Who am I?");
    task.thread = Some(thread_key());
    let run = longhaul.submit(task).await.unwrap();
    engine.ended(run).await;
    assert_eq!(engine.user_texts(), ["I am Ada.", "Who am I?"]);
    let thread = longhaul.thread_messages(&thread_key(), 50).await.unwrap();
    assert_eq!(thread.len(), 4);
    assert_eq!(thread[2], Message::user("Who am I?"));
    let newest = longhaul.thread_messages(&thread_key(), 1).await.unwrap();
    assert_eq!(newest, thread[3..]);
    longhaul.clear_thread(&thread_key()).await.unwrap();
    assert_eq!(longhaul.thread_message_count(&thread_key()).await.unwrap(), 0);
    let long = vec![ThreadMessage::User("x".repeat(1_048_577))];
    let error = longhaul.append_to_thread(&thread_key(), long).await.unwrap_err();
    assert_eq!(error.code(), "too_long");
}

#[tokio::test]
async fn a_long_answer_does_not_displace_earlier_thread_messages() {
    let report: &'static str = format!("The report. {}The end.", "word ".repeat(2_000)).leak();
    let engine = engine_with([FakeReply::Text(report), FakeReply::Text("Shorter.")])
        .agent(|agent| {
            agent.prompt =
                "{% for one in memory %}<{{ one.role }}: {{ one.text[:11] }}>{% endfor %}".into();
        })
        .start();
    for prompt in ["Write the report.", "Now shorten it."] {
        let mut task = Task::new("tester", prompt);
        task.thread = Some(thread_key());
        let run = engine.longhaul.submit(task).await.unwrap();
        engine.ended(run).await;
    }
    let requests = engine.model.requests();
    let messages = &requests[1].messages;
    assert_eq!(messages.len(), 3);
    assert_eq!(*messages[0], Message::user("Write the report."));
    let Message::Assistant(reply) = &*messages[1] else {
        panic!("{messages:?}");
    };
    let text = reply.text();
    assert!(text.starts_with("The report. ") && text.ends_with("The end."));
    let marker = format!(" of {} characters are left out here.", report.len());
    assert!(text.contains(&marker) && text.len() < 8_000, "{text}");
    let StoredText::Inline(system) = &requests[1].system else {
        panic!("a model must not get blob references");
    };
    assert!(system.starts_with("<user: Write the r><assistant: The report.>"), "{system}");
    // The stored thread has the full message.
    let thread = engine.longhaul.thread_messages(&thread_key(), 50).await.unwrap();
    assert!(matches!(&thread[1], Message::Assistant(reply) if reply.text() == report));
}

#[tokio::test]
async fn programs_add_search_and_delete_notes() {
    let engine = engine_with([]).build();
    let (longhaul, ada) = (&engine.longhaul, ResourceKey::new("ada").unwrap());
    let note = |key: &str, text: &str| NewMemoryNote::new(key, text, Vec::new(), None).unwrap();
    let outcome = longhaul.add_note(&ada, note("1", "likes tea")).await.unwrap();
    let AddNoteOutcome::Stored(id) = outcome else {
        panic!("{outcome:?}");
    };
    let outcome = longhaul.add_note(&ada, note("1", "other")).await.unwrap();
    assert_eq!(outcome, AddNoteOutcome::Existing(id));
    longhaul.add_note(&ada, note("2", "naps")).await.unwrap();
    let found = longhaul.services().records.search_notes(&ada, "tea", 9).await.unwrap();
    assert_eq!((found.len(), found[0].id), (1, id));
    assert_eq!(longhaul.services().records.list_notes(&ada, None, 9).await.unwrap().len(), 2);
    assert!(longhaul.services().records.delete_note(id).await.unwrap());
    assert_eq!(longhaul.services().records.clear_notes(&ada).await.unwrap(), 1);
}

/// Two turns whose results fill a window of 10,000 tokens, followed by these replies.
fn full_window(replies: Vec<FakeReply>) -> Vec<FakeReply> {
    let turn = |n| FakeReply::call("act", json!({ "count": n }));
    (0..2).map(turn).chain(replies).collect()
}

/// A tool with a long result that contains an identifier.
fn long_tool() -> FakeTool {
    FakeTool::new("act", Pure, &EffectLog::default()).with_action(|input, _| {
        let count = input["count"].as_u64().unwrap_or_default();
        let text = format!("see src/part_{count}.rs {}", "word ".repeat(2_700));
        async move { Ok(ToolOutput::text(text)) }.boxed()
    })
}

fn starts(journal: &[JournalEntry]) -> Vec<(ModelCallPurpose, Option<String>)> {
    let starts = journal.iter().filter_map(|entry| {
        let Event::TurnStarted(data) = &entry.event else {
            return None;
        };
        Some((data.purpose, data.model.clone()))
    });
    starts.collect()
}

#[tokio::test]
async fn a_conversation_is_compacted_before_the_provider_rejects_it() {
    let latch = Latch::closed();
    let mut replies =
        full_window(vec![FakeReply::Text("We looked twice."), FakeReply::Text("finished")]);
    replies[0] = replies[0].clone().after_latch(&latch);
    let engine = engine_with(replies).window_tokens(10_000).tools([long_tool()]).start();
    let run = engine.submit().await;
    latch.reached(1).await;
    let steer = "Never touch port 4180.";
    let send = engine.longhaul.steer(run, steer, SteerDelivery::AfterBatch, "cli:anna");
    send.await.unwrap();
    latch.open();
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "finished");
    assert_eq!(count(&journal, "memory.compacted"), 1);
    assert_eq!(count(&journal, "turn.failed"), 0, "{:?}", kinds(&journal));
    let purposes: Vec<ModelCallPurpose> = starts(&journal).iter().map(|start| start.0).collect();
    use ModelCallPurpose::{Compact, Turn};
    assert_eq!(purposes, [Turn, Turn, Compact, Turn]);
    let requests = engine.model.requests();
    let texts = user_texts(requests.last().unwrap());
    let [after, newest] = &texts[..] else {
        panic!("{texts:?}");
    };
    assert_eq!(newest, steer, "the newest message is kept unchanged");
    let expected = [
        "Do it.",
        "[longhaul] A summary of what was said and done since:\n\nWe looked twice.",
        "[longhaul] Also mentioned, word for word:\n\n- src/part_0.rs",
    ];
    let mut rest = after.as_str();
    for part in expected {
        let (_, remaining) = rest.split_once(part).unwrap_or_else(|| panic!("{after}"));
        rest = remaining;
    }
    assert_eq!(engine.model.violations(), [""; 0]);
    // The whole conversation is still in the journal.
    assert_eq!(count(&journal, "tool.completed"), 2);
    let mut exchanges = 0;
    let calls = engine.longhaul.for_each_model_call(run, |_, _| exchanges += 1);
    calls.await.unwrap();
    assert_eq!(exchanges, 4);
}

#[tokio::test]
async fn an_agent_sets_when_its_conversation_is_compacted_and_what_is_kept() {
    let replies =
        full_window(vec![FakeReply::Text("We looked twice."), FakeReply::Text("finished")]);
    // At the default threshold, this window would not be full.
    let engine = engine_with(replies)
        .window_tokens(14_000)
        .tools([long_tool()])
        .agent(|agent| {
            let keep = Some("the plan".to_owned());
            agent.compaction = Some(CompactionPolicy { at_percent: Some(50), keep });
        })
        .start();
    let run = engine.submit().await;
    let journal = engine.ended(run).await;
    assert_eq!(count(&journal, "memory.compacted"), 1, "{:?}", kinds(&journal));
    let requests = engine.model.requests();
    let is_kept = |text: &String| text.ends_with("Also keep: the plan");
    let with_guidance = requests.iter().filter(|request| user_texts(request).iter().any(is_kept));
    assert_eq!(with_guidance.count(), 1, "only the summary request has it");
    let transcript = engine.longhaul.transcript(run).await.unwrap();
    let [compaction] = &transcript.compactions[..] else {
        panic!("{:?}", transcript.compactions);
    };
    assert_eq!((compaction.after_turn, compaction.replaced_messages), (2, 3));
}

#[tokio::test]
async fn a_failed_or_useless_summary_changes_nothing() {
    let long: &'static str = "word ".repeat(10_000).leak();
    for reply in [
        FakeReply::Text(""),
        FakeReply::Text(long),
        FakeReply::MaxTokens("We looked tw"),
        FakeReply::Fail(Auth),
        FakeReply::Fail(RateLimit),
        FakeReply::Panic,
    ] {
        let label = format!("{reply:.20?}");
        let replies = full_window(vec![reply, FakeReply::Text("finished")]);
        let engine = engine_with(replies).window_tokens(10_000).tools([long_tool()]).start();
        let run = engine.submit().await;
        let journal = engine.ended(run).await;
        assert_eq!(outcome_text(&journal), "finished", "{label}");
        assert_eq!(count(&journal, "memory.compacted"), 0, "{label}");
        assert_eq!(count(&journal, "turn.failed"), 1, "{label}");
        let requests = engine.model.requests();
        let last = requests.last().unwrap();
        assert_eq!(last.messages.len(), 5, "{label}: all of it is asked");
    }
}

#[tokio::test]
async fn the_compaction_model_falls_back_to_the_agents_model() {
    let check = async |reply: FakeReply, compactor_count: usize, own_count: usize| {
        let replies =
            full_window(vec![FakeReply::Text("own summary"), FakeReply::Text("finished")]);
        let replies = match own_count {
            0 => full_window(vec![FakeReply::Text("finished")]),
            _ => replies,
        };
        let engine = engine_with(replies)
            .window_tokens(10_000)
            .compactor([reply])
            .tools([long_tool()])
            .start();
        let run = engine.submit().await;
        let journal = engine.ended(run).await;
        assert_eq!(outcome_text(&journal), "finished");
        assert_eq!(count(&journal, "memory.compacted"), 1);
        // The journal has the resolved name of the model, whatever the model reports.
        let model = journal.iter().find_map(|entry| {
            let Event::MemoryCompacted(data) = &entry.event else {
                return None;
            };
            Some(data.model.as_str())
        });
        let own_model = engine.model.requests()[0].model.clone();
        let expected = if own_count == 0 { "other/helper" } else { &own_model };
        assert_eq!(model, Some(expected));
        let compactor_requests = engine.models.compactor.as_ref().unwrap().requests();
        assert_eq!(compactor_requests.len(), compactor_count);
        assert_eq!(compactor_requests[0].model, "other/helper");
        assert!(user_texts(&compactor_requests[0]).last().unwrap().contains("Sum up all"));
        let models: Vec<_> = starts(&journal).into_iter().map(|start| start.1).collect();
        assert_eq!(models[2].as_deref(), Some("other/helper"));
        assert_eq!(models.iter().flatten().count(), 1);
        assert_eq!(engine.model.requests().len(), 3 + own_count);
    };
    check(FakeReply::Text("helper's summary"), 1, 0).await;
    check(FakeReply::Fail(Auth), 1, 1).await;
    check(FakeReply::Text(" "), 1, 1).await;
}

#[tokio::test]
async fn a_missing_compaction_model_is_reported_and_replaced_by_the_agents() {
    let replies = full_window(vec![FakeReply::Text("own summary"), FakeReply::Text("finished")]);
    let builder = engine_with(replies).window_tokens(10_000).compactor([]);
    let mut engine = builder.tools([long_tool()]).build();
    engine.models.compactor_missing.store(true, Ordering::Relaxed);
    engine.spawn_worker(|_| {});
    let run = engine.submit().await;
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "finished");
    let models: Vec<_> = starts(&journal).into_iter().map(|start| start.1).collect();
    let helper = || Some("other/helper".to_owned());
    assert_eq!(models, [None, None, helper(), None, None]);
    assert_eq!(count(&journal, "turn.failed"), 1, "{:?}", kinds(&journal));
    assert_eq!(count(&journal, "memory.compacted"), 1);
    assert_eq!(engine.models.compactor.as_ref().unwrap().requests().len(), 0);
}
