//! Paths of a sandbox, and the folders of this machine that they belong to.

use std::path::{Component, Path, PathBuf};

use longhaul_core::port::sandbox::{SandboxError, WORKSPACE};

use crate::local::layout::Layout;

/// Path of the home folder in every sandbox.
pub(crate) const HOME: &str = "/home/agent";
/// Maximum length of a path in a sandbox, in bytes.
const PATH_BYTES_MAX: usize = 4096;
/// First components of paths that volumes must not cover.
const RESERVED: &[&str] = &[
    "bin",
    "dev",
    "etc",
    "home",
    "lib",
    "lib64",
    "proc",
    "run",
    "sbin",
    "sys",
    "tmp",
    "usr",
    "var",
    "workspace",
];

/// Folders of a sandbox that can be accessed from outside, each with its directory on this machine.
#[derive(Debug)]
pub(crate) struct Folders {
    folders: Vec<(String, PathBuf)>,
}

/// A path in one of the folders of a sandbox.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Location {
    /// Directory of this machine, which the programs of the sandbox can't replace.
    pub(crate) root: PathBuf,
    /// Path below the directory, without `.` and `..`. Each folder of it may be a link.
    pub(crate) below: PathBuf,
}

impl Folders {
    pub(crate) fn new(layout: &Layout, volumes: &[(String, PathBuf)]) -> Self {
        let mut folders = vec![
            (WORKSPACE.to_owned(), layout.workspace()),
            (HOME.to_owned(), layout.home()),
            ("/tmp".to_owned(), layout.tmp()),
        ];
        folders.extend_from_slice(volumes);
        Self { folders }
    }

    /// Returns where a path of the sandbox is on this machine.
    pub(crate) fn locate(&self, path: &str) -> Result<Location, SandboxError> {
        let absolute = normalize(path)?;
        let locations = self.folders.iter().filter_map(|(folder, root)| {
            let below = absolute.strip_prefix(folder).ok()?.to_owned();
            Some((folder.len(), Location { root: root.clone(), below }))
        });
        let innermost = locations.max_by_key(|(length, _)| *length);
        innermost.map(|(_, location)| location).ok_or_else(|| {
            let names: Vec<&str> = self.folders.iter().map(|(folder, _)| folder.as_str()).collect();
            SandboxError::File(format!(
                "{path:?} is outside of the folders that can be read and written: {}",
                names.join(", ")
            ))
        })
    }
}

/// Returns the absolute path in the sandbox without `.` and `..`.
pub(crate) fn normalize(path: &str) -> Result<PathBuf, SandboxError> {
    if path.is_empty() || path.contains('\0') || path.len() > PATH_BYTES_MAX {
        return Err(SandboxError::File(format!(
            "the path {:?} is empty, contains a NUL byte or has more than {PATH_BYTES_MAX} bytes",
            path.chars().take(100).collect::<String>()
        )));
    }
    let mut absolute = PathBuf::new();
    for component in Path::new(WORKSPACE).join(path).components() {
        match component {
            Component::ParentDir => _ = absolute.pop(),
            Component::CurDir => {}
            Component::Normal(_) | Component::RootDir | Component::Prefix(_) => {
                absolute.push(component);
            }
        }
    }
    Ok(absolute)
}

/// Checks that a volume covers no other folder of the sandbox.
pub(crate) fn check_volume_path(path: &str) -> Result<(), SandboxError> {
    let first = path.strip_prefix('/').and_then(|rest| rest.split('/').next());
    let is_valid = first.is_some_and(|first| !first.is_empty() && !RESERVED.contains(&first))
        && normalize(path)? == Path::new(path);
    match is_valid {
        true => Ok(()),
        false => Err(SandboxError::Refused(format!(
            "a volume can't have the path {path:?}, because it is not absolute or covers a folder of \
             the sandbox; use a path such as /cache/NAME"
        ))),
    }
}
