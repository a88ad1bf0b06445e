//! Tools that say more of themselves: that they end when they are let go of,
//! that a call can't be read, that they act without walls.

use futures_util::FutureExt as _;
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::policy::effect::EffectClass::{Once, Pure};
use longhaul_core::policy::gate::{Approvers, Decision, GateRule, OnTimeout, RuleAction};
use longhaul_core::port::tool::PartialOutput;
use longhaul_core::time::Millis;
use longhaul_engine::agent::EffectRule;
use longhaul_engine::agent::config::{Isolation, SandboxConfig};
use serde_json::json;

use crate::suite::harness::model::FakeReply;
use crate::suite::harness::tool::{EffectLog, FakeTool, ToolTraits};
use crate::suite::harness::{TestEngineBuilder, answer, count, engine_with, kinds, outcome_text};
use longhaul_testkit::latch::Latch;

/// Leaves word when it is dropped, as a command does that is killed.
struct SetOutputOnDrop(PartialOutput);

impl Drop for SetOutputOnDrop {
    fn drop(&mut self) {
        self.0.set("half of it".to_owned());
    }
}

/// A `once` call that never ends by itself and leaves what it has.
fn endless_tool(door: &Latch, deeds: &EffectLog) -> FakeTool {
    let ways = ToolTraits { is_cancel_safe: true, ..ToolTraits::default() };
    let door = door.clone();
    let hand = FakeTool::new("act", Once, deeds).with_traits(ways);
    hand.with_action(move |_, around| {
        let door = door.clone();
        async move {
            let _leaving = SetOutputOnDrop(around.partial_output.clone());
            door.wait().await;
            Ok(ToolOutput::text("done"))
        }
        .boxed()
    })
}

fn engine_calling(hand: FakeTool) -> TestEngineBuilder {
    engine_with([FakeReply::call("act", json!({}))]).tools([hand])
}

#[tokio::test]
async fn a_cancel_ends_a_cancel_safe_call_at_once_and_keeps_its_partial_output() {
    let (never, deeds) = (Latch::new(), EffectLog::default());
    let house = engine_calling(endless_tool(&never, &deeds)).with_sim_clock();
    let house = house.start();
    let run = house.submit().await;
    never.reached(1).await;
    let cancelled = house.longhaul.cancel(run, "cli:anna", "enough").await;
    cancelled.unwrap();
    // The clock stands: nobody waits for a grace.
    let journal = house.ended(run).await;
    assert_eq!(outcome_text(&journal), "run.cancelled");
    let counts = ["tool.interrupted", "tool.in_doubt"].map(|kind| count(&journal, kind));
    assert_eq!(counts, [1, 0], "{:?}", kinds(&journal));
    let said = format!("{journal:?}");
    assert!(said.contains("stopped: the run was cancelled"), "{said}");
    assert!(said.contains("half of it"), "{said}");
}

#[tokio::test]
async fn a_timed_out_call_returns_its_partial_output() {
    let (never, deeds) = (Latch::new(), EffectLog::default());
    let house = engine_calling(endless_tool(&never, &deeds).with_timeout(Millis(20))).start();
    let run = house.submit().await;
    let journal = house.ended(run).await;
    assert_eq!(outcome_text(&journal), "done");
    let counts = ["tool.interrupted", "tool.in_doubt"].map(|kind| count(&journal, kind));
    assert_eq!(counts, [1, 0], "{:?}", kinds(&journal));
    let text =
        "it took longer than 20 ms and was stopped\nWhat it had said until then:\nhalf of it";
    assert_eq!(house.results(), [(text.to_owned(), true)]);
}

#[tokio::test]
async fn a_worker_shutdown_stops_a_cancel_safe_call_after_the_grace_period() {
    let (never, deeds) = (Latch::new(), EffectLog::default());
    let plan = engine_calling(endless_tool(&never, &deeds)).with_sim_clock();
    let mut house = plan.build();
    let stop = house.spawn_worker(|_| {});
    let run = house.submit().await;
    never.reached(1).await;
    stop.abort();
    let journal = house.advance_until(run, "tool.interrupted").await;
    assert_eq!(count(&journal, "tool.in_doubt"), 0, "{:?}", kinds(&journal));
    house.worker_stopped().await;
    // The next worker does not begin it again.
    house.spawn_worker(|_| {});
    let journal = house.ended(run).await;
    assert_eq!(outcome_text(&journal), "done");
    assert_eq!(deeds.count("act begins"), 1);
    let (text, is_error) = house.results().remove(0);
    assert!(is_error && text.contains("the worker had to go"), "{text}");
}

#[tokio::test]
async fn opaque_calls_need_approval_and_are_never_pure() {
    let (door, deeds) = (Latch::new(), EffectLog::default());
    let ways = ToolTraits { is_opaque: true, ..ToolTraits::default() };
    let rule = GateRule {
        tool: "act".into(),
        subject: Some("rm *".into()),
        action: RuleAction::Ask("May it?".into()),
        always: false,
        timeout: None,
        on_timeout: OnTimeout::Reject,
        in_doubt: None,
        approvers: Approvers::default(),
        remind: None,
    };
    let harmless = EffectRule { tool: "act".into(), subject: Some("ls*".into()), class: Pure };
    let hand = FakeTool::new("act", Once, &deeds).after_latch(&door).with_traits(ways);
    let calls = ["ls $(a)", "ls $(b)"].map(|text| ("act", json!({ "text": text })));
    let house = engine_with([FakeReply::Calls(calls.to_vec())])
        .tools([hand])
        .agent(|agent| {
            agent.rules = vec![rule];
            agent.effects = vec![harmless];
        })
        .start();
    let run = house.submit().await;
    house.until(run, "run.waiting").await;
    for gate in house.open_gates(run).await {
        let yes = answer(&gate, Decision::Approve);
        house.longhaul.answer(gate.spec.id, yes).await.unwrap();
    }
    door.reached(1).await;
    assert_eq!(deeds.count("act begins"), 1, "one after the other");
    door.open();
    let journal = house.ended(run).await;
    assert_eq!(count(&journal, "gate.raised"), 2, "{:?}", kinds(&journal));
}

#[tokio::test]
async fn an_unsandboxed_tool_needs_isolation_none() {
    for (isolation, may) in
        [(None, false), (Some(Isolation::Sandboxed), false), (Some(Isolation::None), true)]
    {
        let deeds = EffectLog::default();
        let ways = ToolTraits { is_unsandboxed: true, ..ToolTraits::default() };
        let plan = engine_calling(FakeTool::new("act", Once, &deeds).with_traits(ways));
        let sandbox =
            isolation.map(|isolation| SandboxConfig { isolation, ..SandboxConfig::default() });
        let house = plan.agent(|agent| agent.sandbox = sandbox).start();
        let run = house.submit().await;
        if may {
            assert_eq!(outcome_text(&house.ended(run).await), "done");
        } else {
            let journal = house.until(run, "run.blocked").await;
            let said = format!("{:?}", journal.last().unwrap().event);
            assert!(said.contains("`sandbox: { isolation: none }`"), "{said}");
            assert_eq!(deeds.all(), Vec::<String>::new());
        }
    }
}
