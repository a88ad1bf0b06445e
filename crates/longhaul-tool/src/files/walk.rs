//! A walk through folders, limited in depth, entries and time.
//!
//! Invariant: symbolic links are not followed, and protected folders are not entered.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustix::fs::FileType;

use longhaul_core::time::{Clock, Millis};

use crate::files::glob::Glob;
use crate::files::path::{DEPTH_MAX, path_part_problem_and_hint};
use crate::files::protected::PathAccess;
use crate::files::workspace::Workspace;
use crate::safe_dir::{DirHandle, FsError};

/// Maximum number of entries that a walk visits.
pub(crate) const ENTRIES_MAX: usize = 100_000;
/// Timeout of a walk, well under that of the tool call.
const WALK_TIMEOUT: Millis = Millis::from_secs(20);
/// Folders that other programs fill with many files. They are entered only if the glob names them.
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

/// Whether a walk continues after an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WalkControl {
    /// Continue with the next entry.
    Continue,
    Stop,
}

/// A file or folder that a walk has found.
#[derive(Debug)]
pub(crate) struct WalkEntry<'a> {
    /// The folder that contains the entry.
    pub(crate) folder: &'a DirHandle,
    /// Name of the entry in its folder.
    pub(crate) name: &'a str,
    /// Path of the entry relative to the top of the workspace.
    pub(crate) path: String,
    pub(crate) kind: FileType,
}

/// A walk through folders: its limits, and what it has left out so far.
#[derive(Debug)]
pub(crate) struct FolderWalk<'a> {
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

impl<'a> FolderWalk<'a> {
    /// Creates a walk over the files and folders that match the glob.
    pub(crate) fn new(
        workspace: &'a Workspace,
        glob: Option<&'a Glob>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            workspace,
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

    /// Visits the entries of this folder or, if `visits_subfolders` is true, all files in it and
    /// in its subfolders.
    pub(crate) fn visit_entries(
        &mut self,
        parts: &[String],
        visits_subfolders: bool,
        visit: &mut dyn FnMut(&Self, &WalkEntry<'_>) -> WalkControl,
    ) -> Result<(), FsError> {
        let folder = self.workspace.open_folder(parts)?;
        self.start_depth = parts.len();
        self.walk_dir((&folder, parts), visits_subfolders, visit).map(drop)
    }

    /// Returns whether the walk has exceeded its timeout.
    pub(crate) fn is_timed_out(&self) -> bool {
        self.clock.monotonic_nanos().saturating_sub(self.started_nanos)
            > WALK_TIMEOUT.0.saturating_mul(1_000_000)
    }

    /// Returns what the walk has left out, one sentence each.
    pub(crate) fn omission_notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(reason) = self.stop_reason {
            notes.push(format!(
                "Incomplete: the walk through the folders stopped {reason}; use a more specific \
                 path."
            ));
        }
        if !self.skipped_dirs.is_empty() {
            let names: Vec<&str> = self.skipped_dirs.iter().map(String::as_str).collect();
            let names = names.join(", ");
            notes.push(format!(
                "Skipped folders (name a folder in the glob to include it): {names}."
            ));
        }
        if self.protected_count > 0 {
            notes.push(format!("Entries that agents can't access: {}.", self.protected_count));
        }
        if self.unreadable_count > 0 {
            notes.push(format!("Entries that could not be opened: {}.", self.unreadable_count));
        }
        notes
    }

    fn walk_dir(
        &mut self,
        (folder, parts): (&DirHandle, &[String]),
        visits_subfolders: bool,
        visit: &mut dyn FnMut(&Self, &WalkEntry<'_>) -> WalkControl,
    ) -> Result<WalkControl, FsError> {
        let remaining = ENTRIES_MAX.saturating_sub(self.entry_count);
        let mut entries = folder.entries_with_types(remaining.saturating_add(1))?;
        if entries.len() > remaining {
            entries.truncate(remaining);
            self.stop_reason = Some("after 100000 entries");
        }
        self.entry_count += entries.len();
        // Files first, so that entries near the start come before deeper ones.
        entries.sort_by_cached_key(|(name, kind)| (*kind == FileType::Directory, name.clone()));
        for (name, kind) in &entries {
            if self.is_timed_out() {
                self.stop_reason = Some("after 20 seconds");
                return Ok(WalkControl::Stop);
            }
            let mut parts = parts.to_vec();
            parts.push(name.clone());
            if path_part_problem_and_hint(name).is_some() {
                self.unreadable_count += 1;
                continue;
            }
            if self.workspace.workspace_protection_reason(&parts, PathAccess::Read).is_some() {
                self.protected_count += 1;
                continue;
            }
            let path = parts.join("/");
            let entry = WalkEntry { folder, name, path, kind: *kind };
            let is_folder = *kind == FileType::Directory;
            if self.is_entry_match(&entry, &parts, visits_subfolders)
                && visit(self, &entry) == WalkControl::Stop
            {
                return Ok(WalkControl::Stop);
            }
            if is_folder
                && visits_subfolders
                && self.walk_child_folder((folder, name), &parts, visit) == WalkControl::Stop
            {
                return Ok(WalkControl::Stop);
            }
        }
        Ok(if self.stop_reason.is_some() { WalkControl::Stop } else { WalkControl::Continue })
    }

    fn is_entry_match(
        &self,
        entry: &WalkEntry<'_>,
        parts: &[String],
        visits_subfolders: bool,
    ) -> bool {
        if visits_subfolders && entry.kind == FileType::Directory {
            return false;
        }
        let from_start = || parts[self.start_depth..].join("/");
        self.glob.is_none_or(|glob| glob.is_match(&entry.path, &from_start()))
    }

    fn walk_child_folder(
        &mut self,
        (folder, name): (&DirHandle, &str),
        parts: &[String],
        visit: &mut dyn FnMut(&Self, &WalkEntry<'_>) -> WalkControl,
    ) -> WalkControl {
        let is_named = self.glob.is_some_and(|glob| glob.contains_folder_name(name));
        if SKIPPED_DIRS.contains(&name) && !is_named {
            self.skipped_dirs.insert(name.to_owned());
            return WalkControl::Continue;
        }
        if parts.len() > DEPTH_MAX {
            self.skipped_dirs.insert("folders deeper than 32".into());
            return WalkControl::Continue;
        }
        let result = folder
            .open_child_folder_without_name_check(name)
            .and_then(|child| self.walk_dir((&child, parts), true, visit));
        match result {
            Ok(control) => control,
            Err(error) => {
                if matches!(error, FsError::Protected) {
                    self.protected_count += 1;
                } else {
                    // Removed since, replaced by a symbolic link, or not readable.
                    self.unreadable_count += 1;
                }
                WalkControl::Continue
            }
        }
    }
}
