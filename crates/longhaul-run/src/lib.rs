//! The state machine of a run: three pure functions over its journal.
//!
//! `apply` folds an event into the state, `decide` turns an input into events, and
//! `next_engine_step` tells the engine what to do. Invariant: nothing here does I/O, waits, reads a
//! clock or generates random numbers. Time and ids are parameters.

mod advance;
mod apply;
pub mod checkpoint;
pub mod commands;
mod context;
pub mod decide;
mod decision;
pub mod explain;
pub mod input;
pub mod next;
mod policy;
pub mod rejection;
pub mod retry;
pub mod spend_caps;
pub mod state;
pub mod submit;

pub use advance::children::{CHILD_DEPTH_MAX, CHILDREN_MAX};
pub use advance::original_result;
pub use context::{DecisionContext, EffectKeyOfOtherCall};
pub use decide::decide;
pub use input::RunInput;
pub use next::{EngineStep, next_engine_step};
pub use policy::control_tool_names::RUN_AGENT;
pub use policy::output::{output_from_human_edit, strip_code_fence};
pub use policy::question::check_question_answer;
pub use policy::rules::{edit_refusal_reason, needs_approval, patterns_beyond_one_run};
pub use rejection::Rejection;
pub use state::Run;
