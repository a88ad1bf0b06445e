//! Tests of forking runs and of comparing them.

use futures_util::FutureExt as _;
use longhaul_api::fork::{EditedResult, ForkBody, ForkEditBody, RunDiffView};
use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::id::{LaneKey, RunId, Seq, ThreadKey};
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::records::RecordStore as _;
use longhaul_engine::Task;
use longhaul_engine::handle::SubmitOutcome;
use serde_json::json;

use crate::suite::harness::model::FakeReply;
use crate::suite::harness::tool::{EffectLog, FakeTool};
use crate::suite::harness::{TestEngine, count, engine_with, outcome_text};

/// Starts an engine whose first run sends something, reports progress and ends.
fn engine_with_three_turns(effects: &EffectLog) -> TestEngine {
    let send = FakeTool::new("send", EffectClass::Once, effects)
        .with_action(|_, _| async { Ok(ToolOutput::text("sent")) }.boxed());
    let replies = [
        FakeReply::call("send", json!({})),
        FakeReply::call("report_progress", json!({ "message": "half" })),
        FakeReply::Text("Done."),
    ];
    engine_with(replies)
        .tools([send])
        .agent(|agent| agent.budget.caps.tokens = Some(200_000))
        .start()
}

/// Returns the event with which this turn starts.
fn turn_start(journal: &[JournalEntry], turn: u32) -> Seq {
    let is_start = |entry: &&JournalEntry| matches!(&entry.event, Event::TurnStarted(started) if started.turn == turn);
    journal.iter().find(is_start).unwrap().seq
}

async fn fork(engine: &TestEngine, run: RunId, body: ForkBody) -> RunId {
    engine.longhaul.fork(run, body, "cli:anna", None).await.unwrap().run_ids()[0]
}

#[tokio::test]
async fn a_fork_repeats_no_effect_and_draws_on_the_same_budget() {
    let effects = EffectLog::default();
    let engine = engine_with_three_turns(&effects);
    let origin = engine.submit().await;
    let journal = engine.ended(origin).await;
    let account = async |run| engine.store.budget_account(run).await.unwrap().unwrap();
    let spent = account(origin).await.spent.tokens;
    engine.model.set_replies(vec![FakeReply::Text("Other.")]);
    let before = turn_start(&journal, 2);
    let note = "another try".to_owned();
    let forked = fork(&engine, origin, ForkBody { before, note, ..ForkBody::default() }).await;
    let copy = engine.ended(forked).await;
    assert_eq!(outcome_text(&copy), "Other.");
    assert_eq!(effects.count("send begins"), 1, "{:?}", effects.all());
    assert_eq!(engine.results(), [("sent".to_owned(), false)]);
    assert_eq!(account(forked).await, account(origin).await);
    assert_eq!(account(origin).await.spent.tokens, spent + 15, "one more turn");
    let view = engine.longhaul.get_run(forked).await.unwrap();
    assert_eq!((view.turns, view.root, view.retry_of), (1, forked, None));
    let from = view.forked_from.unwrap();
    assert_eq!(
        (from.run, from.through.next(), from.note.as_str()),
        (origin, before, "another try")
    );
    // A fork of the fork, and a fork of an open run, have the same account.
    let again = fork(&engine, forked, ForkBody { before, ..ForkBody::default() }).await;
    engine.ended(again).await;
    assert_eq!(account(again).await, account(origin).await);
}

#[tokio::test]
async fn an_edited_message_and_an_edited_result_are_what_the_model_reads() {
    let engine = engine_with_three_turns(&EffectLog::default());
    let origin = engine.submit().await;
    let journal = engine.ended(origin).await;
    let before = turn_start(&journal, 2);
    engine.model.set_replies(vec![FakeReply::Text("a")]);
    let edit = Some(ForkEditBody::Message("Do it twice.".to_owned()));
    let forked = fork(&engine, origin, ForkBody { before, edit, ..ForkBody::default() }).await;
    engine.ended(forked).await;
    assert_eq!(engine.user_texts(), ["Do it twice."]);
    let text = "not sent".to_owned();
    let edit = EditedResult { call: "t1.1".parse().unwrap(), text };
    let edit = Some(ForkEditBody::Result(edit));
    let forked = fork(&engine, origin, ForkBody { before, edit, ..ForkBody::default() }).await;
    let copy = engine.ended(forked).await;
    assert_eq!(engine.results(), [("not sent".to_owned(), false)]);
    let authors = copy.iter().filter_map(|entry| {
        let Event::RunForked(data) = &entry.event else { return None };
        Some(data.by.as_str())
    });
    assert_eq!(authors.collect::<Vec<_>>(), ["cli:anna"]);
}

