//! The workspace: a path from a model goes in, an open folder comes out, and
//! every door on the way has been tried.
//!
//! Never: another way to the disk for the tools of this room.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use crate::desk::Desk;
use crate::files::closed::{self, Wish};
use crate::files::path::{self, BadPath};
use crate::place::{Folder, Opened, Place, Trouble};
use crate::spelling::fold;

/// The directory that agents work in.
#[derive(Debug, Clone)]
pub(crate) struct Workspace {
    place: Place,
    /// How the root may be spelled in an absolute path.
    roots: Arc<[PathBuf]>,
    /// The parts of what is kept from agents and lies in the root.
    kept: Arc<[Vec<String>]>,
}

/// A file of the workspace that may be opened for what was wished.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    folders: Vec<String>,
    file: String,
    /// Its one spelling.
    pub(crate) said: String,
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
            kept: kept.iter().filter_map(in_root).collect(),
            place: Place::new(root).without(kept),
            roots: roots.into(),
        }
    }

    /// The parts of this path, where they may be used for what is wished.
    pub(crate) fn parts(&self, text: &str, wish: Wish) -> Result<Vec<String>, BadPath> {
        let parts = path::parts(&self.roots, text)?;
        let other = "work without it, or ask a person";
        if let Some(why) = self.why_closed(&parts, wish) {
            return Err(BadPath::new(text, why, other));
        }
        if wish == Wish::Write
            && let Some(wrong) = parts.iter().find_map(|part| path::write_fault(part))
        {
            return Err(BadPath::new(text, wrong, "use another name"));
        }
        Ok(parts)
    }

    /// Why this path is closed, if it is.
    pub(crate) fn why_closed(&self, parts: &[String], wish: Wish) -> Option<&'static str> {
        let folds: Vec<String> = parts.iter().map(|part| fold(part)).collect();
        let is_kept = self.kept.iter().any(|kept| folds.starts_with(kept));
        let why = is_kept.then_some("is the runtime's own data and is closed to agents");
        why.or_else(|| closed::why(parts, wish))
    }

    /// The file at this path.
    pub(crate) fn target(&self, text: &str, wish: Wish) -> Result<Target, BadPath> {
        let mut parts = self.parts(text, wish)?;
        let said = path::joined(&parts);
        let Some(file) = parts.pop() else {
            let mend = "name a file in it, such as `src/main.rs`";
            return Err(BadPath::new(text, "is the workspace itself", mend));
        };
        Ok(Target {
            folders: parts,
            file,
            said,
        })
    }

    /// The folder of these parts, which came from `parts`.
    pub(crate) fn folder(&self, parts: &[String]) -> Result<Folder, Trouble> {
        self.place.folder(parts)
    }

    /// Opens a file for reading.
    pub(crate) fn open(&self, target: &Target) -> Result<Opened, Trouble> {
        self.place.folder(&target.folders)?.open(&target.file)
    }

    /// A place to write this file at, while nobody else writes. Folders that
    /// are missing are made.
    pub(crate) fn desk(&self, target: &Target) -> Result<Desk, Trouble> {
        Desk::at(&self.place, &target.folders)
    }

    /// What rules know the path of this input by; where there is no such path,
    /// the path as it was written.
    pub(crate) fn subjects(&self, input: &Value) -> Vec<String> {
        let text = match &input["path"] {
            Value::Null => "",
            Value::String(text) => text,
            Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                return vec![longhaul_core::raw::canonical(input)];
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
pub(crate) fn hint(trouble: &Trouble) -> &'static str {
    if matches!(trouble, Trouble::Missing) {
        "; list_files shows what is"
    } else if matches!(trouble, Trouble::Folder) {
        "; list_files shows what is in it"
    } else {
        ""
    }
}

fn folded(path: &Path) -> Vec<String> {
    let parts = path.components();
    parts
        .map(|part| fold(&part.as_os_str().to_string_lossy()))
        .filter(|part| part != ".")
        .collect()
}
