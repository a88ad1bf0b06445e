//! The temporary project of a chaos test: a copy of the user's project, or the built-in project, with
//! a store of its own. Probe tools (tools for crash tests) append a record of each effect to a file in
//! it, independently of the journals.
//!
//! Invariants: the user's store is never used, and nothing is copied from outside the project.

use std::fs::{self, File};
use std::path::Path;

use anyhow::Context as _;
use longhaul_core::id::{CallId, Epoch, RunId};
use longhaul_project::config::load;
use longhaul_project::config::process_env::{CONFIG_FILE_NAME, DATA_FOLDER_NAME, ProcessEnv};
use longhaul_project::config::settings::{CRASH_PROBE_FILE_VAR, Config};
use longhaul_project::read_project_file;
use longhaul_project::trust::TRUST_VAR;
use serde::Deserialize;
use tempfile::TempDir;

use crate::child_process::ChildProcess;
use crate::error::CliError;
use crate::trust::confirm;
use crate::{environment, output};

/// Maximum size of a copied file.
const FILE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// File in the temporary project in which the probe tools record their effects.
const PROBE_FILE: &str = "crash_probe.jsonl";

/// What is copied of the user's project, besides the files that its agents name.
const COPIED: [&str; 9] = [
    "longhaul.toml",
    "agents",
    ".claude/agents",
    "skills",
    ".claude/skills",
    "scripts",
    "AGENTS.md",
    "CLAUDE.md",
    ".claude/CLAUDE.md",
];

/// Settings of the temporary project.
const SETTINGS: [(&str, &str); 4] = [
    ("LONGHAUL_DATA", DATA_FOLDER_NAME),
    ("LONGHAUL_STORE", "sqlite:.longhaul/longhaul.db"),
    (CRASH_PROBE_FILE_VAR, PROBE_FILE),
    // The workers are killed from outside, repeatedly at the same event, which must not count as
    // crashes of the run.
    ("LONGHAUL_WORKER_CRASH_LIMIT", "0"),
];

/// Names of the built-in agents, without and with a sandbox.
pub(crate) const BUILT_IN_AGENT: &str = "chaos";
pub(crate) const SANDBOX_AGENT: &str = "chaos-sandbox";

/// The built-in project: twelve turns, tools of three effect classes, and delays in which a kill can
/// happen. It needs no key, no network and no file outside its folder. There are fewer slots for
/// sandboxes than runs, so that sandboxes of waiting runs are stopped.
const BUILT_IN_FILES: [(&str, &str); 5] = [
    ("longhaul.toml", "[sandbox]\nmax_running = 3\n"),
    ("agents/chaos.md", include_str!("../../chaos/chaos.md")),
    ("scripts/chaos.yaml", include_str!("../../chaos/chaos.yaml")),
    ("agents/chaos-sandbox.md", include_str!("../../chaos/chaos-sandbox.md")),
    ("scripts/chaos-sandbox.yaml", include_str!("../../chaos/chaos-sandbox.yaml")),
];

/// The temporary project of a chaos test. Its folder is removed when this value is dropped.
#[derive(Debug)]
pub(crate) struct ScratchProject {
    pub(crate) folder: TempDir,
    process_env: ProcessEnv,
    pub(crate) config: Config,
}

impl ScratchProject {
    /// Creates the built-in project, isolated from the user's settings.
    pub(crate) fn built_in() -> anyhow::Result<Self> {
        let folder = create_folder()?;
        for (name, text) in BUILT_IN_FILES {
            write_file(&folder.path().join(name), text.as_bytes())?;
        }
        let mut process_env = environment::current_process_env()?;
        process_env.env.retain(|name, _| !name.starts_with("LONGHAUL_"));
        let without_settings = folder.path().display().to_string();
        process_env.env.insert("XDG_CONFIG_HOME".to_owned(), without_settings);
        Self::load(folder, process_env)
    }

    /// Copies the project of the current folder, for a chaos test of this agent. What the user
    /// trusts in the project is trusted in the copy too, because the content is the same.
    pub(crate) fn copy_of_current(agent: &str) -> anyhow::Result<Self> {
        let mut process_env = environment::current_process_env()?;
        let project = environment::load_config(&process_env)?;
        let loaded = environment::load_agents(&project)?;
        let untrusted = confirm::ask_for_trust_before_run((&project, &loaded), Some(agent), false)?;
        if !untrusted.is_empty() {
            // A chaos test can't wait for a person to decide.
            let items = untrusted.join("\n  ");
            let message = format!("`{agent}` needs items that you have not trusted:\n  {items}");
            let once = format!("{TRUST_VAR}=1 longhaul chaos {agent} ...");
            let error = CliError::not_trusted(message);
            return Err(error.with_hint("or trust all items once", once).into());
        }
        process_env.env.insert(TRUST_VAR.to_owned(), "1".to_owned());
        let folder = create_folder()?;
        let used = loaded.files.iter().filter_map(|file| file.strip_prefix(&project.root).ok());
        for path in COPIED.map(Path::new).into_iter().chain(used) {
            copy(path, &project.root, folder.path())?;
        }
        Self::load(folder, process_env)
    }

