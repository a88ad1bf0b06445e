//! Tables that fit the width of the terminal: columns are cut, and in a narrow terminal left out.
//! Without a terminal, every column is complete.

use unicode_width::UnicodeWidthStr as _;

use crate::style::Styler;
use crate::table::{TableCell, table_lines};
use crate::{output, sanitize, terminal};

/// Number of spaces between two columns.
const GAP: usize = 2;

/// A column of a table that fits the terminal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FittedColumn {
    pub(crate) title: &'static str,
    /// Width to which the texts of the column may be cut.
    pub(crate) width_min: usize,
    /// Order in which columns are left out of a table that is too wide, the highest first. A column
    /// with 0 is never left out.
    pub(crate) drop_rank: u8,
}

/// Prints a table to stdout that fits the terminal.
pub(crate) fn print_fitted_table(
    columns: &[FittedColumn],
    rows: Vec<Vec<TableCell>>,
) -> anyhow::Result<()> {
    let width = terminal::terminal_width(std::io::stdout());
    let lines = fitted_lines(columns, rows, width, Styler::for_stdout());
    lines.iter().try_for_each(|line| output::print_line(line))
}

/// Prints parts of a message to stderr, as many in a line as fit the terminal.
pub(crate) fn eprint_parts(parts: &[String]) {
    let width = terminal::terminal_width(std::io::stderr()).unwrap_or(usize::MAX);
    join_parts(parts, width).iter().for_each(|line| output::eprint_line(line));
}

fn join_parts(parts: &[String], width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines.last_mut().filter(|line| line.width() + 3 + part.width() <= width) {
            Some(line) => {
                line.push_str("   ");
                line.push_str(part);
            }
            None => lines.push(part.clone()),
        }
    }
    lines
}

fn fitted_lines(
    columns: &[FittedColumn],
    rows: Vec<Vec<TableCell>>,
    width: Option<usize>,
    styler: Styler,
) -> Vec<String> {
    let text_width = |index: usize| {
        let cells = rows.iter().filter_map(|row| row.get(index));
        let widest = cells.map(|cell| cell.text.width()).max().unwrap_or_default();
        widest.max(columns[index].title.width())
    };
    let widths: Vec<usize> = (0..columns.len()).map(text_width).collect();
    let widths = fit_widths(columns, &widths, width.unwrap_or(usize::MAX));
    let fitted_rows = rows.into_iter().map(|row| {
        let cells = row.into_iter().zip(&widths);
        let cells = cells.filter_map(|(cell, width)| Some(cell.fitted((*width)?)));
        cells.collect::<Vec<_>>()
    });
    let kept = columns.iter().zip(&widths).filter_map(|(column, width)| width.and(Some(column)));
    let titles: Vec<&str> = kept.map(|column| column.title).collect();
    table_lines(&titles, &fitted_rows.collect::<Vec<_>>(), styler)
}

/// Returns the width of each column. `None` means that the column is left out.
fn fit_widths(columns: &[FittedColumn], natural: &[usize], width: usize) -> Vec<Option<usize>> {
    let mut widths: Vec<Option<usize>> = natural.iter().copied().map(Some).collect();
    let minimum = |index: usize| natural[index].min(columns[index].width_min);
    let total = |widths: &[Option<usize>], width_of: &dyn Fn(usize, usize) -> usize| {
        let kept = widths.iter().enumerate().filter_map(|(index, width)| Some((index, (*width)?)));
        kept.map(|(index, width)| width_of(index, width) + GAP).sum::<usize>().saturating_sub(GAP)
    };
    while total(&widths, &|index, _| minimum(index)) > width {
        let kept = (0..columns.len()).filter(|index| widths[*index].is_some());
        let droppable = kept.filter(|index| columns[*index].drop_rank > 0);
        match droppable.max_by_key(|index| columns[*index].drop_rank) {
            Some(index) => widths[index] = None,
            None => break,
        }
    }
    // The column that can be cut most is cut first, and columns that are never left out come last.
    while total(&widths, &|_, width| width) > width {
        let spare = |index: &usize| widths[*index].unwrap_or(0).saturating_sub(minimum(*index));
        let can_be_cut = (0..columns.len()).filter(|index| spare(index) > 0);
        match can_be_cut.max_by_key(|index| (columns[*index].drop_rank > 0, spare(index))) {
            Some(index) => widths[index] = widths[index].map(|width| width - 1),
            None => break,
        }
    }
    widths
}

impl TableCell {
    /// Cuts the cell's text to this width on the terminal.
    fn fitted(self, width: usize) -> Self {
        if self.text.width() <= width {
            return self;
        }
        let mut chars = width.min(self.text.chars().count());
        let mut text = sanitize::truncate(&self.text, chars);
        while text.width() > width && chars > 0 {
            chars -= 1;
            text = sanitize::truncate(&self.text, chars);
        }
        Self { text, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[FittedColumn] = &[
        FittedColumn { title: "RUN", width_min: 6, drop_rank: 0 },
        FittedColumn { title: "TASK", width_min: 8, drop_rank: 2 },
        FittedColumn { title: "COST", width_min: 5, drop_rank: 3 },
    ];

    fn lines(width: Option<usize>, task: &str) -> Vec<String> {
        let cells = ["7k3qv9", task, "$0.25"].map(TableCell::new).to_vec();
        fitted_lines(COLUMNS, vec![cells], width, Styler::plain())
    }

    #[test]
    fn a_table_is_cut_to_the_width_of_the_terminal() {
        let task = "Fix the leak in ticket 123";
        for (width, line) in [
            (None, "7k3qv9  Fix the leak in ticket 123  $0.25"),
            (Some(200), "7k3qv9  Fix the leak in ticket 123  $0.25"),
            (Some(40), "7k3qv9  Fix the leak in ticket 1…  $0.25"),
            (Some(24), "7k3qv9  Fix the …  $0.25"),
            (Some(20), "7k3qv9  Fix the lea…"),
            (Some(8), "7k3qv9"),
        ] {
            assert_eq!(lines(width, task)[1], line, "{width:?}");
        }
        assert_eq!(lines(Some(20), task)[0], "RUN     TASK");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for task in [
            "漢字漢字漢字漢字漢字漢字漢字漢字漢字",
            "\u{1b}[2J\u{202e}gone and more of it",
            "👨‍👩‍👧👨‍👩‍👧👨‍👩‍👧👨‍👩‍👧👨‍👩‍👧👨‍👩‍👧",
            "e\u{301}e\u{301}e\u{301}e\u{301} zzzzzzzzzzzzzzzzzz",
        ] {
            for width in 20..=60 {
                for line in lines(Some(width), task) {
                    assert!(line.width() <= width, "{width}: {line}");
                    assert!(!line.contains('\u{1b}'), "{line:?}");
                }
            }
        }
    }

    #[test]
    fn parts_are_joined_to_lines_that_fit() {
        let parts = ["one two", "three", "four"].map(str::to_owned);
        assert_eq!(join_parts(&parts, 80), ["one two   three   four"]);
        assert_eq!(join_parts(&parts, 15), ["one two   three", "four"]);
        assert_eq!(join_parts(&parts, 3), ["one two", "three", "four"]);
    }
}
