//! What the project here would do, and what was decided about it.

use longhaul::agents::loaded_agents::LoadedAgents;
use longhaul::config::settings::Config;
use longhaul::mcp::file::McpFile;
use longhaul::private_file::PrivateFileError;
use longhaul::trust::TRUST_VAR;
use longhaul::trust::decisions::Decisions;
use longhaul::trust::item::TrustItem;
use longhaul::trust::items::discover;

use crate::error::CliError;

/// A project, and what it would do.
#[derive(Debug)]
pub(crate) struct ProjectTrust {
    pub(crate) decisions: Decisions,
    pub(crate) items: Vec<TrustItem>,
}

impl ProjectTrust {
    /// The project of these settings and agents.
    pub(crate) fn new(config: &Config, agents: &LoadedAgents) -> Self {
        Self {
            decisions: Decisions::new(config),
            items: discover(config, &McpFile::load(config), agents),
        }
    }

    /// The items to decide about: no decision covers them, whatever the environment says, and
    /// their files can be read.
    pub(crate) fn undecided_items(&self) -> Vec<&TrustItem> {
        let is_open = |item: &&TrustItem| {
            item.files.is_ok() && !self.decisions.recorded_status(item).allows()
        };
        self.items.iter().filter(is_open).collect()
    }
}

/// Decisions that can't be looked up or kept.
pub(crate) fn decision_file_error(error: PrivateFileError) -> anyhow::Error {
    let failure = CliError::usage(format!("decisions about trust can't be kept: {error}"));
    let first = match &error {
        PrivateFileError::NoHome => None,
        PrivateFileError::Io { path, .. } => {
            let folder = path.parent().unwrap_or(path).display();
            Some(("look who may write there", format!("ls -ld {folder}")))
        }
        PrivateFileError::ForeignOwner { path, .. } => {
            Some(("look whose it is", format!("ls -l {}", path.display())))
        }
        PrivateFileError::Writable { path, .. } | PrivateFileError::Readable { path, .. } => {
            Some(("keep others out", format!("chmod 600 {}", path.display())))
        }
        PrivateFileError::Content { path, .. } => {
            Some(("delete it, and decide anew", format!("rm {}", path.display())))
        }
    };
    let failure = match first {
        Some((words, command)) => failure.hint(words, command),
        None => failure,
    };
    let elsewhere = "XDG_STATE_HOME=/some/folder longhaul trust";
    let everything = format!("{TRUST_VAR}=1 longhaul ...");
    failure
        .hint("or keep them elsewhere", elsewhere)
        .hint("or trust everything, for one command", everything)
        .into()
}
