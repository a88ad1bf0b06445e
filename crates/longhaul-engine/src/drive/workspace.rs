//! Saves the files of a run's sandbox after a turn, and restores them in a new sandbox.
//!
//! The files are commits of a git repository in the sandbox, apart from the one that the agent uses.
//! The objects of each commit are kept as a git pack in the journal. All git commands run in the
//! sandbox, because its files are not trusted.

mod scripts;

use longhaul_core::change::Blob;
use longhaul_core::event::Event;
use longhaul_core::event::environment::{SavedFiles, WorkspaceSnapshot};
use longhaul_core::id::{RunId, Seq};
use longhaul_core::policy::effect_facts::{FileChangeKind, FileEffect};
use longhaul_core::port::sandbox::{
    ExecStatus, OutputStream, Sandbox, SandboxCommand, SandboxError,
};
use longhaul_core::raw::BlobRef;
use longhaul_core::time::Millis;
use longhaul_run::RunInput;

use crate::drive::context::DriveContext;
use crate::drive::workspace::scripts::{COMMON, RESTORE, SAVE, START, UNPACK};
use crate::error::Result;
use crate::replay::read_journal_page;
use crate::sandboxes::with_timeout;
use crate::services::Services;

/// Folder in the sandbox with the repository and the files that the scripts exchange.
const FOLDER: &str = "/tmp/.longhaul-workspace";

/// Timeout for saving the files of a sandbox.
const SAVE_TIMEOUT: Millis = Millis::from_secs(60);

/// Maximum size of the new objects of one snapshot in bytes.
const PACK_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// Maximum length of the list of changes and of the diff in bytes. The script cuts longer ones.
const LIST_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Maximum number of changed files that an event lists.
const CHANGES_MAX: usize = 100;

/// Maximum length of the result or the error message of a script in bytes. The rest is discarded.
const OUTPUT_BYTES_MAX: usize = 2_000;

/// Saves the files of the run's sandbox. A failure is part of the returned input.
pub(super) async fn save_workspace(ctx: &mut DriveContext) -> Result<Option<RunInput>> {
    if !ctx.lease.wait_until_valid().await {
        return Ok(None);
    }
    let Some(sandbox) = ctx.sandbox.clone() else {
        let reason = "the sandbox is not open".to_owned();
        return Ok(Some(RunInput::WorkspaceSaved(SavedFiles::Skipped { reason }, Vec::new())));
    };
    let since = ctx.session.run().control().workspace.commit.clone().unwrap_or_default();
    let redact = |diff: String| ctx.services.redact.redact(&diff).into_owned();
    let save = save(&*sandbox, &since, &redact);
    let saved = with_timeout((&*ctx.services.clock, SAVE_TIMEOUT), save).await;
    let (files, blobs) = saved
        .unwrap_or_else(|error| (SavedFiles::Skipped { reason: error.to_string() }, Vec::new()));
    Ok(Some(RunInput::WorkspaceSaved(files, blobs)))
}

async fn save(
    sandbox: &dyn Sandbox,
    since: &str,
    redact: &(dyn Fn(String) -> String + Sync),
) -> Result<(SavedFiles, Vec<Blob>), SandboxError> {
    let output = run_script(sandbox, SAVE, [("SINCE", since)]).await?;
    let skipped =
        |reason: &str| Ok((SavedFiles::Skipped { reason: reason.to_owned() }, Vec::new()));
    let commit = match output.trim().split_once(' ').unwrap_or((output.trim(), "")) {
        ("unchanged", _) => return Ok((SavedFiles::Unchanged, Vec::new())),
        ("skipped", reason) => return skipped(reason),
        ("commit", commit) if is_commit_id(commit) => commit,
        _ => return skipped("git has returned no commit"),
    };
    let pack = match sandbox.read(&format!("{FOLDER}/pack"), PACK_BYTES_MAX).await {
        Ok(pack) => Blob::new(pack),
        Err(SandboxError::File(_)) => return skipped("the changed files are larger than 32 MB"),
        Err(error) => return Err(error),
    };
    let list = sandbox.read(&format!("{FOLDER}/changes"), LIST_BYTES_MAX).await?;
    let mut changes = parse_changes(&String::from_utf8_lossy(&list));
    let more_files = changes.len().saturating_sub(CHANGES_MAX);
    changes.truncate(CHANGES_MAX);
    let diff = sandbox.read(&format!("{FOLDER}/diff"), LIST_BYTES_MAX).await?;
    let diff = redact(String::from_utf8_lossy(&diff).into_owned());
    let diff = (!diff.is_empty()).then(|| Blob::new(diff.into_bytes()));
    let snapshot = WorkspaceSnapshot {
        commit: commit.to_owned(),
        pack: pack.blob_ref,
        changes,
        more_files,
        diff: diff.as_ref().map(|diff| diff.blob_ref),
    };
    let blobs = [Some(pack), diff].into_iter().flatten().collect();
    Ok((SavedFiles::Snapshot(Box::new(snapshot)), blobs))
}

