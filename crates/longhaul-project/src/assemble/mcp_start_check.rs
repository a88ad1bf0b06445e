//! Checks before an MCP server is started that `.mcp.json` and the server's program are trusted, and
//! detects that the program of a running server has changed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use longhaul_core::raw::Hash;
use longhaul_mcp::StartCheck;

use crate::config::settings::Config;
use crate::mcp::file::McpFile;
use crate::trust::decisions::TrustDecisions;
use crate::trust::files::CommandFileCollector;
use crate::trust::item::{TrustItem, digest_texts};
use crate::trust::servers::files_run_by_servers;

/// Checks the servers of one version of `.mcp.json`.
#[derive(Debug)]
pub(crate) struct TrustedStartCheck {
    decisions: TrustDecisions,
    file: McpFile,
    /// The last checked version of each server's program.
    checked: Mutex<BTreeMap<String, CheckedProgram>>,
}

/// A version of a server's program, and the state of its files when it was computed.
#[derive(Debug)]
struct CheckedProgram {
    stamps: Vec<FileStamp>,
    version: Hash,
}

/// Path, inode, size, and times of modification and status change of a file. A file with the same
/// stamp is not read again.
type FileStamp = (PathBuf, [i128; 6]);

impl TrustedStartCheck {
    pub(crate) fn new(config: &Config, file: &McpFile) -> Self {
        Self {
            decisions: TrustDecisions::new(config),
            file: file.clone(),
            checked: Mutex::default(),
        }
    }

    /// Finds the project files that are run when this server is started.
    fn program_files(&self, server: &str) -> Result<CommandFileCollector, String> {
        let servers = self.file.servers.iter().filter(|one| one.name == server);
        files_run_by_servers(&self.file, servers)
    }
}

impl StartCheck for TrustedStartCheck {
    fn check_start(&self, server: &str) -> Result<Hash, String> {
        let files = self.program_files(server)?;
        // Taken before the files are read, so that a later change is noticed.
        let stamps = file_stamps(&files);
        if let Some(item) = TrustItem::for_mcp_servers(&self.file) {
            self.decisions.check_trusted(&item)?;
        }
        let digests = files.file_digests()?;
        let texts = digests.iter().flat_map(|(name, hash)| [name.as_bytes(), &hash.bytes()[..]]);
        let version = digest_texts(texts);
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        checked.insert(server.to_owned(), CheckedProgram { stamps, version });
        Ok(version)
    }

    fn has_other_version(&self, server: &str, running: Hash) -> bool {
        let Ok(files) = self.program_files(server) else {
            return false;
        };
        let stamps = file_stamps(&files);
        let known = {
            let checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
            let program = checked.get(server).filter(|program| program.stamps == stamps);
            program.map(|program| program.version)
        };
        let version = known.map_or_else(|| self.check_start(server), Ok);
        version.is_ok_and(|version| version != running)
    }
}

fn file_stamps(files: &CommandFileCollector) -> Vec<FileStamp> {
    let stamps = files.paths().filter_map(|path| {
        let data = fs::metadata(path).ok()?;
        let times = [data.mtime(), data.mtime_nsec(), data.ctime(), data.ctime_nsec()];
        let [mtime, mtime_nsec, ctime, ctime_nsec] = times.map(i128::from);
        let (ino, size) = (i128::from(data.ino()), i128::from(data.size()));
        Some((path.to_owned(), [ino, size, mtime, mtime_nsec, ctime, ctime_nsec]))
    });
    stamps.collect()
}
