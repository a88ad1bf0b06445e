//! Tests of approval gates: which rule asks, which answers count, what runs afterwards and what the
//! model reads.

use longhaul_core::event::Event;
use longhaul_core::id::RuleId;
use longhaul_core::policy::effect::EffectClass::{Once, Pure};
use longhaul_core::policy::gate::GateRuleAction::{Allow, Ask, Deny};
use longhaul_core::policy::gate::{
    AnswerScope, ApprovalRequirement, GateDecision, GateRule, GateRuleAction, GateTimeoutAction,
};
use longhaul_core::policy::rule::RememberedApprovalFilter;
use longhaul_core::raw::{Hash, RawJson};
use longhaul_core::time::Millis;
use longhaul_engine::Task;
use longhaul_engine::handle::GateAnswerOutcome;
use longhaul_engine::view::gate_view;
use serde_json::json;

use crate::suite::harness::model::FakeReply;
use crate::suite::harness::tool::{EffectLog, FakeTool};
use crate::suite::harness::{
    TestEngine, TestEngineBuilder, answer, count, engine_with, kinds, outcome_text,
};

pub(super) fn rule(match_glob: Option<&str>, verdict: GateRuleAction) -> GateRule {
    GateRule {
        tool: "send".into(),
        match_glob: match_glob.map(str::to_owned),
        action: verdict,
        always: false,
        timeout: None,
        on_timeout: GateTimeoutAction::Reject,
        in_doubt: None,
        approvers: ApprovalRequirement::default(),
        remind: None,
        escalation: Vec::new(),
        tags: Vec::new(),
    }
}

pub(super) fn ask() -> GateRuleAction {
    Ask("May it?".into())
}

/// Builds an agent that sends `hi` under these rules.
fn engine_sending(effects: &EffectLog, rules: Vec<GateRule>) -> TestEngineBuilder {
    engine_with([FakeReply::call("send", json!({ "text": "hi" }))])
        .tools([FakeTool::new("send", Once, effects)])
        .agent(|agent| agent.rules = rules)
}

#[tokio::test]
async fn the_first_rule_that_matches_wins() {
    let deny = || Deny("not today".into());
    for (rules, gate_count, call_count) in [
        (vec![], 0, 1),
        (vec![rule(None, Allow), rule(None, deny())], 0, 1),
        (vec![rule(None, deny()), rule(None, ask())], 0, 0),
        (vec![rule(Some("h*"), deny()), rule(None, Allow)], 0, 0),
        (vec![rule(Some("x*"), deny()), rule(None, Allow)], 0, 1),
        (vec![rule(Some("x*"), Allow), rule(None, ask())], 1, 1),
    ] {
        let effects = EffectLog::default();
        let engine = engine_sending(&effects, rules.clone()).start();
        let run = engine.submit().await;
        if gate_count > 0 {
            let gate = engine.gate(run).await;
            assert_eq!(effects.all(), Vec::<String>::new());
            let approval = answer(&gate, GateDecision::Approve);
            engine.longhaul.answer_gate(gate.spec.id, approval).await.unwrap();
        }
        let journal = engine.ended(run).await;
        assert_eq!(count(&journal, "gate.raised"), gate_count, "{rules:?}");
        assert_eq!(effects.count("send begins"), call_count, "{rules:?}");
        let (text, is_error) = engine.results().remove(0);
        assert_eq!(is_error, call_count == 0);
        assert!(call_count == 1 || text == "the call was denied: not today", "{text}");
    }
}

#[tokio::test]
async fn a_gate_rule_matches_injected_arguments() {
    for (recipient, call_count) in [("anna", 0), ("bert", 1)] {
        let effects = EffectLog::default();
        let rules = vec![rule(Some("anna"), Deny("she sleeps".into()))];
        let engine = engine_sending(&effects, rules)
            .agent(|agent| agent.context = vec!["recipient".into()])
            .start();
        let mut task = Task::new("tester", "Do it.");
        let recipient = RawJson::from_serialize(&recipient);
        task.context.insert("recipient".into(), recipient);
        let run = engine.longhaul.submit(task).await.unwrap();
        engine.ended(run).await;
        assert_eq!(effects.count("send begins"), call_count);
    }
}

