//! `longhaul bench journal`: measures the cost of a durable event on this disk. Plain SQLite
//! inserts without Longhaul (the bare loop) and the store are measured one after another; the ratio
//! of their rates is the result that counts.

use std::path::PathBuf;

use clap::Args;
use longhaul_core::time::Clock as _;
use longhaul_engine::clock::SystemClock;
use longhaul_store::bench::{PlainSqlInsertBenchOptions, measure_plain_sql_inserts};
use serde::Serialize;
use serde_json::json;

use crate::bench::measure::{DiskSpeed, Percentiles};
use crate::bench::report::{self, BenchReport, met_or_missed};
use crate::bench::write_load::WriteLoad;
use crate::runtime;

/// Numbers of concurrent runs to measure. Each gives one row of the table.
const CONCURRENCY_LEVELS: [u64; 4] = [1, 16, 64, 256];

/// Minimum ratio of the store's event rate to that of plain SQLite inserts (the bare loop), at 64
/// runs.
const RATIO_TARGET: f64 = 0.5;

/// Arguments of `longhaul bench journal`.
#[derive(Debug, Args)]
pub(crate) struct BenchJournalCommand {
    /// Folder to write in; a temporary folder is created there and removed at the end
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Number of events in each measurement
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(256..=10_000_000))]
    events: u64,
    /// Length of each event's text in bytes
    #[arg(long, default_value_t = 900, value_parser = clap::value_parser!(u16).range(0..=8_000))]
    body: u16,
    /// Print the measurements as one JSON object
    #[arg(long)]
    json: bool,
}

/// Event rates of the store and of plain SQLite inserts (the bare loop) at one number of concurrent
/// runs.
#[derive(Debug, Serialize)]
struct EventRateRow {
    runs: u64,
    store_events_per_second: f64,
    store_commits: u64,
    append_us: Percentiles,
    bare_events_per_second: f64,
    ratio: f64,
}

impl BenchJournalCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let folder = report::create_temp_folder(Some(&self.dir))?;
        let (events, event_bytes) = (self.events, self.body);
        let conditions = format!(
            "up to {events} events of {event_bytes} bytes per row of the table, WAL, synchronous=FULL"
        );
        let mut report = BenchReport::new("journal", &conditions, self.json);
        DiskSpeed::measure_disk_speed(folder.path(), &mut report)?;
        let (mut rate_rows, mut rows) = (Vec::new(), Vec::new());
        for runs in CONCURRENCY_LEVELS {
            report.print_progress(&format!("measuring {runs} concurrent runs"));
            // With one commit per event a slow disk takes long, so a tenth of the events is enough.
            let events = if runs == 1 { events / 10 } else { events };
            let body_bytes = usize::from(event_bytes);
            // The bare loop commits as many events at once as there are runs. A store could not
            // group more, because each run waits for its own event.
            let options = PlainSqlInsertBenchOptions {
                file: folder.path().join(format!("plain-sqlite-{runs}-runs.db")),
                runs,
                events,
                body_bytes,
                per_commit: runs,
            };
            let bare_rate = measure_plain_sql_inserts(&options, &|| SystemClock.monotonic_nanos())?
                .events_per_second();
            let load = WriteLoad { runs, events, body_bytes };
            let file = folder.path().join(format!("longhaul-store-{runs}-runs.db"));
            let (store, durations) =
                runtime::build_multi_thread_tokio()?.block_on(load.measure_appends(&file))?;
            let rate_row = EventRateRow {
                runs,
                store_events_per_second: store.events_per_second(),
                store_commits: store.commits,
                append_us: Percentiles::from(&durations),
                bare_events_per_second: bare_rate,
                ratio: store.events_per_second() / bare_rate.max(f64::MIN_POSITIVE),
            };
            rows.push(vec![
                runs.to_string(),
                format!("{:.0}", rate_row.store_events_per_second),
                format!("{:.1}", store.events as f64 / store.commits.max(1) as f64),
                format!("{:.0} us", rate_row.append_us.p50),
                format!("{:.0} us", rate_row.append_us.p99),
                format!("{bare_rate:.0}"),
                format!("{:.2}", rate_row.ratio),
            ]);
            rate_rows.push(rate_row);
        }
        let titles = ["runs", "store events/s", "events per commit", "append p50", "p99"];
        report.add_table(&[&titles[..], &["bare loop events/s", "ratio"]].concat(), &rows);
        if let Some(rate_row) = rate_rows.iter().find(|rate_row| rate_row.runs == 64) {
            let verdict = met_or_missed(rate_row.ratio >= RATIO_TARGET);
            report.add_text_line(format!(
                "target at 64 runs: ratio to the bare loop {RATIO_TARGET} or more: {verdict}"
            ));
        }
        report.add_json_fields(
            &json!({ "events": events, "body_bytes": event_bytes, "lines": rate_rows }),
        )?;
        report.print()
    }
}
