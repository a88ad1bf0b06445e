//! `longhaul-bench serve`: the binary from outside: exec to the first finished run, start and memory
//! of a server, event streams, and response times while runs are in flight. The durable submit that
//! a request waits for is measured under the same load.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{bail, ensure};
use clap::Args;
use longhaul::{Mode, Runtime, Task};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::fixture::file_bytes;
use crate::http::ApiClient;
use crate::journal::SubmitLoad;
use crate::measure::{Percentiles, Stopwatch, resident_mb};
use crate::options::Options;
use crate::process::{LonghaulBinary, Server};
use crate::report::Report;

/// Number of processes whose time from exec to the first finished run is measured.
const STARTS: u32 = 20;

/// Number of tasks per batch, and length of each task, when the store is filled.
const FILL_BATCH: u32 = 64;
const FILL_BYTES: usize = 64 * 1024;

/// Delay before the memory of an idle server is read.
const IDLE_DELAY: Duration = Duration::from_secs(2);

/// Interval between polls of the status of a run, and their maximum number.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const POLLS_MAX: u32 = 600;

const EXEC_MS_TARGET: f64 = 40.0;
const READY_MS_TARGET: f64 = 100.0;
const IDLE_MB_TARGET: f64 = 25.0;
const KB_PER_STREAM_TARGET: f64 = 40.0;
/// Maximum ratio of the p99 of a submit over HTTP to that of one in the library.
const SUBMIT_RATIO_TARGET: f64 = 4.0;

const PROJECT_FILES: &[(&str, &str)] = &[
    (
        "longhaul.toml",
        "[worker]\nconcurrency = 10000\n[budget]\nturns = 1000000\nusd = 1000.0\nactive_time = \"24h\"\n",
    ),
    ("agents/hello.md", "---\nmodel: scripted/hello\n---\nYou greet.\n"),
    ("agents/busy.md", "---\ntools: [vault_list]\nmodel: scripted/busy\n---\nYou look.\n"),
    ("agents/waiter.md", "---\ntools: [ask_human]\nmodel: scripted/waiter\n---\nYou wait.\n"),
    ("scripts/hello.yaml", "replies: [{ text: Hello. }]\n"),
    (
        "scripts/busy.yaml",
        "replies:\n  - text: Again.\n    delay: 1s\n    tools: [{ name: vault_list, input: {} }]\n",
    ),
    (
        "scripts/waiter.yaml",
        "replies:\n  - tools: [{ name: ask_human, input: { question: Which? } }]\n  - text: Done.\n",
    ),
];

/// Arguments of `longhaul-bench serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Number of runs in flight while requests are measured
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// Number of measured requests of each kind: submit and show
    #[arg(long, default_value_t = 4_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    requests: u32,
    /// Number of concurrent connections that send the measured requests
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    connections: u32,
    /// Number of idle event streams whose memory is measured
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=2_000))]
    streams: u32,
    /// Size of the store before the server starts, in MB
    #[arg(long, default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    store_mb: u32,
}

impl ServeArgs {
    pub(crate) async fn run(&self, options: &Options) -> anyhow::Result<Report> {
        let (binary, folder) = (options.binary()?, options.temp_folder()?);
        let project = folder.path().canonicalize()?.join("project");
        for (name, text) in PROJECT_FILES {
            let file = project.join(name);
            fs::create_dir_all(file.parent().unwrap_or(&project))?;
            fs::write(file, text)?;
        }
        let conditions = format!(
            "{} runs in flight (one turn per second each), {} connections, store of {} MB",
            self.runs, self.connections, self.store_mb
        );
        let mut report = options.report("serve", &conditions);
        measure_start(&binary, &project, &mut report)?;
        report.progress(&format!("filling a store with {} MB", self.store_mb));
        fill_store(&project, self.store_mb).await?;
        report.progress("starting the server");
        // The first start creates the key and warms the disk cache.
        drop(BenchServer::start(&binary, &project)?);
        let server = BenchServer::start(&binary, &project)?;
        tokio::time::sleep(IDLE_DELAY).await;
        report.section("server").at_most("ready_ms", server.ready_ms, READY_MS_TARGET).at_most(
            "idle_mb",
            server.resident_mb()?,
            IDLE_MB_TARGET,
        );
        report.progress(&format!("opening {} event streams", self.streams));
        let streams_mb = self.measure_streams_mb(&server).await?;
        let streams = f64::from(self.streams);
        let kb_per_stream = streams_mb * 1_024.0 / streams;
        report.figure("streams", streams);
        report.at_most("kb_per_stream", kb_per_stream, KB_PER_STREAM_TARGET);
        self.measure_requests(&server, (&project, &mut report)).await?;
        Ok(report)
    }

    /// Opens idle event streams and returns the memory that they use, in MB.
    async fn measure_streams_mb(&self, server: &BenchServer) -> anyhow::Result<f64> {
        let client = server.client()?;
        let run = submit_run(&client, "waiter").await?;
        wait_for_status(&client, &run, "waiting").await?;
        let memory_before = server.resident_mb()?;
        let mut streams = Vec::new();
        for _ in 0..self.streams {
            streams.push(client.open_stream(&format!("/v1/runs/{run}/events")).await?);
        }
        Ok(server.resident_mb()? - memory_before)
    }

