//! Secrets in the input of people and programs are redacted before a model reads or the store keeps
//! them.

use std::sync::Arc;

use futures_util::FutureExt as _;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::event::steer::SteerDelivery::AfterBatch;
use longhaul_core::event::steer::SteerMessage;
use longhaul_core::id::{CallId, InboxName, LaneKey, ResourceKey, SteerId, ThreadKey};
use longhaul_core::message::{
    Block, Message, Part, Reply, TextBlock, ThinkingBlock, ToolCall, ToolResult,
};
use longhaul_core::note::NewMemoryNote;
use longhaul_core::policy::effect::EffectClass::Once;
use longhaul_core::policy::gate::{
    ApprovalRequirement, GateDecision, GateRule, GateRuleAction, GateTimeoutAction,
};
use longhaul_core::port::tool::ToolFailure;
use longhaul_core::raw::RawJson;
use longhaul_core::task::TaskSource;
use longhaul_engine::Task;
use longhaul_engine::handle::ThreadMessage;
use serde_json::json;

use crate::suite::harness::model::FakeReply;
use crate::suite::harness::tool::{EffectLog, FakeTool};
use crate::suite::harness::{SECRET, TestEngine, answer, engine_with};

const PLACEHOLDER: &str = "{{secret:WORD}}";

/// Checks that the secret is nowhere, and that the journal has this number of placeholders.
pub(super) fn is_hidden(
    engine: &TestEngine,
    journal: &[JournalEntry],
    (label, min_count): (&str, usize),
) {
    let events = journal.iter().map(|entry| entry.event.encode().unwrap());
    let events: String = events.collect();
    assert!(!events.contains(SECRET), "{label}: {events}");
    let count = events.matches(PLACEHOLDER).count();
    assert!(count >= min_count, "{label}: {count} times in {events}");
    let requests = format!("{:?}", engine.model.requests());
    assert!(!requests.contains(SECRET), "{label}: {requests}");
}

/// A conversation with the secret in every possible field.
fn history() -> Vec<Message> {
    let extra = || Some(RawJson::from_serialize(&json!({ "cited": SECRET })));
    let reply = Reply {
        api: "scripted".into(),
        blocks: vec![
            Block::Thinking(ThinkingBlock {
                text: SECRET.into(),
                signature: Some("sealed".into()),
                extra: None,
            }),
            Block::Text(TextBlock { text: SECRET.into(), extra: extra() }),
            Block::Other(RawJson::from_serialize(&json!([SECRET]))),
            Block::ToolCall(ToolCall {
                id: "c".into(),
                name: "look".into(),
                input: RawJson::from_serialize(&json!({ "at": SECRET })),
                extra: extra(),
            }),
        ],
    };
    let result = ToolResult {
        call: CallId { turn: 1, index: 1 },
        id: "c".into(),
        content: vec![Part::Text(SECRET.into())],
        is_error: false,
    };
    vec![Message::user(SECRET), Message::Assistant(Arc::new(reply)), Message::Results(vec![result])]
}

#[tokio::test]
async fn tasks_are_stored_without_secrets() {
    type Change = fn(&mut Task);
    let table: [(&str, usize, Change); 6] = [
        ("the input", 1, |task| {
            task.input = RawJson::from_serialize(&json!({ "pin": SECRET }));
        }),
        ("the history", 7, |task| task.history = history()),
        ("the actor", 1, |task| {
            task.actor = Some(RawJson::from_serialize(&json!({ "token": SECRET })));
        }),
        ("the links", 1, |task| {
            task.links = Some(RawJson::from_serialize(&json!({ "at": SECRET })));
        }),
        ("the metadata", 1, |task| {
            task.metadata = Some(RawJson::from_serialize(&json!([SECRET])));
        }),
        ("the submitter", 1, |task| {
            task.submitter = Some(format!("cli:{SECRET}"));
        }),
    ];
    for (label, min_count, change) in table {
        let engine = engine_with([]).start();
        let mut task = Task::new("tester", "Do it.");
        change(&mut task);
        let run = engine.longhaul.submit(task).await.unwrap();
        is_hidden(&engine, &engine.ended(run).await, (label, min_count));
    }
}

