//! Named policies for the tests.

use longhaul_core::policy::RunPolicy;
use longhaul_core::policy::budget::Budget;
use longhaul_core::policy::gate::{
    ApprovalRequirement, GateRule, GateRuleAction, GateTimeout, GateTimeoutAction,
    ResultApprovalGate,
};
use longhaul_core::policy::retry::RetryPolicy;
use longhaul_core::time::Millis;
use longhaul_core::usage::MicroUsd;

/// A policy without rules and caps.
pub(crate) fn plain() -> RunPolicy {
    RunPolicy::default()
}

/// A policy under which a run waits for an unavailable provider for this long.
pub(crate) fn with_outage(outage: Millis) -> RunPolicy {
    RunPolicy { retry: RetryPolicy { outage, ..RetryPolicy::default() }, ..RunPolicy::default() }
}

/// A rule that asks a person before every `shell` call.
pub(crate) fn ask_rule() -> GateRule {
    GateRule {
        tool: "shell".into(),
        match_glob: None,
        action: GateRuleAction::Ask("May it?".into()),
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

pub(crate) fn with_rule(rule: GateRule) -> RunPolicy {
    RunPolicy { rules: vec![rule], ..RunPolicy::default() }
}

/// A policy that asks a person before `shell`, with this action after ten minutes.
pub(crate) fn ask_rule_with_timeout(on_timeout: GateTimeoutAction) -> RunPolicy {
    with_rule(GateRule {
        timeout: Some(GateTimeout::After(Millis::from_secs(600))),
        on_timeout,
        ..ask_rule()
    })
}

pub(crate) fn result_gate(on_timeout: GateTimeoutAction) -> RunPolicy {
    RunPolicy {
        result_gate: Some(ResultApprovalGate {
            auto_approve: None,
            ask: "Is it good?".into(),
            timeout: Some(GateTimeout::After(Millis::from_secs(600))),
            on_timeout,
            approvers: ApprovalRequirement::default(),
            tags: Vec::new(),
        }),
        ..RunPolicy::default()
    }
}

/// A policy that keeps a finished run open for an hour.
pub(crate) fn keep_open() -> RunPolicy {
    RunPolicy { keep_open: Some(Millis::from_secs(3_600)), ..RunPolicy::default() }
}

pub(crate) fn with_caps(caps: Budget) -> RunPolicy {
    RunPolicy { budget: caps, ..RunPolicy::default() }
}

pub(crate) fn with_money_cap(micros: u64) -> RunPolicy {
    with_caps(Budget { micro_usd: Some(MicroUsd(micros)), ..Budget::default() })
}
