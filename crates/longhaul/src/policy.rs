//! Limits and rules for the runs of an agent, set with [`Agent::define`](crate::Agent::define).
//!
//! ```
//! use longhaul::policy::{BudgetPatch, BudgetRaise};
//!
//! let agent = longhaul::Agent::new("helper").define(|agent| {
//!     agent.budget = BudgetPatch {
//!         caps: BudgetRaise { turns: Some(20), ..BudgetRaise::default() },
//!         warn_percent: Some(80),
//!     };
//! });
//! ```

pub use longhaul_core::policy::budget::BudgetRaise;
pub use longhaul_core::policy::effect::{EffectClass, InDoubtPolicy};
pub use longhaul_core::policy::effect_facts::{EffectFacts, FileChangeKind, FileEffect};
pub use longhaul_core::policy::gate::{
    AnswerScope, ApprovalRequirement, EscalationStep, GateRule, GateRuleAction, GateTimeout,
    GateTimeoutAction, ResultApprovalGate, RulePattern,
};
pub use longhaul_core::policy::{LaneBusyPolicy, ParkedLanePolicy};
pub use longhaul_engine::agent::config::{
    IsolationLevel, LoopGuardConfig, SandboxConfig, SandboxVolume, Skill,
};
pub use longhaul_engine::agent::{BudgetPatch, EffectRule, RetryPatch, RunPolicyDefaults};
