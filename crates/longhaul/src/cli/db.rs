//! `longhaul db`: the store of this folder as a file.

mod backup;
mod check;
mod journals;
mod restore;

use std::path::PathBuf;

use clap::Subcommand;
use longhaul::assemble::store_file;

use crate::cli::exit::Exit;
use crate::cli::{fail, here, open};

const EXAMPLES: &str = "Examples:
  longhaul db backup /backups/longhaul-$(date +%F).db   also while a server is running
  longhaul db check                                     exit code 1 if something is damaged
  longhaul db check /backups/longhaul-2026-11-16.db
  longhaul db restore /backups/longhaul-2026-11-16.db   stop the server first

A plain copy (cp, rsync) of a store in use is usually damaged: use `longhaul db backup`.";

/// The store of this folder as a file.
#[derive(Debug, Subcommand)]
pub(crate) enum Db {
    /// Copies the store to a file, also while it is in use, and checks the copy
    #[command(after_help = EXAMPLES)]
    Backup(backup::Backup),
    /// Looks for damage: pages, rows, journals
    #[command(after_help = EXAMPLES)]
    Check(check::Check),
    /// Puts a backup in the place of the store, and keeps what was there
    #[command(after_help = EXAMPLES)]
    Restore(restore::Restore),
}

impl Db {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        match self {
            Self::Backup(backup) => backup.run(),
            Self::Check(check) => check.run(),
            Self::Restore(restore) => restore.run(),
        }
    }
}

/// The path of the store, whether it is there or not.
fn store() -> anyhow::Result<PathBuf> {
    store_file(&here::config(&here::surroundings()?)?).map_err(fail::assemble)
}

/// The path of a store that is there.
fn existing_store() -> anyhow::Result<PathBuf> {
    let store = store()?;
    match store.is_file() {
        true => Ok(store),
        false => Err(open::nothing_here().into()),
    }
}

/// A number of bytes for people.
fn size(bytes: u64) -> String {
    match bytes {
        0..=1_023 => format!("{bytes} bytes"),
        1_024..=1_048_575 => format!("{:.1} KiB", bytes as f64 / 1_024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}
