//! `longhaul version`: which build this is, and which journals it can read.
//!
//! Never: looks anything up outside. There is no update check.

use clap::Args;
use longhaul_core::event::EVENT_FORMAT;
use serde_json::json;

use crate::output;

/// Says which build this is.
#[derive(Debug, Args)]
pub(crate) struct Version {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Version {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let version = env!("CARGO_PKG_VERSION");
        output::stdout_line(&if self.json {
            json!({ "version": version, "journal_format": EVENT_FORMAT }).to_string()
        } else {
            format!("longhaul {version} (journal format {EVENT_FORMAT})")
        })
    }
}