/// Records the files of a new sandbox after the clone of a repository.
pub(super) async fn start_workspace(sandbox: &dyn Sandbox) -> Result<(), SandboxError> {
    run_script(sandbox, START, []).await.map(drop)
}

/// Restores the files of the last snapshot of a run in a new sandbox.
pub(super) async fn restore_workspace(
    sandbox: &dyn Sandbox,
    commit: &str,
    packs: &[Vec<u8>],
) -> Result<(), SandboxError> {
    for pack in packs {
        sandbox.write(&format!("{FOLDER}/in"), pack).await?;
        run_script(sandbox, UNPACK, []).await?;
    }
    let output = run_script(sandbox, RESTORE, [("COMMIT", commit)]).await?;
    match output.strip_prefix("skipped ") {
        None => Ok(()),
        Some(reason) => Err(SandboxError::Refused(format!(
            "the files of the run can't be restored: {}",
            reason.trim()
        ))),
    }
}

/// Reads the packs of all snapshots of a run, the oldest first.
pub(super) async fn read_packs(services: &Services, run: RunId) -> Result<Vec<Vec<u8>>> {
    let mut refs: Vec<BlobRef> = Vec::new();
    let mut after = Seq::START;
    loop {
        let page = read_journal_page(services, run, after).await?;
        let Some(last) = page.entries.last() else { break };
        after = last.seq;
        refs.extend(page.entries.iter().filter_map(|entry| {
            let Event::WorkspaceSaved(saved) = &entry.event else { return None };
            let SavedFiles::Snapshot(snapshot) = &saved.files else { return None };
            Some(snapshot.pack)
        }));
    }
    let mut packs = Vec::new();
    for pack in refs {
        packs.extend(services.records.blob(pack.hash).await?);
    }
    Ok(packs)
}

/// Runs a script in the work folder and returns what it prints to the standard output. A script
/// that exits with an error is a refusal.
async fn run_script<const N: usize>(
    sandbox: &dyn Sandbox,
    script: &str,
    env: [(&str, &str); N],
) -> Result<String, SandboxError> {
    let mut command = SandboxCommand::shell(&format!("{COMMON}{script}"));
    command.timeout = Some(SAVE_TIMEOUT);
    command.env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let mut receive = |stream, bytes: &[u8]| {
        let output = match stream {
            OutputStream::Stdout => &mut stdout,
            OutputStream::Stderr => &mut stderr,
        };
        let rest = OUTPUT_BYTES_MAX.saturating_sub(output.len());
        output.extend_from_slice(&bytes[..bytes.len().min(rest)]);
    };
    let exit = sandbox.exec(command, &mut receive).await?;
    if exit.status == ExecStatus::Exited(0) {
        return Ok(String::from_utf8_lossy(&stdout).into_owned());
    }
    let errors = [stdout, stderr].concat();
    let errors = String::from_utf8_lossy(&errors);
    Err(SandboxError::Refused(format!("git failed in the sandbox: {}", errors.trim())))
}

fn is_commit_id(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Parses the output of `git diff-tree --raw --numstat -z`: first a line about each file with its
/// path, then its numbers of lines.
fn parse_changes(listed: &str) -> Vec<FileEffect> {
    let mut changes: Vec<FileEffect> = Vec::new();
    let mut parts = listed.split_terminator('\0');
    while let Some(part) = parts.next() {
        if let Some(line) = part.strip_prefix(':') {
            let Some(path) = parts.next() else { break };
            let change = match line.chars().last() {
                Some('A') => FileChangeKind::Create,
                Some('D') => FileChangeKind::Delete,
                _ => FileChangeKind::Change,
            };
            let path = path.to_owned();
            changes.push(FileEffect { path, change, lines_added: None, lines_removed: None });
        } else if let [added, removed, path] = part.splitn(3, '\t').collect::<Vec<_>>()[..] {
            // Both lists have the same order, but the second one may be cut.
            if let Some(file) = changes.iter_mut().find(|file| file.path == path) {
                file.lines_added = added.parse().ok();
                file.lines_removed = removed.parse().ok();
            }
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_parsed() {
        let listed = ":000000 100644 0 1 A\0a b.txt\0:100644 000000 1 0 D\0old\0:1 1 2 3 M\0x.bin\0\
                      3\t0\ta b.txt\x000\t7\told\0-\t-\tx.bin\0";
        let changes = parse_changes(listed);
        let shown = changes.iter().map(|file| {
            let FileEffect { path, change, lines_added, lines_removed } = file;
            format!("{path} {change:?} {lines_added:?} {lines_removed:?}")
        });
        assert_eq!(
            shown.collect::<Vec<_>>(),
            [
                "a b.txt Create Some(3) Some(0)",
                "old Delete Some(0) Some(7)",
                "x.bin Change None None"
            ]
        );
        assert_eq!(parse_changes(":1 1 2 3 M"), []);
    }
}
