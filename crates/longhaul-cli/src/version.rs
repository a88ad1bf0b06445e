//! `longhaul version`: prints the version of this build and its journal format. The command does
//! not check for updates.

use clap::Args;
use longhaul_core::event::EVENT_FORMAT;
use serde_json::json;

use crate::output;

/// Arguments of `longhaul version`.
#[derive(Debug, Args)]
pub(crate) struct VersionCommand {
    /// Print the version as one JSON object
    #[arg(long)]
    json: bool,
}

impl VersionCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let version = env!("CARGO_PKG_VERSION");
        output::print_line(&if self.json {
            json!({ "version": version, "journal_format": EVENT_FORMAT }).to_string()
        } else {
            format!("longhaul {version} (journal format {EVENT_FORMAT})")
        })
    }
}
