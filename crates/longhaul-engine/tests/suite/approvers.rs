//! Tests of who may approve: not those who added work to the run, and not those whose key was
//! revoked.

use longhaul_api::schedule::NewScheduleBody;
use longhaul_core::access::Role;
use longhaul_core::event::steer::SteerDelivery;
use longhaul_core::id::{ApiKeyName, RunId};
use longhaul_core::policy::LaneBusyPolicy;
use longhaul_core::policy::effect::EffectClass::Once;
use longhaul_core::policy::gate::{
    AnswerScope, ApprovalRequirement, GateDecision, GateRow, GateRule, GateTimeout,
};
use longhaul_core::policy::rule::RememberedApprovalFilter;
use longhaul_core::raw::RawJson;
use longhaul_engine::Task;
use longhaul_engine::handle::{GateAnswerOutcome, NewKeyRequest, NewSignalGate, SubmitOutcome};
use longhaul_testkit::latch::Latch;
use serde_json::json;

use crate::suite::gates::{ask, rule};
use crate::suite::harness::model::FakeReply;
use crate::suite::harness::tool::{EffectLog, FakeTool};
use crate::suite::harness::{TestEngine, TestEngineBuilder, answer, count, engine_with};

fn rule_of(count: u16, not_submitter: bool) -> GateRule {
    GateRule { approvers: ApprovalRequirement { count, not_submitter }, ..rule(None, ask()) }
}

fn send() -> FakeReply {
    FakeReply::call("send", json!({ "text": "hi" }))
}

/// An engine whose agent gives these replies, and whose tool `send` needs an approval.
fn engine_asking(
    replies: impl IntoIterator<Item = FakeReply>,
    gate_rule: GateRule,
) -> TestEngineBuilder {
    engine_with(replies)
        .tools([FakeTool::new("send", Once, &EffectLog::default())])
        .agent(|agent| agent.rules = vec![gate_rule])
}

fn task_of(submitter: &str) -> Task {
    Task { submitter: Some(submitter.to_owned()), ..Task::new("tester", "Do it.") }
}

/// Approves the gate in this name. Returns the outcome, or the code of the error.
async fn approve(engine: &TestEngine, gate: &GateRow, by: &str) -> &'static str {
    approve_for(engine, gate, (by, AnswerScope::Once)).await
}

async fn approve_for(
    engine: &TestEngine,
    gate: &GateRow,
    (by, scope): (&str, AnswerScope),
) -> &'static str {
    let mut approval = answer(gate, GateDecision::Approve);
    (approval.by, approval.scope) = (by.to_owned(), scope);
    match engine.longhaul.answer_gate(gate.spec.id, approval).await {
        Ok(GateAnswerOutcome::Closed(_)) => "closed",
        Ok(GateAnswerOutcome::Voted(_)) => "voted",
        Err(error) => error.code(),
    }
}

/// Checks that none of these people may approve the run's gate, and that somebody else may.
async fn check_excluded(engine: &TestEngine, run: RunId, people: &[&str]) {
    let gate = engine.gate(run).await;
    for person in people {
        assert_eq!(approve(engine, &gate, person).await, "self_approval", "{person}");
    }
    assert_eq!(approve(engine, &gate, "key:somebody").await, "closed");
    engine.ended(run).await;
}

#[tokio::test]
async fn who_adds_a_task_to_a_busy_lane_is_a_submitter() {
    for policy in [LaneBusyPolicy::Steer, LaneBusyPolicy::Collect] {
        let mut engine = engine_asking([send()], rule_of(1, true))
            .agent(|agent| {
                agent.lane = Some("lane".into());
                agent.lane_busy = policy;
            })
            .build();
        let run = engine.longhaul.submit(task_of("key:anna")).await.unwrap();
        let added = engine.longhaul.submit_task(task_of("key:ben")).await.unwrap();
        assert_eq!(added, SubmitOutcome::Added(run), "{policy:?}");
        engine.spawn_worker(|_| {});
        let mut people = vec!["key:anna", "key:ben"];
        if policy == LaneBusyPolicy::Steer {
            // Also while the run waits at the gate.
            engine.gate(run).await;
            let added = engine.longhaul.submit_task(task_of("key:cleo")).await.unwrap();
            assert_eq!(added, SubmitOutcome::Added(run));
            people.push("key:cleo");
        }
        check_excluded(&engine, run, &people).await;
    }
}

#[tokio::test]
async fn who_makes_or_fires_a_schedule_is_a_submitter() {
    let engine = engine_asking([send()], rule_of(1, true)).start();
    let body = NewScheduleBody {
        cron: Some("0 * * * *".to_owned()),
        input: Some(RawJson::from_serialize(&"Do it.")),
        ..NewScheduleBody::new("hourly", "tester")
    };
    engine.longhaul.create_schedule(body, Some("key:anna")).await.unwrap();
    let run = engine.longhaul.run_schedule("hourly", None, Some("key:ben")).await.unwrap().id;
    check_excluded(&engine, run, &["schedule:hourly", "key:anna", "key:ben"]).await;
}

