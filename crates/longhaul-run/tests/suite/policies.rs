//! Named policies for the tests.

use longhaul_core::policy::Policy;
use longhaul_core::policy::budget::Budget;
use longhaul_core::policy::gate::{
    ApprovalRequirement, GateRule, ResultGate, RuleAction, TimeoutAction,
};
use longhaul_core::time::Millis;
use longhaul_core::usage::MicroUsd;

/// A policy without rules and caps.
pub(crate) fn plain() -> Policy {
    Policy::default()
}

/// A rule that asks a person before every `shell` call.
pub(crate) fn ask_rule() -> GateRule {
    GateRule {
        tool: "shell".into(),
        subject: None,
        action: RuleAction::Ask("May it?".into()),
        always: false,
        timeout: None,
        on_timeout: TimeoutAction::Reject,
        in_doubt: None,
        approvers: ApprovalRequirement::default(),
        remind: None,
    }
}

/// A policy with one rule.
pub(crate) fn with_rule(rule: GateRule) -> Policy {
    Policy { rules: vec![rule], ..Policy::default() }
}

/// A policy that asks a person before `shell`, with this action after ten minutes.
pub(crate) fn ask_rule_with_timeout(on_timeout: TimeoutAction) -> Policy {
    with_rule(GateRule { timeout: Some(Millis::from_secs(600)), on_timeout, ..ask_rule() })
}

/// A policy with a gate for the result.
pub(crate) fn result_gate(on_timeout: TimeoutAction) -> Policy {
    Policy {
        result_gate: Some(ResultGate {
            ask: "Is it good?".into(),
            timeout: Millis::from_secs(600),
            on_timeout,
        }),
        ..Policy::default()
    }
}

/// A policy that keeps a finished run open for an hour.
pub(crate) fn keep_open() -> Policy {
    Policy { keep_open: Some(Millis::from_secs(3_600)), ..Policy::default() }
}

/// A policy with these caps.
pub(crate) fn with_caps(caps: Budget) -> Policy {
    Policy { budget: caps, ..Policy::default() }
}

/// A policy with this money cap.
pub(crate) fn with_money_cap(micros: u64) -> Policy {
    with_caps(Budget { micro_usd: Some(MicroUsd(micros)), ..Budget::default() })
}
