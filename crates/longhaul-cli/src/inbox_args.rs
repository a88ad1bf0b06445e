//! Command-line options that choose which tasks a worker takes.

use clap::Args;
use longhaul_core::id::InboxName;
use longhaul_engine::worker::WorkerOptions;
use longhaul_project::assemble::worker_options;
use longhaul_project::config::settings::Config;

use crate::error::CliError;

/// Command-line options that choose which tasks a worker takes.
#[derive(Debug, Clone, Args)]
pub(crate) struct InboxArgs {
    /// Inbox to serve instead of those in `[worker] inboxes` and the folders in `inbox/`; may be
    /// repeated
    #[arg(long = "inbox", value_name = "NAME")]
    pub(crate) inboxes: Vec<InboxName>,
    /// Type of the tasks to take; may be repeated. Tasks of other types wait for other workers
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
}

impl InboxArgs {
    /// Returns the options for a worker, from the project's settings and these command-line
    /// options.
    pub(crate) fn worker_options(&self, config: &Config) -> anyhow::Result<WorkerOptions> {
        let mut options = worker_options(config).map_err(|error| {
            CliError::usage_error(format!("the setting `[worker] inboxes` is invalid: {error}"))
                .with_hint("see where it is set", "longhaul config show --origin")
        })?;
        if !self.inboxes.is_empty() {
            options.inboxes.clone_from(&self.inboxes);
        }
        options.types.clone_from(&self.types);
        Ok(options)
    }
}
