//! The engine: the only room that waits.
//!
//! Never: decides what a run does (that is `longhaul-run`), and never names a
//! concrete store, provider or sandbox.

pub mod agent;
pub mod agent_view;
mod appraise;
mod capsule;
pub mod clean;
pub mod clock;
mod compactor;
mod contract;
mod control;
pub mod crash_guard;
pub mod drive;
pub mod error;
mod events;
pub mod eyes;
pub mod feed;
pub mod gate_view;
pub mod handle;
pub mod history;
pub mod hooks;
pub mod key_view;
mod lack;
pub mod lane_view;
pub mod lease;
mod ledger;
pub mod like;
mod mention;
pub mod mint;
mod mishap;
mod missing;
pub mod nudge;
mod perceive;
pub mod ports;
mod prompt;
pub mod read_output;
mod recollect;
pub mod schema;
pub mod secret;
pub mod slot;
pub mod steer_view;
pub mod stop;
mod summary;
pub mod sweep;
pub mod tail;
pub mod task;
mod template;
mod texts;
pub mod toolbox;
pub mod transcript_view;
pub mod validation;
pub mod view;
pub mod why_view;
pub mod worker;

pub use error::Error;
pub use handle::Longhaul;
pub use task::Task;
