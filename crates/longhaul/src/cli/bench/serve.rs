//! `longhaul bench serve`: what the server costs: starting, waiting, answering
//! while runs are in flight.
//!
//! Never: a figure without its conditions. The group commit that a submit waits
//! for is measured in the same run, under the same load.

mod client;
mod house;
mod measure;

use clap::Args;
use longhaul_engine::clock::Stopwatch;
use longhaul_store::bench::Spans;
use serde_json::{Value, json};

use crate::cli::bench::serve::measure::Figures;
use crate::cli::{runtime, say};

/// Resident memory of a server that does nothing, in MB.
const IDLE_MB_TARGET: f64 = 25.0;

/// From exec to ready on a store of one gigabyte, in milliseconds.
const READY_MS_TARGET: f64 = 100.0;

/// What the slowest submits may take, as a multiple of the slowest group commits.
const SUBMIT_TARGET: f64 = 4.0;

/// What a thousand streams on which nothing happens may cost, in MB.
const STREAMS_MB_TARGET: f64 = 40.0;

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

impl Serve {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let watch = Stopwatch::start();
        let figures = runtime::driving()?.block_on(measure::measure(self, watch))?;
        say::data(&match self.json {
            true => self.as_json(&figures).to_string(),
            false => self.as_text(&figures),
        })
    }

    fn talk(&self, line: &str) {
        if !self.json {
            say::talk(line);
        }
    }

    fn as_text(&self, figures: &Figures) -> String {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let profile = match cfg!(debug_assertions) {
            true => "debug build: figures mean little",
            false => "release",
        };
        let timed = |name: &str, rate: f64, spans: &Spans| {
            format!(
                "{name:<34} {rate:>8.0}/s   p50 {:>6.2} ms   p99 {:>6.2} ms",
                millis(spans.percentile(50)),
                millis(spans.percentile(99)),
            )
        };
        let (submits, shows) = (&figures.submits, &figures.shows);
        let ratio = figures.submit_ratio();
        let lines = [
            format!(
                "bench serve: {} runs in flight (a turn a second each), {} connections, store of {} MB, {cores} cores, {profile}",
                self.runs, self.connections, figures.store_mb
            ),
            format!(
                "exec to ready                      {:.0} ms",
                figures.ready_ms
            ),
            format!(
                "resident, idle                     {:.1} MB",
                figures.idle_mb
            ),
            format!(
                "resident, under load               {:.1} MB",
                figures.busy_mb
            ),
            format!(
                "{:<34} {:.1} MB ({:.1} KB each)",
                format!("{} idle streams", self.streams),
                figures.streams_mb,
                figures.streams_mb * 1_024.0 / f64::from(self.streams)
            ),
            timed(
                "group commit, same load",
                figures.commits.rate,
                &figures.commits.spans,
            ),
            timed("submit over HTTP", submits.rate, &submits.spans),
            timed("show over HTTP", shows.rate, &shows.spans),
            String::new(),
            verdict("idle under 25 MB", figures.idle_mb < IDLE_MB_TARGET),
            verdict(
                "ready in under 100 ms on a store of 1 GB",
                figures.ready_ms < READY_MS_TARGET,
            ),
            verdict(
                &format!("p99 of submit at most 4x that of the group commit (is {ratio:.1}x)"),
                ratio <= SUBMIT_TARGET,
            ),
            verdict(
                "1,000 idle streams under 40 MB",
                figures.streams_mb * 1_000.0 / f64::from(self.streams) < STREAMS_MB_TARGET,
            ),
        ];
        lines.join("\n")
    }

    fn as_json(&self, figures: &Figures) -> Value {
        let timed = |timed: &measure::Timed| {
            json!({
                "per_second": timed.rate,
                "p50_ms": millis(timed.spans.percentile(50)),
                "p99_ms": millis(timed.spans.percentile(99)),
            })
        };
        json!({
            "bench": "serve",
            "debug_build": cfg!(debug_assertions),
            "runs_in_flight": self.runs,
            "connections": self.connections,
            "store_mb": figures.store_mb,
            "ready_ms": figures.ready_ms,
            "idle_mb": figures.idle_mb,
            "busy_mb": figures.busy_mb,
            "streams": self.streams,
            "streams_mb": figures.streams_mb,
            "group_commit": timed(&figures.commits),
            "submit": timed(&figures.submits),
            "show": timed(&figures.shows),
            "submit_ratio": figures.submit_ratio(),
        })
    }
}

fn millis(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

fn verdict(target: &str, met: bool) -> String {
    let word = if met { "met" } else { "missed" };
    format!("target: {target}: {word}")
}
