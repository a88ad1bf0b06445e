//! Policies by name, for the examples.
//!
//! Never: a default that hides what a test is about.

use longhaul_core::policy::Policy;
use longhaul_core::policy::budget::Budget;
use longhaul_core::policy::gate::{Approvers, GateRule, OnTimeout, ResultGate, RuleAction};
use longhaul_core::time::Millis;
use longhaul_core::usage::MicroUsd;

/// Nothing is asked, nothing is capped.
pub(crate) fn plain() -> Policy {
    Policy::default()
}

/// A person is asked before every `shell`.
pub(crate) fn ask_rule() -> GateRule {
    GateRule {
        tool: "shell".into(),
        subject: None,
        action: RuleAction::Ask("May it?".into()),
        always: false,
        timeout: None,
        on_timeout: OnTimeout::Reject,
        in_doubt: None,
        approvers: Approvers::default(),
        remind: None,
    }
}

/// A policy of one rule.
pub(crate) fn with_rule(rule: GateRule) -> Policy {
    Policy { rules: vec![rule], ..Policy::default() }
}

/// A person is asked before `shell`, and this happens after ten minutes.
pub(crate) fn ask_rule_with_timeout(on_timeout: OnTimeout) -> Policy {
    with_rule(GateRule { timeout: Some(Millis::from_secs(600)), on_timeout, ..ask_rule() })
}

/// The result itself is asked about.
pub(crate) fn result_gate(on_timeout: OnTimeout) -> Policy {
    Policy {
        result_gate: Some(ResultGate {
            ask: "Is it good?".into(),
            timeout: Millis::from_secs(600),
            on_timeout,
        }),
        ..Policy::default()
    }
}

/// The run stays open for an hour.
pub(crate) fn keep_open() -> Policy {
    Policy { keep_open: Some(Millis::from_secs(3_600)), ..Policy::default() }
}

/// These caps.
pub(crate) fn with_caps(caps: Budget) -> Policy {
    Policy { budget: caps, ..Policy::default() }
}

/// So much money.
pub(crate) fn with_money_cap(micros: u64) -> Policy {
    with_caps(Budget { micro_usd: Some(MicroUsd(micros)), ..Budget::default() })
}