#[tokio::test]
async fn a_call_that_must_fail_is_not_asked_about() {
    let effects = EffectLog::default();
    let replies =
        [FakeReply::call("send", json!({ "text": "to somebody" })), FakeReply::Text("done")];
    let engine = engine_with(replies)
        .tools([FakeTool::new("send", Once, &effects)])
        .agent(|agent| agent.rules = vec![rule(None, ask())])
        .start();
    let run = engine.submit().await;
    let journal = engine.ended(run).await;
    assert_eq!(count(&journal, "gate.raised"), 0, "{:?}", kinds(&journal));
    assert_eq!(engine.results(), [("no recipient is set".to_owned(), true)]);
    assert_eq!(effects.count("send begins"), 0);
}

#[tokio::test]
async fn injected_arguments_are_shown_at_the_gate() {
    let mut digests = Vec::new();
    for recipient in [Some("anna"), None] {
        let effects = EffectLog::default();
        let engine = engine_sending(&effects, vec![rule(None, ask())])
            .agent(|agent| agent.context = vec!["recipient".into()])
            .start();
        let mut task = Task::new("tester", "Do it.");
        let context =
            recipient.map(|name| ("recipient".to_owned(), RawJson::from_serialize(&name)));
        task.context.extend(context);
        let run = engine.longhaul.submit(task).await.unwrap();
        let gate = engine.gate(run).await;
        let view = longhaul_engine::view::gate_view(&gate);
        let expected: Vec<String> = recipient.into_iter().map(str::to_owned).collect();
        assert_eq!(
            (&gate.spec.injected_rule_match_texts, &view.injected_rule_match_texts),
            (&expected, &expected)
        );
        let input = view.input.unwrap();
        assert!(!input.as_str().contains("anna"), "{input:?}");
        digests.push(view.digest);
        let approval = answer(&gate, GateDecision::Approve);
        engine.longhaul.answer_gate(gate.spec.id, approval).await.unwrap();
        engine.ended(run).await;
        assert_eq!(effects.count("send begins"), 1);
    }
    assert_ne!(digests[0], digests[1]);
}

#[tokio::test]
async fn an_approval_needs_the_digest_of_the_gate() {
    let effects = EffectLog::default();
    let engine = engine_sending(&effects, vec![rule(None, ask())]).start();
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    let id = gate.spec.id;
    let mut gate_answer = answer(&gate, GateDecision::Approve);
    for (digest, code) in
        [(None, "digest_missing"), (Some(Hash::digest(b"another call")), "digest_changed")]
    {
        gate_answer.digest = digest;
        let error = engine.longhaul.answer_gate(id, gate_answer.clone()).await.unwrap_err();
        assert_eq!(error.code(), code);
    }
    let invalid_answer = answer(&gate, GateDecision::Answer("sure".into()));
    let error = engine.longhaul.answer_gate(id, invalid_answer).await.unwrap_err();
    assert_eq!(error.code(), "invalid_decision");
    assert_eq!(effects.all(), Vec::<String>::new());
    let mut approval = answer(&gate, GateDecision::Approve);
    approval.note = Some("be kind".into());
    let outcome = engine.longhaul.answer_gate(id, approval.clone()).await.unwrap();
    assert!(matches!(outcome, GateAnswerOutcome::Closed(_)));
    let journal = engine.ended(run).await;
    assert_eq!(count(&journal, "gate.answered"), 1, "{:?}", kinds(&journal));
    assert_eq!(effects.count("send begins"), 1);
    let (text, _) = engine.results().remove(0);
    assert!(text.starts_with("A person approved this call with the note: be kind"), "{text}");
    let error = engine.longhaul.answer_gate(id, approval).await.unwrap_err();
    assert_eq!(error.code(), "already_answered");
    assert!(error.to_string().contains("by cli:anna at 20"), "{error}");
}

