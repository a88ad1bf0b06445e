//! Which files of a project git tracks, by a look at its index.
//!
//! Only indexes of the usual versions are read, in which each path stands whole.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use longhaul_tool::Location;

/// Maximum size of an index that is read.
const INDEX_BYTES_MAX: usize = 64 << 20;

/// Maximum size of the file that a worktree has in place of the folder `.git`.
const LINK_BYTES_MAX: usize = 4 << 10;

/// The index of the git repository that a folder is in.
pub(crate) struct GitIndex {
    index: Vec<u8>,
    /// The folder, from the top of the repository.
    folder: PathBuf,
}

impl GitIndex {
    /// `None` if the folder is in no repository or its index can't be read.
    pub(crate) fn new(folder: &Path) -> Option<Self> {
        let top = folder.ancestors().find(|above| above.join(".git").symlink_metadata().is_ok())?;
        let index = Location::from(git_folder(top)?.join("index"));
        Some(Self {
            index: index.read(INDEX_BYTES_MAX).ok()??,
            folder: folder.strip_prefix(top).ok()?.to_path_buf(),
        })
    }

    /// Whether git tracks this path of the folder, or something below it.
    pub(crate) fn tracks(&self, path: &Path) -> bool {
        let path = self.folder.join(path);
        let path = path.as_os_str().as_bytes();
        let mut rest = &self.index[..];
        while let Some(at) = find_bytes(rest, path) {
            // A path ends with a zero byte; something below it goes on with a slash.
            if matches!(rest.get(at + path.len()), Some(0 | b'/')) {
                return true;
            }
            rest = &rest[at + 1..];
        }
        false
    }
}

/// The folder with the index. A worktree has a file that names it.
fn git_folder(top: &Path) -> Option<PathBuf> {
    let git = top.join(".git");
    if git.is_dir() {
        return Some(git);
    }
    let text = Location::from(git).read(LINK_BYTES_MAX).ok()??;
    let named = text.strip_prefix(b"gitdir: ")?.trim_ascii_end();
    Some(top.join(OsStr::from_bytes(named)))
}

fn find_bytes(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|part| part == wanted)
}
