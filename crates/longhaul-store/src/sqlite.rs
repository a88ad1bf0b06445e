//! A store in one SQLite file: one process drives it, any other may look on.
//!
//! Never: reads a clock of its own, or acknowledges what is not on the disk.

pub(crate) mod append;
mod backup;
mod blob;
mod boot;
mod budget;
mod change;
mod check;
mod claim;
mod column;
pub(crate) mod connect;
pub(crate) mod fault;
mod filter;
mod gate;
mod handle;
mod head;
pub(crate) mod journal;
mod key;
mod keyring;
mod lane;
mod link;
mod lock;
mod new_run;
mod note;
mod open;
mod pass;
mod place;
#[cfg(test)]
mod plan;
mod prune;
mod queue;
mod reader;
mod renew;
mod repair;
mod reply;
mod row;
pub(crate) mod schema;
mod seat;
mod shelf;
mod shelves;
mod steer;
mod store;
mod tail;
mod timer;
mod tx;
mod usage;
mod watch;
mod work;
mod writer;

pub use backup::{backup, restore};
pub use check::{CheckReport, JournalCheck, Problem, check};
pub use handle::SqliteStore;
pub use lock::{driver, is_taken};
pub use open::open;