#[tokio::test]
async fn names_and_tool_values_that_contain_a_secret_are_rejected() {
    type Change = fn(&mut Task, &str);
    let table: [(&str, Change); 11] = [
        ("the task's id or file name", |task, name| {
            let inbox = InboxName::new("mail").unwrap();
            task.source = Some(TaskSource { inbox, id: name.to_owned() });
        }),
        ("the thread", |task, name| {
            task.thread = Some(ThreadKey::new(name).unwrap());
        }),
        ("the resource", |task, name| {
            task.resource = Some(ResourceKey::new(name).unwrap());
        }),
        ("the lane", |task, name| {
            task.lane = Some(LaneKey::new(name).unwrap());
        }),
        ("the inbox", |task, name| {
            task.inbox = Some(InboxName::new(name).unwrap());
        }),
        ("the type", |task, name| task.kind = Some(name.to_owned())),
        ("the model", |task, name| task.model = Some(name.to_owned())),
        ("a tag", |task, name| task.tags = vec![name.to_owned()]),
        ("the idempotency key", |task, name| {
            task.idempotency_key = Some(name.to_owned());
        }),
        ("a name of the context", |task, name| {
            task.context = [(name.to_owned(), RawJson::from_serialize(&1))].into();
        }),
        ("`user` of the context", |task, name| {
            let value = RawJson::from_serialize(&json!({ "deep": [name] }));
            task.context = [("user".to_owned(), value)].into();
        }),
    ];
    let engine = engine_with([]).build();
    let assert_refused = |label: &str, message: String| {
        let is_expected =
            message.contains(label) && message.contains("`WORD`") && !message.contains(SECRET);
        assert!(is_expected, "{label}: {message}");
    };
    for (label, change) in table {
        let mut task = Task::new("tester", "Do it.");
        change(&mut task, SECRET);
        let message = engine.longhaul.submit(task).await.unwrap_err();
        assert_refused(label, message.to_string());
    }
    let (thread, ada) = (ThreadKey::new(SECRET).unwrap(), ResourceKey::new(SECRET).unwrap());
    let message = engine.longhaul.append_to_thread(&thread, Vec::new()).await;
    assert_refused("the thread", message.unwrap_err().to_string());
    let note = NewMemoryNote::new("1", "plain", Vec::new(), None).unwrap();
    let message = engine.longhaul.add_note(&ada, note).await.unwrap_err();
    assert_refused("the resource", message.to_string());
    assert!(!format!("{:?}", engine.store).contains(SECRET));
}

#[tokio::test]
async fn gate_answers_are_stored_without_secrets() {
    let table: [(&str, GateDecision); 3] = [
        ("an answer", GateDecision::Answer(SECRET.into())),
        ("a note", GateDecision::Answer("blue".into())),
        ("a payload", GateDecision::Answer("blue".into())),
    ];
    for (label, decision) in table {
        let engine =
            engine_with([FakeReply::call("ask_human", json!({ "question": "Which?" }))]).start();
        let run = engine.submit().await;
        let gate = engine.gate(run).await;
        let mut gate_answer = answer(&gate, decision);
        match label {
            "a note" => gate_answer.note = Some(SECRET.into()),
            "a payload" => {
                gate_answer.payload = Some(RawJson::from_serialize(&json!({ "with": SECRET })))
            }
            _ => {}
        }
        engine.longhaul.answer_gate(gate.spec.id, gate_answer).await.unwrap();
        is_hidden(&engine, &engine.ended(run).await, (label, 1));
    }
}

