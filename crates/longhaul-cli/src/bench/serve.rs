//! `longhaul bench serve`: what the server costs: starting, waiting, answering while runs are in
//! flight. The group commit that a submit waits for is measured in the same run, under the same
//! load.

mod server_process;

use anyhow::{Context as _, bail};
use clap::Args;
use longhaul_core::time::{Clock as _, Millis};
use longhaul_engine::clock::SystemClock;
use longhaul_store::bench::Durations;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::bench::client::BenchClient;
use crate::bench::measure::Percentiles;
use crate::bench::report::{Report, met_or_missed};
use crate::bench::serve::server_process::{BenchServer, create_project, fill_store};
use crate::bench::write_load::WriteLoad;
use crate::runtime;

/// Resident memory of a server that does nothing, in MB.
const IDLE_MB_TARGET: f64 = 25.0;

/// From exec to ready on a store of one gigabyte, in milliseconds.
const READY_MS_TARGET: f64 = 100.0;

/// What the slowest submits may take, as a multiple of the slowest group commits.
const SUBMIT_RATIO_TARGET: f64 = 4.0;

/// What a thousand streams on which nothing happens may cost, in MB.
const STREAMS_MB_TARGET: f64 = 40.0;

/// How long a server rests before its idle memory is read.
const IDLE_DELAY: Millis = Millis::from_secs(2);

/// How often, and how many times, a condition is checked before the bench gives up.
const POLL_INTERVAL: Millis = Millis(50);
const POLLS_MAX: u32 = 600;

/// What the server costs.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Runs in flight while it is measured
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// Requests of each kind
    #[arg(long, default_value_t = 4_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    requests: u32,
    /// Connections that ask at once
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    connections: u32,
    /// Streams on which nothing happens
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=2_000))]
    streams: u32,
    /// How big the store is before the server starts, in MB
    #[arg(long, default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    store_mb: u32,
    /// The folder in which to measure; its disk counts
    #[arg(long)]
    dir: Option<std::path::PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Everything that was measured.
#[derive(Debug, Serialize)]
struct ServeFigures {
    store_mb: u64,
    ready_ms: f64,
    idle_mb: f64,
    busy_mb: f64,
    streams_mb: f64,
    group_commit: RequestTiming,
    submit: RequestTiming,
    show: RequestTiming,
    /// The slowest submits against the slowest group commits.
    submit_ratio: f64,
}

/// Requests: how many a second, and how long each took.
#[derive(Debug, Serialize)]
struct RequestTiming {
    per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
}

impl RequestTiming {
    fn new(per_second: f64, spans: &Durations) -> Self {
        let us = Percentiles::from(spans);
        Self { per_second, p50_ms: us.p50 / 1e3, p99_ms: us.p99 / 1e3 }
    }

    fn line(&self, name: &str) -> String {
        let Self { per_second, p50_ms, p99_ms } = self;
        format!("{name:<34} {per_second:>8.0}/s   p50 {p50_ms:>6.2} ms   p99 {p99_ms:>6.2} ms")
    }
}