#[tokio::test]
async fn a_fork_keeps_the_agent_version_unless_it_names_an_agent() {
    let engine = engine_with_three_turns(&EffectLog::default());
    let origin = engine.submit().await;
    let journal = engine.ended(origin).await;
    let before = turn_start(&journal, 3);
    let mut changed = (*engine.longhaul.get_agent("tester").unwrap()).clone();
    changed.prompt = "You are changed.".into();
    engine.longhaul.register(changed);
    let old_version = engine.longhaul.get_run(origin).await.unwrap().agent_version;
    let version_and_system = async |agent: Option<&str>| {
        engine.model.set_replies(vec![FakeReply::Text("Other.")]);
        let agent = agent.map(str::to_owned);
        let forked = fork(&engine, origin, ForkBody { before, agent, ..ForkBody::default() }).await;
        let copy = engine.ended(forked).await;
        assert_eq!(outcome_text(&copy), "Other.");
        let system = engine.longhaul.transcript(forked).await.unwrap().system.unwrap();
        let is_old = engine.longhaul.get_run(forked).await.unwrap().agent_version == old_version;
        (is_old, system.contains("You are changed."), count(&copy, "run.prepared"))
    };
    assert_eq!(version_and_system(None).await, (true, false, 1));
    assert_eq!(version_and_system(Some("tester")).await, (false, true, 2));
    let agent = Some("testr".to_owned());
    let body = ForkBody { before, agent, ..ForkBody::default() };
    let error = engine.longhaul.fork(origin, body, "cli:anna", None).await.unwrap_err();
    assert_eq!(error.code(), "agent_not_found");
}

#[tokio::test]
async fn an_open_run_is_forked_and_joins_its_lane_but_not_its_thread() {
    let engine =
        engine_with([FakeReply::call("ask_human", json!({ "question": "Which?" }))]).start();
    let mut task = Task::new("tester", "Do it.");
    task.lane = Some(LaneKey::new("a").unwrap());
    task.thread = Some(ThreadKey::new("t").unwrap());
    let origin = engine.longhaul.submit(task).await.unwrap();
    engine.gate(origin).await;
    let forked = fork(&engine, origin, ForkBody { before: Seq(1), ..ForkBody::default() }).await;
    let view = engine.longhaul.get_run(forked).await.unwrap();
    assert_eq!((view.lane.as_deref(), view.gates.len()), (Some("a"), 0));
    engine.longhaul.cancel_run(origin, "cli:anna", "").await.unwrap();
    engine.model.set_replies(vec![FakeReply::Text("Done.")]);
    assert_eq!(outcome_text(&engine.ended(forked).await), "Done.");
    let messages = engine.store.thread_messages(&ThreadKey::new("t").unwrap(), 10).await.unwrap();
    assert!(messages.is_empty(), "{messages:?}");
}

#[tokio::test]
async fn a_fork_with_an_idempotency_key_is_created_once() {
    let engine = engine_with([FakeReply::Text("Done.")]).start();
    let origin = engine.submit().await;
    engine.ended(origin).await;
    let forked = async |before| {
        let body = ForkBody { before: Seq(before), ..ForkBody::default() };
        engine.longhaul.fork(origin, body, "cli:anna", Some("k".to_owned())).await
    };
    let SubmitOutcome::Created(created) = forked(1).await.unwrap() else { panic!("not created") };
    assert_eq!(forked(1).await.unwrap(), SubmitOutcome::Existing(created));
    assert_eq!(forked(2).await.unwrap_err().code(), "idempotency_key_reused");
}

#[tokio::test]
async fn a_diff_names_the_common_events_and_the_first_difference() {
    let engine = engine_with_three_turns(&EffectLog::default());
    let origin = engine.submit().await;
    let journal = engine.ended(origin).await;
    let before = turn_start(&journal, 3);
    engine.model.set_replies(vec![FakeReply::Text("Other.")]);
    let forked = fork(&engine, origin, ForkBody { before, ..ForkBody::default() }).await;
    engine.ended(forked).await;
    let diff = async |a, b| engine.longhaul.diff_runs(a, b).await.unwrap();
    let same = |diff: &RunDiffView| diff.turns.iter().map(|row| row.same).collect::<Vec<_>>();
    let fork_diff = diff(origin, forked).await;
    assert_eq!(fork_diff.same_through.unwrap().next(), before);
    assert_eq!(same(&fork_diff), [true, true, false]);
    let first = fork_diff.first_difference.unwrap();
    let texts = (first.turn, first.a.as_deref(), first.b.as_deref());
    assert_eq!(texts, (3, Some("says: Done."), Some("says: Other.")));
    assert_eq!((fork_diff.a.turns, fork_diff.b.turns), (3, 3));
    assert_eq!((fork_diff.a.tool_calls, fork_diff.b.tokens), (2, 45));
    let with_itself = diff(origin, origin).await;
    assert_eq!(with_itself.same_through, journal.last().map(|last| last.seq));
    assert!(with_itself.first_difference.is_none());
    engine.model.set_replies(vec![FakeReply::Text("Done.")]);
    let other = engine.submit().await;
    engine.ended(other).await;
    let other_diff = diff(origin, other).await;
    assert_eq!((other_diff.same_through, same(&other_diff)), (None, vec![false; 3]));
    assert_eq!(other_diff.first_difference.unwrap().b.as_deref(), Some("says: Done."));
    let unknown = engine.longhaul.diff_runs(origin, RunId::from_bits(1)).await.unwrap_err();
    assert_eq!(unknown.code(), "run_not_found");
}
