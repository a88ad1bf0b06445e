//! `longhaul bench journal`: what a durable event costs on this disk. A bare loop and the store are
//! measured one after another in one run, and what counts is their ratio.

use std::path::PathBuf;

use clap::Args;
use longhaul_core::time::Clock as _;
use longhaul_engine::clock::SystemClock;
use longhaul_store::bench::{BareInsertOptions, measure_bare_inserts};
use serde::Serialize;
use serde_json::json;

use crate::bench::measure::{DiskLimits, Percentiles};
use crate::bench::report::{self, Report, met_or_missed};
use crate::bench::write_load::WriteLoad;
use crate::runtime;

/// How many runs write at once, one line each.
const CONCURRENCY_LEVELS: [u64; 4] = [1, 16, 64, 256];

/// At 64 runs the store should reach this share of the bare loop.
const RATIO_TARGET: f64 = 0.5;

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
    #[arg(long, default_value_t = 900, value_parser = clap::value_parser!(u16).range(0..=8_000))]
    body: u16,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// One line of the table.
#[derive(Debug, Serialize)]
struct ResultRow {
    runs: u64,
    store_events_per_second: f64,
    store_commits: u64,
    append_us: Percentiles,
    bare_events_per_second: f64,
    ratio: f64,
}

impl Journal {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let folder = report::create_temp_folder(Some(&self.dir))?;
        let (events, body) = (self.events, self.body);
        let conditions = format!("{events} events of {body} bytes a line, WAL, synchronous=FULL");
        let mut report = Report::new("journal", &conditions, self.json);
        DiskLimits::measure(folder.path(), &mut report)?;
        let (mut lines, mut rows) = (Vec::new(), Vec::new());
        for runs in CONCURRENCY_LEVELS {
            report.print_progress(&format!("measuring {runs} at once"));
            // One commit an event is slow on a slow disk: a tenth is enough to see it.
            let events = if runs == 1 { events / 10 } else { events };
            let body_bytes = usize::from(body);
            // A bare loop that commits as many events at once as there are runs: the most that a
            // store could group, because a run waits for each of its own.
            let ask = BareInsertOptions {
                file: folder.path().join(format!("bare-{runs}.db")),
                runs,
                events,
                body_bytes,
                per_commit: runs,
            };
            let bare = measure_bare_inserts(&ask, &|| SystemClock.monotonic_nanos())?.per_second();
            let load = WriteLoad { runs, events, body_bytes };
            let file = folder.path().join(format!("store-{runs}.db"));
            let (store, spans) = runtime::multi_thread()?.block_on(load.measure(&file))?;
            let line = ResultRow {
                runs,
                store_events_per_second: store.per_second(),
                store_commits: store.commits,
                append_us: Percentiles::from(&spans),
                bare_events_per_second: bare,
                ratio: store.per_second() / bare.max(f64::MIN_POSITIVE),
            };
            rows.push(vec![
                runs.to_string(),
                format!("{:.0}", line.store_events_per_second),
                format!("{:.1}", store.events as f64 / store.commits.max(1) as f64),
                format!("{:.0} us", line.append_us.p50),
                format!("{:.0} us", line.append_us.p99),
                format!("{bare:.0}"),
                format!("{:.2}", line.ratio),
            ]);
            lines.push(line);
        }
        let head = ["runs", "store events/s", "events a commit", "append p50", "p99"];
        report.add_table(&[&head[..], &["bare loop events/s", "ratio"]].concat(), &rows);
        if let Some(line) = lines.iter().find(|line| line.runs == 64) {
            let met = met_or_missed(line.ratio >= RATIO_TARGET);
            report.add_line(format!("target at 64 runs: ratio {RATIO_TARGET} or more: {met}"));
        }
        report.add_figures(&json!({ "events": events, "body_bytes": body, "lines": lines }))?;
        report.print()
    }
}
