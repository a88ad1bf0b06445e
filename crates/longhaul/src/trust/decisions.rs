//! What a person decided about a project, kept in a file outside of it.
//!
//! Nothing is cached: each question is answered from the file as it stands, so that a decision
//! made elsewhere counts at once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use longhaul_core::raw::Hash;
use longhaul_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::config::settings::Config;
use crate::private_file::{self, AccessCheck, PrivateFileError};
use crate::trust::TRUST_VAR;
use crate::trust::item::{TrustItem, TrustKind};

/// The file's name, in the folder for what the user's programs remember.
const FILE_NAME: &str = "trust.json";

/// Maximum length of the file in bytes.
const BYTES_MAX: u64 = 8 << 20;

/// Version of the file's format.
const VERSION: u32 = 2;

/// Number of trusted versions of an agent with `shell` that stay so. A run has the agent that it
/// began with, and goes on when the file changes; all else is run as it stands now.
pub const SHELL_VERSIONS_MAX: usize = 16;

/// Whether an item may be run, sent or opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrustStatus {
    /// A person looked at exactly this, and trusts it.
    Trusted,
    /// `LONGHAUL_TRUST=1` trusts everything.
    TrustedByVariable,
    /// Nobody has decided.
    Undecided,
    /// A person trusted what it was, and these files have changed.
    Changed(Vec<String>),
    /// It can't be told, and this is why.
    Unknown(String),
}

impl TrustStatus {
    /// Whether it may be done.
    pub const fn allows(&self) -> bool {
        match self {
            Self::Trusted | Self::TrustedByVariable => true,
            Self::Undecided | Self::Changed(_) | Self::Unknown(_) => false,
        }
    }

    /// In a word, for programs.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Trusted => "trusted",
            Self::TrustedByVariable => "trusted_by_variable",
            Self::Undecided => "not_trusted",
            Self::Changed(_) => "changed",
            Self::Unknown(_) => "unknown",
        }
    }

    /// Why an item is refused, and what helps.
    pub fn refusal_message(&self, item: &TrustItem) -> String {
        let title = match item.title.strip_prefix("the ") {
            Some(rest) => format!("The {rest}"),
            None => item.title.clone(),
        };
        let refused = item.kind.refusal();
        let why = match self {
            Self::Trusted | Self::TrustedByVariable => return format!("{title} is trusted."),
            Self::Undecided => format!("{title} is not trusted yet, so {refused}."),
            Self::Changed(files) => format!(
                "{title} has changed since it was trusted ({}), so {refused}.",
                files.join(", ")
            ),
            Self::Unknown(why) => format!("{title} can't be trusted, so {refused}: {why}."),
        };
        let pinned = match (self, item.kind) {
            (Self::Changed(_), TrustKind::Shell) => {
                " A run has the file that it began with: if there is nothing to decide, that \
                 one is gone, and the task is to be submitted again."
            }
            _ => "",
        };
        format!(
            "{why} Look at it and decide with `longhaul trust`; runs that wait for it go on with \
             `longhaul answer`. Or start this process with {TRUST_VAR}=1.{pinned}"
        )
    }
}

/// One decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Decision {
    /// The project's folder, by its real path.
    project: PathBuf,
    /// The item's title.
    name: String,
    /// Digest of the settings that were shown.
    hash: Hash,
    /// Digests of the files that were shown.
    #[serde(default)]
    files: BTreeMap<String, Hash>,
    at: Timestamp,
}

impl Decision {
    /// Whether it covers this item as it stands.
    fn covers(&self, item: &TrustItem) -> bool {
        self.hash == item.settings && Ok(&self.files) == item.files.as_ref()
    }

    /// What has changed since.
    fn changes(&self, item: &TrustItem) -> Vec<String> {
        let none = BTreeMap::new();
        let now = item.files.as_ref().unwrap_or(&none);
        let names = now.keys().chain(self.files.keys());
        let mut changed: Vec<String> =
            names.filter(|name| now.get(*name) != self.files.get(*name)).cloned().collect();
        if self.hash != item.settings {
            changed.push(item.kind.settings_source().to_owned());
        }
        changed.sort_unstable();
        changed.dedup();
        changed
    }
}

/// The file's content.
#[derive(Debug, Serialize, Deserialize)]
struct DecisionFile {
    version: u32,
    trusted: Vec<Decision>,
}

/// The decisions about one project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decisions {
    project: PathBuf,
    file: Option<PathBuf>,
    trusts_all: bool,
}

