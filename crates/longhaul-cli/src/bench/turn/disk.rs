//! What the disk allows: the raw limit beside which durable turns are read.
//!
//! Never: measured at another time or in another folder than the turns.

use std::path::Path;

use longhaul_engine::clock::Stopwatch;
use longhaul_store::bench::{BareAsk, Rate, Spans, bare, sync_spans};
use serde_json::{Value, json};

/// So many writes tell what one takes.
const SYNCS: usize = 500;

/// So many bare commits do.
const BARE_COMMITS: u64 = 500;

/// What was measured.
pub(crate) struct Disk {
    syncs: Spans,
    bare: Rate,
}

impl Disk {
    pub(crate) fn measure(folder: &Path) -> anyhow::Result<Self> {
        let watch = Stopwatch::start();
        let syncs = sync_spans(folder, SYNCS, &|| watch.nanos())?;
        let bare = bare(
            &BareAsk {
                file: folder.join("bare.db"),
                runs: 1,
                events: BARE_COMMITS,
                body_bytes: 900,
                per_commit: 1,
            },
            &|| watch.nanos(),
        )?;
        Ok(Self { syncs, bare })
    }

    pub(crate) fn as_json(&self) -> Value {
        json!({
            "fdatasync_us": { "p50": us(self.syncs.percentile(50)), "p99": us(self.syncs.percentile(99)) },
            "bare_commit_us": self.commit_us(),
        })
    }

    pub(crate) fn lines(&self) -> [String; 2] {
        [
            format!(
                "write of 8 KiB + fdatasync    p50 {:.0} us   p99 {:.0} us",
                us(self.syncs.percentile(50)),
                us(self.syncs.percentile(99))
            ),
            format!(
                "a commit of bare SQLite       mean {:.0} us",
                self.commit_us()
            ),
        ]
    }

    fn commit_us(&self) -> f64 {
        1e6 / self.bare.per_second().max(1.0)
    }
}

fn us(nanos: u64) -> f64 {
    nanos as f64 / 1_000.0
}
