//! The raw limit of the disk, measured in the same run as what depends on it.

use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;

use crate::measure::{Percentiles, Stopwatch};
use crate::report::Report;

/// Number of measured writes.
const WRITES: usize = 500;

/// Data of each write: as much as a small commit writes to the log of the store.
const PAGES: [u8; 8_192] = [0x6c; 8_192];

/// Measures how long it takes to write 8 KiB to a file in this folder and sync it to disk, and adds
/// the figures to the report. Returns the median in microseconds.
pub(crate) fn measure_disk(folder: &Path, report: &mut Report) -> anyhow::Result<f64> {
    report.progress("measuring the disk");
    let path = folder.join("sync.bench");
    let mut file = File::create(&path)?;
    let mut micros = Vec::with_capacity(WRITES);
    // Every write but the first overwrites the same pages, as a log does.
    for _ in 0..WRITES {
        let write = Stopwatch::start();
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&PAGES)?;
        file.sync_data()?;
        micros.push(write.elapsed_us());
    }
    std::fs::remove_file(&path)?;
    let durations = Percentiles::new(micros);
    durations.report("write_and_fdatasync", report.section("disk"));
    Ok(durations.percentile(50).max(f64::MIN_POSITIVE))
}
