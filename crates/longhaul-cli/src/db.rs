//! `longhaul db`: backs up, checks and restores the store of this folder.

mod backup;
mod check;
mod restore;
mod store_file;

use clap::Subcommand;

use crate::exit::Exit;

const EXAMPLES: &str = "Examples:
  longhaul db backup /backups/longhaul-$(date +%F).db   also while a server is running
  longhaul db check                                     exit code 1 if something is damaged
  longhaul db check /backups/longhaul-2026-11-16.db
  longhaul db restore /backups/longhaul-2026-11-16.db   stop the server first

A plain copy (cp, rsync) of a store in use is usually damaged: use `longhaul db backup`.";

/// The subcommands of `longhaul db`.
#[derive(Debug, Subcommand)]
pub(crate) enum DbCommand {
    /// Copies the store to a file, even while the store is in use, and checks the copy
    #[command(after_help = EXAMPLES)]
    Backup(backup::BackupCommand),
    /// Checks the store, or a backup, for damage in pages, rows and journals
    #[command(after_help = EXAMPLES)]
    Check(check::CheckStoreCommand),
    /// Replaces the store with a backup, and keeps the old store
    #[command(after_help = EXAMPLES)]
    Restore(restore::RestoreCommand),
}

impl DbCommand {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        match self {
            Self::Backup(backup) => backup.run(),
            Self::Check(check) => check.run(),
            Self::Restore(restore) => restore.run(),
        }
    }
}
