//! The server that is measured: this program, in a temporary project and as a separate process.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use longhaul::assemble::open_runtime;
use longhaul::config::load;
use longhaul_core::id::InboxName;
use longhaul_core::time::Clock as _;
use longhaul_engine::Task;
use longhaul_engine::clock::SystemClock;
use longhaul_store::OpenMode;

use crate::bench::client::BenchClient;
use crate::bench::measure::{nanos_to_micros, resident_memory_mb};
use crate::bench::project::BenchProject;
use crate::child_process::ChildProcess;
use crate::store_access::store_open_options;

/// Number of tasks per batch when the store is filled.
const FILL_BATCH_TASKS: usize = 64;
/// Length of the text of each task that fills the store, in bytes.
const FILL_TASK_BYTES: usize = 64 * 1024;

const PROJECT_FILES: &[(&str, &str)] = &[
    (
        "longhaul.toml",
        "[worker]\nconcurrency = 10000\n[budget]\nturns = 1000000\nusd = 1000.0\nactive_time = \"24h\"\n",
    ),
    ("agents/busy.md", "---\ntools: [vault_list]\nmodel: scripted/busy\n---\nYou look.\n"),
    ("agents/waiter.md", "---\ntools: [ask_human]\nmodel: scripted/waiter\n---\nYou wait.\n"),
    (
        "scripts/busy.yaml",
        "replies:\n  - text: \"Again.\"\n    delay: 1s\n    tools: [{ name: vault_list, input: {} }]\n",
    ),
    (
        "scripts/waiter.yaml",
        "replies:\n  - text: \"A question.\"\n    tools: [{ name: ask_human, input: { question: \"Which?\" } }]\n  - text: \"Done.\"\n",
    ),
];

/// Creates the temporary project of the measured server.
pub(crate) fn create_bench_project(parent_folder: Option<&Path>) -> anyhow::Result<BenchProject> {
    BenchProject::new(parent_folder, PROJECT_FILES)
}

/// Fills the project's store with runs that no worker drives. Returns the size of the store in MB.
pub(crate) async fn fill_store_with_runs(
    project: &BenchProject,
    megabytes: u32,
) -> anyhow::Result<u64> {
    let runtime =
        open_runtime(load::load(&project.process_env, &[])?, store_open_options(OpenMode::Driver))?;
    let inbox = InboxName::new("background")?;
    let rounds = megabytes as usize * 1024 * 1024 / (FILL_BATCH_TASKS * FILL_TASK_BYTES);
    for round in 0..rounds {
        let task = |index: usize| {
            // The texts differ, because the store deduplicates equal ones.
            let unique_text = format!("{round}.{index} ");
            Task {
                inbox: Some(inbox.clone()),
                ..Task::new("busy", unique_text.repeat(FILL_TASK_BYTES / unique_text.len()))
            }
        };
        runtime.longhaul.submit_all((0..FILL_BATCH_TASKS).map(task).collect()).await?;
    }
    let size = |name: &str| fs::metadata(project.root().join(name)).map_or(0, |file| file.len());
    Ok((size(".longhaul/longhaul.db") + size(".longhaul/longhaul.db-wal")) / 1024 / 1024)
}

/// A measured server in a child process, which ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct BenchServer {
    process: ChildProcess,
    url: String,
    key: String,
    /// Time from the start of the process until the server was ready, in milliseconds.
    pub(crate) ready_ms: f64,
}

impl BenchServer {
    /// Starts a server in the project and waits until it is ready.
    pub(crate) fn start(project: &BenchProject) -> anyhow::Result<Self> {
        let start = SystemClock.monotonic_nanos();
        let args = ["serve", "--listen", "127.0.0.1:0", "--until-eof", "--log", "json"];
        let mut command = project.longhaul_command(&args)?;
        let (process, url) =
            ChildProcess::start_server_and_get_url(command.stderr(Stdio::piped()))?;
        let ready_ms = nanos_to_micros(SystemClock.monotonic_nanos() - start) / 1e3;
        let key = fs::read_to_string(project.root().join(".longhaul/local.key"))?;
        Ok(Self { process, url, key: key.trim().to_owned(), ready_ms })
    }

    /// Opens a new connection to the server.
    pub(crate) async fn connect(&self) -> anyhow::Result<BenchClient> {
        BenchClient::connect(&self.url, &self.key).await
    }

    pub(crate) fn resident_memory_mb(&self) -> anyhow::Result<f64> {
        resident_memory_mb(self.process.process_id())
    }
}
