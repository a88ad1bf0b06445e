//! The workspace: turns a path from a model into an open folder, after all access checks.
//!
//! Invariant: the file tools access the disk only through this module.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_core::policy::effect_facts::{FileContent, PredictedEffects};
use longhaul_core::port::sandbox::WORKSPACE;
use longhaul_core::time::Clock;
use serde_json::Value;

use crate::atomic_write::AtomicWriter;
use crate::filename_fold::fold_case;
use crate::files::path::{self, NameError};
use crate::files::protected::{self, PathAccess};
use crate::prediction;
use crate::safe_dir::{DirHandle, FsError, OpenFile, SafeDir};

/// The directory that agents work in.
#[derive(Debug, Clone)]
pub(crate) struct Workspace {
    dir: SafeDir,
    /// The root path as given, made absolute, and with symbolic links resolved. An absolute path in
    /// the workspace starts with one of them.
    roots: Arc<[PathBuf]>,
    /// Components of each protected path inside of the root.
    protected: Arc<[Vec<String>]>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// Path of a workspace file that passed the checks for the requested access.
#[derive(Debug, Clone)]
pub(crate) struct CheckedFilePath {
    folders: Vec<String>,
    /// Name of the file, without its folders.
    pub(crate) file: String,
    /// The path in normal form, for messages.
    pub(crate) display: String,
}

impl Workspace {
    /// Creates the workspace in this directory, with these files and folders protected.
    pub(crate) fn new(root: PathBuf, protected: Vec<PathBuf>, clock: Arc<dyn Clock>) -> Self {
        let mut roots = vec![root.clone()];
        roots.extend(std::path::absolute(&root));
        roots.extend(root.canonicalize());
        let in_root = |path: &PathBuf| {
            let relative = roots.iter().find_map(|root| path.strip_prefix(root).ok());
            relative.map(folded_parts).filter(|parts| !parts.is_empty())
        };
        Self {
            protected: protected.iter().filter_map(in_root).collect(),
            dir: SafeDir::new(root).with_protected_paths(protected),
            roots: roots.into(),
            clock,
        }
    }

    /// Returns the workspace that is the work folder of a sandbox.
    pub(crate) fn in_sandbox(&self, work_folder: PathBuf) -> Self {
        Self {
            dir: SafeDir::new(work_folder),
            roots: [PathBuf::from(WORKSPACE)].into(),
            protected: [].into(),
            clock: Arc::clone(&self.clock),
        }
    }

    /// Parses a path of the workspace and checks the requested access. Returns the path's
    /// components.
    pub(crate) fn parse_accessible_path(
        &self,
        text: &str,
        access: PathAccess,
    ) -> Result<Vec<String>, NameError> {
        let parts = path::parse_in_workspace(&self.roots, text)?;
        let hint = "work without it, or ask a person";
        if let Some(reason) = self.protection_reason(&parts, access) {
            return Err(NameError::new(text, reason, hint));
        }
        if access == PathAccess::Write
            && let Some(problem) = parts.iter().find_map(|part| path::new_name_problem(part))
        {
            return Err(NameError::new(text, problem, "use another name"));
        }
        Ok(parts)
    }

    /// Returns why agents can't access this path. `None` if the path is not protected.
    pub(crate) fn protection_reason(
        &self,
        parts: &[String],
        access: PathAccess,
    ) -> Option<&'static str> {
        let folded_parts: Vec<String> = parts.iter().map(|part| fold_case(part)).collect();
        let is_runtime_data =
            self.protected.iter().any(|protected| folded_parts.starts_with(protected));
        let reason =
            is_runtime_data.then_some("is the runtime's own data and is not accessible to agents");
        reason.or_else(|| protected::protection_reason(parts, access))
    }

    /// Returns the file at this path, if the requested access is allowed.
    pub(crate) fn checked_file_path(
        &self,
        text: &str,
        access: PathAccess,
    ) -> Result<CheckedFilePath, NameError> {
        let mut parts = self.parse_accessible_path(text, access)?;
        let display = path::join_parts(&parts);
        let Some(file) = parts.pop() else {
            let hint = "name a file in it, such as `src/main.rs`";
            return Err(NameError::new(text, "is the workspace itself", hint));
        };
        Ok(CheckedFilePath { folders: parts, file, display })
    }

