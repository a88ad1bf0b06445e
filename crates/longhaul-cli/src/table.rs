//! Tables for people, with aligned columns. Cells may hold untrusted text, which is sanitized.

use std::fmt::Display;

use clap::{Args, Subcommand};
use serde::Serialize;
use unicode_width::UnicodeWidthStr as _;

use crate::style::{Styler, TextTone};
use crate::{output, sanitize};

/// Arguments of a command that only prints something.
#[derive(Debug, Args)]
pub(crate) struct JsonArgs {
    /// Print the result as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of a command that lists something if no subcommand is given.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ListOr<L: Args, S: Subcommand> {
    #[command(subcommand)]
    pub(crate) command: Option<S>,
    #[command(flatten)]
    pub(crate) list: L,
}

/// A cell of a printed table: its text, and the tone that decides the colour of the text.
#[derive(Debug, Clone)]
pub(crate) struct TableCell {
    pub(crate) text: String,
    pub(crate) tone: Option<TextTone>,
}

impl TableCell {
    pub(crate) fn new(value: impl Display) -> Self {
        Self { text: sanitize::sanitize_line(&value.to_string()), tone: None }
    }

    pub(crate) fn toned(value: impl Display, tone: TextTone) -> Self {
        Self { tone: Some(tone), ..Self::new(value) }
    }

    /// Truncates the cell's text to this many characters.
    #[must_use]
    pub(crate) fn with_max_chars(mut self, max_chars: usize) -> Self {
        self.text = sanitize::truncate(&self.text, max_chars);
        self
    }
}

/// What can be a cell of a table: a cell, or a value that is printed without a tone.
pub(crate) trait ToCell {
    fn to_cell(&self) -> TableCell;
}

impl<T: Display> ToCell for T {
    fn to_cell(&self) -> TableCell {
        TableCell::new(self)
    }
}

impl ToCell for TableCell {
    fn to_cell(&self) -> TableCell {
        self.clone()
    }
}

/// Returns a row of a table with these cells.
pub(crate) fn row(cells: &[&dyn ToCell]) -> Vec<TableCell> {
    cells.iter().map(|cell| cell.to_cell()).collect()
}

/// Prints a complete list: as one JSON object, or as a table with these column titles. If it is
/// empty, `note_if_empty` is printed instead of the table.
pub(crate) fn show_list<T: Serialize>(
    json: bool,
    items: &[T],
    (column_titles, note_if_empty): (&[&str], &str),
    item_row: impl Fn(&T) -> Vec<TableCell>,
) -> anyhow::Result<()> {
    if json {
        return output::print_json_list(&items);
    }
    if items.is_empty() {
        output::eprint_line(note_if_empty);
        return Ok(());
    }
    print_table(column_titles, items.iter().map(item_row))
}

/// Prints a table with these rows to stdout. Without column titles it has no line of titles.
pub(crate) fn print_table(
    column_titles: &[&str],
    rows: impl IntoIterator<Item = Vec<TableCell>>,
) -> anyhow::Result<()> {
    let rows: Vec<Vec<TableCell>> = rows.into_iter().collect();
    let lines = table_lines(column_titles, &rows, Styler::for_stdout());
    lines.iter().try_for_each(|line| output::print_line(line))
}

pub(crate) fn table_lines(
    column_titles: &[&str],
    rows: &[Vec<TableCell>],
    styler: Styler,
) -> Vec<String> {
    let titles: Vec<TableCell> = column_titles.iter().map(TableCell::new).collect();
    let titles = Some(titles.as_slice()).filter(|titles| !titles.is_empty());
    let all_rows: Vec<&[TableCell]> =
        titles.into_iter().chain(rows.iter().map(Vec::as_slice)).collect();
    let width = |column: usize| {
        let cells = all_rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.text.width()).max()
    };
    let widths: Vec<usize> = (0..).map_while(width).collect();
    all_rows.iter().map(|row| format_row(row, &widths, styler)).collect()
}

fn format_row(row: &[TableCell], widths: &[usize], styler: Styler) -> String {
    let mut line = String::new();
    for (index, (cell, width)) in row.iter().zip(widths).enumerate() {
        let text = match cell.tone {
            Some(tone) => styler.apply_tone(tone, &cell.text),
            None => cell.text.clone(),
        };
        line.push_str(&text);
        if index + 1 < row.len() {
            let gap = width - cell.text.width() + 2;
            line.push_str(&" ".repeat(gap));
        }
    }
    line.trim_end().to_owned()
}
