//! Trust decisions: which commands, requests and settings of projects a person has approved. They
//! are stored in a file outside the projects.
//!
//! The file is read for each query, so that a decision made in another process takes effect at
//! once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use longhaul_core::raw::Hash;
use longhaul_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::config::settings::Config;
use crate::private_file::{self, FileAccessCheck, PrivateFileError};
use crate::trust::TRUST_VAR;
use crate::trust::item::{TrustItem, TrustKind};

/// Name of the file with all trust decisions, in the user's state folder.
const FILE_NAME: &str = "trust.json";

/// Maximum size in bytes of the file with the trust decisions.
const BYTES_MAX: u64 = 8 << 20;

/// Version of the format of the file with the trust decisions.
const VERSION: u32 = 2;

/// Maximum number of trusted versions per agent with the tool `shell`. A run keeps the agent
/// version with which it started, so older versions stay trusted. Of other items only the current
/// version is trusted.
pub const SHELL_VERSIONS_MAX: usize = 16;

/// Whether a person trusts an item (an action of a project that needs approval).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrustStatus {
    /// A person trusts exactly this version of the item.
    Trusted,
    /// `LONGHAUL_TRUST=1` trusts all items.
    TrustedByVariable,
    /// No person has decided about the item.
    Undecided,
    /// A person trusted an earlier version of the item. The listed files have changed since then.
    Changed(Vec<String>),
    /// The status can't be determined. The text is the reason.
    Unknown(String),
}

impl TrustStatus {
    /// Whether the status allows the use of the item.
    pub const fn allows_use(&self) -> bool {
        match self {
            Self::Trusted | Self::TrustedByVariable => true,
            Self::Undecided | Self::Changed(_) | Self::Unknown(_) => false,
        }
    }

    /// Returns the name of the trust status, for output.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Trusted => "trusted",
            Self::TrustedByVariable => "trusted_by_variable",
            Self::Undecided => "not_trusted",
            Self::Changed(_) => "changed",
            Self::Unknown(_) => "unknown",
        }
    }

    /// Returns a message which says why the item is refused, with a hint.
    pub fn refusal_message(&self, item: &TrustItem) -> String {
        let title = match item.title.strip_prefix("the ") {
            Some(rest) => format!("The {rest}"),
            None => item.title.clone(),
        };
        let consequence = item.kind.refusal_clause();
        let reason = match self {
            Self::Trusted | Self::TrustedByVariable => return format!("{title} is trusted."),
            Self::Undecided => format!("{title} is not trusted yet, so {consequence}."),
            Self::Changed(files) => format!(
                "{title} has changed since it was trusted ({}), so {consequence}.",
                files.join(", ")
            ),
            Self::Unknown(error) => format!("{title} can't be trusted, so {consequence}: {error}."),
        };
        let version_note = match (self, item.kind) {
            (Self::Changed(_), TrustKind::Shell) => {
                " A run uses the agent file with which it started: if there is nothing to decide, that \
                 version no longer exists, and the task must be submitted again."
            }
            _ => "",
        };
        let next_step = match item.kind {
            // No run waits for a listener or a folder.
            TrustKind::Open => "then start this process again",
            TrustKind::Run | TrustKind::Shell | TrustKind::Send => {
                "continue blocked runs with `longhaul resume`"
            }
        };
        format!(
            "{reason} Review it with `longhaul trust`; {next_step}. Or start this process with \
             {TRUST_VAR}=1.{version_note}"
        )
    }
}

/// A decision of a person to trust one version of an item (an action of a project that needs
/// approval).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct TrustDecision {
    /// Canonical path of the project's folder.
    project: PathBuf,
    /// Title of the trusted item.
    name: String,
    /// Digest of the item's settings that the person saw.
    hash: Hash,
    /// Digests of the item's files that the person saw.
    #[serde(default)]
    files: BTreeMap<String, Hash>,
    at: Timestamp,
}

impl TrustDecision {
    /// Whether the settings and files of the item are still those that the person saw.
    fn is_item_unchanged(&self, item: &TrustItem) -> bool {
        self.hash == item.settings_digest && Ok(&self.files) == item.files.as_ref()
    }

