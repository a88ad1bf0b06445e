//! Files of a sandbox.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use longhaul_core::port::sandbox::{SandboxEntry, SandboxEntryKind, SandboxError};
use reqwest::{Method, Url};

use super::exec;
use super::http::{ApiError, ApiRequest};
use super::scripts;
use super::toolbox::{DaytonaSandbox, SCRIPT_TIMEOUT};
use super::transfer;

/// Timeout of the scripts that pack and unpack archives.
const ARCHIVE_TIMEOUT: Duration = Duration::from_secs(600);

/// Number of times that a folder is listed again because it changed meanwhile.
const LIST_ATTEMPTS_MAX: u32 = 3;

/// File type bits of a mode, and some of their values.
const TYPE_MASK: u32 = 0o170_000;
const TYPE_FILE: u32 = 0o100_000;
const TYPE_DIR: u32 = 0o040_000;
const TYPE_SYMLINK: u32 = 0o120_000;

impl DaytonaSandbox {
    pub(super) async fn read_file(
        &self,
        path: &str,
        max_bytes: u64,
    ) -> Result<Vec<u8>, SandboxError> {
        // The toolbox would wait for a writer of a FIFO.
        let script = scripts::check_file(&scripts::absolute_path(path)?);
        let checked = self.run_script(&script, SCRIPT_TIMEOUT).await?;
        if checked.exit_code != 0 {
            let message = format!("can't read {path}: {}", checked.result.trim());
            return Err(SandboxError::File(message));
        }
        let request = ApiRequest::new(Method::GET, self.file_url("download", path)?);
        let content = self.api.client.bytes(request, max_bytes).await;
        let is_too_large = matches!(content, Err(ApiError::TooLarge(_)));
        self.checked(content).await.map_err(|error| match error {
            SandboxError::File(_) if is_too_large => {
                SandboxError::File(format!("{path} has more than {max_bytes} bytes"))
            }
            error => with_path("read", path, error),
        })
    }

    pub(super) async fn write_file(&self, path: &str, content: Bytes) -> Result<(), SandboxError> {
        let request = ApiRequest::file(self.file_url("upload-v2", path)?, content);
        let written = self.api.client.json::<serde_json::Value>(request).await;
        self.checked(written).await.map(drop).map_err(|error| with_path("write", path, error))
    }

    pub(super) async fn list_folder(&self, path: &str) -> Result<Vec<SandboxEntry>, SandboxError> {
        let script = scripts::list(&scripts::absolute_path(path)?);
        for _ in 0..LIST_ATTEMPTS_MAX {
            let listed = self.run_script(&script, SCRIPT_TIMEOUT).await?;
            if listed.exit_code != 0 {
                let message = format!("can't list {path}: {}", listed.result.trim());
                return Err(SandboxError::File(message));
            }
            if let Some(entries) = parse_list(&listed.result) {
                return Ok(entries);
            }
        }
        Err(SandboxError::File(format!("can't list {path}: its entries change all the time")))
    }

    pub(super) async fn upload_tree(&self, from: &Path, to: &str) -> Result<(), SandboxError> {
        let to = scripts::absolute_path(to)?;
        let parts = transfer::split(&to)?;
        let is_tree = transfer::is_tree(from)?;
        let archive = archive_path()?;
        let url = self.file_url("upload-v2", &archive)?;
        let (body, packing) = transfer::pack(from, (!is_tree).then(|| parts.1.to_owned()));
        let uploaded = self.api.client.upload(url, body).await;
        // The cause is in the error of the packing, if that has failed.
        packing.await?;
        self.checked(uploaded).await?;
        let dir = if is_tree { to.as_str() } else { parts.0 };
        let unpacked = self.run_script(&scripts::unpack(&archive, dir), ARCHIVE_TIMEOUT).await?;
        match unpacked.exit_code {
            0 => Ok(()),
            _ => Err(SandboxError::File(format!("can't write {to}: {}", unpacked.result.trim()))),
        }
    }

