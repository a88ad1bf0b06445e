//! A walk through folders, bounded in depth, entries and time.
//!
//! Never: follows a link, or enters what is closed or what nobody asks for.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustix::fs::FileType;

use longhaul_core::time::{Clock, Millis};

use crate::files::closed::Wish;
use crate::files::glob::Glob;
use crate::files::path::{DEPTH_MAX, fault};
use crate::files::workspace::Workspace;
use crate::place::{Folder, Trouble};

/// How many entries are looked at.
pub(crate) const ENTRIES_MAX: usize = 100_000;
/// How long a walk may take: well under what the call may.
const TIME_MAX: Millis = Millis::from_secs(20);
/// Folders that are other programs' own, and full. Whoever names one gets it.
const SKIPPED: &[&str] = &[
    ".git",
    ".hg",
    ".svn",
    ".jj",
    ".cache",
    ".venv",
    ".tox",
    ".next",
    ".direnv",
    ".terraform",
    "__pycache__",
    "node_modules",
    "target",
];

/// Whether to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Go {
    /// On to the next.
    On,
    /// That was enough.
    Stop,
}

/// What a walk meets.
#[derive(Debug)]
pub(crate) struct Met<'a> {
    /// The folder it is in.
    pub(crate) folder: &'a Folder,
    /// Its name there.
    pub(crate) name: &'a str,
    /// Its path from the workspace's top.
    pub(crate) path: String,
    /// What it is.
    pub(crate) kind: FileType,
}

/// A walk: where it may go, and what it has left out so far.
#[derive(Debug)]
pub(crate) struct Walk<'a> {
    space: &'a Workspace,
    glob: Option<&'a Glob>,
    clock: Arc<dyn Clock>,
    began: u64,
    start: usize,
    seen: usize,
    closed: usize,
    unreadable: usize,
    skipped: BTreeSet<String>,
    stopped: Option<&'static str>,
}

impl<'a> Walk<'a> {
    /// A walk over what fits the glob.
    pub(crate) fn new(space: &'a Workspace, glob: Option<&'a Glob>, clock: Arc<dyn Clock>) -> Self {
        Self {
            space,
            glob,
            began: clock.nanos(),
            clock,
            start: 0,
            seen: 0,
            closed: 0,
            unreadable: 0,
            skipped: BTreeSet::new(),
            stopped: None,
        }
    }

    /// Goes through this folder, and below it where `deep` is.
    pub(crate) fn go(
        &mut self,
        parts: &[String],
        deep: bool,
        visit: &mut dyn FnMut(&Self, &Met<'_>) -> Go,
    ) -> Result<(), Trouble> {
        let folder = self.space.folder(parts)?;
        self.start = parts.len();
        self.folder((&folder, parts), deep, visit).map(drop)
    }

    /// Whether its time is over.
    pub(crate) fn is_late(&self) -> bool {
        self.clock.nanos().saturating_sub(self.began) > TIME_MAX.0.saturating_mul(1_000_000)
    }

    /// What was left out, one sentence each.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(stopped) = self.stopped {
            notes.push(format!(
                "There is more: it was stopped {stopped}; narrow it by path."
            ));
        }
        if !self.skipped.is_empty() {
            let names: Vec<&str> = self.skipped.iter().map(String::as_str).collect();
            let names = names.join(", ");
            notes.push(format!("Not entered unless named: {names}."));
        }
        if self.closed > 0 {
            notes.push(format!("Closed to agents and left out: {}.", self.closed));
        }
        if self.unreadable > 0 {
            notes.push(format!("Could not be opened: {}.", self.unreadable));
        }
        notes
    }

    fn folder(
        &mut self,
        (folder, parts): (&Folder, &[String]),
        deep: bool,
        visit: &mut dyn FnMut(&Self, &Met<'_>) -> Go,
    ) -> Result<Go, Trouble> {
        let room = ENTRIES_MAX.saturating_sub(self.seen);
        let mut entries = folder.entries(room.saturating_add(1))?;
        if entries.len() > room {
            entries.truncate(room);
            self.stopped = Some("after 100000 entries");
        }
        self.seen += entries.len();
        // Files first: what is near the start is seen before what is deep.
        entries.sort_by_cached_key(|(name, kind)| (*kind == FileType::Directory, name.clone()));
        for (name, kind) in &entries {
            if self.is_late() {
                self.stopped = Some("after 20 seconds");
                return Ok(Go::Stop);
            }
            let mut parts = parts.to_vec();
            parts.push(name.clone());
            if fault(name).is_some() {
                self.unreadable += 1;
                continue;
            }
            if self.space.why_closed(&parts, Wish::Read).is_some() {
                self.closed += 1;
                continue;
            }
            let path = parts.join("/");
            let met = Met {
                folder,
                name,
                path,
                kind: *kind,
            };
            let is_folder = *kind == FileType::Directory;
            if self.fits(&met, &parts, deep) && visit(self, &met) == Go::Stop {
                return Ok(Go::Stop);
            }
            if is_folder && deep && self.below((folder, name), &parts, visit) == Go::Stop {
                return Ok(Go::Stop);
            }
        }
        Ok(if self.stopped.is_some() {
            Go::Stop
        } else {
            Go::On
        })
    }

    fn fits(&self, met: &Met<'_>, parts: &[String], deep: bool) -> bool {
        if deep && met.kind == FileType::Directory {
            return false;
        }
        let from_start = || parts[self.start..].join("/");
        self.glob
            .is_none_or(|glob| glob.fits(&met.path, &from_start()))
    }

    fn below(
        &mut self,
        (folder, name): (&Folder, &str),
        parts: &[String],
        visit: &mut dyn FnMut(&Self, &Met<'_>) -> Go,
    ) -> Go {
        let is_named = self.glob.is_some_and(|glob| glob.names(name));
        if SKIPPED.contains(&name) && !is_named {
            self.skipped.insert(name.to_owned());
            return Go::On;
        }
        if parts.len() > DEPTH_MAX {
            self.skipped.insert("folders deeper than 32".into());
            return Go::On;
        }
        let gone = folder
            .enter(name)
            .and_then(|below| self.folder((&below, parts), true, visit));
        match gone {
            Ok(go) => go,
            Err(trouble) => {
                if matches!(trouble, Trouble::Kept) {
                    self.closed += 1;
                } else {
                    // Removed since, swapped for a link, or not ours to read.
                    self.unreadable += 1;
                }
                Go::On
            }
        }
    }
}