    /// Opens the folder with these path components, which have passed the access checks.
    pub(crate) fn open_folder(&self, path_parts: &[String]) -> Result<DirHandle, FsError> {
        self.dir.open_dir(path_parts)
    }

    /// Opens a file for reading.
    pub(crate) fn open_file(&self, target: &CheckedFilePath) -> Result<OpenFile, FsError> {
        self.dir.open_dir(&target.folders)?.open_file(&target.file)
    }

    /// Opens a writer for this file and locks out other writers. Missing folders are created.
    pub(crate) fn open_writer(&self, target: &CheckedFilePath) -> Result<AtomicWriter, FsError> {
        AtomicWriter::open_and_lock_dir(&self.dir, &target.folders)
    }

    /// Returns what writing a file would change. The closure returns the new content, given the
    /// current one, or `None` if the call would fail.
    pub(crate) fn predict_write(
        &self,
        path: &str,
        new_content: impl FnOnce(&FileContent) -> Option<FileContent>,
    ) -> PredictedEffects {
        let target = match self.checked_file_path(path, PathAccess::Write) {
            Ok(target) => target,
            Err(error) => {
                let undo = Some(format!("nothing to undo, because the call fails: {error}"));
                return PredictedEffects {
                    undo,
                    ..self.effects_without_change(path, PathAccess::Write)
                };
            }
        };
        let predicted = prediction::file_content(self.open_file(&target)).and_then(|before| {
            let after = new_content(&before)?;
            Some(prediction::one_file_change(target.display, before, after))
        });
        predicted.unwrap_or_default()
    }

    /// Returns whether an argument of a shell command is a protected path, from whatever folder of
    /// the workspace. The disk is not accessed, so symbolic links are not followed.
    pub(crate) fn is_protected_path_argument(&self, argument: &str) -> bool {
        let relative = self.roots.iter().find_map(|root| path::strip_root_prefix(root, argument));
        let mut names: Vec<String> = Vec::new();
        for name in relative.unwrap_or(argument).split('/') {
            match name {
                "" | "." => {}
                ".." => drop(names.pop()),
                name => names.push(name.to_owned()),
            }
        }
        self.protection_reason(&names, PathAccess::Write).is_some()
    }

    /// Returns the effects of a call that changes nothing: it only reads this path, or it fails
    /// because the path is invalid or protected.
    pub(crate) fn effects_without_change(
        &self,
        path: &str,
        access: PathAccess,
    ) -> PredictedEffects {
        let parts = path::parse_in_workspace(&self.roots, path).unwrap_or_default();
        let is_protected = self.protection_reason(&parts, access).is_some();
        let protected = is_protected.then(|| path::join_parts(&parts));
        PredictedEffects {
            protected_paths: protected.into_iter().collect(),
            undo: Some("nothing to undo".to_owned()),
            ..prediction::no_effects()
        }
    }

    /// Returns the path in a tool's input in the normal form that approval rules match. An invalid
    /// path is returned as written.
    pub(crate) fn rule_match_texts(&self, input: &Value) -> Vec<String> {
        let text = match &input["path"] {
            Value::Null => "",
            Value::String(text) => text,
            Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                return vec![longhaul_core::raw::canonical_json(input)];
            }
        };
        let parts = path::parse_in_workspace(&self.roots, text);
        vec![parts.map_or_else(|_| text.to_owned(), |parts| path::join_parts(&parts))]
    }
}

impl CheckedFilePath {
    /// Returns the message for a file that can't be accessed, with a hint for the model.
    pub(crate) fn fs_error(&self, error: FsError) -> String {
        fs_error_message(&self.display, &error)
    }

    /// Returns the message for a file that can't be used for this reason.
    pub(crate) fn error(&self, reason: impl std::fmt::Display) -> String {
        format!("`{}`: {reason}", self.display)
    }
}

/// Returns the message for a file or folder that can't be accessed, with a hint for the model.
pub(crate) fn fs_error_message(display_path: &str, error: &FsError) -> String {
    let hint = if matches!(error, FsError::NotFound) {
        "; use list_files to see which files exist"
    } else if matches!(error, FsError::IsDirectory) {
        "; use list_files to see what is in it"
    } else {
        ""
    };
    format!("`{display_path}`: {error}{hint}")
}

fn folded_parts(path: &Path) -> Vec<String> {
    let parts = path.components();
    parts
        .map(|part| fold_case(&part.as_os_str().to_string_lossy()))
        .filter(|part| part != ".")
        .collect()
}
