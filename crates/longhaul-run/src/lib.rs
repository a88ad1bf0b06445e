//! The state machine of a run: three pure functions over its journal.
//!
//! `apply` folds an event into the state, `decide` turns an input into events, and
//! `next_engine_step` tells the engine what to do. Invariant: nothing here does I/O, waits, reads a
//! clock or generates random numbers. Time and ids are parameters.

mod advance;
mod apply;
pub mod checkpoint;
pub mod commands;
pub mod decide;
mod decision;
pub mod explain;
pub mod fork;
pub mod input;
pub mod next;
mod policy;
pub mod rejection;
pub mod spend_caps;
pub mod state;
pub mod submit;

pub use advance::children::{CHILD_DEPTH_MAX, CHILDREN_MAX};
pub use advance::original_result;
pub use advance::sandbox::change_idle_sandbox;
pub use decide::decide;
pub use decision::{DecisionContext, EffectKeyOfOtherCall};
pub use input::RunInput;
pub use next::{EngineStep, next_engine_step};
pub use policy::output::{output_from_human_edit, strip_code_fence};
pub use policy::rules::{edit_refusal_reason, needs_approval, shared_patterns};
pub use policy::{RUN_AGENT, check_question_answer};
pub use rejection::Rejection;
pub use state::Run;