impl Decisions {
    /// Those about the project of these settings.
    pub fn new(config: &Config) -> Self {
        let project = std::fs::canonicalize(&config.root);
        Self {
            project: project.unwrap_or_else(|_| config.root.clone()),
            file: config.state_folder.as_ref().map(|state| state.join(FILE_NAME)),
            trusts_all: config.env.process_var(TRUST_VAR) == Some("1"),
        }
    }

    /// Whether this may be done.
    pub fn status(&self, item: &TrustItem) -> TrustStatus {
        match item.files.is_ok() && self.trusts_all {
            true => TrustStatus::TrustedByVariable,
            false => self.recorded_status(item),
        }
    }

    /// Passes if this may be done.
    ///
    /// # Errors
    /// Nobody has trusted it, in a sentence that says what helps.
    pub fn check(&self, item: &TrustItem) -> Result<(), String> {
        let status = self.status(item);
        match status.allows() {
            true => Ok(()),
            false => Err(status.refusal_message(item)),
        }
    }

    /// What was decided, whatever `LONGHAUL_TRUST` says.
    pub fn recorded_status(&self, item: &TrustItem) -> TrustStatus {
        if let Err(why) = &item.files {
            return TrustStatus::Unknown(why.clone());
        }
        let decisions = match self.file.as_deref().map_or(Ok(Vec::new()), load) {
            Ok(decisions) => decisions,
            Err(error) => return TrustStatus::Unknown(error.to_string()),
        };
        let about: Vec<&Decision> =
            decisions.iter().filter(|one| self.concerns(one, item)).collect();
        match about.last() {
            None => TrustStatus::Undecided,
            Some(_) if about.iter().any(|one| one.covers(item)) => TrustStatus::Trusted,
            Some(last) => TrustStatus::Changed(last.changes(item)),
        }
    }

    /// Remembers that a person looked at these and trusts them.
    ///
    /// # Errors
    /// The decisions can't be written.
    pub fn trust(&self, items: &[&TrustItem], at: Timestamp) -> Result<(), PrivateFileError> {
        self.update_file(|decisions| {
            for item in items {
                let Ok(files) = &item.files else { continue };
                decisions.retain(|one| !self.concerns(one, item) || !one.covers(item));
                let kept = match item.kind {
                    TrustKind::Shell => SHELL_VERSIONS_MAX,
                    TrustKind::Run | TrustKind::Send | TrustKind::Open => 1,
                };
                let known = decisions.iter().filter(|one| self.concerns(one, item));
                // The oldest stand first.
                let mut surplus = (known.count() + 1).saturating_sub(kept);
                decisions.retain(|one| {
                    let goes = surplus > 0 && self.concerns(one, item);
                    surplus -= usize::from(goes);
                    !goes
                });
                decisions.push(Decision {
                    project: self.project.clone(),
                    name: item.title.clone(),
                    hash: item.settings,
                    files: files.clone(),
                    at,
                });
            }
        })
    }

    /// Forgets what was decided about this project, and counts it.
    ///
    /// # Errors
    /// The decisions can't be written.
    pub fn revoke(&self) -> Result<usize, PrivateFileError> {
        let file = self.file()?;
        let is_ours = |one: &Decision| one.project == self.project;
        let count = load(file)?.iter().filter(|one| is_ours(one)).count();
        if count > 0 {
            self.update_file(|decisions| decisions.retain(|one| !is_ours(one)))?;
        }
        Ok(count)
    }

    /// Where decisions are kept. Passes if they can be read there.
    ///
    /// # Errors
    /// There is no folder for what the user's programs remember.
    pub fn file_path(&self) -> Result<&Path, PrivateFileError> {
        let file = self.file()?;
        load(file).map(|_| file)
    }

    fn file(&self) -> Result<&Path, PrivateFileError> {
        self.file.as_deref().ok_or(PrivateFileError::NoHome)
    }

    /// Changes the file, one process after the other.
    fn update_file(&self, change: impl FnOnce(&mut Vec<Decision>)) -> Result<(), PrivateFileError> {
        let file = self.file()?;
        let _lock = private_file::lock(file)?;
        let mut trusted = load(file)?;
        change(&mut trusted);
        let version = VERSION;
        let text = serde_json::to_string_pretty(&DecisionFile { version, trusted });
        private_file::write(file, &text.map_err(|_| malformed_file_error(file))?)
    }

    fn concerns(&self, decision: &Decision, item: &TrustItem) -> bool {
        decision.project == self.project && decision.name == item.title
    }
}

/// All decisions, about every project; there are none where there is no file.
fn load(file: &Path) -> Result<Vec<Decision>, PrivateFileError> {
    let Some(text) = private_file::read(file, BYTES_MAX, AccessCheck::Owned)? else {
        return Ok(Vec::new());
    };
    match serde_json::from_str::<DecisionFile>(&text) {
        Ok(found) if found.version == VERSION => Ok(found.trusted),
        Ok(_) | Err(_) => Err(malformed_file_error(file)),
    }
}