#[tokio::test]
async fn the_model_reads_a_rejection_with_its_note() {
    for (note, expected) in [
        (None, "a person rejected this call"),
        (Some("wrong list"), "a person rejected this call: wrong list"),
    ] {
        let effects = EffectLog::default();
        let engine = engine_sending(&effects, vec![rule(None, ask())]).start();
        let run = engine.submit().await;
        let gate = engine.gate(run).await;
        let mut rejection = answer(&gate, GateDecision::Reject);
        rejection.note = note.map(str::to_owned);
        rejection.digest = None;
        engine.longhaul.answer_gate(gate.spec.id, rejection).await.unwrap();
        let journal = engine.ended(run).await;
        assert_eq!(outcome_text(&journal), "done");
        assert_eq!(engine.results(), [(expected.to_owned(), true)]);
        assert_eq!(effects.all(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn an_edit_is_checked_against_schema_and_rules_and_is_what_runs() {
    let effects = EffectLog::default();
    let new_rule = |glob, count, not_submitter| GateRule {
        approvers: ApprovalRequirement { count, not_submitter },
        ..rule(Some(glob), ask())
    };
    let rules = vec![
        rule(Some("secret*"), Deny("never".into())),
        new_rule("pay*", 2, false),
        new_rule("vote*", 1, true),
        rule(None, ask()),
    ];
    let engine = engine_sending(&effects, rules).start();
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    let id = gate.spec.id;
    let edit = |input| GateDecision::Edit(RawJson::from_serialize(&input));
    for (input, reason) in [
        (json!({ "text": 7 }), "does not match its schema"),
        (json!({ "text": "secret plan" }), "a rule forbids this call: never"),
        (json!({ "text": "pay all" }), "2 people must approve the edited call"),
        (json!({ "text": "vote yes" }), "somebody other than the submitter"),
        (json!({ "text": "unspeakable" }), "panicked"),
    ] {
        let gate_answer = answer(&gate, edit(input));
        let error = engine.longhaul.answer_gate(id, gate_answer).await.unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
    }
    let mut answer_without_digest = answer(&gate, edit(json!({ "text": "hello" })));
    answer_without_digest.digest = None;
    let error = engine.longhaul.answer_gate(id, answer_without_digest).await.unwrap_err();
    assert_eq!(error.code(), "digest_missing");
    let gate_answer = answer(&gate, edit(json!({ "text": "hello" })));
    engine.longhaul.answer_gate(id, gate_answer).await.unwrap();
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "done");
    assert_eq!(count(&journal, "gate.raised"), 1, "an edited call needs no second approval");
    assert_eq!(effects.all()[0], r#"send begins {"text":"hello"}"#);
    let (text, _) = engine.results().remove(0);
    assert!(text.starts_with(r#"A person changed this call to {"text":"hello"}"#), "{text}");
}

#[tokio::test]
async fn an_approval_for_the_run_covers_only_the_same_rule() {
    let effects = EffectLog::default();
    let other = GateRule { always: true, ..rule(Some("bye"), ask()) };
    let send = |text: &str| FakeReply::call("send", json!({ "text": text }));
    let mut builder = engine_sending(&effects, vec![other, rule(None, ask())]);
    builder.replies = vec![send("hi"), send("hi again"), send("bye")];
    let engine = builder.start();
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    let mut approval = answer(&gate, GateDecision::Approve);
    approval.scope = AnswerScope::Run;
    engine.longhaul.answer_gate(gate.spec.id, approval).await.unwrap();
    let entries = engine.until(run, "rule.added").await;
    let gate = {
        engine.until_after(run, entries.last().unwrap().seq, "gate.raised").await;
        engine.gate(run).await
    };
    assert_eq!(effects.count("send ends"), 2, "the second call needed no approval");
    let mut approval = answer(&gate, GateDecision::Approve);
    approval.scope = AnswerScope::Run;
    let error = engine.longhaul.answer_gate(gate.spec.id, approval.clone()).await.unwrap_err();
    assert_eq!(error.code(), "scope_not_offered", "a rule that always asks");
    approval.scope = AnswerScope::Once;
    engine.longhaul.answer_gate(gate.spec.id, approval).await.unwrap();
    let journal = engine.ended(run).await;
    assert_eq!(count(&journal, "gate.raised"), 2);
    assert_eq!(effects.count("send ends"), 3);
}

#[tokio::test]
async fn an_approval_for_the_agent_lasts_until_it_is_revoked() {
    let effects = EffectLog::default();
    let engine = engine_sending(&effects, vec![rule(None, ask())]).start();
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    let mut approval = answer(&gate, GateDecision::Approve);
    approval.scope = AnswerScope::Agent;
    engine.longhaul.answer_gate(gate.spec.id, approval).await.unwrap();
    engine.ended(run).await;
    let journal = engine.ended(engine.submit().await).await;
    assert_eq!((count(&journal, "gate.raised"), count(&journal, "rule.used")), (0, 1));
    let filter = || RememberedApprovalFilter { limit: 9, ..RememberedApprovalFilter::default() };
    let [row] = &engine.longhaul.list_rules(filter()).await.unwrap()[..] else {
        panic!("one rule");
    };
    assert_eq!((row.used, row.run, row.gate), (1, run, gate.spec.id));
    let revoked = engine.longhaul.revoke_rule(row.rule, "cli:bob").await.unwrap();
    assert_eq!(revoked.revoked.map(|revoked| revoked.by).as_deref(), Some("cli:bob"));
    let error = engine.longhaul.revoke_rule(row.rule, "cli:sam").await.unwrap_err();
    assert_eq!(error.code(), "rule_revoked");
    assert!(error.to_string().contains("already revoked by cli:bob at "), "{error}");
    let unknown = RuleId::from_bits(7);
    let error = engine.longhaul.revoke_rule(unknown, "cli:sam").await.unwrap_err();
    assert_eq!(error.code(), "rule_not_found");
    assert_eq!(engine.longhaul.list_rules(filter()).await.unwrap(), []);
    let run = engine.submit().await;
    assert_eq!(engine.gate(run).await.spec.pattern, gate.spec.pattern, "it asks again");
}

#[tokio::test]
async fn two_people_must_agree_where_the_rule_says_so() {
    let effects = EffectLog::default();
    let mut strict_rule = rule(None, ask());
    strict_rule.approvers = ApprovalRequirement { count: 2, not_submitter: true };
    let engine = engine_sending(&effects, vec![strict_rule]).start();
    let mut task = Task::new("tester", "Do it.");
    task.submitter = Some("cli:sam".into());
    let run = engine.longhaul.submit(task).await.unwrap();
    let gate = engine.gate(run).await;
    let approve = |by: &str| {
        let mut approval = answer(&gate, GateDecision::Approve);
        approval.by = by.to_owned();
        engine.longhaul.answer_gate(gate.spec.id, approval)
    };
    assert_eq!(approve("cli:sam").await.unwrap_err().code(), "self_approval");
    assert!(matches!(approve("cli:anna").await, Ok(GateAnswerOutcome::Voted(_))));
    assert_eq!(approve("cli:anna").await.unwrap_err().code(), "already_voted");
    assert_eq!(effects.all(), Vec::<String>::new());
    assert!(matches!(approve("cli:ben").await, Ok(GateAnswerOutcome::Closed(_))));
    let journal = engine.ended(run).await;
    assert_eq!((count(&journal, "gate.voted"), count(&journal, "gate.answered")), (1, 1));
    assert_eq!(effects.count("send begins"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_people_who_approve_at_the_same_time_are_both_counted() {
    for _ in 0..20 {
        let effects = EffectLog::default();
        let mut strict_rule = rule(None, ask());
        strict_rule.approvers = ApprovalRequirement { count: 2, not_submitter: false };
        let engine = engine_sending(&effects, vec![strict_rule]).start();
        let run = engine.submit().await;
        let gate = engine.gate(run).await;
        let approvals = ["cli:anna", "cli:ben"].map(|by| {
            let (longhaul, id) = (engine.longhaul.clone(), gate.spec.id);
            let mut approval = answer(&gate, GateDecision::Approve);
            approval.by = by.to_owned();
            async move { longhaul.answer_gate(id, approval).await.unwrap() }
        });
        let mut tasks = tokio::task::JoinSet::new();
        for approval in approvals {
            tasks.spawn(approval);
        }
        let outcomes = tasks.join_all().await;
        let is_closing =
            |outcome: &&GateAnswerOutcome| matches!(outcome, GateAnswerOutcome::Closed(_));
        assert_eq!(outcomes.iter().filter(is_closing).count(), 1, "{outcomes:?}");
        engine.ended(run).await;
        assert_eq!(effects.count("send begins"), 1);
    }
}

/// Returns a run whose gate nobody answers for a day.
async fn expired(
    on_timeout: GateTimeoutAction,
) -> (TestEngine, longhaul_core::id::RunId, EffectLog) {
    let effects = EffectLog::default();
    let mut gate_rule = rule(None, ask());
    gate_rule.on_timeout = on_timeout;
    let engine = engine_sending(&effects, vec![gate_rule]).with_sim_clock().start();
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    let clock = engine.clock.as_ref().unwrap();
    clock.advance(Millis::from_secs(24 * 60 * 60 - 1));
    assert_eq!(engine.open_gates(run).await.len(), 1);
    clock.advance(Millis::from_secs(1));
    engine.until(run, "gate.expired").await;
    let late = answer(&gate, GateDecision::Approve);
    let error = engine.longhaul.answer_gate(gate.spec.id, late).await.unwrap_err();
    assert_eq!(error.code(), "gate_expired");
    (engine, run, effects)
}

#[tokio::test]
async fn an_expired_gate_follows_on_timeout() {
    let (engine, run, effects) = expired(GateTimeoutAction::Reject).await;
    assert_eq!(outcome_text(&engine.ended(run).await), "done");
    assert_eq!(engine.results(), [("nobody answered before the deadline".to_owned(), true)]);
    assert_eq!(effects.count("send"), 0);

    let (engine, run, effects) = expired(GateTimeoutAction::Approve).await;
    assert_eq!(outcome_text(&engine.ended(run).await), "done");
    assert_eq!(effects.count("send begins"), 1);

    let (engine, run, effects) = expired(GateTimeoutAction::Fail).await;
    assert_eq!(outcome_text(&engine.ended(run).await), "gate_expired");
    assert_eq!(effects.count("send"), 0);

    let (engine, run, effects) = expired(GateTimeoutAction::Pause).await;
    let entries = engine.until(run, "run.paused").await;
    engine.longhaul.resume_run(run, None, "cli:anna").await.unwrap();
    engine.until_after(run, entries.last().unwrap().seq, "gate.raised").await;
    let gate = engine.gate(run).await;
    let approval = answer(&gate, GateDecision::Approve);
    engine.longhaul.answer_gate(gate.spec.id, approval).await.unwrap();
    assert_eq!(outcome_text(&engine.ended(run).await), "done");
    assert_eq!(effects.count("send begins"), 1);
}

#[tokio::test]
async fn pure_calls_before_a_gate_run_and_those_after_it_wait() {
    let effects = EffectLog::default();
    let look = |n| ("look", json!({ "count": n }));
    let send = ("send", json!({ "text": "hi" }));
    let engine = engine_with([FakeReply::Calls(vec![look(1), send, look(2)])])
        .tools([FakeTool::new("send", Once, &effects), FakeTool::new("look", Pure, &effects)])
        .agent(|agent| agent.rules = vec![rule(None, ask())])
        .start();
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    assert_eq!(effects.count("look ends"), 1);
    let approval = answer(&gate, GateDecision::Approve);
    engine.longhaul.answer_gate(gate.spec.id, approval).await.unwrap();
    let journal = engine.ended(run).await;
    assert_eq!(effects.all().len(), 6);
    assert_eq!(engine.results().len(), 3);
    let about_send = journal.iter().any(|entry| {
        matches!(&entry.event, Event::GateRaised(raised)
            if raised.gate.tool.as_deref() == Some("send"))
    });
    assert!(about_send, "{:?}", kinds(&journal));
}

#[tokio::test]
async fn the_second_approver_agrees_to_the_edit_of_the_first() {
    let effects = EffectLog::default();
    let mut strict_rule = rule(None, ask());
    strict_rule.approvers.count = 2;
    let engine = engine_sending(&effects, vec![strict_rule]).start();
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    let id = gate.spec.id;
    let edit = GateDecision::Edit(RawJson::from_serialize(&json!({ "text": "hello" })));
    let outcome = engine.longhaul.answer_gate(id, answer(&gate, edit)).await;
    assert!(matches!(outcome, Ok(GateAnswerOutcome::Voted(_))), "{outcome:?}");
    let mut approval = answer(&gate, GateDecision::Approve);
    approval.by = "cli:ben".into();
    let error = engine.longhaul.answer_gate(id, approval.clone()).await.unwrap_err();
    assert_eq!(error.code(), "digest_changed", "the answer was given for another input");
    approval.digest = gate_view(&engine.longhaul.get_gate(id).await.unwrap()).digest;
    engine.longhaul.answer_gate(id, approval).await.unwrap();
    engine.ended(run).await;
    assert_eq!(effects.all()[0], r#"send begins {"text":"hello"}"#);
}

#[tokio::test]
async fn a_late_edit_is_rejected_as_late() {
    let effects = EffectLog::default();
    let engine = engine_sending(&effects, vec![rule(None, ask())]).start();
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    let approval = answer(&gate, GateDecision::Approve);
    engine.longhaul.answer_gate(gate.spec.id, approval).await.unwrap();
    engine.ended(run).await;
    let edit = answer(&gate, GateDecision::Edit(RawJson::from_serialize(&json!({ "text": 7 }))));
    let error = engine.longhaul.answer_gate(gate.spec.id, edit).await.unwrap_err();
    assert_eq!(error.code(), "already_answered");
}
