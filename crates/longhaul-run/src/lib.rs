//! The heart of Longhaul: three pure verbs over a run's journal.
//!
//! `apply` makes a fact into state, `decide` makes an input into facts, `next`
//! says what must be done. Never: waits, reads a clock, draws a random number
//! or touches the world. Time and ids are handed in.

mod advance;
mod apply;
pub mod commands;
mod context;
pub mod decide;
mod decision;
pub mod explain;
pub mod input;
pub mod next;
mod policy;
pub mod rejection;
pub mod state;
pub mod submit;

pub use decide::decide;
pub use input::{DecideContext, Input};
pub use next::{Step, next};
pub use policy::legacy_output::strip_code_fence;
pub use policy::rules::denial_reason;
pub use rejection::Rejection;
pub use state::Run;
