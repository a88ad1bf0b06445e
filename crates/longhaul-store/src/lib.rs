//! Keeps journals, queues and everything else that must outlive a process.
//!
//! Never: folds a journal or decides what a run does. Rules live in the heart;
//! a store only writes what it is given, whole or not at all.

pub mod bench;
pub mod options;
pub mod sqlite;

pub use options::{OpenMode, StoreOptions};
pub use sqlite::{
    CheckReport, JournalCheck, Problem, SqliteStore, backup, check, current_driver, is_driven,
    open, restore,
};
