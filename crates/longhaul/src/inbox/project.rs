//! The folder inboxes (folders whose files become tasks) of a project, which its workers serve.

use std::sync::Arc;

use longhaul_core::id::InboxName;
use longhaul_engine::handle::quote_toml_key;
use longhaul_project::config::inbox_folders::{INBOX_FOLDER, inbox_folders};
use longhaul_project::config::settings::Config;
use longhaul_project::trust::decisions::TrustDecisions;
use longhaul_project::trust::egress;

use crate::inbox::folder::FolderInbox;
use crate::inbox::interface::Inbox;

/// Folder inboxes (folders whose files become tasks) of a project.
#[derive(Debug, Default)]
pub struct ProjectInboxes {
    /// Inboxes that can be served.
    pub inboxes: Vec<Arc<dyn Inbox>>,
    /// Reasons why folders in `inbox/` are not served.
    pub problems: Vec<String>,
}

/// Opens the folder inboxes of a project with these names, or all if `names` is empty. A folder is
/// served only if its inbox has a default agent and a person trusts the folder, because each file
/// in it starts a run without a command of the user. Folders that are not trusted are left out.
pub fn project_folder_inboxes(config: &Config, names: &[InboxName]) -> ProjectInboxes {
    let mut found = ProjectInboxes::default();
    for folder in inbox_folders(config) {
        let name = &folder.name;
        if !names.is_empty() && !names.contains(name) {
            continue;
        }
        let Some(agent) = folder.agent.as_deref() else {
            let key = quote_toml_key(name.as_str());
            found.problems.push(format!(
                "the folder {INBOX_FOLDER}/{name} is not served: set `[inboxes.{key}] agent` in \
                 longhaul.toml"
            ));
            continue;
        };
        let item = egress::folder_inbox_trust_item(name.as_str(), agent);
        // The commands that serve folder inboxes say what is not trusted.
        if TrustDecisions::new(config).check_trusted(&item).is_err() {
            continue;
        }
        match FolderInbox::open_in_project(name.as_str(), &config.root, agent) {
            Ok(inbox) => found.inboxes.push(Arc::new(inbox)),
            Err(error) => found
                .problems
                .push(format!("the folder {INBOX_FOLDER}/{name} can't be served: {error}")),
        }
    }
    found
}