fn malformed_file_error(file: &Path) -> PrivateFileError {
    let path = file.to_owned();
    let what = "holds no decisions of this build's format";
    PrivateFileError::Content { path, what }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    fn decisions(folder: &Path) -> Decisions {
        Decisions {
            project: PathBuf::from("/p"),
            file: Some(folder.join("state/longhaul").join(FILE_NAME)),
            trusts_all: false,
        }
    }

    fn item(kind: TrustKind, word: &str) -> TrustItem {
        TrustItem::new(kind, "x", format!("the thing `x` to {}", kind.as_str()), &[word])
    }

    #[test]
    fn decisions_are_stored_and_writable_by_their_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let decisions = decisions(folder.path());
        let (run, send) = (item(TrustKind::Run, "a"), item(TrustKind::Send, "b"));
        let at = Timestamp::from_micros(7);
        assert_eq!(decisions.status(&run), TrustStatus::Undecided);
        decisions.trust(&[&run], at).unwrap();
        decisions.trust(&[&send], at).unwrap();
        assert_eq!(decisions.status(&run), TrustStatus::Trusted);
        assert_eq!(decisions.status(&send), TrustStatus::Trusted);
        let other = Decisions { project: "/q".into(), ..decisions.clone() };
        assert_eq!(other.status(&run), TrustStatus::Undecided);
        assert_eq!(other.revoke().unwrap(), 0);
        let file = decisions.file_path().unwrap();
        assert_eq!(fs::metadata(file).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 2);
        assert_eq!(decisions.revoke().unwrap(), 2);
        assert_eq!(decisions.status(&run), TrustStatus::Undecided);
    }

    #[test]
    fn changed_files_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let decisions = decisions(folder.path());
        let with = |word: &str, files: &[(&str, &str)]| TrustItem {
            files: Ok(files
                .iter()
                .map(|(name, text)| ((*name).to_owned(), Hash::digest(text.as_bytes())))
                .collect()),
            ..item(TrustKind::Run, word)
        };
        let trusted = with("a", &[("one", "1"), ("two", "2")]);
        decisions.trust(&[&trusted], Timestamp::from_micros(7)).unwrap();
        let check = |now: TrustItem, expected: &[&str]| {
            let expected = expected.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(decisions.status(&now), TrustStatus::Changed(expected));
        };
        check(with("a", &[("one", "1"), ("two", "x")]), &["two"]);
        check(with("a", &[("two", "2"), ("three", "1")]), &["one", "three"]);
        check(with("b", &[("one", "1"), ("two", "2")]), &[".mcp.json or .env"]);
        assert_eq!(decisions.status(&trusted), TrustStatus::Trusted);
        let unread = TrustItem { files: Err("why".to_owned()), ..trusted };
        assert_eq!(decisions.status(&unread), TrustStatus::Unknown("why".to_owned()));
    }

    #[test]
    fn an_invalid_decision_file_is_reported_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let decisions = decisions(folder.path());
        let run = item(TrustKind::Run, "a");
        let at = Timestamp::from_micros(7);
        decisions.trust(&[&run], at).unwrap();
        let file = decisions.file.clone().unwrap();
        let mode = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        mode(0o622);
        assert!(matches!(load(&file), Err(PrivateFileError::Writable { .. })));
        assert!(decisions.trust(&[&run], at).is_err());
        assert!(matches!(decisions.status(&run), TrustStatus::Unknown(_)));
        mode(0o600);
        for text in ["", "{", "[]", "{\"version\":1,\"trusted\":[]}"] {
            fs::write(&file, text).unwrap();
            assert!(matches!(load(&file), Err(PrivateFileError::Content { .. })), "{text}");
            assert!(decisions.trust(&[&run], at).is_err());
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }
    }

    #[test]
    fn only_the_newest_versions_of_an_agent_stay_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let decisions = decisions(folder.path());
        for number in 1..=17 {
            for kind in [TrustKind::Shell, TrustKind::Send] {
                let item = item(kind, &number.to_string());
                let at = Timestamp::from_micros(number);
                decisions.trust(&[&item, &item], at).unwrap();
                decisions.trust(&[&item], at).unwrap();
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
            let found = decisions.status(&item(kind, number));
            assert_eq!(found.as_str(), status, "{kind:?} {number}");
        }
        let shell = item(TrustKind::Shell, "1");
        let said = decisions.check(&shell).unwrap_err();
        assert!(said.contains("submitted again"), "{said}");
        assert_eq!(decisions.revoke().unwrap(), 17);
    }
}
