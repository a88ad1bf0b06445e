//! `longhaul bench serve`: what the server costs: starting, waiting, answering
//! while runs are in flight.
//!
//! Never: a figure without its conditions. The group commit that a submit waits
//! for is measured in the same run, under the same load.

mod ask;
mod client;
mod house;
mod measure;

use clap::Args;
use longhaul_engine::clock::Stopwatch;
use longhaul_store::bench::Spans;
use serde_json::{Value, json};

use crate::bench::serve::ask::Ask;
use crate::bench::serve::measure::{Figures, Timed};
use crate::{runtime, say};

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
    #[command(flatten)]
    ask: Ask,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Serve {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let watch = Stopwatch::start();
        let figures = runtime::driving()?.block_on(measure::measure(&self.ask, watch))?;
        say::data(&match self.json {
            true => self.as_json(&figures).to_string(),
            false => self.as_text(&figures),
        })
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
                self.ask.runs, self.ask.connections, figures.store_mb
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
                format!("{} idle streams", self.ask.streams),
                figures.streams_mb,
                figures.streams_mb * 1_024.0 / f64::from(self.ask.streams)
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
                figures.streams_mb * 1_000.0 / f64::from(self.ask.streams) < STREAMS_MB_TARGET,
            ),
        ];
        lines.join("\n")
    }

    fn as_json(&self, figures: &Figures) -> Value {
        let timed = |timed: &Timed| {
            json!({
                "per_second": timed.rate,
                "p50_ms": millis(timed.spans.percentile(50)),
                "p99_ms": millis(timed.spans.percentile(99)),
            })
        };
        json!({
            "bench": "serve",
            "debug_build": cfg!(debug_assertions),
            "runs_in_flight": self.ask.runs,
            "connections": self.ask.connections,
            "store_mb": figures.store_mb,
            "ready_ms": figures.ready_ms,
            "idle_mb": figures.idle_mb,
            "busy_mb": figures.busy_mb,
            "streams": self.ask.streams,
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
