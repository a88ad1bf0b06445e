//! A walk through folders, limited in depth, entries and time.
//!
//! Invariant: symbolic links are not followed, and protected folders are not entered.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use rustix::fs::FileType;

use longhaul_core::time::Millis;

use crate::files::glob::Glob;
use crate::files::path::{DEPTH_MAX, part_problem};
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
    /// Start time on the monotonic clock.
    started: Millis,
    start_depth: usize,
    entry_count: usize,
    protected_count: usize,
    unreadable_count: usize,
    skipped_dirs: BTreeSet<String>,
    stop_reason: Option<&'static str>,
}

impl<'a> FolderWalk<'a> {
    /// Creates a walk over the files and folders that match the glob.
    pub(crate) fn new(workspace: &'a Workspace, glob: Option<&'a Glob>) -> Self {
        Self {
            workspace,
            glob,
            started: workspace.clock.monotonic_time(),
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
        visit: &mut dyn FnMut(&Self, &WalkEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), FsError> {
        let folder = self.workspace.open_folder(parts)?;
        self.start_depth = parts.len();
        self.walk_dir((&folder, parts), visits_subfolders, visit).map(drop)
    }

    /// Returns whether the walk has exceeded its timeout.
    pub(crate) fn is_timed_out(&self) -> bool {
        self.workspace.clock.monotonic_time().minus(self.started) > WALK_TIMEOUT
    }

    /// Returns what the walk has left out, one line each.
    pub(crate) fn omission_notes(&self) -> Vec<String> {
        let stopped = self.stop_reason.map(|reason| {
            format!(
                "Incomplete: the walk through the folders stopped {reason}; use a more specific path."
            )
        });
        let skipped = Vec::from_iter(self.skipped_dirs.iter().map(String::as_str)).join(", ");
        let count = |text: &str, count: usize| (count > 0).then(|| format!("{text}: {count}."));
        let notes = [
            stopped,
            (!skipped.is_empty()).then(|| {
                format!("Skipped folders (name a folder in the glob to include it): {skipped}.")
            }),
            count("Entries that agents can't access", self.protected_count),
            count("Entries that could not be opened", self.unreadable_count),
        ];
        notes.into_iter().flatten().map(|note| format!("[{note}]")).collect()
    }

    fn walk_dir(
        &mut self,
        (folder, parts): (&DirHandle, &[String]),
        visits_subfolders: bool,
        visit: &mut dyn FnMut(&Self, &WalkEntry<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, FsError> {
        let remaining = ENTRIES_MAX.saturating_sub(self.entry_count);
        let mut entries = folder.entries(remaining.saturating_add(1))?;
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
                return Ok(ControlFlow::Break(()));
            }
            let mut parts = parts.to_vec();
            parts.push(name.clone());
            if part_problem(name).is_some() {
                self.unreadable_count += 1;
                continue;
            }
            if self.workspace.protection_reason(&parts, PathAccess::Read).is_some() {
                self.protected_count += 1;
                continue;
            }
            let path = parts.join("/");
            let from_start = parts[self.start_depth..].join("/");
            let control = if *kind == FileType::Directory && visits_subfolders {
                self.walk_child_folder((folder, name), &parts, visit)
            } else if self.glob.is_none_or(|glob| glob.is_match(&path, &from_start)) {
                visit(self, &WalkEntry { folder, name, path, kind: *kind })
            } else {
                ControlFlow::Continue(())
            };
            if control.is_break() {
                return Ok(control);
            }
        }
        Ok(match self.stop_reason {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        })
    }

    fn walk_child_folder(
        &mut self,
        (folder, name): (&DirHandle, &str),
        parts: &[String],
        visit: &mut dyn FnMut(&Self, &WalkEntry<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let is_named = self.glob.is_some_and(|glob| glob.contains_folder_name(name));
        if SKIPPED_DIRS.contains(&name) && !is_named {
            self.skipped_dirs.insert(name.to_owned());
            return ControlFlow::Continue(());
        }
        if parts.len() > DEPTH_MAX {
            self.skipped_dirs.insert("folders deeper than 32".into());
            return ControlFlow::Continue(());
        }
        let child = folder.open_listed_folder(name);
        match child.and_then(|child| self.walk_dir((&child, parts), true, visit)) {
            Ok(control) => control,
            Err(error) => {
                let is_protected = matches!(error, FsError::Protected);
                self.protected_count += usize::from(is_protected);
                // Removed since, replaced by a symbolic link, or not readable.
                self.unreadable_count += usize::from(!is_protected);
                ControlFlow::Continue(())
            }
        }
    }
}
