//! Calls that a person is asked about: which rule asks, which answers count,
//! what runs after them and what the model reads.

use longhaul_core::event::Event;
use longhaul_core::policy::effect::EffectClass::{Once, Pure};
use longhaul_core::policy::gate::RuleAction::{Allow, Ask, Deny};
use longhaul_core::policy::gate::{Approvers, Decision, GateRule, OnTimeout, RuleAction, Scope};
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

pub(super) fn rule(subject: Option<&str>, verdict: RuleAction) -> GateRule {
    GateRule {
        tool: "send".into(),
        subject: subject.map(str::to_owned),
        action: verdict,
        always: false,
        timeout: None,
        on_timeout: OnTimeout::Reject,
        in_doubt: None,
        approvers: Approvers::default(),
        remind: None,
    }
}

fn ask() -> RuleAction {
    Ask("May it?".into())
}

/// An agent that sends `hi`, under these rules.
fn engine_sending(deeds: &EffectLog, rules: Vec<GateRule>) -> TestEngineBuilder {
    engine_with([FakeReply::call("send", json!({ "text": "hi" }))])
        .tools([FakeTool::new("send", Once, deeds)])
        .agent(|agent| agent.rules = rules)
}

#[tokio::test]
async fn the_first_rule_that_matches_wins() {
    let deny = || Deny("not today".into());
    for (rules, asked, made) in [
        (vec![], 0, 1),
        (vec![rule(None, Allow), rule(None, deny())], 0, 1),
        (vec![rule(None, deny()), rule(None, ask())], 0, 0),
        (vec![rule(Some("h*"), deny()), rule(None, Allow)], 0, 0),
        (vec![rule(Some("x*"), deny()), rule(None, Allow)], 0, 1),
        (vec![rule(Some("x*"), Allow), rule(None, ask())], 1, 1),
    ] {
        let deeds = EffectLog::default();
        let house = engine_sending(&deeds, rules.clone()).start();
        let run = house.submit().await;
        if asked > 0 {
            let gate = house.gate(run).await;
            assert_eq!(deeds.all(), Vec::<String>::new());
            let yes = answer(&gate, Decision::Approve);
            house.longhaul.answer(gate.spec.id, yes).await.unwrap();
        }
        let journal = house.ended(run).await;
        assert_eq!(count(&journal, "gate.raised"), asked, "{rules:?}");
        assert_eq!(deeds.count("send begins"), made, "{rules:?}");
        let (text, is_error) = house.results().remove(0);
        assert_eq!(is_error, made == 0);
        assert!(made == 1 || text == "denied: not today", "{text}");
    }
}

#[tokio::test]
async fn a_gate_rule_matches_injected_arguments() {
    for (recipient, made) in [("anna", 0), ("bert", 1)] {
        let deeds = EffectLog::default();
        let rules = vec![rule(Some("anna"), Deny("she sleeps".into()))];
        let house = engine_sending(&deeds, rules)
            .agent(|agent| agent.context = vec!["recipient".into()])
            .start();
        let mut task = Task::new("tester", "Do it.");
        let recipient = RawJson::from_serialize(&recipient);
        task.context.insert("recipient".into(), recipient);
        let run = house.longhaul.submit(task).await.unwrap();
        house.ended(run).await;
        assert_eq!(deeds.count("send begins"), made);
    }
}

#[tokio::test]
async fn injected_arguments_are_shown_at_the_gate() {
    let mut digests = Vec::new();
    for recipient in [Some("anna"), None] {
        let deeds = EffectLog::default();
        let house = engine_sending(&deeds, vec![rule(None, ask())])
            .agent(|agent| agent.context = vec!["recipient".into()])
            .start();
        let mut task = Task::new("tester", "Do it.");
        let context =
            recipient.map(|name| ("recipient".to_owned(), RawJson::from_serialize(&name)));
        task.context.extend(context);
        let run = house.longhaul.submit(task).await.unwrap();
        let gate = house.gate(run).await;
        let view = longhaul_engine::view::gate_view(&gate);
        let about: Vec<String> = recipient.into_iter().map(str::to_owned).collect();
        assert_eq!((&gate.spec.injected_subjects, &view.injected_subjects), (&about, &about));
        let input = view.input.unwrap();
        assert!(!input.as_str().contains("anna"), "{input:?}");
        digests.push(view.digest);
        let yes = answer(&gate, Decision::Approve);
        house.longhaul.answer(gate.spec.id, yes).await.unwrap();
        house.ended(run).await;
        assert_eq!(deeds.count("send begins"), 1);
    }
    assert_ne!(digests[0], digests[1]);
}

