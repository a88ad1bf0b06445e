//! The server that is measured: this very binary, in a project and a process of
//! its own.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::Context as _;
use longhaul::assemble::open;
use longhaul::config::load;
use longhaul::config::surroundings::Surroundings;
use longhaul_engine::Task;
use longhaul_engine::clock::Stopwatch;
use longhaul_store::Role;
use tempfile::TempDir;

use crate::bench::client::Client;
use crate::bench::conditions;
use crate::bench::process::OwnProcess;
use crate::open::opening;
use crate::project_files;

/// So many tasks fill a store at once, of so many bytes each.
const FILL_TASKS: u64 = 64;
const FILL_BYTES: u64 = 64 * 1024;

const SETTINGS: &str = r#"
[worker]
concurrency = 10000
[budget]
turns = 1000000
usd = 1000.0
active_time = "24h"
[models]
default = "scripted/busy"
"#;

const AGENT: &str = "---\nname: busy\ndescription: Looks and looks.\ntools: [vault_list]\n\
                     model: scripted/busy\n---\nYou look.\n";

const WAITER: &str = "---\nname: waiter\ndescription: Waits.\ntools: [ask_human]\n\
                      model: scripted/waiter\n---\nYou wait.\n";

const SCRIPT: &str =
    "replies:\n  - text: \"Again.\"\n    delay: 1s\n    tools: [{ name: vault_list, input: {} }]\n";

const WAITER_SCRIPT: &str = "replies:\n  - text: \"A question.\"\n    tools: [{ name: ask_human, input: { question: \"Which?\" } }]\n  - text: \"Done.\"\n";

/// A project to measure in.
#[derive(Debug)]
pub(crate) struct Project {
    folder: TempDir,
    here: Surroundings,
}

impl Project {
    pub(crate) fn new(dir: Option<&Path>) -> anyhow::Result<Self> {
        let folder = conditions::folder(dir)?;
        let root = folder.path().canonicalize()?;
        let files = [
            ("longhaul.toml", SETTINGS),
            ("agents/busy.md", AGENT),
            ("agents/waiter.md", WAITER),
            ("scripts/busy.yaml", SCRIPT),
            ("scripts/waiter.yaml", WAITER_SCRIPT),
        ];
        project_files::write(&root, &files)?;
        // What this user has set does not count here.
        let kept = |name: &str| ["PATH", "HOME", "TMPDIR"].contains(&name);
        let env: BTreeMap<String, String> =
            std::env::vars().filter(|(name, _)| kept(name)).collect();
        let here = Surroundings {
            cwd: root,
            env,
            ..Surroundings::default()
        };
        Ok(Self { folder, here })
    }

    pub(crate) fn root(&self) -> &Path {
        self.folder.path()
    }

    /// Fills the store with runs that nobody will drive; how big it is then, in MB.
    pub(crate) async fn fill(&self, megabytes: u32) -> anyhow::Result<u64> {
        let config = load::load(&self.here, &[])?;
        let house = open(config, opening(Role::Driver))?;
        let aside = longhaul_core::id::InboxName::new("aside")?;
        let rounds = u64::from(megabytes) * 1024 * 1024 / (FILL_TASKS * FILL_BYTES);
        for round in 0..rounds {
            let task = |place: u64| {
                // Each text is another one, or the store would keep it once.
                let word = format!("{round}.{place} ");
                let times = FILL_BYTES as usize / word.len();
                Task {
                    inbox: Some(aside.clone()),
                    ..Task::new("busy", word.repeat(times))
                }
            };
            let tasks = (0..FILL_TASKS).map(task).collect();
            house.longhaul.submit_all(tasks).await?;
        }
        let file = self.root().join(".longhaul/longhaul.db");
        let wal = self.root().join(".longhaul/longhaul.db-wal");
        let size = |path: PathBuf| fs::metadata(path).map_or(0, |found| found.len());
        Ok((size(file) + size(wal)) / 1024 / 1024)
    }
}

/// A server under way.
#[derive(Debug)]
pub(crate) struct Server {
    process: OwnProcess,
    address: String,
    key: String,
    /// From exec to ready.
    pub(crate) ready_nanos: u64,
}

impl Server {
    /// Starts a server over the project, and waits until it is ready.
    pub(crate) fn start(project: &Project, watch: Stopwatch) -> anyhow::Result<Self> {
        let begun = watch.nanos();
        let mut command = OwnProcess::command()?;
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--until-eof"])
            .args(["--log", "json"])
            .current_dir(project.root())
            .env_clear()
            .envs(&project.here.env)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let (process, url) = OwnProcess::start(&mut command, |line| {
            line["url"].as_str().filter(|_| line["message"] == "ready")
        })?;
        let ready_nanos = watch.nanos() - begun;
        let key = project.root().join(".longhaul/local.key");
        Ok(Self {
            process,
            address: url.trim_start_matches("http://").to_owned(),
            key: fs::read_to_string(key)?.trim().to_owned(),
            ready_nanos,
        })
    }

    /// A new connection to it.
    pub(crate) async fn connect(&self) -> anyhow::Result<Client> {
        Client::connect(&self.address, &self.key).await
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
