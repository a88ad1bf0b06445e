//! `longhaul-bench journal`: durable writes. Concurrent clients submit tasks, and each waits until
//! its task is on disk before it submits the next one. One commit serves all clients that wait.

use std::path::PathBuf;

use clap::Args;
use tokio::task::JoinSet;

use crate::disk::measure_disk;
use crate::fixture::{Fixture, FixtureSpec, script_name, script_of_turns};
use crate::measure::{Cost, Meter, Percentiles, Stopwatch};
use crate::options::Options;
use crate::report::Report;

/// Numbers of concurrent clients to measure.
const CLIENTS: [u32; 4] = [1, 16, 64, 256];

/// Arguments of `longhaul-bench journal`.
#[derive(Debug, Args)]
pub(crate) struct JournalArgs {
    /// Number of writes in each measurement
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(256..=10_000_000))]
    writes: u32,
    /// Length of each task in bytes
    #[arg(long, default_value_t = 900, value_parser = clap::value_parser!(u32).range(0..=8_000))]
    body: u32,
}

impl JournalArgs {
    pub(crate) async fn run(&self, options: &Options) -> anyhow::Result<Report> {
        let folder = options.temp_folder()?;
        let (writes, body) = (self.writes, self.body);
        let conditions = format!("{writes} tasks of {body} bytes, WAL, synchronous=FULL");
        let mut report = options.report("journal", &conditions);
        let sync_us = measure_disk(folder.path(), &mut report)?;
        for clients in CLIENTS {
            report.progress(&format!("measuring {clients} concurrent clients"));
            // With one commit per write a slow disk takes long, so a tenth is enough.
            let writes = if clients == 1 { writes / 10 } else { writes };
            let project = folder.path().join(format!("clients-{clients}"));
            let load = SubmitLoad { clients, writes, body };
            let (cost, durations) = load.measure(project).await?;
            let writes = f64::from(load.writes_per_client() * clients);
            report
                .section(format!("clients_{clients}"))
                .figure("writes_per_s", writes * 1e6 / cost.wall_us)
                .figure("writes_per_commit", writes / cost.commits)
                .figure("cpu_us_per_write", cost.cpu_us / writes)
                .figure("commits_to_disk_syncs", cost.commits * sync_us / cost.wall_us);
            durations.report("write", &mut report);
        }
        Ok(report)
    }
}

/// Concurrent submits through the library.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SubmitLoad {
    pub(crate) clients: u32,
    /// Total number of submits of all clients.
    pub(crate) writes: u32,
    /// Length of each task in bytes.
    pub(crate) body: u32,
}

impl SubmitLoad {
    pub(crate) const fn writes_per_client(self) -> u32 {
        self.writes / self.clients
    }

    /// Submits the tasks to a new store. Returns the total cost and the duration of each submit.
    pub(crate) async fn measure(self, project: PathBuf) -> anyhow::Result<(Cost, Percentiles)> {
        let scripts = vec![script_of_turns(0)];
        let spec = FixtureSpec { folder: project, scripts, mock: None, result_bytes: 0 };
        let fixture = Fixture::open(spec).await?;
        let meter = Meter::start(&fixture.store_file)?;
        let mut clients = JoinSet::new();
        for _ in 0..self.clients {
            let runtime = fixture.runtime.clone();
            let task = fixture.task(&script_name(0)).input("x".repeat(self.body as usize));
            clients.spawn(async move {
                let mut micros = Vec::new();
                for _ in 0..self.writes_per_client() {
                    let submit = Stopwatch::start();
                    runtime.submit(task.clone()).await?;
                    micros.push(submit.elapsed_us());
                }
                anyhow::Ok(micros)
            });
        }
        let micros = clients.join_all().await.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
        Ok((meter.cost()?, Percentiles::new(micros.concat())))
    }
}
