//! The report of a bench: text for people and one JSON object for programs. Its first line names
//! the conditions.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Serialize;
use serde_json::{Map, Value};
use tempfile::TempDir;

use crate::output;
use crate::style::Styler;
use crate::table::{Cell, table_lines};

/// What was measured so far.
#[derive(Debug)]
pub(crate) struct Report {
    lines: Vec<String>,
    fields: Map<String, Value>,
    json: bool,
}

impl Report {
    /// The report of a bench under these conditions.
    pub(crate) fn new(bench: &str, conditions: &str, json: bool) -> Self {
        let build = match cfg!(debug_assertions) {
            true => "debug build: not for comparing",
            false => "release",
        };
        let fields = [
            ("bench", Value::from(bench)),
            ("build", build.into()),
            ("debug_build", cfg!(debug_assertions).into()),
            ("cores", core_count().into()),
        ];
        let cores = core_count();
        Self {
            lines: vec![format!("bench {bench}: {conditions}, {cores} cores, {build}")],
            fields: fields.map(|(name, value)| (name.to_owned(), value)).into_iter().collect(),
            json,
        }
    }

    /// Says what is measured next, to people.
    pub(crate) fn print_progress(&self, text: &str) {
        if !self.json {
            output::stderr_line(&format!("{text} ..."));
        }
    }

    /// Adds a line of text.
    pub(crate) fn add_line(&mut self, text: impl Into<String>) {
        self.lines.push(text.into());
    }

    /// Adds a table, with an empty line on both sides.
    pub(crate) fn add_table(&mut self, head: &[&str], rows: &[Vec<String>]) {
        let rows: Vec<Vec<Cell>> =
            rows.iter().map(|row| row.iter().map(Cell::new).collect()).collect();
        self.lines.push(String::new());
        self.lines.extend(table_lines(head, &rows, Styler::for_stdout()));
        self.lines.push(String::new());
    }

    /// Adds the fields of some figures to the JSON object.
    pub(crate) fn add_figures(&mut self, figures: &impl Serialize) -> anyhow::Result<()> {
        if let Value::Object(fields) = serde_json::to_value(figures)? {
            self.fields.extend(fields);
        }
        Ok(())
    }

    /// Prints it.
    pub(crate) fn print(self) -> anyhow::Result<()> {
        match self.json {
            true => output::stdout_json(&self.fields),
            false => output::stdout_line(&self.lines.join("\n")),
        }
    }
}

/// Whether a target is met.
pub(crate) const fn met_or_missed(is_met: bool) -> &'static str {
    if is_met { "met" } else { "missed" }
}

/// Number of cores.
pub(crate) fn core_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A new folder in this one, or where temporary files go; it is removed in the end.
pub(crate) fn create_temp_folder(dir: Option<&Path>) -> anyhow::Result<TempDir> {
    let dir = dir.map_or_else(std::env::temp_dir, PathBuf::from);
    let made = tempfile::Builder::new().prefix("longhaul-bench-").tempdir_in(&dir);
    made.with_context(|| {
        let dir = dir.display();
        format!("`{dir}` can't be written to; name another folder with --dir")
    })
}
