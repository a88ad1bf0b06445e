//! Tools with special properties: cancel-safe, opaque and unsandboxed ones.

use futures_util::FutureExt as _;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::policy::effect::EffectClass::{Once, Pure};
use longhaul_core::policy::gate::{
    ApprovalRequirement, GateDecision, GateRule, GateRuleAction, GateTimeoutAction,
};
use longhaul_core::port::tool::PartialToolOutput;
use longhaul_core::time::Millis;
use longhaul_engine::agent::EffectRule;
use longhaul_engine::agent::config::{IsolationLevel, SandboxConfig};
use serde_json::json;

use crate::suite::harness::model::FakeReply;
use crate::suite::harness::tool::{EffectLog, FakeTool, ToolTraits};
use crate::suite::harness::{TestEngineBuilder, answer, count, engine_with, kinds, outcome_text};
use longhaul_testkit::latch::Latch;

/// Leaves partial output when it is dropped, like a command that is killed.
struct SetOutputOnDrop(PartialToolOutput);

impl Drop for SetOutputOnDrop {
    fn drop(&mut self) {
        self.0.set_output_so_far("half of it".to_owned());
    }
}

/// A `once` tool whose call never ends by itself and leaves partial output.
fn endless_tool(latch: &Latch, effects: &EffectLog) -> FakeTool {
    let traits = ToolTraits { is_cancel_safe: true, ..ToolTraits::default() };
    let latch = latch.clone();
    let tool = FakeTool::new("act", Once, effects).with_traits(traits);
    tool.with_action(move |_, ctx| {
        let latch = latch.clone();
        async move {
            let _output_guard = SetOutputOnDrop(ctx.partial_output.clone());
            latch.wait().await;
            Ok(ToolOutput::text("done"))
        }
        .boxed()
    })
}

fn engine_calling(tool: FakeTool) -> TestEngineBuilder {
    engine_with([FakeReply::call("act", json!({}))]).tools([tool])
}

#[tokio::test]
async fn a_cancel_ends_a_cancel_safe_call_at_once_and_keeps_its_partial_output() {
    let (latch, effects) = (Latch::closed(), EffectLog::default());
    let engine = engine_calling(endless_tool(&latch, &effects)).with_sim_clock();
    let engine = engine.start();
    let run = engine.submit().await;
    latch.reached(1).await;
    let cancelled = engine.longhaul.cancel_run(run, "cli:anna", "enough").await;
    cancelled.unwrap();
    // The clock does not advance, so no grace period passes.
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "run.cancelled");
    let counts = ["tool.interrupted", "tool.in_doubt"].map(|kind| count(&journal, kind));
    assert_eq!(counts, [1, 0], "{:?}", kinds(&journal));
    let text = format!("{journal:?}");
    assert!(text.contains("stopped: the run was cancelled"), "{text}");
    assert!(text.contains("half of it"), "{text}");
}

#[tokio::test]
async fn a_timed_out_call_returns_its_partial_output() {
    let (latch, effects) = (Latch::closed(), EffectLog::default());
    let engine = engine_calling(endless_tool(&latch, &effects).with_timeout(Millis(20))).start();
    let run = engine.submit().await;
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "done");
    let counts = ["tool.interrupted", "tool.in_doubt"].map(|kind| count(&journal, kind));
    assert_eq!(counts, [1, 0], "{:?}", kinds(&journal));
    let text = "the call timed out after 20ms\nOutput until then:\nhalf of it";
    assert_eq!(engine.results(), [(text.to_owned(), true)]);
}

#[tokio::test]
async fn a_worker_shutdown_stops_a_cancel_safe_call_after_the_grace_period() {
    let (latch, effects) = (Latch::closed(), EffectLog::default());
    let builder = engine_calling(endless_tool(&latch, &effects)).with_sim_clock();
    let mut engine = builder.build();
    let stop = engine.spawn_worker(|_| {});
    let run = engine.submit().await;
    latch.reached(1).await;
    stop.request_abort();
    let journal = engine.advance_until(run, "tool.interrupted").await;
    assert_eq!(count(&journal, "tool.in_doubt"), 0, "{:?}", kinds(&journal));
    engine.worker_stopped().await;
    // The next worker does not start it again.
    engine.spawn_worker(|_| {});
    let journal = engine.ended(run).await;
    assert_eq!(outcome_text(&journal), "done");
    assert_eq!(effects.count("act begins"), 1);
    let (text, is_error) = engine.results().remove(0);
    assert!(is_error && text.contains("the worker shut down"), "{text}");
}

#[tokio::test]
async fn opaque_calls_need_approval_and_are_never_pure() {
    check_calls_that_rules_cannot_inspect(true, "ls $()").await;
}

#[tokio::test]
async fn calls_with_a_long_text_need_approval_and_are_never_pure() {
    check_calls_that_rules_cannot_inspect(false, &format!("ls {}", "a".repeat(4_096))).await;
}

async fn check_calls_that_rules_cannot_inspect(is_opaque: bool, command: &str) {
    let (latch, effects) = (Latch::closed(), EffectLog::default());
    let traits = ToolTraits { is_opaque, ..ToolTraits::default() };
    let rule = GateRule {
        tool: "act".into(),
        match_glob: Some("rm *".into()),
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
    let harmless = EffectRule {
        tool: "act".into(),
        match_glob: Some("ls*".into()),
        class: Some(Pure),
        key: None,
    };
    let tool = FakeTool::new("act", Once, &effects).after_latch(&latch).with_traits(traits);
    let calls = ["1", "2"].map(|number| ("act", json!({ "text": format!("{command} {number}") })));
    let engine = engine_with([FakeReply::Calls(calls.to_vec())])
        .tools([tool])
        .agent(|agent| {
            agent.rules = vec![rule];
            agent.effects = vec![harmless];
        })
        .start();
    let run = engine.submit().await;
    engine.until(run, "run.waiting").await;
    for gate in engine.open_gates(run).await {
        let approval = answer(&gate, GateDecision::Approve);
        engine.longhaul.answer_gate(gate.spec.id, approval).await.unwrap();
    }
    latch.reached(1).await;
    assert_eq!(effects.count("act begins"), 1, "the calls run one after another");
    latch.open();
    let journal = engine.ended(run).await;
    assert_eq!(count(&journal, "gate.raised"), 2, "{:?}", kinds(&journal));
}

#[tokio::test]
async fn an_unsandboxed_tool_needs_isolation_none() {
    for (isolation, is_allowed) in [
        (None, false),
        (Some(IsolationLevel::Sandboxed), false),
        (Some(IsolationLevel::None), true),
    ] {
        let effects = EffectLog::default();
        let traits = ToolTraits { is_unsandboxed: true, ..ToolTraits::default() };
        let builder = engine_calling(FakeTool::new("act", Once, &effects).with_traits(traits));
        let sandbox =
            isolation.map(|isolation| SandboxConfig { isolation, ..SandboxConfig::default() });
        let engine = builder.agent(|agent| agent.sandbox = sandbox).start();
        let run = engine.submit().await;
        if is_allowed {
            assert_eq!(outcome_text(&engine.ended(run).await), "done");
        } else {
            let journal = engine.until(run, "run.blocked").await;
            let text = format!("{:?}", journal.last().unwrap().event);
            assert!(text.contains("`sandbox: { isolation: none }`"), "{text}");
            assert_eq!(effects.all(), Vec::<String>::new());
        }
    }
}