    /// Returns the files of the item that have changed since the decision.
    fn changed_files(&self, item: &TrustItem) -> Vec<String> {
        let no_files = BTreeMap::new();
        let current_files = item.files.as_ref().unwrap_or(&no_files);
        let names = current_files.keys().chain(self.files.keys());
        let mut changed: Vec<String> = names
            .filter(|name| current_files.get(*name) != self.files.get(*name))
            .cloned()
            .collect();
        if self.hash != item.settings_digest {
            changed.push(item.kind.settings_source().to_owned());
        }
        changed.sort_unstable();
        changed.dedup();
        changed
    }
}

/// Content of the file with the trust decisions.
#[derive(Debug, Serialize, Deserialize)]
struct TrustDecisionFile {
    version: u32,
    trusted: Vec<TrustDecision>,
}

/// Access to the trust decisions about one project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustDecisions {
    project: PathBuf,
    file: Option<PathBuf>,
    trusts_all: bool,
}

impl TrustDecisions {
    /// Creates access to the trust decisions about a project. The file is not read yet.
    pub fn new(config: &Config) -> Self {
        let project = std::fs::canonicalize(&config.root);
        Self {
            project: project.unwrap_or_else(|_| config.root.clone()),
            file: config.state_folder.as_ref().map(|state| state.join(FILE_NAME)),
            trusts_all: config.env.process_var(TRUST_VAR) == Some("1"),
        }
    }

    /// Returns whether an item is trusted, by a decision or by `LONGHAUL_TRUST`.
    pub fn trust_status(&self, item: &TrustItem) -> TrustStatus {
        match item.files.is_ok() && self.trusts_all {
            true => TrustStatus::TrustedByVariable,
            false => self.trust_status_by_decisions(item),
        }
    }

    /// Checks that an item is trusted.
    ///
    /// # Errors
    /// The item is not trusted. The message has a hint.
    pub fn check_trusted(&self, item: &TrustItem) -> Result<(), String> {
        let status = self.trust_status(item);
        match status.allows_use() {
            true => Ok(()),
            false => Err(status.refusal_message(item)),
        }
    }

    /// Returns the trust status by the stored decisions, ignoring `LONGHAUL_TRUST`.
    pub fn trust_status_by_decisions(&self, item: &TrustItem) -> TrustStatus {
        if let Err(reason) = &item.files {
            return TrustStatus::Unknown(reason.clone());
        }
        let decisions = match self.file.as_deref().map_or(Ok(Vec::new()), load_decisions) {
            Ok(decisions) => decisions,
            Err(error) => return TrustStatus::Unknown(error.to_string()),
        };
        let item_decisions: Vec<&TrustDecision> =
            decisions.iter().filter(|one| self.is_for_same_item(one, item)).collect();
        match item_decisions.last() {
            None => TrustStatus::Undecided,
            Some(_) if item_decisions.iter().any(|one| one.is_item_unchanged(item)) => {
                TrustStatus::Trusted
            }
            Some(last) => TrustStatus::Changed(last.changed_files(item)),
        }
    }

