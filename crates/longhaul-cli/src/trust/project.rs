//! What this project would do on its own (start programs, send data, open network access), as items
//! that need the user's trust, and the user's decisions about them.

use longhaul_project::agents::loaded_agents::LoadedAgents;
use longhaul_project::config::settings::Config;
use longhaul_project::mcp::file::McpFile;
use longhaul_project::private_file::PrivateFileError;
use longhaul_project::trust::TRUST_VAR;
use longhaul_project::trust::decisions::TrustDecisions;
use longhaul_project::trust::item::TrustItem;
use longhaul_project::trust::items::discover;

use crate::error::CliError;

/// The actions of a project that need the user's trust, as items, and the user's decisions about
/// them.
#[derive(Debug)]
pub(crate) struct ProjectTrust {
    pub(crate) decisions: TrustDecisions,
    pub(crate) items: Vec<TrustItem>,
}

impl ProjectTrust {
    /// Finds the actions in these settings and agents that need the user's trust.
    pub(crate) fn new(config: &Config, agents: &LoadedAgents) -> Self {
        Self {
            decisions: TrustDecisions::new(config),
            items: discover(config, &McpFile::load(config), agents),
        }
    }

    /// Returns the items whose files can be read and whose current content the user has not
    /// trusted. Trust that only an environment variable grants does not count.
    pub(crate) fn untrusted_items(&self) -> Vec<&TrustItem> {
        let is_untrusted = |item: &&TrustItem| {
            item.files.is_ok() && !self.decisions.trust_status_by_decisions(item).allows_use()
        };
        self.items.iter().filter(is_untrusted).collect()
    }
}

/// Returns the error for a file of trust decisions that can't be read or written.
pub(crate) fn decision_file_error(error: PrivateFileError) -> anyhow::Error {
    let failure = CliError::usage_error(format!("trust decisions can't be stored: {error}"));
    let first_hint = match &error {
        PrivateFileError::NoHome => None,
        PrivateFileError::Io { path, .. } => {
            Some(("check the permissions", "ls -ld", path.parent().unwrap_or(path)))
        }
        PrivateFileError::ForeignOwner { path, .. } => {
            Some(("check the owner", "ls -l", path.as_path()))
        }
        PrivateFileError::Writable { path, .. } | PrivateFileError::Readable { path, .. } => {
            Some(("restrict the permissions", "chmod 600", path.as_path()))
        }
        PrivateFileError::Content { path, .. } => {
            Some(("delete it and decide again", "rm", path.as_path()))
        }
    };
    let failure = match first_hint {
        Some((label, command, path)) => {
            failure.with_hint(label, format!("{command} {}", path.display()))
        }
        None => failure,
    };
    let other_folder_command = "XDG_STATE_HOME=/some/folder longhaul trust";
    let trust_all_command = format!("{TRUST_VAR}=1 longhaul ...");
    failure
        .with_hint("or store them elsewhere", other_folder_command)
        .with_hint("or trust everything, for one command", trust_all_command)
        .into()
}
