//! What the disk allows: the raw limit beside which durable turns are read, measured in the same
//! folder right before them.

use std::path::Path;

use longhaul_engine::clock::Stopwatch;
use longhaul_store::bench::{BareAsk, bare, sync_spans};
use serde::Serialize;

use crate::bench::cost::Percentiles;

/// Number of writes that are measured.
const SYNCS: usize = 500;

/// Number of bare commits that are measured.
const BARE_COMMITS: u64 = 500;

/// What was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Disk {
    fdatasync_us: Percentiles,
    bare_commit_us: f64,
}

impl Disk {
    pub(crate) fn measure(folder: &Path) -> anyhow::Result<Self> {
        let watch = Stopwatch::start();
        let syncs = sync_spans(folder, SYNCS, &|| watch.nanos())?;
        let ask = BareAsk {
            file: folder.join("bare.db"),
            runs: 1,
            events: BARE_COMMITS,
            body_bytes: 900,
            per_commit: 1,
        };
        let bare = bare(&ask, &|| watch.nanos())?;
        Ok(Self {
            fdatasync_us: Percentiles::in_micros(&syncs),
            bare_commit_us: 1e6 / bare.per_second().max(1.0),
        })
    }

    pub(crate) fn lines(&self) -> [String; 2] {
        [
            sync_line(self.fdatasync_us),
            format!(
                "a commit of bare SQLite       mean {:.0} us",
                self.bare_commit_us
            ),
        ]
    }
}

/// What a write takes, in words.
pub(crate) fn sync_line(us: Percentiles) -> String {
    format!(
        "write of 8 KiB + fdatasync    p50 {:.0} us   p99 {:.0} us",
        us.p50, us.p99
    )
}
