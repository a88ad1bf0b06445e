//! Builds a text from words, line breaks and marks such as `# ` or `- `. Repeated spaces and empty
//! lines are merged, and a mark without text after it is removed.
//!
//! Invariant: invisible text is left out. It is not meant for people, so it is not shown to a model
//! either.

use longhaul_core::sanitize::is_invisible;

/// Maximum indentation of nested lists, in levels.
const INDENT_MAX: usize = 12;

/// Text of a page while it is being built.
#[derive(Debug, Default)]
pub(super) struct TextWriter {
    out: String,
    /// Number of line breaks to write before the next text.
    pending_breaks: usize,
    /// Whether to write a space before the next text.
    pending_space: bool,
    /// Start position of marks, such as `# ` or `- `, that have no text after them yet. `None`
    /// means that there are no such marks.
    pending_mark: Option<usize>,
    /// Indentation of new lines, in list levels.
    indent: usize,
}

impl TextWriter {
    pub(super) const fn len(&self) -> usize {
        self.out.len()
    }

    pub(super) fn text_from_byte(&self, start: usize) -> &str {
        self.out.get(start..).unwrap_or_default()
    }

    /// Sets the indentation of the next lines, in list levels.
    pub(super) fn set_indent(&mut self, list_level: usize) {
        self.indent = list_level.min(INDENT_MAX);
    }

    /// Requests line breaks before the next text, unless a mark such as `- ` waits for its text.
    pub(super) fn require_line_breaks(&mut self, breaks: usize) {
        if self.pending_mark.is_none() {
            self.pending_breaks = self.pending_breaks.max(breaks);
        }
    }

    /// Removes marks, such as `# ` or `- `, that have no text after them.
    pub(super) fn drop_empty_mark(&mut self) {
        if let Some(at) = self.pending_mark.take() {
            self.out.truncate(at);
            self.pending_breaks = self.pending_breaks.max(1);
        }
    }

    pub(super) fn request_space(&mut self) {
        self.pending_space = true;
    }

    /// Adds text, merging its whitespace into single spaces.
    pub(super) fn add_text(&mut self, text: &str) {
        for c in text.chars() {
            if c.is_whitespace() {
                self.pending_space = true;
            } else if !is_invisible(c) {
                self.flush_pending_whitespace(self.indent);
                self.pending_mark = None;
                self.out.push(c);
            }
        }
    }

    /// Adds text without changing its whitespace.
    pub(super) fn add_verbatim_text(&mut self, text: &str) {
        self.flush_pending_whitespace(self.indent);
        self.pending_mark = None;
        let is_kept = |c: &char| matches!(c, '\n' | '\t') || !is_invisible(*c);
        self.out.extend(text.chars().filter(is_kept));
    }

    /// Adds a mark, such as `# `, before the next text. Returns the position of the mark.
    pub(super) fn add_markdown_mark(&mut self, mark: &str) -> usize {
        self.flush_pending_whitespace(self.indent);
        let at = self.out.len();
        self.pending_mark.get_or_insert(at);
        self.out.push_str(mark);
        at
    }

    /// Adds the mark of a list item, such as `- `.
    pub(super) fn add_list_item_mark(&mut self, mark: &str) {
        self.drop_empty_mark();
        self.require_line_breaks(1);
        self.flush_pending_whitespace(self.indent.saturating_sub(1));
        self.pending_mark.get_or_insert(self.out.len());
        self.out.push_str(mark);
    }

    /// Appends markup, such as a closing backtick, directly after the text before it.
    pub(super) fn close_markup(&mut self, markup: &str) {
        self.pending_mark = None;
        self.out.push_str(markup);
    }

    /// Adds markup that is kept even if no text follows, such as `---`.
    pub(super) fn add_markup(&mut self, markup: &str) {
        self.flush_pending_whitespace(self.indent);
        self.close_markup(markup);
    }

    /// Adds the separator between two cells of a table row.
    pub(super) fn add_cell_separator(&mut self) {
        self.pending_mark = None;
        self.pending_breaks = 0;
        self.pending_space = false;
        self.out.truncate(self.out.trim_end_matches(' ').len());
        self.out.push_str(" | ");
    }

    /// Starts a line now, even if it stays empty.
    pub(super) fn begin_line(&mut self) {
        self.drop_empty_mark();
        self.require_line_breaks(1);
        self.flush_pending_whitespace(self.indent);
    }

    /// Removes the text from byte `start_byte` on.
    pub(super) fn truncate(&mut self, start_byte: usize) {
        self.out.truncate(start_byte);
        self.pending_mark = self.pending_mark.filter(|position| *position < start_byte);
    }

    pub(super) fn into_written_text(mut self) -> String {
        self.drop_empty_mark();
        self.out.truncate(self.out.trim_end().len());
        self.out
    }

    fn flush_pending_whitespace(&mut self, indent_level: usize) {
        let breaks = std::mem::take(&mut self.pending_breaks);
        let has_space = std::mem::take(&mut self.pending_space);
        if self.out.is_empty() {
            return;
        }
        if breaks > 0 {
            let end = self.out.trim_end_matches([' ', '\n']).len();
            let new_len = end.min(self.out.len());
            self.out.truncate(new_len);
            for _ in 0..breaks {
                self.out.push('\n');
            }
            for _ in 0..indent_level {
                self.out.push_str("  ");
            }
        } else if has_space && self.pending_mark.is_none() && !self.out.ends_with([' ', '\n']) {
            self.out.push(' ');
        }
    }
}
