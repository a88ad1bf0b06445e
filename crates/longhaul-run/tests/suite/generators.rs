//! Generators of random policies and scripts. Scripts use the same syntax as the
//! examples, so a failing one can be copied there.
//!
//! Scripts contain invalid lines too, such as answers to closed gates and results of calls that
//! were never made. These must be rejected.

use longhaul_core::policy::RunPolicy;
use longhaul_core::policy::budget::Budget;
use longhaul_core::policy::effect::InDoubtPolicy;
use longhaul_core::policy::gate::{
    ApprovalRequirement, GateRule, GateRuleAction, GateTimeout, GateTimeoutAction,
    ResultApprovalGate,
};
use longhaul_core::policy::retry::{DEFAULT_OUTAGE, RetryPolicy};
use longhaul_core::time::Millis;
use longhaul_core::usage::MicroUsd;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

const OUTSIDER_LINES: &[&str] = &[
    "yes",
    "yes",
    "yes run",
    "yes run",
    "yes run",
    "yes agent",
    "yes project",
    "yes by cli:bob",
    "yes @1",
    "no",
    "no Be kinder.",
    "no run",
    "edit {\"command\": \"ls\"}",
    "edit \"Other words.\"",
    "answer Blue.",
    "complete",
    "steer after_batch",
    "steer before_next_tool",
    "steer interrupt",
    "steer interrupt",
    "steer interrupt",
    "steer follow_up",
    "unsteer",
    "resteer interrupt",
    "resteer after_batch",
    "pause",
    "resume",
    "resume money 50000000",
    "raise turns 500",
    "raise tokens 5000000",
    "revoke",
    "revoke",
    "surface t1.1",
    "key held k",
    "key held k",
    "key unknown k",
    "key done k",
    "key free k",
    "surface t1.2",
    "surface t2.1",
    "fire",
    "box full",
    "box free",
    "idle stopping",
    "idle stopping",
    "idle stopped",
    "idle lost",
    "child 1 It says B.",
    "child 1 !no key",
    "child 2 cancelled",
    "child 1 {\"satisfied\": false, \"note\": \"Too short.\"}",
    "child 2 {\"satisfied\": true, \"note\": \"Good.\"}",
];

const UNEXPECTED_LINES: &[&str] = &[
    "say Hello.",
    "call shell/once {\"command\": \"rm x\"}",
    "done t1.1 ok",
    "kill t1.3",
    "see",
    "err auth",
    "err stopped",
    "halt Half",
    "sum 1",
    "found t1.1 unknown",
    "found t1.1 nothing",
    "missing a key",
    "release",
    "box open",
    "box runs",
    "box lost",
    "box refused",
    "close",
    "still",
    "end",
    "go",
    "grade",
];

const TIMEOUTS: &[GateTimeoutAction] = &[
    GateTimeoutAction::Reject,
    GateTimeoutAction::Approve,
    GateTimeoutAction::Fail,
    GateTimeoutAction::Pause,
];

const IN_DOUBT_POLICIES: &[InDoubtPolicy] =
    &[InDoubtPolicy::Tell, InDoubtPolicy::Ask, InDoubtPolicy::Fail];

/// Generates scripts with fewer than `most` lines.
pub(crate) fn script_lines(max: usize) -> impl Strategy<Value = Vec<String>> {
    let line = prop_oneof![
        60 => (0_usize..42).prop_map(|pick| format!("drive {pick}")),
        20 => (0_usize..42, select(OUTSIDER_LINES)).prop_map(|(pick, line)| format!("race {pick} {line}")),
        20 => select(OUTSIDER_LINES).prop_map(str::to_owned),
        4 => select(UNEXPECTED_LINES).prop_map(str::to_owned),
        8 => Just("crash".to_owned()),
        6 => (1_u64..4_000).prop_map(|duration| format!("tick {duration}")),
        1 => (0_usize..42).prop_map(|pick| format!("race {pick} cancel")),
    ];
    prop::collection::vec(line, 1..max)
}

/// Generates policies with short timeouts and small budgets.
pub(crate) fn policies() -> impl Strategy<Value = RunPolicy> {
    let gates = (
        option::of((select(TIMEOUTS), 1_u16..3, any::<bool>())),
        option::of(select(TIMEOUTS)),
        option::of(select(IN_DOUBT_POLICIES)),
        option::weighted(0.3, 1_u32..4),
    );
    let durations = (
        option::weighted(0.3, 30_000_u64..4_000_000),
        option::weighted(0.2, 2_u32..6),
        any::<bool>(),
        select(vec![Millis::ZERO, DEFAULT_OUTAGE]),
    );
    let budget = (
        option::weighted(0.3, 70_000_u64..200_000),
        option::weighted(0.2, 5_000_u64..20_000),
        option::weighted(0.2, 1_u32..4),
        option::weighted(0.2, 500_u64..4_000),
    );
    (gates, durations, budget).prop_map(|(gates, durations, budget)| {
        let (rule, result, in_doubt, outcome_rounds) = gates;
        RunPolicy {
            rules: rule.map(rule_of).into_iter().collect(),
            result_gate: result.map(|on_timeout| ResultApprovalGate {
                auto_approve: None,
                ask: "Is it good?".into(),
                timeout: Some(GateTimeout::After(Millis::from_secs(600))),
                on_timeout,
                approvers: ApprovalRequirement::default(),
                tags: Vec::new(),
            }),
            in_doubt,
            outcome_rounds,
            keep_open: durations.0.map(Millis),
            max_turns: durations.1,
            refresh_perception_each_turn: durations.2,
            retry: RetryPolicy { outage: durations.3, ..RetryPolicy::default() },
            budget: Budget {
                micro_usd: budget.0.map(MicroUsd),
                tokens: budget.1,
                turns: budget.2,
                active: budget.3.map(Millis),
                ..Budget::default()
            },
            ..RunPolicy::default()
        }
    })
}

fn rule_of((on_timeout, count, always): (GateTimeoutAction, u16, bool)) -> GateRule {
    GateRule {
        tool: "shell".into(),
        match_glob: Some("rm*".into()),
        action: GateRuleAction::Ask("May it remove?".into()),
        always,
        timeout: Some(GateTimeout::After(Millis::from_secs(900))),
        on_timeout,
        in_doubt: None,
        approvers: ApprovalRequirement { count, not_submitter: count > 1 },
        remind: Some(Millis::from_secs(60)),
        escalation: Vec::new(),
        tags: Vec::new(),
    }
}
