//! Secrets that people and programs say by accident: at every door they are taken
//! out, before a model reads them or anything keeps them.

use std::sync::Arc;

use futures_util::FutureExt as _;
use longhaul_core::event::entry::Entry;
use longhaul_core::event::steer::Delivery::AfterBatch;
use longhaul_core::event::steer::SteerMessage;
use longhaul_core::id::{CallId, InboxName, LaneKey, ResourceKey, SteerId, ThreadKey};
use longhaul_core::message::{Block, Message, Part, Reply, Thinking, ToolCall, ToolResult, Words};
use longhaul_core::note::NewNote;
use longhaul_core::policy::effect::EffectClass::Once;
use longhaul_core::policy::gate::{Approvers, Decision, GateRule, OnTimeout, Verdict};
use longhaul_core::port::tool::ToolFailure;
use longhaul_core::raw::RawJson;
use longhaul_engine::Task;
use longhaul_engine::handle::Said;
use serde_json::json;

use crate::suite::house::model::Line;
use crate::suite::house::tool::{Deeds, Hand};
use crate::suite::house::{House, SECRET, answer, plan};

const HIDDEN: &str = "{{secret:WORD}}";

/// It stands nowhere, and what stands for it does so often in the journal.
pub(super) fn is_hidden(house: &House, journal: &[Entry], (what, often): (&str, usize)) {
    let written = journal.iter().map(|entry| entry.event.encode().unwrap());
    let written: String = written.collect();
    assert!(!written.contains(SECRET), "{what}: {written}");
    let count = written.matches(HIDDEN).count();
    assert!(count >= often, "{what}: {count} times in {written}");
    let asked = format!("{:?}", house.actor.asked());
    assert!(!asked.contains(SECRET), "{what}: {asked}");
}

