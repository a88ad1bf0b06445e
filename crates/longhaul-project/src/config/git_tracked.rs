//! Checks which files of a project git tracks, by reading the git index (the list of tracked
//! files).
//!
//! Only index versions that store complete paths are supported.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use longhaul_tool::FileLocation;

/// Maximum size of the git index in bytes.
const INDEX_BYTES_MAX: usize = 64 << 20;

/// Maximum size in bytes of the file `.git` that a git worktree has instead of a folder.
const GIT_FILE_BYTES_MAX: usize = 4 << 10;

/// The git index (list of tracked files) of the repository that contains the project's folder.
pub(crate) struct GitIndex {
    index: Vec<u8>,
    /// Path of the project's folder, relative to the root of the repository.
    folder: PathBuf,
}

impl GitIndex {
    /// Loads the git index. `None` means that the folder is not in a repository or that the index
    /// can't be read.
    pub(crate) fn load_for_project(project_folder: &Path) -> Option<Self> {
        let repository_root = project_folder
            .ancestors()
            .find(|folder| folder.join(".git").symlink_metadata().is_ok())?;
        let index = FileLocation::from(git_folder(repository_root)?.join("index"));
        Some(Self {
            index: index.read_regular_file(INDEX_BYTES_MAX).ok()??,
            folder: project_folder.strip_prefix(repository_root).ok()?.to_path_buf(),
        })
    }

    /// Whether git tracks this path (relative to the project's folder) or a path below it.
    pub(crate) fn tracks(&self, path: &Path) -> bool {
        let path = self.folder.join(path);
        let path = path.as_os_str().as_bytes();
        let mut rest = &self.index[..];
        while let Some(at) = find_bytes(rest, path) {
            // A path ends with a zero byte; a path below it continues with a slash.
            if matches!(rest.get(at + path.len()), Some(0 | b'/')) {
                return true;
            }
            rest = &rest[at + 1..];
        }
        false
    }
}

/// Returns the folder that contains the git index. In a git worktree `.git` is a file with the path
/// of that folder.
fn git_folder(repository_root: &Path) -> Option<PathBuf> {
    let git = repository_root.join(".git");
    if git.is_dir() {
        return Some(git);
    }
    let text = FileLocation::from(git).read_regular_file(GIT_FILE_BYTES_MAX).ok()??;
    let path = text.strip_prefix(b"gitdir: ")?.trim_ascii_end();
    Some(repository_root.join(OsStr::from_bytes(path)))
}

fn find_bytes(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|part| part == needle)
}
