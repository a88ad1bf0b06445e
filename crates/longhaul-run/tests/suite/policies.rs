//! Policies by name, for the examples.
//!
//! Never: a default that hides what a test is about.

use longhaul_core::policy::Policy;
use longhaul_core::policy::budget::Budget;
use longhaul_core::policy::gate::{Approvers, GateRule, OnTimeout, ResultGate, Verdict};
use longhaul_core::time::Millis;
use longhaul_core::usage::Micros;

/// Nothing is asked, nothing is capped.
pub(crate) fn plain() -> Policy {
    Policy::default()
}

/// A person is asked before every `shell`.
pub(crate) fn asks() -> GateRule {
    GateRule {
        tool: "shell".into(),
        subject: None,
        verdict: Verdict::Ask("May it?".into()),
        always: false,
        timeout: None,
        on_timeout: OnTimeout::Reject,
        in_doubt: None,
        approvers: Approvers::default(),
        remind: None,
    }
}

/// A policy of one rule.
pub(crate) fn ruled(rule: GateRule) -> Policy {
    Policy {
        rules: vec![rule],
        ..Policy::default()
    }
}

/// A person is asked before `shell`, and this happens after ten minutes.
pub(crate) fn asks_until(on_timeout: OnTimeout) -> Policy {
    ruled(GateRule {
        timeout: Some(Millis::from_secs(600)),
        on_timeout,
        ..asks()
    })
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
    Policy {
        keep_open: Some(Millis::from_secs(3_600)),
        ..Policy::default()
    }
}

/// These caps.
pub(crate) fn capped(caps: Budget) -> Policy {
    Policy {
        budget: caps,
        ..Policy::default()
    }
}

/// So much money.
pub(crate) fn money(micros: u64) -> Policy {
    capped(Budget {
        micros: Some(Micros(micros)),
        ..Budget::default()
    })
}
