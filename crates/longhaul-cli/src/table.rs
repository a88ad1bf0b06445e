//! Tables for people, with aligned columns. Cells may hold untrusted text, which is sanitized.

use crate::style::{Styler, TextTone};
use crate::{output, sanitize};

/// A cell of a printed table: its text, and the tone that decides the colour of the text.
#[derive(Debug, Clone)]
pub(crate) struct TableCell {
    text: String,
    tone: Option<TextTone>,
}

impl TableCell {
    pub(crate) fn new(cell_text: impl AsRef<str>) -> Self {
        Self { text: sanitize::sanitize_line(cell_text.as_ref()), tone: None }
    }

    /// Truncates the cell's text to this many characters.
    #[must_use]
    pub(crate) fn with_max_chars(mut self, max_chars: usize) -> Self {
        self.text = sanitize::truncate(&self.text, max_chars);
        self
    }

    /// Sets the tone of the cell, which decides its colour.
    #[must_use]
    pub(crate) fn with_tone(mut self, tone: TextTone) -> Self {
        self.tone = Some(tone);
        self
    }
}

/// Prints a table with these column titles and rows to stdout.
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
    let column_titles: Vec<TableCell> = column_titles.iter().map(TableCell::new).collect();
    let all_rows: Vec<&[TableCell]> =
        std::iter::once(column_titles.as_slice()).chain(rows.iter().map(Vec::as_slice)).collect();
    let width = |column: usize| {
        let cells = all_rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.text.chars().count()).max()
    };
    let widths: Vec<usize> = (0..column_titles.len()).map_while(width).collect();
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
            let gap = width - cell.text.chars().count() + 2;
            line.push_str(&" ".repeat(gap));
        }
    }
    line.trim_end().to_owned()
}
