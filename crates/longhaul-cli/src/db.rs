//! `longhaul db`: the store of this folder as a file.

mod backup;
mod check;
mod file;
mod journals;
mod restore;

use clap::Subcommand;

use crate::exit::Exit;

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
