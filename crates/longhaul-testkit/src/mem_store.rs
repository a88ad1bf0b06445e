//! An in-memory store: deterministic, for any number of workers, and with the same rules as the
//! stores on disk. Every call is one atomic step and never waits.

mod account;
mod append;
mod auth;
mod change;
mod claim;
mod effect_key;
mod gate;
mod global_log;
mod head;
mod idempotency;
mod journal;
mod lane;
mod note;
mod open;
mod prune;
mod records;
mod repair;
mod rows;
mod rule;
mod run_list;
mod sandbox_slot;
mod schedule;
mod spend;
mod steer;
mod store;
mod table;
mod timer;
mod trait_impls;
mod tx;
mod view;

pub use store::MemStore;
pub use tx::BrokenRule;
pub use view::{HeadView, LaneView};
