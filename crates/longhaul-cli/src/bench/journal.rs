//! `longhaul bench journal`: what a durable event costs on this disk.
//!
//! Never: compares figures of two runs. Limit, loop and store are measured one
//! after another in one run, and what counts are the ratios.

use std::path::PathBuf;

use clap::Args;
use longhaul_engine::clock::Stopwatch;
use longhaul_store::bench::{BareAsk, Rate, bare, sync_spans};
use serde::Serialize;
use serde_json::{Value, json};

use crate::bench::conditions::{self, build, cores, met};
use crate::bench::cost::Percentiles;
use crate::bench::load::{Load, Measured};
use crate::bench::turn::disk::sync_line;
use crate::say;

/// How many runs write at once, one line each.
const CONCURRENT: [u64; 4] = [1, 16, 64, 256];

/// At 64 runs the store should reach this share of the bare loop.
const TARGET: f64 = 0.5;

/// What a durable event costs.
#[derive(Debug, Args)]
pub(crate) struct Journal {
    /// Where to write; a folder of its own is made inside and removed again
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Events in each measurement
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(256..=10_000_000))]
    events: u64,
    /// Bytes of text in each event
    #[arg(long, default_value_t = 900, value_parser = clap::value_parser!(u64).range(0..=8_000))]
    body: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// One line of the table.
#[derive(Debug, Serialize)]
struct Line {
    runs: u64,
    store_events_per_second: f64,
    store_commits: u64,
    append_us: Percentiles,
    bare_events_per_second: f64,
    ratio: f64,
    /// Events of the store.
    #[serde(skip)]
    events: u64,
}

impl Line {
    fn new(runs: u64, bare: Rate, store: &Measured) -> Self {
        Self {
            runs,
            store_events_per_second: store.rate.per_second(),
            store_commits: store.rate.commits,
            append_us: Percentiles::in_micros(&store.spans),
            bare_events_per_second: bare.per_second(),
            ratio: store.rate.per_second() / bare.per_second().max(f64::MIN_POSITIVE),
            events: store.rate.events,
        }
    }
}

impl Journal {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let folder = conditions::folder(Some(&self.dir))?;
        let watch = Stopwatch::start();
        let stopwatch = || watch.nanos();
        self.talk("measuring the disk ...");
        let syncs = Percentiles::in_micros(&sync_spans(folder.path(), 500, &stopwatch)?);
        self.talk("measuring a bare loop with one commit for each event ...");
        let single = self.bare(&folder.path().join("single.db"), 1, &stopwatch)?;
        let mut lines = Vec::new();
        for runs in CONCURRENT {
            self.talk(&format!("measuring {runs} at once ..."));
            let bare = self.bare(
                &folder.path().join(format!("bare-{runs}.db")),
                runs,
                &stopwatch,
            )?;
            let load = Load {
                runs,
                events: self.events(runs),
                body_bytes: self.body_bytes(),
            };
            let file = folder.path().join(format!("store-{runs}.db"));
            let store = load.measure(&file, watch)?;
            lines.push(Line::new(runs, bare, &store));
        }
        let report = if self.json {
            as_json(self, syncs, single, &lines).to_string()
        } else {
            as_text(self, syncs, single, &lines)
        };
        say::data(&report)
    }

    /// One commit an event is slow on a slow disk: a tenth is enough to see it.
    const fn events(&self, runs: u64) -> u64 {
        if runs == 1 {
            self.events / 10
        } else {
            self.events
        }
    }

    fn body_bytes(&self) -> usize {
        usize::try_from(self.body).unwrap_or(usize::MAX)
    }

    fn talk(&self, line: &str) {
        if !self.json {
            say::talk(line);
        }
    }

    /// A bare loop that commits as many events at once as there are runs: the
    /// most that a store could group, because a run waits for each of its own.
    fn bare(
        &self,
        file: &std::path::Path,
        runs: u64,
        stopwatch: &dyn longhaul_store::bench::Stopwatch,
    ) -> anyhow::Result<Rate> {
        let ask = BareAsk {
            file: file.to_owned(),
            runs,
            events: self.events(runs),
            body_bytes: self.body_bytes(),
            per_commit: runs,
        };
        Ok(bare(&ask, stopwatch)?)
    }
}

fn as_text(ask: &Journal, syncs: Percentiles, single: Rate, lines: &[Line]) -> String {
    let mut text = vec![
        format!(
            "bench journal: {} events of {} bytes a line, WAL, synchronous=FULL, {} cores, {}",
            ask.events,
            ask.body,
            cores(),
            build()
        ),
        sync_line(syncs),
        format!(
            "bare SQLite, a commit an event    {:.0} events/s",
            single.per_second()
        ),
        String::new(),
        "runs  store events/s  events a commit  append p50   p99  bare loop events/s  ratio".into(),
    ];
    for line in lines {
        text.push(format!(
            "{:>4}  {:>14.0}  {:>15.1}  {:>7.0} us  {:>5.0}  {:>18.0}  {:>5.2}",
            line.runs,
            line.store_events_per_second,
            line.events as f64 / line.store_commits.max(1) as f64,
            line.append_us.p50,
            line.append_us.p99,
            line.bare_events_per_second,
            line.ratio
        ));
    }
    if let Some(line) = lines.iter().find(|line| line.runs == 64) {
        let met = met(line.ratio >= TARGET);
        text.push(format!("target at 64 runs: ratio {TARGET} or more: {met}"));
    }
    text.join("\n")
}

fn as_json(ask: &Journal, syncs: Percentiles, single: Rate, lines: &[Line]) -> Value {
    json!({
        "bench": "journal",
        "events": ask.events,
        "body_bytes": ask.body,
        "debug_build": cfg!(debug_assertions),
        "fdatasync_us": syncs,
        "commit_per_event_per_second": single.per_second(),
        "lines": lines,
    })
}