/// A conversation with a secret wherever one can be.
fn history() -> Vec<Message> {
    let extra = || Some(RawJson::of(&json!({ "cited": SECRET })));
    let reply = Reply {
        dialect: "scripted".into(),
        blocks: vec![
            Block::Thinking(Thinking {
                text: SECRET.into(),
                signature: Some("sealed".into()),
                extra: None,
            }),
            Block::Text(Words {
                text: SECRET.into(),
                extra: extra(),
            }),
            Block::Other(RawJson::of(&json!([SECRET]))),
            Block::ToolCall(ToolCall {
                id: "c".into(),
                name: "look".into(),
                input: RawJson::of(&json!({ "at": SECRET })),
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
    vec![
        Message::user(SECRET),
        Message::Assistant(Arc::new(reply)),
        Message::Results(vec![result]),
    ]
}

#[tokio::test]
async fn what_comes_with_a_task_has_none() {
    type Change = fn(&mut Task);
    let table: [(&str, usize, Change); 6] = [
        ("the input", 1, |task| {
            task.input = RawJson::of(&json!({ "pin": SECRET }));
        }),
        ("the history", 7, |task| task.history = history()),
        ("the actor", 1, |task| {
            task.actor = Some(RawJson::of(&json!({ "token": SECRET })));
        }),
        ("the links", 1, |task| {
            task.links = Some(RawJson::of(&json!({ "at": SECRET })));
        }),
        ("the metadata", 1, |task| {
            task.metadata = Some(RawJson::of(&json!([SECRET])));
        }),
        ("the submitter", 1, |task| {
            task.submitter = Some(format!("cli:{SECRET}"));
        }),
    ];
    for (what, often, change) in table {
        let house = plan([]).at_work();
        let mut task = Task::new("tester", "Do it.");
        change(&mut task);
        let run = house.longhaul.submit(task).await.unwrap();
        is_hidden(&house, &house.ended(run).await, (what, often));
    }
}

#[tokio::test]
async fn a_name_or_a_value_for_tools_that_is_one_is_refused() {
    type Change = fn(&mut Task, &str);
    let table: [(&str, Change); 10] = [
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
            task.context = [(name.to_owned(), RawJson::of(&1))].into();
        }),
        ("`user` of the context", |task, name| {
            let value = RawJson::of(&json!({ "deep": [name] }));
            task.context = [("user".to_owned(), value)].into();
        }),
    ];
    let house = plan([]).open();
    let refused = |what: &str, said: String| {
        let right = said.contains(what) && said.contains("`WORD`") && !said.contains(SECRET);
        assert!(right, "{what}: {said}");
    };
    for (what, change) in table {
        let mut task = Task::new("tester", "Do it.");
        change(&mut task, SECRET);
        let said = house.longhaul.submit(task).await.unwrap_err();
        refused(what, said.to_string());
    }
    let (thread, ada) = (
        ThreadKey::new(SECRET).unwrap(),
        ResourceKey::new(SECRET).unwrap(),
    );
    let said = house.longhaul.add_to_thread(&thread, Vec::new()).await;
    refused("the thread", said.unwrap_err().to_string());
    let note = NewNote::new("1", "plain", Vec::new(), None).unwrap();
    let said = house.longhaul.remember(&ada, note).await.unwrap_err();
    refused("the resource", said.to_string());
    assert!(!format!("{:?}", house.store).contains(SECRET));
}

#[tokio::test]
async fn what_is_said_at_a_gate_has_none() {
    let table: [(&str, Decision); 3] = [
        ("an answer", Decision::Answer(SECRET.into())),
        ("a note", Decision::Answer("blue".into())),
        ("a payload", Decision::Answer("blue".into())),
    ];
    for (what, decision) in table {
        let house = plan([Line::call("ask_human", json!({ "question": "Which?" }))]).at_work();
        let run = house.submit().await;
        let gate = house.gate(run).await;
        let mut said = answer(&gate, decision);
        match what {
            "a note" => said.note = Some(SECRET.into()),
            "a payload" => said.payload = Some(RawJson::of(&json!({ "with": SECRET }))),
            _ => {}
        }
        house.longhaul.answer(gate.spec.id, said).await.unwrap();
        is_hidden(&house, &house.ended(run).await, (what, 1));
    }
}

#[tokio::test]
async fn an_edit_that_holds_one_is_refused() {
    let deeds = Deeds::default();
    let rule = GateRule {
        tool: "act".into(),
        subject: None,
        verdict: Verdict::Ask("May it?".into()),
        always: false,
        timeout: None,
        on_timeout: OnTimeout::Reject,
        in_doubt: None,
        approvers: Approvers::default(),
        remind: None,
    };
    let house = plan([Line::call("act", json!({ "text": "one" }))])
        .hands([Hand::new("act", Once, &deeds)])
        .agent(|agent| agent.rules = vec![rule])
        .at_work();
    let run = house.submit().await;
    let gate = house.gate(run).await;
    let edit = Decision::Edit(RawJson::of(&json!({ "text": SECRET })));
    let said = house.longhaul.answer(gate.spec.id, answer(&gate, edit));
    let said = said.await.unwrap_err().to_string();
    assert!(said.contains("holds the secret `WORD`"), "{said}");
    let said = answer(&gate, Decision::Approve);
    house.longhaul.answer(gate.spec.id, said).await.unwrap();
    is_hidden(&house, &house.ended(run).await, ("an edit", 0));
    assert!(!format!("{:?}", deeds.all()).contains("WORD"));
}

#[tokio::test]
async fn why_nobody_knows_what_came_of_a_call_has_none() {
    let hand = Hand::new("act", Once, &Deeds::default());
    let hand = hand.doing(|_, _| async { Err(ToolFailure::unknown(SECRET)) }.boxed());
    let house = plan([Line::call("act", json!({}))]).hands([hand]).at_work();
    let run = house.submit().await;
    let gate = house.gate(run).await;
    let asked = gate.spec.ask.clone();
    assert!(
        asked.starts_with(&format!("act was begun. {HIDDEN}. ")),
        "{asked}"
    );
    let said = house
        .longhaul
        .answer(gate.spec.id, answer(&gate, Decision::Reject));
    said.await.unwrap();
    is_hidden(&house, &house.ended(run).await, ("a doubt", 2));
}

#[tokio::test]
async fn what_is_written_to_a_run_has_none() {
    let house = plan([Line::call("wait", json!({ "signal": "go" }))]).at_work();
    let run = house.submit().await;
    house.gate(run).await;
    let by = &format!("cli:{SECRET}");
    let longhaul = &house.longhaul;
    longhaul.steer(run, SECRET, AfterBatch, by).await.unwrap();
    let message = |bits, text: &str| SteerMessage {
        steer: SteerId::from_bits(bits),
        text: text.to_owned(),
        delivery: AfterBatch,
        by: by.clone(),
    };
    let once = longhaul.steer_once(run, message(7, SECRET)).await;
    once.unwrap();
    let plain = longhaul.steer_once(run, message(8, "plain")).await;
    plain.unwrap();
    let changed = longhaul.change_steer(run, message(8, SECRET)).await;
    // It may have been read by now; then nothing was written.
    drop(changed);
    longhaul.cancel(run, by, SECRET).await.unwrap();
    is_hidden(&house, &house.ended(run).await, ("steers", 3));
    let shown = longhaul.show(run).await.unwrap();
    assert!(!format!("{shown:?}").contains(SECRET));
}

#[tokio::test]
async fn what_programs_keep_has_none() {
    let house = plan([]).open();
    let longhaul = &house.longhaul;
    let (thread, ada) = (
        ThreadKey::new("letters").unwrap(),
        ResourceKey::new("ada").unwrap(),
    );
    let said = vec![Said::User(SECRET.into()), Said::Assistant(SECRET.into())];
    longhaul.add_to_thread(&thread, said).await.unwrap();
    let kept = format!("{:?}", longhaul.thread(&thread, 9).await.unwrap());
    let note = NewNote::new("1", SECRET, vec![SECRET.into()], None).unwrap();
    longhaul.remember(&ada, note).await.unwrap();
    let noted = format!("{:?}", longhaul.notes(&ada, None, 9).await.unwrap());
    for (kept, often) in [(kept, 2), (noted, 2)] {
        assert!(!kept.contains(SECRET), "{kept}");
        assert_eq!(kept.matches(HIDDEN).count(), often, "{kept}");
    }
}
