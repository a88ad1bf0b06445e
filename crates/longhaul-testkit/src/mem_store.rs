//! A store in memory: deterministic, for any number of workers, and as strict
//! as the ones on disk.
//!
//! Never: survives its process, and never waits: each call is one atomic step.

mod account;
mod append;
mod change;
mod claim;
mod door;
mod gate;
mod head;
mod journal;
mod lane;
mod note;
mod open;
mod port;
mod prune;
mod repair;
mod reply;
mod rows;
mod seat;
mod shelves;
mod steer;
mod store;
mod table;
mod tail;
mod timer;
mod tx;
mod view;

pub use store::MemStore;
pub use tx::Broken;
pub use view::{HeadView, LaneView};