    /// Records that a person trusts these items.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn record_trust(&self, list: &[&TrustItem], at: Timestamp) -> Result<(), PrivateFileError> {
        self.update(|decisions| {
            for item in list {
                let Ok(files) = &item.files else { continue };
                decisions.retain(|one| {
                    !self.is_for_same_item(one, item) || !one.is_item_unchanged(item)
                });
                let keep_count = match item.kind {
                    TrustKind::Shell => SHELL_VERSIONS_MAX,
                    TrustKind::Run | TrustKind::Send | TrustKind::Open => 1,
                };
                let item_decisions =
                    decisions.iter().filter(|one| self.is_for_same_item(one, item));
                // The oldest decisions come first.
                let mut surplus = (item_decisions.count() + 1).saturating_sub(keep_count);
                decisions.retain(|one| {
                    let is_dropped = surplus > 0 && self.is_for_same_item(one, item);
                    surplus -= usize::from(is_dropped);
                    !is_dropped
                });
                decisions.push(TrustDecision {
                    project: self.project.clone(),
                    name: item.title.clone(),
                    hash: item.settings_digest,
                    files: files.clone(),
                    at,
                });
            }
        })
    }

    /// Removes all decisions about this project and returns their number.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn revoke_all_and_count(&self) -> Result<usize, PrivateFileError> {
        let file = self.decision_file_path()?;
        let is_of_project = |one: &TrustDecision| one.project == self.project;
        let count = load_decisions(file)?.iter().filter(|one| is_of_project(one)).count();
        if count > 0 {
            self.update(|decisions| decisions.retain(|one| !is_of_project(one)))?;
        }
        Ok(count)
    }

    /// Returns the path of the decision file after checking that it can be read.
    ///
    /// # Errors
    /// There is no state folder, or the file can't be read.
    pub fn decision_file_path_if_readable(&self) -> Result<&Path, PrivateFileError> {
        let file = self.decision_file_path()?;
        load_decisions(file).map(|_| file)
    }

    fn decision_file_path(&self) -> Result<&Path, PrivateFileError> {
        self.file.as_deref().ok_or(PrivateFileError::NoHome)
    }

    /// Changes the decision file under a lock, so that processes do not overwrite each other's
    /// changes.
    fn update(&self, change: impl FnOnce(&mut Vec<TrustDecision>)) -> Result<(), PrivateFileError> {
        let file = self.decision_file_path()?;
        let _lock = private_file::lock_private_file(file)?;
        let mut trusted = load_decisions(file)?;
        change(&mut trusted);
        let version = VERSION;
        let text = serde_json::to_string_pretty(&TrustDecisionFile { version, trusted });
        private_file::write_private_file(file, &text.map_err(|_| malformed_file_error(file))?)
    }

    /// Whether the decision is about this item of this project, in any version.
    fn is_for_same_item(&self, decision: &TrustDecision, item: &TrustItem) -> bool {
        decision.project == self.project && decision.name == item.title
    }
}

/// Loads the decisions about all projects. If there is no file, there are no decisions.
fn load_decisions(file: &Path) -> Result<Vec<TrustDecision>, PrivateFileError> {
    let Some(text) = private_file::read_private_file(file, BYTES_MAX, FileAccessCheck::Owned)?
    else {
        return Ok(Vec::new());
    };
    match serde_json::from_str::<TrustDecisionFile>(&text) {
        Ok(found) if found.version == VERSION => Ok(found.trusted),
        Ok(_) | Err(_) => Err(malformed_file_error(file)),
    }
}

