//! `longhaul bench serve`: measures the server: start, idle memory, and response times while runs
//! are in flight. The group commit (one commit for concurrent writes) that a submit request waits
//! for is measured in the same run, under the same load.

mod server_process;

use anyhow::{Context as _, bail};
use clap::Args;
use longhaul_core::time::{Clock as _, Millis};
use longhaul_engine::clock::SystemClock;
use longhaul_store::bench::SortedDurations;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::bench::client::BenchClient;
use crate::bench::measure::Percentiles;
use crate::bench::report::{BenchReport, met_or_missed};
use crate::bench::serve::server_process::{
    BenchServer, create_bench_project, fill_store_with_runs,
};
use crate::bench::write_load::WriteLoad;
use crate::runtime;

/// Target resident memory of an idle server, in MB.
const IDLE_MB_TARGET: f64 = 25.0;

/// Target time from the start of the server process until it is ready, with a store of 1 GB, in
/// milliseconds.
const READY_MS_TARGET: f64 = 100.0;

/// Maximum ratio of the p99 duration of a submit request to that of a group commit (one commit for
/// concurrent writes).
const SUBMIT_RATIO_TARGET: f64 = 4.0;

/// Target memory that 1,000 idle event streams use, in MB.
const STREAMS_MB_TARGET: f64 = 40.0;

/// Delay before the memory of an idle server is read.
const IDLE_DELAY: Millis = Millis::from_secs(2);

/// Interval between polls of a run's status.
const POLL_INTERVAL: Millis = Millis(50);
/// Maximum number of polls of a run's status.
const POLLS_MAX: u32 = 600;

/// Arguments of `longhaul bench serve`.
#[derive(Debug, Args)]
pub(crate) struct BenchServeCommand {
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
    /// Folder for the temporary project; the speed of its disk matters
    #[arg(long)]
    dir: Option<std::path::PathBuf>,
    /// Print the measurements as one JSON object
    #[arg(long)]
    json: bool,
}

/// All measurements of the server, as printed in the report.
#[derive(Debug, Serialize)]
struct ServeMeasurements {
    store_mb: u64,
    ready_ms: f64,
    idle_mb: f64,
    busy_mb: f64,
    streams_mb: f64,
    group_commit: RequestTiming,
    submit: RequestTiming,
    show: RequestTiming,
    /// Ratio of the p99 duration of a submit request to that of a group commit (one commit for
    /// concurrent writes).
    submit_ratio: f64,
}

/// Rate and latency of one kind of request.
#[derive(Debug, Serialize)]
struct RequestTiming {
    per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
}

impl RequestTiming {
    fn new(requests_per_second: f64, durations: &SortedDurations) -> Self {
        let latency_us = Percentiles::from(durations);
        Self {
            per_second: requests_per_second,
            p50_ms: latency_us.p50 / 1e3,
            p99_ms: latency_us.p99 / 1e3,
        }
    }

    fn report_line(&self, label: &str) -> String {
        let Self { per_second, p50_ms, p99_ms } = self;
        format!("{label:<34} {per_second:>8.0}/s   p50 {p50_ms:>6.2} ms   p99 {p99_ms:>6.2} ms")
    }
}

