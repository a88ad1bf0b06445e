//! The server that is measured: this program in a project and a process of its own.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use anyhow::Context as _;
use longhaul::assemble::open;
use longhaul::config::load;
use longhaul_core::id::InboxName;
use longhaul_core::time::Clock as _;
use longhaul_engine::Task;
use longhaul_engine::clock::SystemClock;
use longhaul_store::OpenMode;

use crate::bench::client::BenchClient;
use crate::bench::measure::nanos_to_micros;
use crate::bench::project::BenchProject;
use crate::child_process::ChildProcess;
use crate::store_access::open_options;

/// Number of tasks that are written to a store at once, and their length.
const FILL_BATCH_TASKS: usize = 64;
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

/// The project of the server.
pub(crate) fn create_project(dir: Option<&Path>) -> anyhow::Result<BenchProject> {
    BenchProject::new(dir, PROJECT_FILES)
}

/// Fills the store with runs that nobody drives; how big it is then, in MB.
pub(crate) async fn fill_store(project: &BenchProject, megabytes: u32) -> anyhow::Result<u64> {
    let house = open(load::load(&project.process_env, &[])?, open_options(OpenMode::Driver))?;
    let inbox = InboxName::new("background")?;
    let rounds = megabytes as usize * 1024 * 1024 / (FILL_BATCH_TASKS * FILL_TASK_BYTES);
    for round in 0..rounds {
        let task = |index: usize| {
            // Each text is another one, or the store would keep it once.
            let word = format!("{round}.{index} ");
            Task {
                inbox: Some(inbox.clone()),
                ..Task::new("busy", word.repeat(FILL_TASK_BYTES / word.len()))
            }
        };
        house.longhaul.submit_all((0..FILL_BATCH_TASKS).map(task).collect()).await?;
    }
    let size = |name: &str| fs::metadata(project.root().join(name)).map_or(0, |file| file.len());
    Ok((size(".longhaul/longhaul.db") + size(".longhaul/longhaul.db-wal")) / 1024 / 1024)
}

/// A server under way.
#[derive(Debug)]
pub(crate) struct BenchServer {
    process: ChildProcess,
    url: String,
    key: String,
    /// From exec to ready.
    pub(crate) ready_ms: f64,
}

impl BenchServer {
    /// Starts a server over the project, and waits until it is ready.
    pub(crate) fn start(project: &BenchProject) -> anyhow::Result<Self> {
        let begun = SystemClock.monotonic_nanos();
        let args = ["serve", "--listen", "127.0.0.1:0", "--until-eof", "--log", "json"];
        let mut command = project.command(&args)?;
        let (process, url) = ChildProcess::start_server(command.stderr(Stdio::piped()))?;
        let ready_ms = nanos_to_micros(SystemClock.monotonic_nanos() - begun) / 1e3;
        let key = fs::read_to_string(project.root().join(".longhaul/local.key"))?;
        Ok(Self { process, url, key: key.trim().to_owned(), ready_ms })
    }

    /// A new connection to it.
    pub(crate) async fn connect(&self) -> anyhow::Result<BenchClient> {
        BenchClient::connect(&self.url, &self.key).await
    }

    /// Its resident memory in MB.
    pub(crate) fn resident_mb(&self) -> anyhow::Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()))
            .context("memory can only be read on Linux")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        Ok(kilobytes.context("the system does not say how much memory it has")? / 1024.0)
    }
}
