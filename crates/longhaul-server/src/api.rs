//! The API: one file for each thing that can be asked.
//!
//! Never: a rule of the business. Handlers read, ask the engine, and write.

pub(crate) mod agents;
pub(crate) mod create_run;
pub(crate) mod events;
pub(crate) mod gates;
pub(crate) mod health;
pub(crate) mod inboxes;
pub(crate) mod keys;
pub(crate) mod lanes;
pub(crate) mod runs;
pub(crate) mod steer;