impl BenchServeCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        runtime::build_multi_thread_tokio()?.block_on(self.measure_server())?.print()
    }

    async fn measure_server(&self) -> anyhow::Result<BenchReport> {
        let (runs, connections, store_mb) = (self.runs, self.connections, self.store_mb);
        let conditions = format!(
            "{runs} runs in flight (one turn per second each), {connections} connections, store of {store_mb} MB"
        );
        let mut report = BenchReport::new("serve", &conditions, self.json);
        let project = create_bench_project(self.dir.as_deref())?;
        report.print_progress(&format!("filling a store with {store_mb} MB"));
        let store_mb = fill_store_with_runs(&project, store_mb).await?;
        report.print_progress("starting the server");
        // The first start creates the key and warms the disk cache; it is not measured.
        drop(BenchServer::start(&project)?);
        let server = BenchServer::start(&project)?;
        SystemClock.sleep(IDLE_DELAY).await;
        let idle_mb = server.resident_memory_mb()?;
        report.print_progress(&format!("opening {} event streams", self.streams));
        let streams_mb = self.measure_event_stream_memory_mb(&server).await?;
        report.print_progress(&format!("starting {runs} runs"));
        let in_flight = self.submit_runs_and_wait_for_start(&server).await?;
        report.print_progress("measuring group commits, submits and reads");
        let load =
            WriteLoad { runs: connections.into(), events: self.requests.into(), body_bytes: 900 };
        let (rate, durations) = load.measure_appends(&project.root().join("bare.db")).await?;
        let group_commit = RequestTiming::new(rate.events_per_second(), &durations);
        let body = json!({ "agent": "busy", "inbox": "background", "input": "x".repeat(200) });
        let path = vec!["/v1/runs".to_owned()];
        let submit = self.measure_request_times(&server, ("POST", body.to_string()), path).await?;
        let busy_mb = server.resident_memory_mb()?;
        let paths = in_flight.iter().map(|run| format!("/v1/runs/{run}")).collect();
        let show = self.measure_request_times(&server, ("GET", String::new()), paths).await?;
        let measurements = ServeMeasurements {
            store_mb,
            ready_ms: server.ready_ms,
            idle_mb,
            busy_mb,
            streams_mb,
            submit_ratio: submit.p99_ms / group_commit.p99_ms.max(f64::MIN_POSITIVE),
            group_commit,
            submit,
            show,
        };
        self.add_measurements_to_report(&measurements, &mut report);
        let streams = self.streams;
        let counts =
            json!({ "runs_in_flight": runs, "connections": connections, "streams": streams });
        report.add_json_fields(&counts)?;
        report.add_json_fields(&measurements)?;
        Ok(report)
    }

    fn add_measurements_to_report(
        &self,
        measurements: &ServeMeasurements,
        report: &mut BenchReport,
    ) {
        let ServeMeasurements { ready_ms, idle_mb, busy_mb, streams_mb, .. } = measurements;
        let (streams, ratio) = (f64::from(self.streams), measurements.submit_ratio);
        let stream_kb = streams_mb * 1_024.0 / streams;
        report.add_text_line(format!("process start to ready             {ready_ms:.0} ms"));
        report.add_text_line(format!("resident memory, idle              {idle_mb:.1} MB"));
        report.add_text_line(format!("resident memory, under load        {busy_mb:.1} MB"));
        let label = format!("{streams} idle event streams");
        report.add_text_line(format!("{label:<34} {streams_mb:.1} MB ({stream_kb:.1} KB each)"));
        report.add_text_line(measurements.group_commit.report_line("group commit, same load"));
        report.add_text_line(measurements.submit.report_line("submit over HTTP"));
        report.add_text_line(measurements.show.report_line("show over HTTP"));
        let ratio_target =
            format!("p99 of submit at most 4 times the p99 of group commit (measured: {ratio:.1})");
        for (target, is_met) in [
            ("idle under 25 MB", *idle_mb < IDLE_MB_TARGET),
            ("ready in under 100 ms on a store of 1 GB", *ready_ms < READY_MS_TARGET),
            (&ratio_target, ratio <= SUBMIT_RATIO_TARGET),
            (
                "1,000 idle event streams under 40 MB",
                streams_mb * 1e3 / streams < STREAMS_MB_TARGET,
            ),
        ] {
            report.add_text_line(format!("target: {target}: {}", met_or_missed(is_met)));
        }
    }

    /// Opens idle event streams and returns the memory that they use, in MB.
    async fn measure_event_stream_memory_mb(&self, server: &BenchServer) -> anyhow::Result<f64> {
        let mut client = server.connect().await?;
        let run = submit_run(&mut client, "waiter").await?;
        wait_for_run_status(&mut client, &format!("/v1/runs/{run}"), "waiting").await?;
        let memory_before = server.resident_memory_mb()?;
        let mut connections = Vec::new();
        for _ in 0..self.streams {
            let mut client = server.connect().await?;
            let stream = client.open_event_stream(&format!("/v1/runs/{run}/events")).await?;
            connections.push((client, stream));
        }
        Ok(server.resident_memory_mb()? - memory_before)
    }

    /// Submits runs, waits until the last of them is running, and returns the ids of all runs.
    async fn submit_runs_and_wait_for_start(
        &self,
        server: &BenchServer,
    ) -> anyhow::Result<Vec<String>> {
        let mut client = server.connect().await?;
        let mut runs = Vec::new();
        for _ in 0..self.runs {
            runs.push(submit_run(&mut client, "busy").await?);
        }
        let last_run = runs.last().context("no run was submitted")?;
        wait_for_run_status(&mut client, &format!("/v1/runs/{last_run}"), "running").await?;
        Ok(runs)
    }

    /// Sends requests to these paths in turn, over all connections concurrently, and measures each
    /// request.
    async fn measure_request_times(
        &self,
        server: &BenchServer,
        (method, body): (&'static str, String),
        paths: Vec<String>,
    ) -> anyhow::Result<RequestTiming> {
        let requests_per_client = (self.requests / self.connections) as usize;
        let mut clients = JoinSet::new();
        let start = SystemClock.monotonic_nanos();
        for connection in 0..self.connections as usize {
            let mut client = server.connect().await?;
            let (paths, body) = (paths.clone(), body.clone());
            clients.spawn(async move {
                let mut durations = Vec::new();
                for request in 0..requests_per_client {
                    let path = &paths[(connection * requests_per_client + request) % paths.len()];
                    let start = SystemClock.monotonic_nanos();
                    let (status, response) =
                        client.send_and_read_response(method, path, &body).await?;
                    durations.push(SystemClock.monotonic_nanos() - start);
                    if status >= 300 {
                        bail!("{method} {path} returned {status}: {response}");
                    }
                }
                Ok(durations)
            });
        }
        let mut durations = Vec::new();
        while let Some(result) = clients.join_next().await {
            durations.extend(result.context("a client task panicked")??);
        }
        let seconds = (SystemClock.monotonic_nanos() - start) as f64 / 1e9;
        Ok(RequestTiming::new(durations.len() as f64 / seconds, &SortedDurations::new(durations)))
    }
}

/// Submits a run of this agent and returns the id of the run.
async fn submit_run(client: &mut BenchClient, agent: &str) -> anyhow::Result<String> {
    let body = json!({ "agent": agent, "input": "look" }).to_string();
    match client.send_and_read_response("POST", "/v1/runs", &body).await? {
        (201, run) => Ok(run["id"].as_str().unwrap_or_default().to_owned()),
        (status, problem) => bail!("a submit returned {status}: {problem}"),
    }
}

/// Polls the run at this API path until it has this status.
async fn wait_for_run_status(
    client: &mut BenchClient,
    path: &str,
    status: &str,
) -> anyhow::Result<()> {
    let mut run = Value::Null;
    for _ in 0..POLLS_MAX {
        run = client.send_and_read_response("GET", path, "").await?.1;
        if run["status"] == status {
            return Ok(());
        }
        SystemClock.sleep(POLL_INTERVAL).await;
    }
    bail!("{path} did not become {status}: {run}")
}