#[tokio::test]
async fn who_raises_a_gate_in_a_run_is_a_submitter() {
    let engine = engine_asking([send()], rule_of(1, true)).start();
    let run = engine.longhaul.submit(task_of("key:anna")).await.unwrap();
    let gate = engine.gate(run).await;
    let signal = NewSignalGate {
        run,
        ask: "the refund to Ben".to_owned(),
        tags: Vec::new(),
        idempotency_key: None,
        timeout: GateTimeout::Never,
        by: "key:ben".to_owned(),
    };
    engine.longhaul.raise_signal_gate(signal).await.unwrap();
    assert_eq!(approve(&engine, &gate, "key:ben").await, "self_approval");
    assert_eq!(approve(&engine, &gate, "key:cleo").await, "closed");
}

#[tokio::test]
async fn a_message_to_a_child_reaches_its_parent_and_back() {
    let start = FakeReply::call("run_agent", json!({ "agent": "reader", "input": "Read." }));
    let engine = engine_asking([start, send()], rule_of(1, true))
        .agent(|agent| agent.tools.push("run_agent".to_owned()))
        .start();
    let question = FakeReply::call("ask_human", json!({ "question": "Which?" }));
    engine.add_changed_agent("reader", [question, send(), FakeReply::Text("Pay.")], |agent| {
        agent.tools.push("send".to_owned());
        agent.rules = vec![rule_of(1, true)];
    });
    let run = engine.longhaul.submit(task_of("key:anna")).await.unwrap();
    engine.until(run, "run.waiting").await;
    let child = engine.descendants(run).await[0].id;
    engine.gate(child).await;
    let steer = |run, by| engine.longhaul.steer(run, "Pay me.", SteerDelivery::AfterBatch, by);
    steer(child, "key:ben").await.unwrap();
    engine.until(child, "tool.completed").await;
    steer(run, "key:cleo").await.unwrap();
    check_excluded(&engine, child, &["key:anna", "key:ben", "key:cleo"]).await;
    check_excluded(&engine, run, &["key:anna", "key:ben", "key:cleo"]).await;
}

async fn create_key(engine: &TestEngine, name: &str) -> ApiKeyName {
    let name = ApiKeyName::new(name).unwrap();
    let by = "cli:root".to_owned();
    let request = NewKeyRequest { name: name.clone(), role: Role::Approver, ttl: None, by };
    engine.longhaul.create_key(request).await.unwrap();
    name
}

#[tokio::test]
async fn votes_of_a_revoked_key_do_not_count() {
    let engine = engine_asking([send()], rule_of(2, false)).with_sim_clock().start();
    let key = create_key(&engine, "ben").await;
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    assert_eq!(approve(&engine, &gate, "key:ben").await, "voted");
    engine.longhaul.revoke_api_key(&key).await.unwrap();
    assert_eq!(approve(&engine, &gate, "key:cleo").await, "voted");
    // A later key with the same name is another one.
    engine.clock.as_ref().unwrap().advance(longhaul_core::time::Millis(1));
    create_key(&engine, "ben").await;
    assert_eq!(approve(&engine, &gate, "key:ben").await, "closed");
    let journal = engine.ended(run).await;
    assert_eq!((count(&journal, "gate.voted"), count(&journal, "gate.answered")), (2, 1));
}

#[tokio::test]
async fn remembered_approvals_of_a_revoked_key_end() {
    for scope in [AnswerScope::Run, AnswerScope::Agent, AnswerScope::Project] {
        let latch = Latch::closed();
        let replies = [send(), send().after_latch(&latch)];
        let engine = engine_asking(replies, rule_of(1, false)).start();
        let key = create_key(&engine, "ben").await;
        let run = engine.submit().await;
        let gate = engine.gate(run).await;
        assert_eq!(approve_for(&engine, &gate, ("key:ben", scope)).await, "closed");
        latch.reached(1).await;
        let filter = RememberedApprovalFilter { limit: 9, ..RememberedApprovalFilter::default() };
        assert_eq!(engine.longhaul.list_rules(filter.clone()).await.unwrap().len(), 1);
        engine.longhaul.revoke_api_key(&key).await.unwrap();
        assert_eq!(engine.longhaul.list_rules(filter).await.unwrap(), [], "{scope:?}");
        latch.open();
        assert_eq!(approve(&engine, &engine.gate(run).await, "key:cleo").await, "closed");
        let journal = engine.ended(run).await;
        assert_eq!((count(&journal, "gate.raised"), count(&journal, "rule.used")), (2, 0));
    }
}

#[tokio::test]
async fn an_approval_by_two_ends_with_the_key_of_one() {
    let latch = Latch::closed();
    let replies = [send(), send().after_latch(&latch)];
    let engine = engine_asking(replies, rule_of(2, false)).start();
    let key = create_key(&engine, "ben").await;
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    assert_eq!(approve_for(&engine, &gate, ("key:ben", AnswerScope::Run)).await, "voted");
    assert_eq!(approve_for(&engine, &gate, ("key:cleo", AnswerScope::Run)).await, "closed");
    latch.reached(1).await;
    engine.longhaul.revoke_api_key(&key).await.unwrap();
    latch.open();
    assert_eq!(engine.gate(run).await.spec.pattern, gate.spec.pattern, "it asks again");
}