#[tokio::test]
async fn an_approval_needs_the_digest_of_the_gate() {
    let deeds = EffectLog::default();
    let house = engine_sending(&deeds, vec![rule(None, ask())]).start();
    let run = house.submit().await;
    let gate = house.gate(run).await;
    let id = gate.spec.id;
    let mut given = answer(&gate, Decision::Approve);
    for (digest, code) in
        [(None, "digest_missing"), (Some(Hash::digest(b"another call")), "digest_changed")]
    {
        given.digest = digest;
        let no = house.longhaul.answer(id, given.clone()).await.unwrap_err();
        assert_eq!(no.code(), code);
    }
    let wrong = answer(&gate, Decision::Answer("sure".into()));
    let no = house.longhaul.answer(id, wrong).await.unwrap_err();
    assert_eq!(no.code(), "invalid_decision");
    assert_eq!(deeds.all(), Vec::<String>::new());
    let mut yes = answer(&gate, Decision::Approve);
    yes.note = Some("be kind".into());
    let heard = house.longhaul.answer(id, yes.clone()).await.unwrap();
    assert!(matches!(heard, GateAnswerOutcome::Closed(_)));
    let journal = house.ended(run).await;
    assert_eq!(count(&journal, "gate.answered"), 1, "{:?}", kinds(&journal));
    assert_eq!(deeds.count("send begins"), 1);
    let (text, _) = house.results().remove(0);
    assert!(text.starts_with("A person allowed this call and said: be kind"), "{text}");
    let no = house.longhaul.answer(id, yes).await.unwrap_err();
    assert_eq!(no.code(), "already_answered");
    assert!(no.to_string().contains("by cli:anna at 20"), "{no}");
}