    pub(super) async fn download_tree(&self, from: &str, to: &Path) -> Result<(), SandboxError> {
        transfer::check_target(to)?;
        let archive = archive_path()?;
        let script = scripts::pack(&scripts::absolute_path(from)?, &archive);
        let packed = self.run_script(&script, ARCHIVE_TIMEOUT).await?;
        let result = match (packed.exit_code, packed.result.trim()) {
            (0, kind) => self.fetch_archive(&archive, kind == "tree", to).await,
            (_, message) => Err(SandboxError::File(format!("can't read {from}: {message}"))),
        };
        let removed = self.run_script(&format!("rm -f {archive}"), SCRIPT_TIMEOUT).await;
        result.and(removed.map(drop))
    }

    async fn fetch_archive(
        &self,
        archive: &str,
        is_tree: bool,
        to: &Path,
    ) -> Result<(), SandboxError> {
        let request = ApiRequest::new(Method::GET, self.file_url("download", archive)?);
        let response = self.checked(self.api.client.stream(request).await).await?;
        transfer::unpack(response, is_tree, to).await
    }

    fn file_url(&self, operation: &str, path: &str) -> Result<Url, SandboxError> {
        let mut url = self.url(&["files", operation]);
        url.query_pairs_mut().append_pair("path", &scripts::absolute_path(path)?);
        Ok(url)
    }
}

fn archive_path() -> Result<String, SandboxError> {
    Ok(format!("/tmp/lh-archive-{}.tar", exec::random_hex()?))
}

/// Adds to the error of a file what failed.
fn with_path(verb: &str, path: &str, error: SandboxError) -> SandboxError {
    match error {
        SandboxError::File(message) => {
            SandboxError::File(format!("can't {verb} {path}: {message}"))
        }
        SandboxError::NotFound
        | SandboxError::NoCapacity(_)
        | SandboxError::Unavailable(_)
        | SandboxError::Refused(_) => error,
    }
}

/// Parses the output of the script that lists a folder. `None` means that the folder has changed
/// meanwhile.
fn parse_list(text: &str) -> Option<Vec<SandboxEntry>> {
    let (names, stats) = text.split_once(".\n")?;
    let names = exec::decode(names)?;
    let mut names: Vec<&[u8]> = names.split(|byte| *byte == 0).collect();
    names.pop();
    let stats: Vec<&str> = stats.lines().collect();
    if names.len() != stats.len() {
        return None;
    }
    let entries = names.into_iter().zip(stats).map(|(name, stat)| {
        let (mode, size) = stat.split_once(' ')?;
        let kind = match u32::from_str_radix(mode, 16).ok()? & TYPE_MASK {
            TYPE_FILE => SandboxEntryKind::File,
            TYPE_DIR => SandboxEntryKind::Dir,
            TYPE_SYMLINK => SandboxEntryKind::Symlink,
            _ => SandboxEntryKind::Other,
        };
        let size = if kind == SandboxEntryKind::File { size.parse().ok()? } else { 0 };
        let name = String::from_utf8_lossy(name.strip_prefix(b"./")?).into_owned();
        Some(SandboxEntry { name, kind, size })
    });
    let mut entries = entries.collect::<Option<Vec<_>>>()?;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Some(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_has_kinds_and_is_sorted() {
        // ./b, ./a and a name with a line break
        let text = "Li9iAC4vYQAuL3gKeQA=\n.\n81a4 12\n41ed 4096\na1ff 3\n";
        let entries = parse_list(text).unwrap();
        let entries: Vec<_> =
            entries.iter().map(|entry| (entry.name.as_str(), entry.kind, entry.size)).collect();
        let expected = [
            ("a", SandboxEntryKind::Dir, 0),
            ("b", SandboxEntryKind::File, 12),
            ("x\ny", SandboxEntryKind::Symlink, 0),
        ];
        assert_eq!(entries, expected);
        assert_eq!(parse_list("Li9iAA==\n.\n"), None);
        assert_eq!(parse_list("\n.\n"), Some(Vec::new()));
    }
}
