//! The workspace: a path from a model goes in, an open folder comes out, and
//! every door on the way has been tried.
//!
//! Never: another way to the disk for the tools of this room.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use crate::atomic_write::AtomicWriter;
use crate::filename_fold::fold_case;
use crate::files::path::{self, PathError};
use crate::files::protected::{self, Access};
use crate::safe_dir::{DirHandle, FsError, OpenFile, SafeDir};

/// The directory that agents work in.
#[derive(Debug, Clone)]
pub(crate) struct Workspace {
    dir: SafeDir,
    /// How the root may be spelled in an absolute path.
    roots: Arc<[PathBuf]>,
    /// The parts of what is kept from agents and lies in the root.
    protected: Arc<[Vec<String>]>,
}

/// A file of the workspace that may be opened for what was wished.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    folders: Vec<String>,
    file: String,
    /// Its one spelling.
    pub(crate) display: String,
}

impl Workspace {
    /// The workspace in this directory, without these files and folders.
    pub(crate) fn new(root: PathBuf, kept: Vec<PathBuf>) -> Self {
        let mut roots = vec![root.clone()];
        roots.extend(std::path::absolute(&root));
        roots.extend(root.canonicalize());
        let in_root = |path: &PathBuf| {
            let below = roots.iter().find_map(|root| path.strip_prefix(root).ok());
            below.map(folded).filter(|parts| !parts.is_empty())
        };
        Self {
            protected: kept.iter().filter_map(in_root).collect(),
            dir: SafeDir::new(root).with_protected(kept),
            roots: roots.into(),
        }
    }

    /// The parts of this path, where they may be used for what is wished.
    pub(crate) fn parts(&self, text: &str, wish: Access) -> Result<Vec<String>, PathError> {
        let parts = path::parts(&self.roots, text)?;
        let other = "work without it, or ask a person";
        if let Some(why) = self.protected_reason(&parts, wish) {
            return Err(PathError::new(text, why, other));
        }
        if wish == Access::Write
            && let Some(wrong) = parts.iter().find_map(|part| path::write_error(part))
        {
            return Err(PathError::new(text, wrong, "use another name"));
        }
        Ok(parts)
    }

    /// Why this path is closed, if it is.
    pub(crate) fn protected_reason(&self, parts: &[String], wish: Access) -> Option<&'static str> {
        let folds: Vec<String> = parts.iter().map(|part| fold_case(part)).collect();
        let is_kept = self.protected.iter().any(|kept| folds.starts_with(kept));
        let why = is_kept.then_some("is the runtime's own data and is closed to agents");
        why.or_else(|| protected::protected_reason(parts, wish))
    }

    /// The file at this path.
    pub(crate) fn target(&self, text: &str, wish: Access) -> Result<Target, PathError> {
        let mut parts = self.parts(text, wish)?;
        let said = path::joined(&parts);
        let Some(file) = parts.pop() else {
            let mend = "name a file in it, such as `src/main.rs`";
            return Err(PathError::new(text, "is the workspace itself", mend));
        };
        Ok(Target { folders: parts, file, display: said })
    }

    /// The folder of these parts, which came from `parts`.
    pub(crate) fn folder(&self, parts: &[String]) -> Result<DirHandle, FsError> {
        self.dir.open_dir(parts)
    }

    /// Opens a file for reading.
    pub(crate) fn open(&self, target: &Target) -> Result<OpenFile, FsError> {
        self.dir.open_dir(&target.folders)?.open(&target.file)
    }

    /// A place to write this file at, while nobody else writes. Folders that
    /// are missing are made.
    pub(crate) fn writer(&self, target: &Target) -> Result<AtomicWriter, FsError> {
        AtomicWriter::open(&self.dir, &target.folders)
    }

    /// What rules know the path of this input by; where there is no such path,
    /// the path as it was written.
    pub(crate) fn subjects(&self, input: &Value) -> Vec<String> {
        let text = match &input["path"] {
            Value::Null => "",
            Value::String(text) => text,
            Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                return vec![longhaul_core::raw::canonical_json(input)];
            }
        };
        let parts = path::parts(&self.roots, text);
        vec![parts.map_or_else(|_| text.to_owned(), |parts| path::joined(&parts))]
    }
}

impl Target {
    /// The name of the file in its folder.
    pub(crate) fn file(&self) -> &str {
        &self.file
    }
}

/// What to say of a file that can't be reached.
pub(crate) fn error_hint(trouble: &FsError) -> &'static str {
    if matches!(trouble, FsError::NotFound) {
        "; list_files shows what is"
    } else if matches!(trouble, FsError::IsDirectory) {
        "; list_files shows what is in it"
    } else {
        ""
    }
}

fn folded(path: &Path) -> Vec<String> {
    let parts = path.components();
    parts
        .map(|part| fold_case(&part.as_os_str().to_string_lossy()))
        .filter(|part| part != ".")
        .collect()
}
