//! The report of a benchmark: text for people, and one JSON object for programs. The first line
//! names the conditions of the measurement.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Serialize;
use serde_json::{Map, Value};
use tempfile::TempDir;

use crate::output;
use crate::style::Styler;
use crate::table::{TableCell, table_lines};

/// The report of one benchmark: the text lines and JSON figures added so far.
#[derive(Debug)]
pub(crate) struct BenchReport {
    lines: Vec<String>,
    fields: Map<String, Value>,
    json: bool,
}

impl BenchReport {
    /// Creates the report of a benchmark. The report's first line contains the conditions of the
    /// measurement, such as event counts.
    pub(crate) fn new(bench_name: &str, conditions: &str, prints_json: bool) -> Self {
        let build = match cfg!(debug_assertions) {
            true => "debug build: not comparable",
            false => "release",
        };
        let fields = [
            ("bench", Value::from(bench_name)),
            ("build", build.into()),
            ("debug_build", cfg!(debug_assertions).into()),
            ("cores", cpu_core_count().into()),
        ];
        let cores = cpu_core_count();
        Self {
            lines: vec![format!("bench {bench_name}: {conditions}, {cores} cores, {build}")],
            fields: fields.map(|(name, value)| (name.to_owned(), value)).into_iter().collect(),
            json: prints_json,
        }
    }

    /// Prints what is measured next, unless the output is JSON.
    pub(crate) fn print_progress(&self, text: &str) {
        if !self.json {
            output::eprint_line(&format!("{text} ..."));
        }
    }

    pub(crate) fn add_text_line(&mut self, text: impl Into<String>) {
        self.lines.push(text.into());
    }

    /// Adds a table to the text of the report, with an empty line before and after it.
    pub(crate) fn add_table(&mut self, column_titles: &[&str], rows: &[Vec<String>]) {
        let rows: Vec<Vec<TableCell>> =
            rows.iter().map(|row| row.iter().map(TableCell::new).collect()).collect();
        self.lines.push(String::new());
        self.lines.extend(table_lines(column_titles, &rows, Styler::for_stdout()));
        self.lines.push(String::new());
    }

    /// Adds the fields of `figures` to the report's JSON object.
    pub(crate) fn add_json_fields(&mut self, figures: &impl Serialize) -> anyhow::Result<()> {
        if let Value::Object(fields) = serde_json::to_value(figures)? {
            self.fields.extend(fields);
        }
        Ok(())
    }

    /// Prints the report to stdout, as text or as JSON.
    pub(crate) fn print(self) -> anyhow::Result<()> {
        match self.json {
            true => output::print_json(&self.fields),
            false => output::print_line(&self.lines.join("\n")),
        }
    }
}

/// Returns the word that says whether a target was reached: `met` or `missed`.
pub(crate) const fn met_or_missed(is_met: bool) -> &'static str {
    if is_met { "met" } else { "missed" }
}

/// Returns the number of CPU cores of this machine.
pub(crate) fn cpu_core_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Creates a temporary folder in the given folder or else in the system's folder for temporary
/// files. The new folder is removed when the returned value is dropped.
pub(crate) fn create_temp_folder(parent_folder: Option<&Path>) -> anyhow::Result<TempDir> {
    let parent_folder = parent_folder.map_or_else(std::env::temp_dir, PathBuf::from);
    let temp_folder = tempfile::Builder::new().prefix("longhaul-bench-").tempdir_in(&parent_folder);
    temp_folder.with_context(|| {
        let parent_folder = parent_folder.display();
        format!("`{parent_folder}` can't be written to; name another folder with --dir")
    })
}
