//! The engine: the only room that waits.
//!
//! Never: decides what a run does (that is `longhaul-run`), and never names a
//! concrete store, provider or sandbox.

pub mod agent;
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
pub mod handle;
pub mod hooks;
mod lack;
pub mod lease;
mod ledger;
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
pub mod secret;
pub mod slot;
pub mod stop;
mod summary;
pub mod sweep;
pub mod tail;
pub mod task;
mod template;
mod texts;
pub mod toolbox;
pub mod validation;
pub mod view;
pub mod worker;

pub use error::Error;
pub use handle::Longhaul;
pub use task::Task;
