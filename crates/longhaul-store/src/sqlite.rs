//! A store in one SQLite file. One process at a time is the driver, which executes the runs; other
//! processes may read the store and send commands to runs.
//!
//! Invariant: nothing is acknowledged before it is on disk. The time comes from the clock in the
//! options.

mod api_key;
mod append;
mod auth_port;
mod backup;
mod blob;
mod budget;
mod change;
mod change_watch;
mod check;
mod claim;
mod column;
mod command;
mod connect;
mod delete_run;
mod effect_key;
mod error;
mod filter;
mod gate;
mod global_log;
mod handle;
mod head;
mod heartbeat;
mod idempotency;
mod inbox;
mod journal;
mod lane;
mod link;
mod location;
mod lock;
mod new_run;
mod note;
mod open;
mod prune;
mod queue;
mod reader;
mod record_port;
mod records;
mod repair;
mod rule;
mod run_list;
mod run_row;
mod sandbox;
mod schedule;
mod schedule_port;
mod schema;
mod slot;
mod spend;
mod steer;
mod store_port;
mod takeover;
#[cfg(test)]
mod tests;
mod timer;
mod token;
mod tx;
mod usage;
mod writer;

pub use backup::{back_up_store, restore_store};
pub use check::{JournalChecker, StoreCheckReport, StoreProblem, check_store};
pub use handle::SqliteStore;
pub use lock::{driver_process_description, store_has_driver_process};
pub use open::open_sqlite_store;
