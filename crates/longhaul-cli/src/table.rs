//! Tables for people: columns that line up, made of words that may be a stranger's.
//!
//! Never: a cell that breaks its row, or spaces at the end of a line.

use crate::style::{Styler, Tone};
use crate::{output, sanitize};

/// A place in a table.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    text: String,
    tone: Option<Tone>,
}

impl Cell {
    /// These words.
    pub(crate) fn new(text: impl AsRef<str>) -> Self {
        Self { text: sanitize::line(text.as_ref()), tone: None }
    }

    /// At most so many letters of them.
    #[must_use]
    pub(crate) fn truncated(mut self, max: usize) -> Self {
        self.text = sanitize::truncate(&self.text, max);
        self
    }

    /// The same in a tone.
    #[must_use]
    pub(crate) fn tone(mut self, tone: Tone) -> Self {
        self.tone = Some(tone);
        self
    }
}

/// Prints a table with this head.
pub(crate) fn print(
    head: &[&str],
    rows: impl IntoIterator<Item = Vec<Cell>>,
) -> anyhow::Result<()> {
    let rows: Vec<Vec<Cell>> = rows.into_iter().collect();
    let lines = table_lines(head, &rows, Styler::for_stdout());
    lines.iter().try_for_each(|line| output::stdout_line(line))
}

/// The lines of a table with this head.
pub(crate) fn table_lines(head: &[&str], rows: &[Vec<Cell>], paint: Styler) -> Vec<String> {
    let head: Vec<Cell> = head.iter().map(Cell::new).collect();
    let all: Vec<&[Cell]> =
        std::iter::once(head.as_slice()).chain(rows.iter().map(Vec::as_slice)).collect();
    let width = |column: usize| {
        let cells = all.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.text.chars().count()).max()
    };
    let widths: Vec<usize> = (0..head.len()).map_while(width).collect();
    all.iter().map(|row| format_row(row, &widths, paint)).collect()
}

fn format_row(row: &[Cell], widths: &[usize], paint: Styler) -> String {
    let mut line = String::new();
    for (at, (cell, width)) in row.iter().zip(widths).enumerate() {
        let text = match cell.tone {
            Some(tone) => paint.apply(tone, &cell.text),
            None => cell.text.clone(),
        };
        line.push_str(&text);
        if at + 1 < row.len() {
            let gap = width - cell.text.chars().count() + 2;
            line.push_str(&" ".repeat(gap));
        }
    }
    line.trim_end().to_owned()
}