#[tokio::test]
async fn an_edit_that_contains_a_secret_is_rejected() {
    let effects = EffectLog::default();
    let rule = GateRule {
        tool: "act".into(),
        match_glob: None,
        action: GateRuleAction::Ask("May it?".into()),
        always: false,
        timeout: None,
        on_timeout: GateTimeoutAction::Reject,
        in_doubt: None,
        approvers: ApprovalRequirement::default(),
        remind: None,
        escalation: Vec::new(),
        tags: Vec::new(),
    };
    let engine = engine_with([FakeReply::call("act", json!({ "text": "one" }))])
        .tools([FakeTool::new("act", Once, &effects)])
        .agent(|agent| agent.rules = vec![rule])
        .start();
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    let edit = GateDecision::Edit(RawJson::from_serialize(&json!({ "text": SECRET })));
    let result = engine.longhaul.answer_gate(gate.spec.id, answer(&gate, edit));
    let result = result.await.unwrap_err().to_string();
    assert!(result.contains("holds the secret `WORD`"), "{result}");
    let result = answer(&gate, GateDecision::Approve);
    engine.longhaul.answer_gate(gate.spec.id, result).await.unwrap();
    is_hidden(&engine, &engine.ended(run).await, ("an edit", 0));
    assert!(!format!("{:?}", effects.all()).contains("WORD"));
}

#[tokio::test]
async fn the_reason_of_a_call_in_doubt_is_stored_without_secrets() {
    let tool = FakeTool::new("act", Once, &EffectLog::default());
    let tool = tool.with_action(|_, _| async { Err(ToolFailure::outcome_unknown(SECRET)) }.boxed());
    let engine = engine_with([FakeReply::call("act", json!({}))]).tools([tool]).start();
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    let question = gate.spec.ask.clone();
    assert!(question.starts_with(&format!("act was started. {PLACEHOLDER}. ")), "{question}");
    let answering = engine.longhaul.answer_gate(gate.spec.id, answer(&gate, GateDecision::Reject));
    answering.await.unwrap();
    is_hidden(&engine, &engine.ended(run).await, ("a doubt", 2));
}

#[tokio::test]
async fn messages_to_a_run_are_stored_without_secrets() {
    let engine = engine_with([FakeReply::call("wait", json!({ "signal": "go" }))]).start();
    let run = engine.submit().await;
    engine.gate(run).await;
    let by = &format!("cli:{SECRET}");
    let longhaul = &engine.longhaul;
    longhaul.steer(run, SECRET, AfterBatch, by).await.unwrap();
    let message = |bits, text: &str| SteerMessage {
        steer: SteerId::from_bits(bits),
        text: text.to_owned(),
        delivery: AfterBatch,
        by: by.clone(),
        is_task: false,
    };
    let once = longhaul.steer_idempotently(run, message(7, SECRET)).await;
    once.unwrap();
    let plain = longhaul.steer_idempotently(run, message(8, "plain")).await;
    plain.unwrap();
    let changed = longhaul.update_steer(run, message(8, SECRET)).await;
    // The message may have been delivered already; in that case nothing was written.
    drop(changed);
    longhaul.cancel_run(run, by, SECRET).await.unwrap();
    is_hidden(&engine, &engine.ended(run).await, ("steers", 3));
    let view = longhaul.get_run(run).await.unwrap();
    assert!(!format!("{view:?}").contains(SECRET));
}

#[tokio::test]
async fn threads_and_notes_of_programs_are_stored_without_secrets() {
    let engine = engine_with([]).build();
    let longhaul = &engine.longhaul;
    let (thread, ada) = (ThreadKey::new("support").unwrap(), ResourceKey::new("ada").unwrap());
    let messages =
        vec![ThreadMessage::User(SECRET.into()), ThreadMessage::Assistant(SECRET.into())];
    longhaul.append_to_thread(&thread, messages).await.unwrap();
    let stored = format!("{:?}", longhaul.thread_messages(&thread, 9).await.unwrap());
    let note = NewMemoryNote::new("1", SECRET, vec![SECRET.into()], None).unwrap();
    longhaul.add_note(&ada, note).await.unwrap();
    let notes =
        format!("{:?}", longhaul.services().records.list_notes(&ada, None, 9).await.unwrap());
    for (stored, expected_count) in [(stored, 2), (notes, 2)] {
        assert!(!stored.contains(SECRET), "{stored}");
        assert_eq!(stored.matches(PLACEHOLDER).count(), expected_count, "{stored}");
    }
}
