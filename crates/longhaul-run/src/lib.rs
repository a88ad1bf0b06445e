//! The heart of Longhaul: three pure verbs over a run's journal.
//!
//! `apply` makes a fact into state, `decide` makes an input into facts, `next`
//! says what must be done. Never: waits, reads a clock, draws a random number
//! or touches the world. Time and ids are handed in.

mod advance;
mod apply;
pub mod decide;
mod draft;
pub mod input;
mod judge;
mod moment;
pub mod next;
pub mod outside;
pub mod refusal;
pub mod say;
pub mod state;
pub mod submit;

pub use decide::decide;
pub use input::{Input, Moment};
pub use judge::output::unfenced;
pub use judge::rules::denied;
pub use next::{Step, next};
pub use refusal::Refusal;
pub use state::Run;
