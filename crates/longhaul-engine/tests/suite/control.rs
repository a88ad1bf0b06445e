//! Tests of control tools (questions, help, waits, progress, finish) and of the result gate.

use longhaul_core::policy::gate::{
    ApprovalRequirement, GateDecision, GateKind, GateTimeout, GateTimeoutAction, ResultApprovalGate,
};
use longhaul_core::port::store::RunFilter;
use longhaul_core::raw::RawJson;
use longhaul_core::status::Status;
use longhaul_core::time::Millis;
use longhaul_engine::handle::NewSignalGate;
use longhaul_engine::view::gate_view;
use serde_json::json;

use crate::suite::harness::model::FakeReply;
use crate::suite::harness::{TestEngine, answer, count, engine_with, kinds, outcome_text};

#[tokio::test]
async fn a_question_waits_for_an_answer_that_the_model_reads() {
    let question = json!({ "question": "Which?", "options": ["a", "b"] });
    let engine = engine_with([FakeReply::call("ask_human", question)]).start();
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    assert_eq!((&gate.spec.kind, gate.spec.ask.as_str()), (&GateKind::Question, "Which?"));
    assert_eq!(gate.spec.options, ["a", "b"]);
    let invalid = answer(&gate, GateDecision::Answer("the blue one".into()));
    let error = engine.longhaul.answer_gate(gate.spec.id, invalid).await.unwrap_err();
    assert_eq!(error.code(), "invalid_answer");
    let gate_answer = answer(&gate, GateDecision::Answer("B".into()));
    engine.longhaul.answer_gate(gate.spec.id, gate_answer).await.unwrap();
    let journal = engine.ended(run).await;
    assert_eq!(engine.results(), [("b".to_owned(), false)]);
    assert_eq!(count(&journal, "run.claimed"), 2, "the run was released while it waited");
}

#[tokio::test]
async fn an_agent_that_is_blocked_waits_for_help() {
    let engine =
        engine_with([FakeReply::call("report_blocked", json!({ "reason": "no key" }))]).start();
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    assert_eq!(gate.spec.kind, GateKind::Blocked);
    let view = engine.longhaul.get_run(run).await.unwrap();
    assert_eq!(view.status, Status::Blocked);
    assert!(view.now.contains("no key"), "{}", view.now);
    let gate_answer = answer(&gate, GateDecision::Answer("it is under the mat".into()));
    engine.longhaul.answer_gate(gate.spec.id, gate_answer).await.unwrap();
    engine.ended(run).await;
    assert_eq!(engine.results(), [("it is under the mat".to_owned(), false)]);
}

#[tokio::test]
async fn a_wait_ends_when_its_time_has_come() {
    let engine =
        engine_with([FakeReply::call("wait", json!({ "for": "2h" }))]).with_sim_clock().start();
    let run = engine.submit().await;
    engine.until(run, "run.waiting").await;
    let clock = engine.clock.clone().unwrap();
    clock.advance(Millis::from_secs(2 * 60 * 60 - 1));
    assert_eq!(engine.longhaul.get_run(run).await.unwrap().status, Status::Waiting);
    clock.advance(Millis::from_secs(1));
    let journal = engine.ended(run).await;
    assert_eq!(count(&journal, "timer.fired"), 1, "{:?}", kinds(&journal));
    assert_eq!(engine.results(), [("the wait is over".to_owned(), false)]);
}

#[tokio::test]
async fn a_signal_ends_a_wait() {
    let engine = engine_with([FakeReply::call("wait", json!({ "signal": "deployed" }))]).start();
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    assert_eq!(
        (gate.spec.kind.clone(), &gate.spec.tags[..]),
        (GateKind::Signal, &["deployed".to_owned()][..])
    );
    let mut completion = answer(&gate, GateDecision::Complete);
    completion.payload = Some(RawJson::from_serialize(&json!({ "version": 7 })));
    engine.longhaul.answer_gate(gate.spec.id, completion).await.unwrap();
    engine.ended(run).await;
    assert_eq!(engine.results(), [("it has happened\n\n{\"version\":7}".to_owned(), false)]);
}

#[tokio::test]
async fn a_list_names_what_a_run_waits_for_and_no_other_gate() {
    let question = FakeReply::call("ask_human", json!({ "question": "Which?" }));
    for (tokens, expected) in [(1, "waits: budget"), (200_000, "Which?")] {
        let engine = engine_with([question.clone()]);
        let mut engine = engine.agent(|agent| agent.budget.caps.tokens = Some(tokens)).build();
        let run = engine.submit().await;
        let gate = NewSignalGate {
            run,
            ask: "the build".into(),
            tags: Vec::new(),
            idempotency_key: None,
            timeout: GateTimeout::After(Millis::from_secs(3_600)),
            by: "key:ci".into(),
        };
        engine.longhaul.raise_signal_gate(gate).await.unwrap();
        engine.spawn_worker(|_| {});
        engine.until(run, "run.waiting").await;
        let filter = RunFilter { limit: 1, ..RunFilter::default() };
        let listed = engine.longhaul.list_brief_runs(filter).await.unwrap();
        assert_eq!(listed[0].now, expected);
    }
}

