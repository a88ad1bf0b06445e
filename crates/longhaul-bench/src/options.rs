//! Options of all benchmarks.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use tempfile::TempDir;

use crate::process::LonghaulBinary;
use crate::report::Report;

/// Options of all benchmarks.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Folder in which a temporary folder is created; the speed of its disk matters
    #[arg(long, global = true, default_value = ".")]
    pub(crate) dir: PathBuf,
    /// Binary to measure from outside; by default `longhaul` beside this program
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) longhaul: Option<PathBuf>,
    /// Print the figures as one JSON object
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

impl Options {
    /// Returns the binary that is measured from outside.
    pub(crate) fn binary(&self) -> anyhow::Result<LonghaulBinary> {
        LonghaulBinary::find(self.longhaul.clone())
    }

    /// Creates a temporary folder, which is removed when it is dropped.
    pub(crate) fn temp_folder(&self) -> anyhow::Result<TempDir> {
        let folder = tempfile::Builder::new().prefix("longhaul-bench-").tempdir_in(&self.dir);
        let dir = self.dir.display();
        folder.with_context(|| format!("`{dir}` can't be written to; name another with --dir"))
    }

    /// Creates the report of a benchmark.
    pub(crate) fn report(&self, bench: &str, conditions: &str) -> Report {
        Report::new(bench, conditions, self.json)
    }
}
