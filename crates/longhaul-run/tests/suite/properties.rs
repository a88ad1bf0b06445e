//! Property tests over random scripts of drivers, people, crashes and clocks. After every append, the
//! harness checks that the folded state and the rows agree; the properties here are about whole journals.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_core::event::Event;
use longhaul_core::event::environment::GradingVerdict;
use longhaul_core::event::tool::VerifyOutcome;
use longhaul_core::id::{CallId, GateId};
use longhaul_core::policy::RunPolicy;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::policy::gate::{GateDecision, GateKind};
use longhaul_core::usage::{BudgetAmount, Usage};
use longhaul_run::Run;
use longhaul_run::fork::ForkRequest;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use super::generators::{policies, script_lines};
use super::harness::TestRun;
use super::harness::amounts::plus;
use super::harness::rows::Head;

fn played(policy: RunPolicy, script: &[String]) -> TestRun {
    let mut test_run = TestRun::new(policy);
    for line in script {
        test_run.play(line);
    }
    test_run
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_journal_prefix_replays_to_the_same_run(policy in policies(), script in script_lines(80)) {
        let test_run = played(policy, &script);
        let entries = &test_run.entries;
        prop_assert_eq!(&Run::replay(entries).unwrap(), &test_run.run);
        for prefix_len in (1..=entries.len()).step_by(5) {
            let folded = Run::replay(&entries[..prefix_len]).unwrap();
            let stored = serde_json::to_string(&folded).unwrap();
            let mut run: Run = serde_json::from_str(&stored).unwrap();
            prop_assert_eq!(&run, &folded, "a checkpoint at {}", prefix_len);
            for entry in &entries[prefix_len..] {
                run.apply(entry).unwrap();
            }
            prop_assert_eq!(&run, &test_run.run, "from {}", prefix_len);
        }
    }

    #[test]
    fn every_run_ends_if_all_its_inputs_succeed(policy in policies(), script in script_lines(80)) {
        let mut test_run = played(policy, &script);
        test_run.run_to_end();
        prop_assert!(test_run.run.status().is_terminal());
        let last = test_run.entries.iter().position(|entry| entry.event.is_terminal());
        prop_assert_eq!(last, Some(test_run.entries.len() - 1), "something follows the end");
        for line in ["go", "steer interrupt", "cancel", "resume", "close", "end", "surface t1.1"] {
            let result = test_run.play(line);
            prop_assert!(result.starts_with('!'), "{} at the end: {}", line, result);
        }
        prop_assert_eq!(test_run.rows.head, Head::Ended);
    }

    #[test]
    fn usage_totals_follow_from_the_events(policy in policies(), script in script_lines(80)) {
        let test_run = played(policy, &script);
        let expected = EventTotals::from_run(&test_run);
        let totals = test_run.run.control().totals;
        prop_assert_eq!(totals.usage, expected.usage);
        prop_assert_eq!(totals.cost.0, expected.spent.micro_usd.0);
        prop_assert_eq!(totals.held, expected.held);
        prop_assert_eq!(totals.lost, expected.lost);
        prop_assert_eq!(test_run.run.control().turns, expected.turns);
        let stored = serde_json::to_value(&test_run.run).unwrap();
        prop_assert_eq!(&stored["control"]["transcript_bytes"], test_run.run.transcript().estimated_bytes());
    }

    #[test]
    fn nothing_starts_after_a_cancel(policy in policies(), script in script_lines(60), more in script_lines(20)) {
        let mut test_run = played(policy, &script);
        if test_run.rows.head == Head::Ended { return Ok(()); }
        test_run.play("cancel");
        let from = test_run.entries.len();
        for line in &more {
            test_run.play(line);
        }
        test_run.run_to_end();
        prop_assert_eq!(test_run.run.status().as_str(), "cancelled");
        for entry in &test_run.entries[from..] {
            let is_allowed = entry.event.runs_woken_by_outside_append().is_some() || matches!(
                entry.event,
                Event::ToolCompleted(_) | Event::ToolFailed(_) | Event::ToolInterrupted(_)
                    | Event::ToolInDoubt(_) | Event::TurnFailed(_) | Event::RunCancelled(_)
                    | Event::GateWithdrawn(_) | Event::SteerDropped(_)
                    | Event::RunClaimed(_) | Event::RunRecovered(_) | Event::RunWaiting(_)
                    | Event::RunPaused(_) | Event::ToolInputRequired(_) | Event::ToolPending(_)
                    | Event::SandboxRunning(_) | Event::SandboxStopping(_) | Event::SandboxStopped(_)
                    | Event::SandboxLost(_)
            );
            prop_assert!(is_allowed, "{} after a cancel", entry.event.kind());
        }
    }

    #[test]
    fn once_calls_are_repeated_only_by_a_persons_decision(
        policy in policies(),
        script in script_lines(90),
    ) {
        let mut test_run = played(policy, &script);
        test_run.run_to_end();
        check_effects(&test_run)?;
        check_verdicts(&test_run)?;
    }

    #[test]
    fn a_retry_repeats_nothing_and_ends(
        policy in policies(),
        script in script_lines(60),
        more in script_lines(30),
    ) {
        let mut test_run = played(policy, &script);
        for _ in 0..2 {
            test_run.run_to_end();
            if test_run.run.status().as_str() != "failed" {
                return Ok(());
            }
            let mut retry = test_run.retry();
            prop_assert_eq!(retry.run.status().as_str(), "pending");
            prop_assert_eq!(retry.run.attempt_number(), test_run.run.attempt_number() + 1);
            for line in &more {
                retry.play(line);
            }
            prop_assert_eq!(&Run::replay(&retry.entries).unwrap(), &retry.run);
            test_run = retry;
        }
        test_run.run_to_end();
        check_effects(&test_run)?;
        check_verdicts(&test_run)?;
        check_endings(&test_run)?;
    }

    #[test]
    fn a_fork_of_any_prefix_repeats_nothing_and_ends(
        policy in policies(),
        script in script_lines(60),
        more in script_lines(20),
        before in 1_usize..1_000,
        prepares_again in any::<bool>(),
    ) {
        let origin = played(policy, &script);
        let before = 1 + before % origin.entries.len();
        let model = prepares_again.then(|| "scripted/other".to_owned());
        let request = ForkRequest { fresh_files: true, model, ..ForkRequest::default() };
        let mut fork = origin.fork(before as u64, request).unwrap();
        prop_assert_eq!(fork.run.status().as_str(), "pending");
        prop_assert!(fork.entries.len() <= before.max(2));
        for line in &more {
            fork.play(line);
        }
        fork.run_to_end();
        prop_assert!(fork.run.status().is_terminal());
        prop_assert_eq!(&Run::replay(&fork.entries).unwrap(), &fork.run);
        let stored = serde_json::to_value(&fork.run).unwrap();
        prop_assert_eq!(&stored["control"]["transcript_bytes"], fork.run.transcript().estimated_bytes());
        check_effects(&fork)?;
        check_verdicts(&fork)?;
        check_endings(&fork)?;
    }

    #[test]
    fn gates_and_messages_are_settled_once(policy in policies(), script in script_lines(80)) {
        let mut test_run = played(policy, &script);
        test_run.run_to_end();
        check_endings(&test_run)?;
    }
}

