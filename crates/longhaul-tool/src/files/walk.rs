//! A walk through folders, bounded in depth, entries and time.
//!
//! Never: follows a link, or enters what is closed or what nobody asks for.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustix::fs::FileType;

use longhaul_core::time::{Clock, Millis};

use crate::files::glob::Glob;
use crate::files::path::{DEPTH_MAX, part_error};
use crate::files::protected::Access;
use crate::files::workspace::Workspace;
use crate::safe_dir::{DirHandle, FsError};

/// How many entries are looked at.
pub(crate) const ENTRIES_MAX: usize = 100_000;
/// How long a walk may take: well under what the call may.
const WALK_TIMEOUT: Millis = Millis::from_secs(20);
/// Folders that are other programs' own, and full. Whoever names one gets it.
const SKIPPED_DIRS: &[&str] = &[
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
pub(crate) enum WalkControl {
    /// On to the next.
    Continue,
    /// That was enough.
    Stop,
}

/// What a walk meets.
#[derive(Debug)]
pub(crate) struct WalkEntry<'a> {
    /// The folder it is in.
    pub(crate) folder: &'a DirHandle,
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
    workspace: &'a Workspace,
    glob: Option<&'a Glob>,
    clock: Arc<dyn Clock>,
    started_nanos: u64,
    start_depth: usize,
    entry_count: usize,
    protected_count: usize,
    unreadable_count: usize,
    skipped_dirs: BTreeSet<String>,
    stop_reason: Option<&'static str>,
}

impl<'a> Walk<'a> {
    /// A walk over what fits the glob.
    pub(crate) fn new(space: &'a Workspace, glob: Option<&'a Glob>, clock: Arc<dyn Clock>) -> Self {
        Self {
            workspace: space,
            glob,
            started_nanos: clock.monotonic_nanos(),
            clock,
            start_depth: 0,
            entry_count: 0,
            protected_count: 0,
            unreadable_count: 0,
            skipped_dirs: BTreeSet::new(),
            stop_reason: None,
        }
    }

    /// Goes through this folder, and below it where `deep` is.
    pub(crate) fn run(
        &mut self,
        parts: &[String],
        deep: bool,
        visit: &mut dyn FnMut(&Self, &WalkEntry<'_>) -> WalkControl,
    ) -> Result<(), FsError> {
        let folder = self.workspace.folder(parts)?;
        self.start_depth = parts.len();
        self.walk_dir((&folder, parts), deep, visit).map(drop)
    }

    /// Whether its time is over.
    pub(crate) fn is_timed_out(&self) -> bool {
        self.clock.monotonic_nanos().saturating_sub(self.started_nanos)
            > WALK_TIMEOUT.0.saturating_mul(1_000_000)
    }

    /// What was left out, one sentence each.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(stopped) = self.stop_reason {
            notes.push(format!("There is more: it was stopped {stopped}; narrow it by path."));
        }
        if !self.skipped_dirs.is_empty() {
            let names: Vec<&str> = self.skipped_dirs.iter().map(String::as_str).collect();
            let names = names.join(", ");
            notes.push(format!("Not entered unless named: {names}."));
        }
        if self.protected_count > 0 {
            notes.push(format!("Closed to agents and left out: {}.", self.protected_count));
        }
        if self.unreadable_count > 0 {
            notes.push(format!("Could not be opened: {}.", self.unreadable_count));
        }
        notes
    }

    fn walk_dir(
        &mut self,
        (folder, parts): (&DirHandle, &[String]),
        deep: bool,
        visit: &mut dyn FnMut(&Self, &WalkEntry<'_>) -> WalkControl,
    ) -> Result<WalkControl, FsError> {
        let room = ENTRIES_MAX.saturating_sub(self.entry_count);
        let mut entries = folder.entries(room.saturating_add(1))?;
        if entries.len() > room {
            entries.truncate(room);
            self.stop_reason = Some("after 100000 entries");
        }
        self.entry_count += entries.len();
        // Files first: what is near the start is seen before what is deep.
        entries.sort_by_cached_key(|(name, kind)| (*kind == FileType::Directory, name.clone()));
        for (name, kind) in &entries {
            if self.is_timed_out() {
                self.stop_reason = Some("after 20 seconds");
                return Ok(WalkControl::Stop);
            }
            let mut parts = parts.to_vec();
            parts.push(name.clone());
            if part_error(name).is_some() {
                self.unreadable_count += 1;
                continue;
            }
            if self.workspace.protected_reason(&parts, Access::Read).is_some() {
                self.protected_count += 1;
                continue;
            }
            let path = parts.join("/");
            let met = WalkEntry { folder, name, path, kind: *kind };
            let is_folder = *kind == FileType::Directory;
            if self.is_match(&met, &parts, deep) && visit(self, &met) == WalkControl::Stop {
                return Ok(WalkControl::Stop);
            }
            if is_folder
                && deep
                && self.walk_child((folder, name), &parts, visit) == WalkControl::Stop
            {
                return Ok(WalkControl::Stop);
            }
        }
        Ok(if self.stop_reason.is_some() { WalkControl::Stop } else { WalkControl::Continue })
    }

    fn is_match(&self, met: &WalkEntry<'_>, parts: &[String], deep: bool) -> bool {
        if deep && met.kind == FileType::Directory {
            return false;
        }
        let from_start = || parts[self.start_depth..].join("/");
        self.glob.is_none_or(|glob| glob.is_match(&met.path, &from_start()))
    }

    fn walk_child(
        &mut self,
        (folder, name): (&DirHandle, &str),
        parts: &[String],
        visit: &mut dyn FnMut(&Self, &WalkEntry<'_>) -> WalkControl,
    ) -> WalkControl {
        let is_named = self.glob.is_some_and(|glob| glob.mentions(name));
        if SKIPPED_DIRS.contains(&name) && !is_named {
            self.skipped_dirs.insert(name.to_owned());
            return WalkControl::Continue;
        }
        if parts.len() > DEPTH_MAX {
            self.skipped_dirs.insert("folders deeper than 32".into());
            return WalkControl::Continue;
        }
        let gone =
            folder.enter_known(name).and_then(|below| self.walk_dir((&below, parts), true, visit));
        match gone {
            Ok(go) => go,
            Err(trouble) => {
                if matches!(trouble, FsError::Protected) {
                    self.protected_count += 1;
                } else {
                    // Removed since, swapped for a link, or not ours to read.
                    self.unreadable_count += 1;
                }
                WalkControl::Continue
            }
        }
    }
}
