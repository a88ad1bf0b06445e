//! What binds the runs of an agent, as [`Agent::define`](crate::Agent::define) sets it.
//!
//! ```
//! use longhaul::policy::{BudgetPatch, Raise};
//!
//! let agent = longhaul::Agent::new("helper").define(|agent| {
//!     agent.budget = BudgetPatch {
//!         caps: Raise { turns: Some(20), ..Raise::default() },
//!         warn_percent: Some(80),
//!     };
//! });
//! ```

pub use longhaul_core::policy::LaneOnPark;
pub use longhaul_core::policy::budget::Raise;
pub use longhaul_core::policy::effect::{EffectClass, InDoubt};
pub use longhaul_core::policy::gate::{
    Approvers, GateRule, OnTimeout, Pattern, ResultGate, Scope, Verdict,
};
pub use longhaul_engine::agent::wish::{Guards, Isolation, Sandboxed, Skill, Volume};
pub use longhaul_engine::agent::{BudgetPatch, Defaults, EffectRule, RetryPatch};