#[tokio::test]
async fn report_progress_is_journaled_and_finish_ends_the_run() {
    let engine = engine_with([FakeReply::Calls(vec![
        ("report_progress", json!({ "percent": 40, "message": "half way" })),
        ("finish", json!({ "output": { "confidence": 90, "ok": true } })),
    ])])
    .start();
    let run = engine.submit().await;
    let journal = engine.ended(run).await;
    assert_eq!(count(&journal, "progress.reported"), 1);
    assert_eq!(engine.model.requests().len(), 1, "nothing runs after `finish`");
    let view = engine.longhaul.get_run(run).await.unwrap();
    let output = view.output.unwrap();
    assert_eq!(output.confidence, Some(90));
    assert_eq!(output.data.unwrap().to_value(), json!({ "confidence": 90, "ok": true }));
    assert_eq!(view.tools_called, ["report_progress", "finish"]);
}

#[tokio::test]
async fn an_invalid_control_call_is_an_error_result() {
    for (tool, input, reason) in [
        ("wait", json!({ "for": "soon" }), "such as \"2h 30m\""),
        ("wait", json!({}), "such as \"2h 30m\""),
        ("ask_human", json!({}), "question"),
        ("report_progress", json!({ "percent": 400, "message": "" }), "400"),
    ] {
        let engine = engine_with([FakeReply::call(tool, input.clone())]).start();
        let run = engine.submit().await;
        assert_eq!(outcome_text(&engine.ended(run).await), "done");
        let (text, is_error) = engine.results().remove(0);
        assert!(is_error && text.contains(reason), "{tool} {input}: {text}");
    }
}

fn engine_with_result_gate(replies: Vec<FakeReply>) -> TestEngine {
    let gate = ResultApprovalGate {
        auto_approve: None,
        ask: "Is it good?".into(),
        timeout: Some(GateTimeout::After(Millis::from_secs(60))),
        on_timeout: GateTimeoutAction::Reject,
        approvers: ApprovalRequirement::default(),
        tags: Vec::new(),
    };
    let builder = engine_with(replies).agent(|agent| agent.result_gate = Some(gate));
    builder.with_sim_clock().start()
}

#[tokio::test]
async fn a_result_is_approved_changed_sent_back_or_refused() {
    let engine = engine_with_result_gate(vec![FakeReply::Text("a plan")]);
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    let approval = answer(&gate, GateDecision::Approve);
    engine.longhaul.answer_gate(gate.spec.id, approval).await.unwrap();
    assert_eq!(outcome_text(&engine.ended(run).await), "a plan");

    let engine = engine_with_result_gate(vec![FakeReply::Text("a plan")]);
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    let action = RawJson::from_serialize(&json!({ "action": "create_pr" }));
    let mut approval = answer(&gate, GateDecision::Approve);
    approval.payload = Some(action.clone());
    engine.longhaul.answer_gate(gate.spec.id, approval).await.unwrap();
    assert_eq!(outcome_text(&engine.ended(run).await), "a plan");
    let view = engine.longhaul.get_run(run).await.unwrap();
    let recorded_answer = view.output.unwrap().answer.unwrap();
    assert_eq!(
        (recorded_answer.decision.as_str(), recorded_answer.payload.as_ref()),
        ("approve", Some(&action))
    );
    let gate = gate_view(&engine.longhaul.get_gate(gate.spec.id).await.unwrap());
    assert_eq!(gate.answers[0].payload.as_ref(), Some(&action));

    let engine = engine_with_result_gate(vec![FakeReply::Text("a plan")]);
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    let edit = answer(&gate, GateDecision::Edit(RawJson::from_serialize(&"a better plan")));
    engine.longhaul.answer_gate(gate.spec.id, edit).await.unwrap();
    assert_eq!(outcome_text(&engine.ended(run).await), "a better plan");

    let engine =
        engine_with_result_gate(vec![FakeReply::Text("a plan"), FakeReply::Text("another plan")]);
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    let mut rejection = answer(&gate, GateDecision::Reject);
    rejection.note = Some("too dear".into());
    engine.longhaul.answer_gate(gate.spec.id, rejection).await.unwrap();
    let journal = engine.until(run, "gate.answered").await;
    engine.until_after(run, journal.last().unwrap().seq, "gate.raised").await;
    let second = engine.gate(run).await;
    assert_ne!(second.spec.id, gate.spec.id, "the new result has a gate of its own");
    assert_eq!(engine.user_texts().last().unwrap(), "too dear");
    let approval = answer(&second, GateDecision::Approve);
    engine.longhaul.answer_gate(second.spec.id, approval).await.unwrap();
    assert_eq!(outcome_text(&engine.ended(run).await), "another plan");

    let engine = engine_with_result_gate(vec![FakeReply::Text("a plan")]);
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    let rejection = answer(&gate, GateDecision::Reject);
    engine.longhaul.answer_gate(gate.spec.id, rejection).await.unwrap();
    assert_eq!(outcome_text(&engine.ended(run).await), "rejected");

    let engine = engine_with_result_gate(vec![FakeReply::Text("a plan")]);
    let run = engine.submit().await;
    engine.gate(run).await;
    engine.clock.as_ref().unwrap().advance(Millis::from_secs(60));
    assert_eq!(outcome_text(&engine.ended(run).await), "rejected");
}
