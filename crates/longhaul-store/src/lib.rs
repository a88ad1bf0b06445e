//! Persistent stores for journals, queues and all other durable data.
//!
//! A store neither replays journals nor makes decisions, which is the task of the state machine. It
//! writes each batch of events and row changes completely or not at all.

pub mod options;
pub mod sqlite;

pub use options::{OpenMode, StoreOptions};
pub use sqlite::{
    JournalChecker, SqliteStore, StoreCheckReport, StoreProblem, back_up_store, check_store,
    driver_process_description, open_sqlite_store, restore_store, store_has_driver_process,
};