#[tokio::test]
async fn the_model_reads_a_rejection_with_its_note() {
    for (note, wanted) in [
        (None, "a person rejected this call"),
        (Some("wrong list"), "a person rejected this call: wrong list"),
    ] {
        let deeds = EffectLog::default();
        let house = engine_sending(&deeds, vec![rule(None, ask())]).start();
        let run = house.submit().await;
        let gate = house.gate(run).await;
        let mut no = answer(&gate, Decision::Reject);
        no.note = note.map(str::to_owned);
        no.digest = None;
        house.longhaul.answer(gate.spec.id, no).await.unwrap();
        let journal = house.ended(run).await;
        assert_eq!(outcome_text(&journal), "done");
        assert_eq!(house.results(), [(wanted.to_owned(), true)]);
        assert_eq!(deeds.all(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn an_edit_is_checked_against_schema_and_rules_and_is_what_runs() {
    let deeds = EffectLog::default();
    let rules = vec![rule(Some("secret*"), Deny("never".into())), rule(None, ask())];
    let house = engine_sending(&deeds, rules).start();
    let run = house.submit().await;
    let gate = house.gate(run).await;
    let id = gate.spec.id;
    let edit = |input| Decision::Edit(RawJson::from_serialize(&input));
    for (input, why) in [
        (json!({ "text": 7 }), "does not fit its schema"),
        (json!({ "text": "secret plan" }), "a rule forbids this call: never"),
        (json!({ "text": "unspeakable" }), "panicked"),
    ] {
        let given = answer(&gate, edit(input));
        let no = house.longhaul.answer(id, given).await.unwrap_err();
        assert!(no.to_string().contains(why), "{no}");
    }
    let mut unread = answer(&gate, edit(json!({ "text": "hello" })));
    unread.digest = None;
    let no = house.longhaul.answer(id, unread).await.unwrap_err();
    assert_eq!(no.code(), "digest_missing");
    let given = answer(&gate, edit(json!({ "text": "hello" })));
    house.longhaul.answer(id, given).await.unwrap();
    let journal = house.ended(run).await;
    assert_eq!(outcome_text(&journal), "done");
    assert_eq!(count(&journal, "gate.raised"), 1, "an edit is not gated again");
    assert_eq!(deeds.all()[0], r#"send begins {"text":"hello"}"#);
    let (text, _) = house.results().remove(0);
    assert!(text.starts_with(r#"A person changed this call to {"text":"hello"}"#), "{text}");
}

#[tokio::test]
async fn an_approval_for_the_run_covers_only_the_same_rule() {
    let deeds = EffectLog::default();
    let other = GateRule { always: true, ..rule(Some("bye"), ask()) };
    let send = |text: &str| FakeReply::call("send", json!({ "text": text }));
    let mut plan = engine_sending(&deeds, vec![other, rule(None, ask())]);
    plan.replies = vec![send("hi"), send("hi again"), send("bye")];
    let house = plan.start();
    let run = house.submit().await;
    let gate = house.gate(run).await;
    let mut yes = answer(&gate, Decision::Approve);
    yes.scope = Scope::Run;
    house.longhaul.answer(gate.spec.id, yes).await.unwrap();
    let seen = house.until(run, "rule.added").await;
    let gate = {
        house.until_after(run, seen.last().unwrap().seq, "gate.raised").await;
        house.gate(run).await
    };
    assert_eq!(deeds.count("send ends"), 2, "the second was not asked about");
    let mut yes = answer(&gate, Decision::Approve);
    yes.scope = Scope::Run;
    let no = house.longhaul.answer(gate.spec.id, yes.clone()).await.unwrap_err();
    assert_eq!(no.code(), "scope_not_offered", "a rule that always asks");
    yes.scope = Scope::Once;
    house.longhaul.answer(gate.spec.id, yes).await.unwrap();
    let journal = house.ended(run).await;
    assert_eq!(count(&journal, "gate.raised"), 2);
    assert_eq!(deeds.count("send ends"), 3);
}

#[tokio::test]
async fn two_people_must_agree_where_the_rule_says_so() {
    let deeds = EffectLog::default();
    let mut both = rule(None, ask());
    both.approvers = Approvers { count: 2, not_submitter: true };
    let house = engine_sending(&deeds, vec![both]).start();
    let mut task = Task::new("tester", "Do it.");
    task.submitter = Some("cli:sam".into());
    let run = house.longhaul.submit(task).await.unwrap();
    let gate = house.gate(run).await;
    let says = |by: &str| {
        let mut yes = answer(&gate, Decision::Approve);
        yes.by = by.to_owned();
        house.longhaul.answer(gate.spec.id, yes)
    };
    assert_eq!(says("cli:sam").await.unwrap_err().code(), "self_approval");
    assert!(matches!(says("cli:anna").await, Ok(GateAnswerOutcome::Voted(_))));
    assert_eq!(says("cli:anna").await.unwrap_err().code(), "already_voted");
    assert_eq!(deeds.all(), Vec::<String>::new());
    assert!(matches!(says("cli:ben").await, Ok(GateAnswerOutcome::Closed(_))));
    let journal = house.ended(run).await;
    assert_eq!((count(&journal, "gate.voted"), count(&journal, "gate.answered")), (1, 1));
    assert_eq!(deeds.count("send begins"), 1);
}

/// A gate that nobody answers for a day.
async fn expired(on_timeout: OnTimeout) -> (TestEngine, longhaul_core::id::RunId, EffectLog) {
    let deeds = EffectLog::default();
    let mut asks = rule(None, ask());
    asks.on_timeout = on_timeout;
    let house = engine_sending(&deeds, vec![asks]).with_sim_clock().start();
    let run = house.submit().await;
    let gate = house.gate(run).await;
    let clock = house.clock.as_ref().unwrap();
    clock.advance(Millis::from_secs(24 * 60 * 60 - 1));
    assert_eq!(house.open_gates(run).await.len(), 1);
    clock.advance(Millis::from_secs(1));
    house.until(run, "gate.expired").await;
    let late = answer(&gate, Decision::Approve);
    let no = house.longhaul.answer(gate.spec.id, late).await.unwrap_err();
    assert_eq!(no.code(), "gate_expired");
    (house, run, deeds)
}

#[tokio::test]
async fn an_expired_gate_follows_on_timeout() {
    let (house, run, deeds) = expired(OnTimeout::Reject).await;
    assert_eq!(outcome_text(&house.ended(run).await), "done");
    assert_eq!(house.results(), [("nobody answered in time".to_owned(), true)]);
    assert_eq!(deeds.count("send"), 0);

    let (house, run, deeds) = expired(OnTimeout::Approve).await;
    assert_eq!(outcome_text(&house.ended(run).await), "done");
    assert_eq!(deeds.count("send begins"), 1);

    let (house, run, deeds) = expired(OnTimeout::Fail).await;
    assert_eq!(outcome_text(&house.ended(run).await), "gate_expired");
    assert_eq!(deeds.count("send"), 0);

    let (house, run, deeds) = expired(OnTimeout::Pause).await;
    let seen = house.until(run, "run.paused").await;
    house.longhaul.resume(run, None, "cli:anna").await.unwrap();
    house.until_after(run, seen.last().unwrap().seq, "gate.raised").await;
    let gate = house.gate(run).await;
    let yes = answer(&gate, Decision::Approve);
    house.longhaul.answer(gate.spec.id, yes).await.unwrap();
    assert_eq!(outcome_text(&house.ended(run).await), "done");
    assert_eq!(deeds.count("send begins"), 1);
}

#[tokio::test]
async fn pure_calls_before_a_gate_run_and_those_after_it_wait() {
    let deeds = EffectLog::default();
    let look = |n| ("look", json!({ "count": n }));
    let send = ("send", json!({ "text": "hi" }));
    let house = engine_with([FakeReply::Calls(vec![look(1), send, look(2)])])
        .tools([FakeTool::new("send", Once, &deeds), FakeTool::new("look", Pure, &deeds)])
        .agent(|agent| agent.rules = vec![rule(None, ask())])
        .start();
    let run = house.submit().await;
    let gate = house.gate(run).await;
    assert_eq!(deeds.count("look ends"), 1);
    let yes = answer(&gate, Decision::Approve);
    house.longhaul.answer(gate.spec.id, yes).await.unwrap();
    let journal = house.ended(run).await;
    assert_eq!(deeds.all().len(), 6);
    assert_eq!(house.results().len(), 3);
    let about_send = journal.iter().any(|entry| {
        matches!(&entry.event, Event::GateRaised(raised)
            if raised.gate.tool.as_deref() == Some("send"))
    });
    assert!(about_send, "{:?}", kinds(&journal));
}

#[tokio::test]
async fn the_second_approver_agrees_to_the_edit_of_the_first() {
    let deeds = EffectLog::default();
    let mut both = rule(None, ask());
    both.approvers.count = 2;
    let house = engine_sending(&deeds, vec![both]).start();
    let run = house.submit().await;
    let gate = house.gate(run).await;
    let id = gate.spec.id;
    let edit = Decision::Edit(RawJson::from_serialize(&json!({ "text": "hello" })));
    let counted = house.longhaul.answer(id, answer(&gate, edit)).await;
    assert!(matches!(counted, Ok(GateAnswerOutcome::Voted(_))), "{counted:?}");
    let mut yes = answer(&gate, Decision::Approve);
    yes.by = "cli:ben".into();
    let no = house.longhaul.answer(id, yes.clone()).await.unwrap_err();
    assert_eq!(no.code(), "digest_changed", "he was shown another call");
    yes.digest = gate_view(&house.longhaul.gate(id).await.unwrap()).digest;
    house.longhaul.answer(id, yes).await.unwrap();
    house.ended(run).await;
    assert_eq!(deeds.all()[0], r#"send begins {"text":"hello"}"#);
}

#[tokio::test]
async fn a_late_edit_is_rejected_as_late() {
    let deeds = EffectLog::default();
    let house = engine_sending(&deeds, vec![rule(None, ask())]).start();
    let run = house.submit().await;
    let gate = house.gate(run).await;
    let yes = answer(&gate, Decision::Approve);
    house.longhaul.answer(gate.spec.id, yes).await.unwrap();
    house.ended(run).await;
    let edit = answer(&gate, Decision::Edit(RawJson::from_serialize(&json!({ "text": 7 }))));
    let no = house.longhaul.answer(gate.spec.id, edit).await.unwrap_err();
    assert_eq!(no.code(), "already_answered");
}
