//! Verifies the local sandboxes after a chaos test: each is stopped, no process is left, and there
//! is a folder for each sandbox of the store and for no other.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use longhaul::project::ProjectRuntime;
use longhaul_core::change::SandboxFilter;
use longhaul_core::time::{Clock as _, Millis};
use longhaul_engine::clock::SystemClock;

use crate::chaos::project::ScratchProject;

/// Name of the only provider whose sandboxes are verified.
const PROVIDER: &str = "local";

/// Interval between searches for processes, and their maximum number. A killed process may take a
/// moment to end.
const SEARCH_INTERVAL: Millis = Millis(50);
const SEARCHES_MAX: u32 = 100;

/// Returns the number of sandboxes that the runs have used, and what is wrong with them. No worker
/// may be running.
pub(super) async fn verify_sandboxes(
    scratch: &ScratchProject,
    runtime: &ProjectRuntime,
) -> anyhow::Result<(usize, Vec<String>)> {
    let services = runtime.longhaul.services();
    let filter =
        SandboxFilter { with_gone: true, limit: usize::MAX >> 1, ..SandboxFilter::default() };
    let mut rows = services.records.list_sandboxes(filter).await?;
    rows.retain(|row| row.event.provider == PROVIDER);
    let mut problems = Vec::new();
    if rows.is_empty() {
        return Ok((0, problems));
    }
    let provider = services.sandboxes.find_provider(PROVIDER).map_err(anyhow::Error::msg)?;
    let mut folders = sandbox_folders(&scratch.config.data_folder().join("sandboxes"))?;
    for row in &rows {
        let (id, state) = (row.event.sandbox, row.state);
        folders.remove(&row.event.handle);
        let found = provider.get(&row.event.handle).await.ok().map(|info| info.state);
        if state.holds_slot() || found != (!state.is_gone()).then_some(state) {
            let (run, state) = (row.owner, state.as_str());
            let found = found.map_or("missing", |state| state.as_str());
            problems.push(format!("sandbox {id} of {run} is {state}; its folder says: {found}"));
        }
    }
    problems.extend(folders.iter().map(|name| format!("the folder {name} has no sandbox")));
    let mut processes = Vec::new();
    for _ in 0..SEARCHES_MAX {
        processes = find_processes(&scratch.config.root);
        if processes.is_empty() {
            break;
        }
        SystemClock.sleep(SEARCH_INTERVAL).await;
    }
    problems.extend(processes);
    Ok((rows.len(), problems))
}

/// Returns the names of the folders of sandboxes. Those of the provider itself begin with a dot.
fn sandbox_folders(dir: &Path) -> anyhow::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(dir)? {
        names.insert(entry?.file_name().to_string_lossy().into_owned());
    }
    names.retain(|name| !name.starts_with('.'));
    Ok(names)
}

/// Describes the processes that have the folder in their command line or in one of their mounts, as
/// bubblewrap and the programs in its sandboxes do.
fn find_processes(folder: &Path) -> Vec<String> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let described = processes.filter_map(|process| {
        let read = |file| fs::read(process.path().join(file)).unwrap_or_default();
        let [command, mounts] = ["cmdline", "mountinfo"].map(read);
        let [command, mounts] = [&command, &mounts].map(|text| String::from_utf8_lossy(text));
        let process = process.file_name();
        (command.contains(&*name) || mounts.contains(&*name)).then(|| {
            let command: String = command.replace('\0', " ").chars().take(200).collect();
            format!("process {} is left: {command}", process.display())
        })
    });
    described.collect()
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn programs_in_a_folder_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let mut sandbox = Command::new("bwrap")
            .args(["--unshare-all", "--ro-bind", "/", "/", "--bind"])
            .arg(folder.path())
            .args(["/mnt", "sh", "-c", "echo ready; read line"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        BufReader::new(sandbox.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
        let found = find_processes(folder.path());
        // The shell does not name the folder.
        assert!(found.iter().any(|text| text.ends_with("is left: sh -c echo ready; read line ")));
        assert!(found.iter().any(|text| text.contains("is left: bwrap ")), "{found:?}");
        drop(sandbox.stdin.take());
        sandbox.wait().unwrap();
        assert_eq!(find_processes(folder.path()), Vec::<String>::new());
    }

    #[test]
    fn hidden_folders_are_ignored() {
        let folder = tempfile::tempdir().unwrap();
        for name in [".volumes", "lh-one"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let names = sandbox_folders(folder.path()).unwrap();
        assert_eq!(names, BTreeSet::from(["lh-one".to_owned()]));
    }
}