    fn load(folder: TempDir, mut process_env: ProcessEnv) -> anyhow::Result<Self> {
        let settings = SETTINGS.map(|(name, value)| (name.to_owned(), value.to_owned()));
        process_env.env.extend(settings);
        // On some systems the folder for temporary files is a symlink.
        process_env.cwd = folder.path().canonicalize()?;
        let config = load::load(&process_env, &[])?;
        Ok(Self { folder, process_env, config })
    }

    /// Starts a worker of the project in a separate process.
    pub(crate) fn start_worker(&self) -> anyhow::Result<ChildProcess> {
        let root = &self.config.root;
        let log = File::options().create(true).append(true).open(root.join("worker.log"))?;
        ChildProcess::start_worker(root, &self.process_env.env, log)
    }

    /// Reads the effects that probe tools have recorded so far.
    pub(crate) fn read_effects(&self) -> anyhow::Result<Vec<EffectRecord>> {
        let text = fs::read_to_string(self.config.root.join(PROBE_FILE));
        parse_effects(&text.context(PROBE_FILE)?).context(PROBE_FILE)
    }
}

/// Creates the temporary folder with no settings and no records.
fn create_folder() -> anyhow::Result<TempDir> {
    let folder = tempfile::Builder::new().prefix("longhaul-chaos-").tempdir();
    let folder =
        folder.context("a temporary folder can't be created; set another one with TMPDIR")?;
    for name in [CONFIG_FILE_NAME, PROBE_FILE] {
        write_file(&folder.path().join(name), b"")?;
    }
    Ok(folder)
}

fn write_file(file: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let folder = file.parent().unwrap_or(file);
    let result = fs::create_dir_all(folder).and_then(|()| fs::write(file, bytes));
    result.with_context(|| file.display().to_string())
}

/// Copies a file, or a folder with all that is in it, given by its path relative to the project. A
/// folder behind a symbolic link is skipped, as is a file outside the project.
fn copy(relative: &Path, from: &Path, to: &Path) -> anyhow::Result<()> {
    let (path, target) = (from.join(relative), to.join(relative));
    if path.is_dir() && path.canonicalize()? == from.canonicalize()?.join(relative) {
        for entry in fs::read_dir(&path).with_context(|| path.display().to_string())? {
            copy(&relative.join(entry?.file_name()), from, to)?;
        }
        return Ok(());
    }
    match read_project_file(from, relative, FILE_BYTES_MAX) {
        Ok(bytes) => {
            write_file(&target, &bytes)?;
            // Scripts of a skill stay executable.
            fs::set_permissions(&target, fs::metadata(&path)?.permissions())?;
        }
        Err(_) if path.symlink_metadata().is_err() => {}
        Err(reason) => {
            output::eprint_line(&format!("note: `{}` is not copied: {reason}", relative.display()))
        }
    }
    Ok(())
}

/// Prefix of the names of probe tools.
pub(crate) const PROBE_PREFIX: &str = "probe_";

/// Start of every record. This text can't occur inside a record, where its quotes would be escaped.
const RECORD_PREFIX: &str = "{\"tool\":";

/// Record of one effect, written by the tool itself.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct EffectRecord {
    pub(crate) tool: String,
    pub(crate) run: RunId,
    pub(crate) call: CallId,
    /// Idempotency key that the tool received with the call.
    pub(crate) key: String,
    /// Epoch of the claim under which the call was made.
    pub(crate) epoch: Epoch,
}

/// Parses the records of a file. A process that is killed while it writes may leave part of a
/// record, and the next record follows on the same line.
fn parse_effects(text: &str) -> anyhow::Result<Vec<EffectRecord>> {
    let parse = |line: &str| {
        let start = line.rfind(RECORD_PREFIX).unwrap_or_default();
        match serde_json::from_str(&line[start..]) {
            Err(error) if error.is_eof() => None,
            record => Some(record.with_context(|| format!("not the record of an effect: {line}"))),
        }
    };
    text.lines().filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_record_truncated_by_a_kill_is_skipped() {
        let run = RunId::from_bits(7);
        let record = |note: &str| {
            format!(
                "{{\"tool\":\"probe_write\",\"run\":\"{run}\",\"call\":\"t1.0\",\"key\":\"k\",\
                 \"epoch\":1,\"note\":{note}}}"
            )
        };
        let record_line = record(r#""says {\"tool\":1""#);
        let (truncated_record, first_4_bytes) = (&record_line[..40], &record_line[..4]);
        let assert_record_count = |log_text: &str, expected: Option<usize>| {
            let records = parse_effects(log_text).ok();
            assert_eq!(records.map(|records| records.len()), expected, "{log_text}");
        };
        assert_record_count("", Some(0));
        assert_record_count(&format!("{record_line}\n{record_line}\n"), Some(2));
        assert_record_count(&format!("{record_line}\n{truncated_record}"), Some(1));
        assert_record_count(&format!("{truncated_record}{record_line}\n"), Some(1));
        assert_record_count(&format!("{first_4_bytes}{record_line}\n{record_line}\n"), Some(2));
        assert_record_count("nothing of ours\n", None);
    }
}
