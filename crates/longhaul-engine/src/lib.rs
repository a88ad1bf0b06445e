//! The engine: the only room that waits.
//!
//! Never: decides what a run does (that is `longhaul-run`), and never names a
//! concrete store, provider or sandbox.

pub mod agent;
mod appraise;
mod capsule;
pub mod clock;
mod control;
pub mod drive;
pub mod error;
pub mod feed;
pub mod hooks;
pub mod lease;
mod ledger;
pub mod mint;
pub mod nudge;
mod perceive;
pub mod ports;
pub mod stop;
pub mod sweep;
mod template;
pub mod toolbox;
pub mod worker;

pub use error::Error;
