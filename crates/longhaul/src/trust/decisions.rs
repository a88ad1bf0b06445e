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
use crate::private_file::{self, Guard, PrivateFileError};
use crate::trust::VARIABLE;
use crate::trust::item::{Item, Kind};

/// The file's name, in the folder for what the user's programs remember.
const NAME: &str = "trust.json";

/// Maximum length of the file in bytes.
const BYTES_MAX: u64 = 8 << 20;

/// Version of the file's format.
const VERSION: u32 = 2;

/// Number of trusted versions of an agent with `shell` that stay so. A run has the agent that it
/// began with, and goes on when the file changes; all else is run as it stands now.
pub const SHELL_VERSIONS_MAX: usize = 16;

/// Whether an item may be run, sent or opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// A person looked at exactly this, and trusts it.
    Trusted,
    /// `LONGHAUL_TRUST=1` trusts everything.
    Unasked,
    /// Nobody has decided.
    New,
    /// A person trusted what it was, and these files have changed.
    Changed(Vec<String>),
    /// It can't be told, and this is why.
    Unknown(String),
}

impl Status {
    /// Whether it may be done.
    pub const fn allows(&self) -> bool {
        match self {
            Self::Trusted | Self::Unasked => true,
            Self::New | Self::Changed(_) | Self::Unknown(_) => false,
        }
    }

