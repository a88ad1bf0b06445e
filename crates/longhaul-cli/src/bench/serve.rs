//! `longhaul bench serve`: what the server costs: starting, waiting, answering
//! while runs are in flight.
//!
//! Never: a figure without its conditions. The group commit that a submit waits
//! for is measured in the same run, under the same load.

mod ask;
mod house;
mod measure;

use clap::Args;
use longhaul_engine::clock::Stopwatch;
use serde_json::Value;

use crate::bench::conditions::{build, cores, met};
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
            true => self.as_json(&figures)?.to_string(),
            false => self.as_text(&figures),
        })
    }

    fn as_text(&self, figures: &Figures) -> String {
        let timed = |name: &str, timed: &Timed| {
            format!(
                "{name:<34} {:>8.0}/s   p50 {:>6.2} ms   p99 {:>6.2} ms",
                timed.per_second, timed.p50_ms, timed.p99_ms,
            )
        };
        let ratio = figures.submit_ratio;
        let lines = [
            format!(
                "bench serve: {} runs in flight (a turn a second each), {} connections, store of {} MB, {} cores, {}",
                self.ask.runs,
                self.ask.connections,
                figures.store_mb,
                cores(),
                build()
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
            timed("group commit, same load", &figures.group_commit),
            timed("submit over HTTP", &figures.submit),
            timed("show over HTTP", &figures.show),
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

    fn as_json(&self, figures: &Figures) -> anyhow::Result<Value> {
        let mut value = serde_json::to_value(figures)?;
        value["bench"] = "serve".into();
        value["debug_build"] = cfg!(debug_assertions).into();
        value["runs_in_flight"] = self.ask.runs.into();
        value["connections"] = self.ask.connections.into();
        value["streams"] = self.ask.streams.into();
        Ok(value)
    }
}

fn verdict(target: &str, is_met: bool) -> String {
    format!("target: {target}: {}", met(is_met))
}
