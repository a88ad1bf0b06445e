//! What is true of every run, whatever happens to it: random scripts of drivers,
//! people, crashes and clocks. After every append the world checks that fold and
//! rows agree (`world/invariants.rs`); here stands what spans a whole journal.
//!
//! Never: a script that can't be played again. A failing one is text.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_core::event::Event;
use longhaul_core::event::tool::VerifyOutcome;
use longhaul_core::id::{CallId, GateId};
use longhaul_core::policy::Policy;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::policy::gate::{Decision, GateKind};
use longhaul_core::usage::{Hold, Usage};
use longhaul_run::Run;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use super::generators::{policies, script_lines};
use super::harness::TestRun;
use super::harness::rows::{Head, plus};

/// Plays a script to where it leads.
fn played(policy: Policy, script: &[String]) -> TestRun {
    let mut world = TestRun::new(policy);
    for line in script {
        world.play(line);
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_journal_prefix_replays_to_the_same_run(policy in policies(), script in script_lines(80)) {
        let world = played(policy, &script);
        let entries = &world.entries;
        prop_assert_eq!(&Run::replay(entries).unwrap(), &world.run);
        for cut in (1..=entries.len()).step_by(5) {
            let folded = Run::replay(&entries[..cut]).unwrap();
            let kept = serde_json::to_string(&folded).unwrap();
            let mut run: Run = serde_json::from_str(&kept).unwrap();
            prop_assert_eq!(&run, &folded, "a checkpoint at {}", cut);
            for entry in &entries[cut..] {
                run.apply(entry).unwrap();
            }
            prop_assert_eq!(&run, &world.run, "from {}", cut);
        }
    }

    #[test]
    fn every_run_ends_if_all_its_inputs_succeed(policy in policies(), script in script_lines(80)) {
        let mut world = played(policy, &script);
        world.run_to_end();
        prop_assert!(world.run.status().is_terminal());
        let last = world.entries.iter().position(|entry| entry.event.is_terminal());
        prop_assert_eq!(last, Some(world.entries.len() - 1), "something follows the end");
        for line in ["go", "steer interrupt", "cancel", "resume", "close", "surface t1.1"] {
            let came = world.play(line);
            prop_assert!(came.starts_with('!'), "{} at the end: {}", line, came);
        }
        prop_assert_eq!(world.rows.head, Head::Ended);
    }

    #[test]
    fn usage_totals_follow_from_the_events(policy in policies(), script in script_lines(80)) {
        let world = played(policy, &script);
        let told = EventTotals::from_run(&world);
        let sums = world.run.control().totals;
        prop_assert_eq!(sums.usage, told.usage);
        prop_assert_eq!(sums.cost.0, told.spent.micro_usd.0);
        prop_assert_eq!(sums.held, told.held);
        prop_assert_eq!(sums.lost, told.lost);
        prop_assert_eq!(world.run.control().turns, told.turns);
        let kept = serde_json::to_value(&world.run).unwrap();
        prop_assert_eq!(&kept["control"]["transcript_bytes"], world.run.transcript().bytes());
    }

    #[test]
    fn nothing_starts_after_a_cancel(policy in policies(), script in script_lines(60), more in script_lines(20)) {
        let mut world = played(policy, &script);
        if world.rows.head == Head::Ended { return Ok(()); }
        world.play("cancel");
        let from = world.entries.len();
        for line in &more {
            world.play(line);
        }
        world.run_to_end();
        prop_assert_eq!(world.run.status().as_str(), "cancelled");
        for entry in &world.entries[from..] {
            let closes = entry.event.from_outside().is_some() || matches!(
                entry.event,
                Event::ToolCompleted(_) | Event::ToolFailed(_) | Event::ToolInterrupted(_)
                    | Event::ToolInDoubt(_) | Event::TurnFailed(_) | Event::RunCancelled(_)
                    | Event::GateWithdrawn(_) | Event::SteerDropped(_)
                    | Event::RunClaimed(_) | Event::RunRecovered(_) | Event::RunWaiting(_)
                    | Event::RunPaused(_)
            );
            prop_assert!(closes, "{} after a cancel", entry.event.kind());
        }
    }

    #[test]
    fn once_calls_are_repeated_only_by_a_persons_decision(
        policy in policies(),
        script in script_lines(90),
    ) {
        let mut world = played(policy, &script);
        world.run_to_end();
        check_effects(&world)?;
    }

    #[test]
    fn gates_and_messages_are_settled_once(policy in policies(), script in script_lines(80)) {
        let mut world = played(policy, &script);
        world.run_to_end();
        check_endings(&world)?;
    }
}

/// Sums as an auditor makes them, from the journal and nothing else.
#[derive(Default)]
struct EventTotals {
    usage: Usage,
    spent: Hold,
    held: Hold,
    lost: Hold,
    turns: u32,
}

impl EventTotals {
    fn from_run(world: &TestRun) -> Self {
        let mut sums = Self::default();
        for entry in &world.entries {
            match &entry.event {
                Event::TurnStarted(data) => sums.held = plus(sums.held, data.hold),
                Event::TurnCompleted(data) => {
                    sums.turns += 1;
                    sums.used(data.usage, data.cost.unwrap_or_default().0);
                }
                Event::TurnInterrupted(data) => {
                    sums.used(data.usage, data.cost.unwrap_or_default().0);
                }
                Event::MemoryCompacted(data) => {
                    sums.used(data.usage, data.cost.unwrap_or_default().0);
                }
                Event::TurnFailed(data) if data.failure.class.as_str() == "lost" => {
                    sums.lost = plus(sums.lost, data.charged);
                    sums.held = Hold::default();
                }
                Event::TurnFailed(data) => {
                    sums.used(data.failure.usage.unwrap_or_default(), data.charged.micro_usd.0);
                }
                _ => {}
            }
        }
        sums
    }

    fn used(&mut self, usage: Usage, micros: u64) {
        self.usage = self.usage.plus(usage);
        self.spent.micro_usd.0 += micros;
        self.held = Hold::default();
    }
}

/// A `once` call starts again only after a look or a person said that it has
/// not happened; every call ends once, and none ends before its reply.
fn check_effects(world: &TestRun) -> Result<(), TestCaseError> {
    let mut class: BTreeMap<CallId, EffectClass> = BTreeMap::new();
    let mut may_start: BTreeSet<CallId> = BTreeSet::new();
    let mut ended: BTreeSet<CallId> = BTreeSet::new();
    let mut doubt_gates: BTreeMap<GateId, CallId> = BTreeMap::new();
    let mut approvals: BTreeMap<GateId, CallId> = BTreeMap::new();
    for entry in &world.entries {
        match &entry.event {
            Event::TurnCompleted(data) => {
                for (appraisal, index) in data.calls.iter().zip(1..) {
                    let turn = data.turn;
                    class.insert(CallId { turn, index }, appraisal.class);
                    may_start.insert(CallId { turn, index });
                }
            }
            Event::ToolStarted(data) => {
                prop_assert!(!ended.contains(&data.call), "{} again", data.call);
                let first = may_start.remove(&data.call);
                let repeats = class[&data.call].may_repeat();
                prop_assert!(first || repeats, "{} begins again", data.call);
                let asked = approvals.values().any(|call| *call == data.call);
                prop_assert!(!asked, "{} begins before its gate", data.call);
            }
            Event::ToolVerified(data) if data.outcome == VerifyOutcome::NotHappened => {
                may_start.insert(data.call);
            }
            Event::GateRaised(data) => {
                let gates = match data.gate.kind {
                    GateKind::InDoubt => &mut doubt_gates,
                    GateKind::Approval => &mut approvals,
                    _ => continue,
                };
                gates.extend(data.gate.call.map(|call| (data.gate.id, call)));
            }
            Event::GateAnswered(data) => {
                let call = doubt_gates.get(&data.gate).copied();
                let again = data.answer.decision == Decision::Approve;
                may_start.extend(call.filter(|_| again));
                approvals.remove(&data.gate);
            }
            Event::GateExpired(data) => _ = approvals.remove(&data.gate),
            Event::GateWithdrawn(data) => _ = approvals.remove(&data.gate),
            Event::ToolCompleted(data) | Event::ToolFailed(data) | Event::ToolInterrupted(data) => {
                prop_assert!(class.contains_key(&data.call));
                prop_assert!(ended.insert(data.call), "{} ends twice", data.call);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Every gate that was raised and every message that was taken in has one end.
fn check_endings(world: &TestRun) -> Result<(), TestCaseError> {
    let mut open = BTreeSet::new();
    for entry in &world.entries {
        let (begins, ends) = match &entry.event {
            Event::GateRaised(data) => (Some(data.gate.id.to_string()), None),
            Event::GateAnswered(data) => (None, Some(data.gate.to_string())),
            Event::GateExpired(data) => (None, Some(data.gate.to_string())),
            Event::GateWithdrawn(data) => (None, Some(data.gate.to_string())),
            Event::SteerQueued(data) => (Some(data.steer.to_string()), None),
            Event::SteerDelivered(data) => (None, Some(data.steer.to_string())),
            Event::SteerDropped(data) => (None, Some(data.steer.to_string())),
            Event::SteerWithdrawn(data) => (None, Some(data.steer.to_string())),
            _ => (None, None),
        };
        if let Some(begins) = begins {
            prop_assert!(open.insert(begins));
        }
        if let Some(ends) = ends {
            prop_assert!(open.remove(&ends), "{} has ended already", ends);
        }
    }
    prop_assert!(open.is_empty(), "left open: {:?}", open);
    Ok(())
}

/// Kinds that only the rooms around the heart state.
const OTHER_KIND_PREFIXES: &[&str] = &["sandbox.", "chain.", "child.", "run.overdue", "run.forked"];

#[test]
fn random_scripts_reach_every_event_and_wait() {
    let mut runner = TestRunner::deterministic();
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let mut waits: BTreeSet<&str> = BTreeSet::new();
    for _ in 0..400 {
        let policy = policies().new_tree(&mut runner).unwrap().current();
        let script = script_lines(80).new_tree(&mut runner).unwrap().current();
        let mut world = played(policy, &script);
        world.run_to_end();
        for entry in &world.entries {
            seen.insert(entry.event.kind());
            if let Event::RunWaiting(data) = &entry.event {
                waits.insert(data.wait.reason());
            }
        }
    }
    let kinds = Event::KINDS.iter().map(|(kind, _, _)| *kind);
    let unseen: Vec<&str> = kinds
        .filter(|kind| !seen.contains(kind))
        .filter(|kind| !OTHER_KIND_PREFIXES.iter().any(|around| kind.starts_with(around)))
        .collect();
    assert_eq!(unseen, ["tool.progress", "budget.settled"]);
    let all = "approval budget message question rate_limit retry signal timer worker";
    assert_eq!(waits.into_iter().collect::<Vec<_>>().join(" "), all);
}
