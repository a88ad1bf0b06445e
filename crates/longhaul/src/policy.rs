//! What binds the runs of an agent, as [`Agent::define`](crate::Agent::define) sets it.
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

pub use longhaul_core::policy::LaneOnPark;
pub use longhaul_core::policy::budget::BudgetRaise;
pub use longhaul_core::policy::effect::{EffectClass, InDoubtPolicy};
pub use longhaul_core::policy::gate::{
    Approvers, GateRule, OnTimeout, ResultGate, RuleAction, RulePattern, Scope,
};
pub use longhaul_engine::agent::config::{
    Isolation, LoopGuardConfig, SandboxConfig, Skill, Volume,
};
pub use longhaul_engine::agent::{BudgetPatch, Defaults, EffectRule, RetryPatch};
