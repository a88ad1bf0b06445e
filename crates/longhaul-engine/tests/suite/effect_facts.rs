//! Effect facts of calls that wait for an approval: when they are computed, what a gate shows, and
//! that tools can't delay or break a call with them.

use futures_util::FutureExt as _;
use longhaul_core::policy::effect::EffectClass::{Once, Pure};
use longhaul_core::policy::effect_facts::{FileContent, PredictedEffects, PredictedFileChange};
use longhaul_core::policy::gate::GateRuleAction::Allow;
use longhaul_core::policy::gate::{AnswerScope, GateDecision, GateKind};
use longhaul_core::port::tool::ToolFailure;
use longhaul_engine::view::gate_view;
use serde_json::json;

use crate::suite::gates::{ask, rule};
use crate::suite::harness::model::FakeReply;
use crate::suite::harness::tool::{EffectLog, FakeTool};
use crate::suite::harness::{SECRET, answer, count, engine_with};
use crate::suite::secrets::is_hidden;

fn predicted(after: &str) -> PredictedEffects {
    let file = PredictedFileChange {
        path: format!("notes/{SECRET}.md"),
        before: FileContent::Text(format!("the word is {SECRET}\nold\n")),
        after: FileContent::Text(format!("the word is {SECRET}\n{after}\n")),
    };
    PredictedEffects {
        files: Some(vec![file]),
        network: Some(vec![format!("https://{SECRET}.example")]),
        protected_paths: vec![format!(".git/{SECRET}")],
        undo: None,
    }
}

fn send(effects: &EffectLog) -> FakeTool {
    FakeTool::new("send", Once, effects).with_prediction(|| async { predicted("new") }.boxed())
}

#[tokio::test]
async fn a_gate_shows_facts_without_secrets() {
    let effects = EffectLog::default();
    let engine = engine_with([FakeReply::call("send", json!({ "text": "hi" }))])
        .tools([send(&effects)])
        .agent(|agent| agent.rules = vec![rule(None, ask())])
        .start();
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    let view = gate_view(&gate);
    insta::assert_json_snapshot!(view.facts, @r#"
    {
      "files": [
        {
          "path": "notes/{{secret:WORD}}.md",
          "change": "change",
          "lines_added": 1,
          "lines_removed": 1
        }
      ],
      "network": [
        "https://{{secret:WORD}}.example"
      ],
      "protected_paths": [
        ".git/{{secret:WORD}}"
      ]
    }
    "#);
    insta::assert_snapshot!(view.diff.unwrap(), @r"
    --- a/notes/{{secret:WORD}}.md
    +++ b/notes/{{secret:WORD}}.md
    @@ -1,2 +1,2 @@
     the word is {{secret:WORD}}
    -old
    +new
    ");
    let approval = answer(&gate, GateDecision::Approve);
    engine.longhaul.answer_gate(gate.spec.id, approval).await.unwrap();
    let journal = engine.ended(run).await;
    is_hidden(&engine, &journal, ("the facts", 5));
    assert_eq!(effects.count("send begins"), 1);
}

#[tokio::test]
async fn only_calls_that_wait_for_an_approval_are_predicted() {
    let send_hi = || FakeReply::call("send", json!({ "text": "hi" }));
    let effects = EffectLog::default();
    let engine = engine_with([
        FakeReply::Calls(vec![
            ("send", json!({ "text": "allowed" })),
            ("send", json!({ "count": "invalid" })),
            ("look", json!({})),
        ]),
        send_hi(),
        send_hi(),
        FakeReply::Text("done"),
    ])
    .tools([
        send(&effects),
        FakeTool::new("look", Pure, &effects).with_prediction(|| async { predicted("") }.boxed()),
    ])
    .agent(|agent| agent.rules = vec![rule(Some("allowed"), Allow), rule(None, ask())])
    .start();
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    let mut approval = answer(&gate, GateDecision::Approve);
    approval.scope = AnswerScope::Run;
    engine.longhaul.answer_gate(gate.spec.id, approval).await.unwrap();
    let journal = engine.ended(run).await;
    assert_eq!(count(&journal, "gate.raised"), 1);
    assert_eq!((effects.count("send predicts"), effects.count("look predicts")), (1, 0));
    assert_eq!(effects.count("send begins"), 3);
}

#[tokio::test]
async fn a_prediction_that_panics_or_hangs_is_not_known() {
    let check = async |tool: fn(FakeTool) -> FakeTool| {
        let effects = EffectLog::default();
        let engine = engine_with([FakeReply::call("send", json!({ "text": "hi" }))])
            .tools([tool(FakeTool::new("send", Once, &effects))])
            .agent(|agent| agent.rules = vec![rule(None, ask())])
            .with_sim_clock()
            .start();
        let run = engine.submit().await;
        engine.advance_until(run, "gate.raised").await;
        let gate = engine.gate(run).await;
        assert_eq!(gate.spec.facts, None);
        assert_eq!(gate_view(&gate).call_effect_rows().len(), 1);
        let approval = answer(&gate, GateDecision::Approve);
        engine.longhaul.answer_gate(gate.spec.id, approval).await.unwrap();
        engine.advance_until(run, "run.completed").await;
        assert_eq!(effects.count("send begins"), 1);
    };
    check(|tool| tool.with_prediction(|| async { panic!("a bug in the prediction") }.boxed()))
        .await;
    check(|tool| tool.with_prediction(|| std::future::pending().boxed())).await;
    check(|tool| tool.with_prediction(|| async { PredictedEffects::default() }.boxed())).await;
}

#[tokio::test]
async fn a_call_in_doubt_has_no_facts() {
    let effects = EffectLog::default();
    let fail = |_, _| async { Err(ToolFailure::outcome_unknown("the line is dead")) }.boxed();
    let engine = engine_with([FakeReply::call("send", json!({ "text": "hi" }))])
        .tools([send(&effects).with_action(fail)])
        .agent(|agent| agent.rules = vec![rule(None, ask())])
        .start();
    let run = engine.submit().await;
    let gate = engine.gate(run).await;
    assert!(gate.spec.facts.is_some());
    let approval = answer(&gate, GateDecision::Approve);
    engine.longhaul.answer_gate(gate.spec.id, approval).await.unwrap();
    let in_doubt = engine.gate(run).await;
    assert_eq!((in_doubt.spec.kind, in_doubt.spec.facts), (GateKind::InDoubt, None));
}