impl Serve {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        runtime::multi_thread()?.block_on(self.measure())?.print()
    }

    async fn measure(&self) -> anyhow::Result<Report> {
        let (runs, connections, store_mb) = (self.runs, self.connections, self.store_mb);
        let conditions = format!(
            "{runs} runs in flight (a turn a second each), {connections} connections, store of {store_mb} MB"
        );
        let mut report = Report::new("serve", &conditions, self.json);
        let project = create_project(self.dir.as_deref())?;
        report.print_progress(&format!("filling a store with {store_mb} MB"));
        let store_mb = fill_store(&project, store_mb).await?;
        report.print_progress("starting the server");
        // The first start makes the key and warms the disk's cache for nobody else.
        drop(BenchServer::start(&project)?);
        let server = BenchServer::start(&project)?;
        SystemClock.sleep(IDLE_DELAY).await;
        let idle_mb = server.resident_mb()?;
        report.print_progress(&format!("opening {} streams", self.streams));
        let streams_mb = self.measure_streams(&server).await?;
        report.print_progress(&format!("bringing {runs} runs into flight"));
        let in_flight = self.start_runs(&server).await?;
        report.print_progress("measuring group commits, submits and reads");
        let load =
            WriteLoad { runs: connections.into(), events: self.requests.into(), body_bytes: 900 };
        let (rate, spans) = load.measure(&project.root().join("bare.db")).await?;
        let group_commit = RequestTiming::new(rate.per_second(), &spans);
        let body = json!({ "agent": "busy", "inbox": "background", "input": "x".repeat(200) });
        let path = vec!["/v1/runs".to_owned()];
        let submit = self.measure_requests(&server, ("POST", body.to_string()), path).await?;
        let busy_mb = server.resident_mb()?;
        let paths = in_flight.iter().map(|run| format!("/v1/runs/{run}")).collect();
        let show = self.measure_requests(&server, ("GET", String::new()), paths).await?;
        let figures = ServeFigures {
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
        self.add_to_report(&figures, &mut report);
        let streams = self.streams;
        let counts =
            json!({ "runs_in_flight": runs, "connections": connections, "streams": streams });
        report.add_figures(&counts)?;
        report.add_figures(&figures)?;
        Ok(report)
    }

    fn add_to_report(&self, figures: &ServeFigures, report: &mut Report) {
        let ServeFigures { ready_ms, idle_mb, busy_mb, streams_mb, .. } = figures;
        let (streams, ratio) = (f64::from(self.streams), figures.submit_ratio);
        let each_kb = streams_mb * 1_024.0 / streams;
        report.add_line(format!("exec to ready                      {ready_ms:.0} ms"));
        report.add_line(format!("resident, idle                     {idle_mb:.1} MB"));
        report.add_line(format!("resident, under load               {busy_mb:.1} MB"));
        let name = format!("{streams} idle streams");
        report.add_line(format!("{name:<34} {streams_mb:.1} MB ({each_kb:.1} KB each)"));
        report.add_line(figures.group_commit.line("group commit, same load"));
        report.add_line(figures.submit.line("submit over HTTP"));
        report.add_line(figures.show.line("show over HTTP"));
        let of_ratio =
            format!("p99 of submit at most 4x that of the group commit (is {ratio:.1}x)");
        for (target, is_met) in [
            ("idle under 25 MB", *idle_mb < IDLE_MB_TARGET),
            ("ready in under 100 ms on a store of 1 GB", *ready_ms < READY_MS_TARGET),
            (&of_ratio, ratio <= SUBMIT_RATIO_TARGET),
            ("1,000 idle streams under 40 MB", streams_mb * 1e3 / streams < STREAMS_MB_TARGET),
        ] {
            report.add_line(format!("target: {target}: {}", met_or_missed(is_met)));
        }
    }

    /// What streams on which nothing happens cost, in MB.
    async fn measure_streams(&self, server: &BenchServer) -> anyhow::Result<f64> {
        let mut client = server.connect().await?;
        let run = submit_run(&mut client, "waiter").await?;
        wait_for_status(&mut client, &format!("/v1/runs/{run}"), "waiting").await?;
        let before = server.resident_mb()?;
        let mut open = Vec::new();
        for _ in 0..self.streams {
            let mut client = server.connect().await?;
            let stream = client.open_stream(&format!("/v1/runs/{run}/events")).await?;
            open.push((client, stream));
        }
        Ok(server.resident_mb()? - before)
    }

    /// Submits runs and waits until all of them are at work.
    async fn start_runs(&self, server: &BenchServer) -> anyhow::Result<Vec<String>> {
        let mut client = server.connect().await?;
        let mut runs = Vec::new();
        for _ in 0..self.runs {
            runs.push(submit_run(&mut client, "busy").await?);
        }
        let last = runs.last().context("no run")?;
        wait_for_status(&mut client, &format!("/v1/runs/{last}"), "running").await?;
        Ok(runs)
    }

    /// Sends a request to these paths in turn over all connections at once; how long each took.
    async fn measure_requests(
        &self,
        server: &BenchServer,
        (method, body): (&'static str, String),
        paths: Vec<String>,
    ) -> anyhow::Result<RequestTiming> {
        let each = (self.requests / self.connections) as usize;
        let mut clients = JoinSet::new();
        let begun = SystemClock.monotonic_nanos();
        for connection in 0..self.connections as usize {
            let mut client = server.connect().await?;
            let (paths, body) = (paths.clone(), body.clone());
            clients.spawn(async move {
                let mut spans = Vec::new();
                for request in 0..each {
                    let path = &paths[(connection * each + request) % paths.len()];
                    let begun = SystemClock.monotonic_nanos();
                    let (status, answer) = client.send(method, path, &body).await?;
                    spans.push(SystemClock.monotonic_nanos() - begun);
                    if status >= 300 {
                        bail!("{method} {path} was answered {status}: {answer}");
                    }
                }
                Ok(spans)
            });
        }
        let mut spans = Vec::new();
        while let Some(done) = clients.join_next().await {
            spans.extend(done.context("a client was lost")??);
        }
        let seconds = (SystemClock.monotonic_nanos() - begun) as f64 / 1e9;
        Ok(RequestTiming::new(spans.len() as f64 / seconds, &Durations::new(spans)))
    }
}

/// Submits a run of this agent; its id.
async fn submit_run(client: &mut BenchClient, agent: &str) -> anyhow::Result<String> {
    let body = json!({ "agent": agent, "input": "look" }).to_string();
    match client.send("POST", "/v1/runs", &body).await? {
        (201, run) => Ok(run["id"].as_str().unwrap_or_default().to_owned()),
        (status, problem) => bail!("a submit was answered {status}: {problem}"),
    }
}

/// Waits until a run has this status.
async fn wait_for_status(client: &mut BenchClient, path: &str, status: &str) -> anyhow::Result<()> {
    let mut run = Value::Null;
    for _ in 0..POLLS_MAX {
        run = client.send("GET", path, "").await?.1;
        if run["status"] == status {
            return Ok(());
        }
        SystemClock.sleep(POLL_INTERVAL).await;
    }
    bail!("{path} did not become {status}: {run}")
}
