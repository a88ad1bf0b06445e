//! The engine: claims runs, drives them, and offers the [`Longhaul`] handle to people and programs.
//!
//! All waiting happens in this crate. What a run does next is decided by the pure state machine in
//! `longhaul-run`. Stores, model providers and sandboxes are passed in as trait objects.

pub mod agent;
pub mod background;
pub mod changes;
pub mod clock;
pub mod counters;
pub mod drive;
pub mod error;
pub mod guard;
pub mod handle;
pub mod id_gen;
pub mod notifier;
pub mod panics;
pub mod prompt;
mod replay;
pub mod sandboxes;
pub mod secret;
pub mod services;
pub mod shutdown;
pub mod tools;
pub mod view;
pub mod worker;

pub use error::Error;
pub use handle::Longhaul;
pub use longhaul_api::task::Task;
pub use longhaul_run::RUN_AGENT;
pub use tools::children::CHILD_TOOLS;
pub use tools::control::is_control_tool;