    /// Measures requests while runs are in flight.
    async fn measure_requests(
        &self,
        server: &BenchServer,
        (project, report): (&Path, &mut Report),
    ) -> anyhow::Result<()> {
        report.progress(&format!("starting {} runs", self.runs));
        let client = server.client()?;
        let mut in_flight = Vec::new();
        for _ in 0..self.runs {
            in_flight.push(submit_run(&client, "busy").await?);
        }
        let last = in_flight.last().map_or("", String::as_str);
        wait_for_status(&client, last, "running").await?;
        report.progress("measuring submits and reads");
        let load = SubmitLoad { clients: self.connections, writes: self.requests, body: 200 };
        let (_, in_library) = load.measure(project.with_file_name("library")).await?;
        let task = json!({ "agent": "busy", "inbox": "background", "input": "x".repeat(200) });
        let submit = self.measure(server, move |_| ("/v1/runs".to_owned(), Some(task.clone())));
        let (submits_per_s, submit) = submit.await?;
        let busy_mb = server.resident_mb()?;
        let show = self.measure(server, move |number| {
            (format!("/v1/runs/{}", in_flight[number % in_flight.len()]), None)
        });
        let (shows_per_s, show) = show.await?;
        in_library.report("submit", report.section("library"));
        report.section("http").figure("resident_mb", busy_mb);
        report.figure("submits_per_s", submits_per_s);
        submit.report("submit", report);
        let ratio = submit.percentile(99) / in_library.percentile(99).max(f64::MIN_POSITIVE);
        report.at_most("submit_p99_to_library", ratio, SUBMIT_RATIO_TARGET);
        report.figure("shows_per_s", shows_per_s);
        show.report("show", report);
        Ok(())
    }

    /// Sends requests over all connections concurrently. `request` returns the path and the body of
    /// a request from its number. Returns the requests per second and the duration of each.
    async fn measure(
        &self,
        server: &BenchServer,
        request: impl Fn(usize) -> (String, Option<Value>) + Clone + Send + 'static,
    ) -> anyhow::Result<(f64, Percentiles)> {
        let per_client = (self.requests / self.connections) as usize;
        let mut clients = JoinSet::new();
        let all = Stopwatch::start();
        for connection in 0..self.connections as usize {
            let (client, request) = (server.client()?, request.clone());
            clients.spawn(async move {
                let mut micros = Vec::new();
                for number in 0..per_client {
                    let (path, body) = request(connection * per_client + number);
                    let single = Stopwatch::start();
                    match body {
                        Some(body) => client.post(&path, &body).await?,
                        None => client.get(&path).await?,
                    };
                    micros.push(single.elapsed_us());
                }
                anyhow::Ok(micros)
            });
        }
        let micros = clients.join_all().await.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
        let micros = micros.concat();
        Ok((micros.len() as f64 * 1e6 / all.elapsed_us(), Percentiles::new(micros)))
    }
}

/// Measures processes that submit a task, drive it to its end and exit.
fn measure_start(
    binary: &LonghaulBinary,
    project: &Path,
    report: &mut Report,
) -> anyhow::Result<()> {
    report.progress("measuring exec to the first finished run");
    let mut micros = Vec::new();
    // The first process creates the store.
    for number in 0..=STARTS {
        let exec = Stopwatch::start();
        let output = binary.command(project, &["run", "hello", "hi"]).output()?;
        if number > 0 {
            micros.push(exec.elapsed_us());
        }
        ensure!(output.status.success(), "`longhaul run` failed: {output:?}");
    }
    let starts = Percentiles::new(micros);
    report
        .section("exec_to_finished_run")
        .at_most("p50_ms", starts.percentile(50) / 1e3, EXEC_MS_TARGET)
        .figure("p99_ms", starts.percentile(99) / 1e3);
    Ok(())
}

/// Fills the store of the project with runs that no worker drives.
async fn fill_store(project: &Path, megabytes: u32) -> anyhow::Result<()> {
    let runtime = Runtime::builder().project(project).open().await?;
    let store_file = project.join(".longhaul/longhaul.db");
    let log_file = project.join(".longhaul/longhaul.db-wal");
    let mut number = 0;
    while file_bytes(&store_file) + file_bytes(&log_file) < u64::from(megabytes) << 20 {
        let tasks = (number..number + FILL_BATCH).map(|number| {
            // The texts differ, because the store deduplicates equal ones.
            let text = format!("{number} ");
            let text = text.repeat(FILL_BYTES / text.len());
            Task::new("busy").inbox("background").input(text)
        });
        runtime.submit_all(tasks, Mode::Parallel).await?;
        number += FILL_BATCH;
    }
    Ok(())
}

/// A measured server.
struct BenchServer {
    server: Server,
    key: String,
    /// Time from the start of the process until the server was ready.
    ready_ms: f64,
}

impl BenchServer {
    fn start(binary: &LonghaulBinary, project: &Path) -> anyhow::Result<Self> {
        let start = Stopwatch::start();
        let server = binary.start_server(project, &["serve", "--log", "json"])?;
        let ready_ms = start.elapsed_ms();
        let key = fs::read_to_string(project.join(".longhaul/local.key"))?.trim().to_owned();
        Ok(Self { server, key, ready_ms })
    }

    fn client(&self) -> anyhow::Result<ApiClient> {
        ApiClient::new(&self.server.url, &self.key)
    }

    fn resident_mb(&self) -> anyhow::Result<f64> {
        resident_mb(self.server.process_id())
    }
}

/// Submits a run of this agent and returns its id.
async fn submit_run(client: &ApiClient, agent: &str) -> anyhow::Result<String> {
    let run = client.post("/v1/runs", &json!({ "agent": agent, "input": "look" })).await?;
    Ok(run["id"].as_str().unwrap_or_default().to_owned())
}

/// Polls a run until it has this status.
async fn wait_for_status(client: &ApiClient, run: &str, status: &str) -> anyhow::Result<()> {
    for _ in 0..POLLS_MAX {
        if client.get(&format!("/v1/runs/{run}")).await?["status"] == status {
            return Ok(());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    bail!("{run} did not become {status}")
}