/// Totals computed from the journal alone.
#[derive(Default)]
struct EventTotals {
    usage: Usage,
    spent: BudgetAmount,
    held: BudgetAmount,
    lost: BudgetAmount,
    turns: u32,
}

impl EventTotals {
    fn from_run(test_run: &TestRun) -> Self {
        let mut sums = Self::default();
        for entry in &test_run.entries {
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
                    sums.held = BudgetAmount::default();
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
        self.held = BudgetAmount::default();
    }
}

/// A `once` call is started again only after a check or a person has established that it did not
/// take effect. Every call ends once, and none ends before its reply.
fn check_effects(test_run: &TestRun) -> Result<(), TestCaseError> {
    let mut class: BTreeMap<CallId, EffectClass> = BTreeMap::new();
    let mut may_start: BTreeSet<CallId> = BTreeSet::new();
    let mut ended: BTreeSet<CallId> = BTreeSet::new();
    let mut suspended: BTreeMap<CallId, bool> = BTreeMap::new();
    let mut doubt_gates: BTreeMap<GateId, CallId> = BTreeMap::new();
    let mut approvals: BTreeMap<GateId, CallId> = BTreeMap::new();
    for entry in &test_run.entries {
        match &entry.event {
            Event::TurnCompleted(data) => {
                for (classification, index) in data.calls.iter().zip(1..) {
                    let turn = data.turn;
                    class.insert(CallId { turn, index }, classification.class);
                    may_start.insert(CallId { turn, index });
                }
            }
            Event::ToolStarted(data) => {
                prop_assert!(!ended.contains(&data.call), "{} again", data.call);
                let first = may_start.remove(&data.call);
                let may_repeat = class[&data.call].may_repeat();
                prop_assert!(first || may_repeat, "{} is started again", data.call);
                let is_awaiting = approvals.values().any(|call| *call == data.call);
                prop_assert!(!is_awaiting, "{} is started before its gate is answered", data.call);
            }
            Event::ToolInputRequired(data) => {
                suspended.insert(data.call, data.suspension.may_repeat);
                may_start.insert(data.call);
            }
            Event::ToolPending(data) => {
                suspended.insert(data.call, data.suspension.may_repeat);
                may_start.insert(data.call);
            }
            Event::ToolResumed(data) => {
                prop_assert!(!ended.contains(&data.call), "{} again", data.call);
                let first = may_start.remove(&data.call);
                prop_assert!(first || suspended[&data.call], "{} is continued again", data.call);
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
                let may_run_again = data.answer.decision == GateDecision::Approve;
                may_start.extend(call.filter(|_| may_run_again));
                approvals.remove(&data.gate);
            }
            // The open gates of a failed run are not copied to its retry.
            Event::RunForked(_) => approvals.clear(),
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

/// A run whose results are graded completes only with a result that was accepted.
fn check_verdicts(test_run: &TestRun) -> Result<(), TestCaseError> {
    let is_graded = test_run.run.task().policy.outcome_rounds.is_some();
    let mut is_accepted = false;
    for entry in &test_run.entries {
        match &entry.event {
            Event::TurnCompleted(_) => is_accepted = false,
            Event::OutcomeGraded(data) => is_accepted = data.verdict == GradingVerdict::Satisfied,
            Event::RunCompleted(_) => prop_assert!(is_accepted || !is_graded),
            _ => {}
        }
    }
    Ok(())
}

/// Every gate and every queued message is closed exactly once.
fn check_endings(test_run: &TestRun) -> Result<(), TestCaseError> {
    let mut open = BTreeSet::new();
    for entry in &test_run.entries {
        if let Event::RunForked(_) = &entry.event {
            open.clear();
        }
        let (opened, closed) = match &entry.event {
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
        if let Some(opened) = opened {
            prop_assert!(open.insert(opened));
        }
        if let Some(closed) = closed {
            prop_assert!(open.remove(&closed), "{} was already closed", closed);
        }
    }
    prop_assert!(open.is_empty(), "left open: {:?}", open);
    Ok(())
}

/// Kinds of events that are not written by the state machine.
const OTHER_KIND_PREFIXES: &[&str] = &[
    "chain.",
    "run.overdue",
    "run.timed_out",
    "run.forked",
    "tool.progress",
    "budget.settled",
    "sandbox.deleted",
    "sandbox.command_run",
];

/// Reasons of all waits.
const ALL_WAITS: &str = "approval budget child key message outage question rate_limit retry \
     sandbox_slot signal timer tool worker";

#[test]
fn random_scripts_reach_every_event_and_wait() {
    let mut runner = TestRunner::deterministic();
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let mut waits: BTreeSet<&str> = BTreeSet::new();
    let kinds = Event::KINDS.iter().map(|(kind, _, _)| *kind);
    let kinds =
        kinds.filter(|kind| !OTHER_KIND_PREFIXES.iter().any(|prefix| kind.starts_with(prefix)));
    let expected_kinds: BTreeSet<&str> = kinds.collect();
    let all_waits: BTreeSet<&str> = ALL_WAITS.split(' ').collect();
    for _ in 0..20_000 {
        if seen.is_superset(&expected_kinds) && waits == all_waits {
            return;
        }
        let policy = policies().new_tree(&mut runner).unwrap().current();
        let script = script_lines(80).new_tree(&mut runner).unwrap().current();
        let mut test_run = played(policy, &script);
        test_run.run_to_end();
        for entry in &test_run.entries {
            seen.insert(entry.event.kind());
            if let Event::RunWaiting(data) = &entry.event {
                waits.insert(data.wait.reason());
            }
        }
    }
    let unseen: Vec<_> = expected_kinds.difference(&seen).collect();
    panic!("never reached: {unseen:?}; waits: {waits:?}");
}