fn malformed_file_error(file: &Path) -> PrivateFileError {
    let path = file.to_owned();
    let problem = "does not contain trust decisions in the format of this build";
    PrivateFileError::Content { path, problem }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    fn decisions_in_folder(folder: &Path) -> TrustDecisions {
        TrustDecisions {
            project: PathBuf::from("/p"),
            file: Some(folder.join("state/longhaul").join(FILE_NAME)),
            trusts_all: false,
        }
    }

    fn test_trust_item(kind: TrustKind, setting: &str) -> TrustItem {
        TrustItem::new(kind, "x", format!("the item `x` of kind {}", kind.as_str()), &[setting])
    }

    #[test]
    fn decisions_are_stored_and_writable_by_their_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let decisions = decisions_in_folder(folder.path());
        let (run, send) =
            (test_trust_item(TrustKind::Run, "a"), test_trust_item(TrustKind::Send, "b"));
        let at = Timestamp::from_micros(7);
        assert_eq!(decisions.trust_status(&run), TrustStatus::Undecided);
        decisions.record_trust(&[&run], at).unwrap();
        decisions.record_trust(&[&send], at).unwrap();
        assert_eq!(decisions.trust_status(&run), TrustStatus::Trusted);
        assert_eq!(decisions.trust_status(&send), TrustStatus::Trusted);
        let other = TrustDecisions { project: "/q".into(), ..decisions.clone() };
        assert_eq!(other.trust_status(&run), TrustStatus::Undecided);
        assert_eq!(other.revoke_all_and_count().unwrap(), 0);
        let file = decisions.decision_file_path_if_readable().unwrap();
        assert_eq!(fs::metadata(file).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 2);
        assert_eq!(decisions.revoke_all_and_count().unwrap(), 2);
        assert_eq!(decisions.trust_status(&run), TrustStatus::Undecided);
    }

    #[test]
    fn the_status_lists_files_changed_since_the_decision() {
        let folder = tempfile::tempdir().unwrap();
        let decisions = decisions_in_folder(folder.path());
        let make_item = |setting: &str, files: &[(&str, &str)]| TrustItem {
            files: Ok(files
                .iter()
                .map(|(name, text)| ((*name).to_owned(), Hash::digest(text.as_bytes())))
                .collect()),
            ..test_trust_item(TrustKind::Run, setting)
        };
        let trusted = make_item("a", &[("one", "1"), ("two", "2")]);
        decisions.record_trust(&[&trusted], Timestamp::from_micros(7)).unwrap();
        let check = |item: TrustItem, expected: &[&str]| {
            let expected = expected.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(decisions.trust_status(&item), TrustStatus::Changed(expected));
        };
        check(make_item("a", &[("one", "1"), ("two", "x")]), &["two"]);
        check(make_item("a", &[("two", "2"), ("three", "1")]), &["one", "three"]);
        check(make_item("b", &[("one", "1"), ("two", "2")]), &[".mcp.json or .env"]);
        assert_eq!(decisions.trust_status(&trusted), TrustStatus::Trusted);
        let unreadable = TrustItem { files: Err("why".to_owned()), ..trusted };
        assert_eq!(decisions.trust_status(&unreadable), TrustStatus::Unknown("why".to_owned()));
    }

    #[test]
    fn an_invalid_decision_file_is_reported_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let decisions = decisions_in_folder(folder.path());
        let run = test_trust_item(TrustKind::Run, "a");
        let at = Timestamp::from_micros(7);
        decisions.record_trust(&[&run], at).unwrap();
        let file = decisions.file.clone().unwrap();
        let mode = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        mode(0o622);
        assert!(matches!(load_decisions(&file), Err(PrivateFileError::Writable { .. })));
        assert!(decisions.record_trust(&[&run], at).is_err());
        assert!(matches!(decisions.trust_status(&run), TrustStatus::Unknown(_)));
        mode(0o600);
        for text in ["", "{", "[]", "{\"version\":1,\"trusted\":[]}"] {
            fs::write(&file, text).unwrap();
            assert!(
                matches!(load_decisions(&file), Err(PrivateFileError::Content { .. })),
                "{text}"
            );
            assert!(decisions.record_trust(&[&run], at).is_err());
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }
    }

    #[test]
    fn only_the_newest_versions_of_an_agent_stay_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let decisions = decisions_in_folder(folder.path());
        for number in 1..=17 {
            for kind in [TrustKind::Shell, TrustKind::Send] {
                let item = test_trust_item(kind, &number.to_string());
                let at = Timestamp::from_micros(number);
                decisions.record_trust(&[&item, &item], at).unwrap();
                decisions.record_trust(&[&item], at).unwrap();
            }
        }
        for (kind, number, status) in [
            (TrustKind::Shell, "1", "changed"),
            (TrustKind::Shell, "2", "trusted"),
            (TrustKind::Shell, "17", "trusted"),
            (TrustKind::Send, "16", "changed"),
            (TrustKind::Send, "17", "trusted"),
            (TrustKind::Run, "1", "not_trusted"),
        ] {
            let found = decisions.trust_status(&test_trust_item(kind, number));
            assert_eq!(found.as_str(), status, "{kind:?} {number}");
        }
        let shell = test_trust_item(TrustKind::Shell, "1");
        let message = decisions.check_trusted(&shell).unwrap_err();
        assert!(message.contains("submitted again"), "{message}");
        assert_eq!(decisions.revoke_all_and_count().unwrap(), 17);
    }
}
