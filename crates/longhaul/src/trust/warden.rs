//! Says whether a thing of this project may be run, by what a person decided.
//!
//! Never: asks anybody, and never remembers: each question is answered from the
//! book as it stands, so that a decision made elsewhere counts at once.

use std::path::PathBuf;

use longhaul_core::time::Timestamp;

use crate::config::settings::Config;
use crate::trust::VARIABLE;
use crate::trust::book::{self, BookError, Entry, NAME};
use crate::trust::thing::Thing;

/// Whether a thing may be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// A person looked at exactly this, and trusts it.
    Trusted,
    /// Whoever started this process trusts everything.
    Unasked,
    /// Nobody has decided.
    New,
    /// A person trusted what it was, and it is another now.
    Changed,
    /// It can't be told, and this is why.
    Unknown(String),
}

impl Verdict {
    /// Whether it may be run.
    pub const fn allows(&self) -> bool {
        match self {
            Self::Trusted | Self::Unasked => true,
            Self::New | Self::Changed | Self::Unknown(_) => false,
        }
    }

    /// In a word, for programs.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Trusted => "trusted",
            Self::Unasked => "not_asked",
            Self::New => "not_trusted",
            Self::Changed => "changed",
            Self::Unknown(_) => "unknown",
        }
    }

    /// Why a thing is not run, and what helps.
    pub fn sentence(&self, thing: &Thing) -> String {
        let helps = format!(
            "Look at it and decide with `longhaul trust`; runs that wait for it go on with \
             `longhaul answer`. Or start this process with {VARIABLE}=1."
        );
        match self {
            Self::Trusted | Self::Unasked => format!("{thing} is trusted."),
            Self::New => format!(
                "{} is not trusted yet, so {}. {helps}",
                upper(thing),
                thing.kind.withheld()
            ),
            Self::Changed => format!(
                "{} has changed since it was trusted, so {}. {helps}{}",
                upper(thing),
                thing.kind.withheld(),
                thing.kind.pinned()
            ),
            Self::Unknown(why) => format!(
                "{} can't be trusted, so {}: {why}. {helps}",
                upper(thing),
                thing.kind.withheld()
            ),
        }
    }
}

/// As a sentence begins.
fn upper(thing: &Thing) -> String {
    let said = thing.to_string();
    match said.strip_prefix("the ") {
        Some(rest) => format!("The {rest}"),
        None => said,
    }
}

/// Who guards a project's own code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warden {
    project: PathBuf,
    book: Option<PathBuf>,
    unasked: bool,
}

impl Warden {
    /// The warden of this project.
    pub fn of(config: &Config) -> Self {
        let project = std::fs::canonicalize(&config.root);
        Self {
            project: project.unwrap_or_else(|_| config.root.clone()),
            book: config.state.as_ref().map(|state| state.join(NAME)),
            unasked: config.env.real(VARIABLE) == Some("1"),
        }
    }

    /// Whether this may be run.
    pub fn may(&self, thing: &Thing) -> Verdict {
        let hash = match &thing.hash {
            Ok(hash) => hash,
            Err(why) => return Verdict::Unknown(why.clone()),
        };
        if self.unasked {
            return Verdict::Unasked;
        }
        let decided = match self.decided() {
            Ok(decided) => decided,
            Err(error) => return Verdict::Unknown(error.to_string()),
        };
        let mut decided = decided.iter().filter(|entry| self.is_about(entry, thing));
        let mut first = decided.clone();
        match decided.any(|entry| entry.hash == *hash) {
            true => Verdict::Trusted,
            false if first.next().is_some() => Verdict::Changed,
            false => Verdict::New,
        }
    }

    /// Every decision about this project.
    pub fn decided(&self) -> Result<Vec<Entry>, BookError> {
        let Some(book) = &self.book else {
            return Ok(Vec::new());
        };
        let mut entries = book::read(book)?;
        entries.retain(|entry| entry.project == self.project);
        Ok(entries)
    }

    /// Remembers that a person looked at this and trusts it.
    pub fn trust(&self, thing: &Thing, at: Timestamp) -> Result<(), BookError> {
        let Ok(hash) = thing.hash else {
            return Ok(());
        };
        let entry = Entry {
            project: self.project.clone(),
            kind: thing.kind,
            name: thing.name.clone(),
            hash,
            at,
        };
        let kept = thing.kind.kept();
        book::change(self.book()?, |entries| {
            entries.retain(|entry| !self.is_about(entry, thing) || entry.hash != hash);
            let known = entries.iter().filter(|entry| self.is_about(entry, thing));
            let mut too_many = (known.count() + 1).saturating_sub(kept);
            // The oldest stand first.
            entries.retain(|entry| {
                let goes = too_many > 0 && self.is_about(entry, thing);
                too_many -= usize::from(goes);
                !goes
            });
            entries.push(entry);
        })
    }

    /// Forgets what was decided about this project where this holds; says how much.
    pub fn revoke(&self, which: impl Fn(&Entry) -> bool) -> Result<usize, BookError> {
        let mut gone = 0;
        book::change(self.book()?, |entries| {
            let before = entries.len();
            entries.retain(|entry| entry.project != self.project || !which(entry));
            gone = before - entries.len();
        })?;
        Ok(gone)
    }

    /// Where decisions are kept.
    pub fn book(&self) -> Result<&PathBuf, BookError> {
        self.book.as_ref().ok_or(BookError::Homeless)
    }

    fn is_about(&self, entry: &Entry, thing: &Thing) -> bool {
        entry.project == self.project && entry.kind == thing.kind && entry.name == thing.name
    }
}