    /// In a word, for programs.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Trusted => "trusted",
            Self::Unasked => "not_asked",
            Self::New => "not_trusted",
            Self::Changed(_) => "changed",
            Self::Unknown(_) => "unknown",
        }
    }

    /// Why an item is refused, and what helps.
    pub fn sentence(&self, item: &Item) -> String {
        let title = match item.title.strip_prefix("the ") {
            Some(rest) => format!("The {rest}"),
            None => item.title.clone(),
        };
        let refused = item.kind.refused();
        let why = match self {
            Self::Trusted | Self::Unasked => return format!("{title} is trusted."),
            Self::New => format!("{title} is not trusted yet, so {refused}."),
            Self::Changed(files) => format!(
                "{title} has changed since it was trusted ({}), so {refused}.",
                files.join(", ")
            ),
            Self::Unknown(why) => format!("{title} can't be trusted, so {refused}: {why}."),
        };
        let pinned = match (self, item.kind) {
            (Self::Changed(_), Kind::Shell) => {
                " A run has the file that it began with: if there is nothing to decide, that \
                 one is gone, and the task is to be submitted again."
            }
            _ => "",
        };
        format!(
            "{why} Look at it and decide with `longhaul trust`; runs that wait for it go on with \
             `longhaul answer`. Or start this process with {VARIABLE}=1.{pinned}"
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
    fn covers(&self, item: &Item) -> bool {
        self.hash == item.settings && Ok(&self.files) == item.files.as_ref()
    }

    /// What has changed since.
    fn changes(&self, item: &Item) -> Vec<String> {
        let none = BTreeMap::new();
        let now = item.files.as_ref().unwrap_or(&none);
        let names = now.keys().chain(self.files.keys());
        let mut changed: Vec<String> = names
            .filter(|name| now.get(*name) != self.files.get(*name))
            .cloned()
            .collect();
        if self.hash != item.settings {
            changed.push(item.kind.source().to_owned());
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
            file: config.state.as_ref().map(|state| state.join(NAME)),
            trusts_all: config.env.real(VARIABLE) == Some("1"),
        }
    }

    /// Whether this may be done.
    pub fn status(&self, item: &Item) -> Status {
        match item.files.is_ok() && self.trusts_all {
            true => Status::Unasked,
            false => self.decided(item),
        }
    }

    /// Passes if this may be done.
    ///
    /// # Errors
    /// Nobody has trusted it, in a sentence that says what helps.
    pub fn check(&self, item: &Item) -> Result<(), String> {
        let status = self.status(item);
        match status.allows() {
            true => Ok(()),
            false => Err(status.sentence(item)),
        }
    }

    /// What was decided, whatever `LONGHAUL_TRUST` says.
    pub fn decided(&self, item: &Item) -> Status {
        if let Err(why) = &item.files {
            return Status::Unknown(why.clone());
        }
        let decisions = match self.file.as_deref().map_or(Ok(Vec::new()), read) {
            Ok(decisions) => decisions,
            Err(error) => return Status::Unknown(error.to_string()),
        };
        let about: Vec<&Decision> = decisions
            .iter()
            .filter(|one| self.is_about(one, item))
            .collect();
        match about.last() {
            None => Status::New,
            Some(_) if about.iter().any(|one| one.covers(item)) => Status::Trusted,
            Some(last) => Status::Changed(last.changes(item)),
        }
    }

    /// Remembers that a person looked at these and trusts them.
    ///
    /// # Errors
    /// The decisions can't be written.
    pub fn trust(&self, items: &[&Item], at: Timestamp) -> Result<(), PrivateFileError> {
        self.change(|decisions| {
            for item in items {
                let Ok(files) = &item.files else { continue };
                decisions.retain(|one| !self.is_about(one, item) || !one.covers(item));
                let kept = match item.kind {
                    Kind::Shell => SHELL_VERSIONS_MAX,
                    Kind::Run | Kind::Send | Kind::Open => 1,
                };
                let known = decisions.iter().filter(|one| self.is_about(one, item));
                // The oldest stand first.
                let mut surplus = (known.count() + 1).saturating_sub(kept);
                decisions.retain(|one| {
                    let goes = surplus > 0 && self.is_about(one, item);
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
        let count = read(file)?.iter().filter(|one| is_ours(one)).count();
        if count > 0 {
            self.change(|decisions| decisions.retain(|one| !is_ours(one)))?;
        }
        Ok(count)
    }

    /// Where decisions are kept. Passes if they can be read there.
    ///
    /// # Errors
    /// There is no folder for what the user's programs remember.
    pub fn kept_in(&self) -> Result<&Path, PrivateFileError> {
        let file = self.file()?;
        read(file).map(|_| file)
    }

    fn file(&self) -> Result<&Path, PrivateFileError> {
        self.file.as_deref().ok_or(PrivateFileError::Homeless)
    }

    /// Changes the file, one process after the other.
    fn change(&self, change: impl FnOnce(&mut Vec<Decision>)) -> Result<(), PrivateFileError> {
        let file = self.file()?;
        let _lock = private_file::lock(file)?;
        let mut trusted = read(file)?;
        change(&mut trusted);
        let version = VERSION;
        let text = serde_json::to_string_pretty(&DecisionFile { version, trusted });
        private_file::write(file, &text.map_err(|_| malformed(file))?)
    }

    fn is_about(&self, decision: &Decision, item: &Item) -> bool {
        decision.project == self.project && decision.name == item.title
    }
}

/// All decisions, about every project; there are none where there is no file.
fn read(file: &Path) -> Result<Vec<Decision>, PrivateFileError> {
    let Some(text) = private_file::read(file, BYTES_MAX, Guard::Own)? else {
        return Ok(Vec::new());
    };
    match serde_json::from_str::<DecisionFile>(&text) {
        Ok(found) if found.version == VERSION => Ok(found.trusted),
        Ok(_) | Err(_) => Err(malformed(file)),
    }
}

fn malformed(file: &Path) -> PrivateFileError {
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
            file: Some(folder.join("state/longhaul").join(NAME)),
            trusts_all: false,
        }
    }

    fn item(kind: Kind, word: &str) -> Item {
        Item::new(
            kind,
            "x",
            format!("the thing `x` to {}", kind.as_str()),
            &[word],
        )
    }

    #[test]
    fn decisions_stay_and_only_their_owner_may_write_them() {
        let folder = tempfile::tempdir().unwrap();
        let decisions = decisions(folder.path());
        let (run, send) = (item(Kind::Run, "a"), item(Kind::Send, "b"));
        let at = Timestamp::from_micros(7);
        assert_eq!(decisions.status(&run), Status::New);
        decisions.trust(&[&run], at).unwrap();
        decisions.trust(&[&send], at).unwrap();
        assert_eq!(decisions.status(&run), Status::Trusted);
        assert_eq!(decisions.status(&send), Status::Trusted);
        let other = Decisions {
            project: "/q".into(),
            ..decisions.clone()
        };
        assert_eq!(other.status(&run), Status::New);
        assert_eq!(other.revoke().unwrap(), 0);
        let file = decisions.kept_in().unwrap();
        assert_eq!(fs::metadata(file).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 2);
        assert_eq!(decisions.revoke().unwrap(), 2);
        assert_eq!(decisions.status(&run), Status::New);
    }

    #[test]
    fn what_changed_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let decisions = decisions(folder.path());
        let with = |word: &str, files: &[(&str, &str)]| Item {
            files: Ok(files
                .iter()
                .map(|(name, text)| ((*name).to_owned(), Hash::of(text.as_bytes())))
                .collect()),
            ..item(Kind::Run, word)
        };
        let trusted = with("a", &[("one", "1"), ("two", "2")]);
        decisions
            .trust(&[&trusted], Timestamp::from_micros(7))
            .unwrap();
        let check = |now: Item, expected: &[&str]| {
            let expected = expected.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(decisions.status(&now), Status::Changed(expected));
        };
        check(with("a", &[("one", "1"), ("two", "x")]), &["two"]);
        check(
            with("a", &[("two", "2"), ("three", "1")]),
            &["one", "three"],
        );
        check(
            with("b", &[("one", "1"), ("two", "2")]),
            &[".mcp.json or .env"],
        );
        assert_eq!(decisions.status(&trusted), Status::Trusted);
        let unread = Item {
            files: Err("why".to_owned()),
            ..trusted
        };
        assert_eq!(decisions.status(&unread), Status::Unknown("why".to_owned()));
    }

    #[test]
    fn a_file_that_does_not_count_is_told_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let decisions = decisions(folder.path());
        let run = item(Kind::Run, "a");
        let at = Timestamp::from_micros(7);
        decisions.trust(&[&run], at).unwrap();
        let file = decisions.file.clone().unwrap();
        let mode = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        mode(0o622);
        assert!(matches!(
            read(&file),
            Err(PrivateFileError::Writable { .. })
        ));
        assert!(decisions.trust(&[&run], at).is_err());
        assert!(matches!(decisions.status(&run), Status::Unknown(_)));
        mode(0o600);
        for text in ["", "{", "[]", "{\"version\":1,\"trusted\":[]}"] {
            fs::write(&file, text).unwrap();
            assert!(
                matches!(read(&file), Err(PrivateFileError::Content { .. })),
                "{text}"
            );
            assert!(decisions.trust(&[&run], at).is_err());
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }
    }

    #[test]
    fn only_the_newest_versions_of_an_agent_stay_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let decisions = decisions(folder.path());
        for number in 1..=17 {
            for kind in [Kind::Shell, Kind::Send] {
                let item = item(kind, &number.to_string());
                let at = Timestamp::from_micros(number);
                decisions.trust(&[&item, &item], at).unwrap();
                decisions.trust(&[&item], at).unwrap();
            }
        }
        for (kind, number, status) in [
            (Kind::Shell, "1", "changed"),
            (Kind::Shell, "2", "trusted"),
            (Kind::Shell, "17", "trusted"),
            (Kind::Send, "16", "changed"),
            (Kind::Send, "17", "trusted"),
            (Kind::Run, "1", "not_trusted"),
        ] {
            let found = decisions.status(&item(kind, number));
            assert_eq!(found.as_str(), status, "{kind:?} {number}");
        }
        let shell = item(Kind::Shell, "1");
        let said = decisions.check(&shell).unwrap_err();
        assert!(said.contains("submitted again"), "{said}");
        assert_eq!(decisions.revoke().unwrap(), 17);
    }
}
