//! Puts words, breaks and marks in a row, so that no two of them stand wrong:
//! blanks are one, empty lines are one, and a mark that nothing follows is gone.
//!
//! Never: longer than its bound by more than one piece.

/// So deep lists are set in; deeper ones stand where these do.
const INDENT_MAX: usize = 12;

/// A text in the making.
#[derive(Debug, Default)]
pub(super) struct TextWriter {
    out: String,
    /// So many ends of lines are wanted before the next words.
    pending_breaks: usize,
    /// A blank is wanted before the next words.
    pending_space: bool,
    /// Where marks begin that have no words yet.
    pending_mark: Option<usize>,
    /// How far lines are set in.
    indent: usize,
}

impl TextWriter {
    pub(super) const fn len(&self) -> usize {
        self.out.len()
    }

    /// What stands after this place.
    pub(super) fn text_from(&self, at: usize) -> &str {
        self.out.get(at..).unwrap_or_default()
    }

    /// So deep in lists the next lines stand.
    pub(super) fn set_indent(&mut self, deep: usize) {
        self.indent = deep.min(INDENT_MAX);
    }

    /// Wants so many ends of lines, unless a mark waits for its words.
    pub(super) fn end_line(&mut self, breaks: usize) {
        if self.pending_mark.is_none() {
            self.pending_breaks = self.pending_breaks.max(breaks);
        }
    }

    /// Takes marks back that have no words.
    pub(super) fn remove_pending_mark(&mut self) {
        if let Some(at) = self.pending_mark.take() {
            self.out.truncate(at);
            self.pending_breaks = self.pending_breaks.max(1);
        }
    }

    pub(super) fn add_space(&mut self) {
        self.pending_space = true;
    }

    /// Words in which blanks mean nothing but themselves.
    pub(super) fn add_text(&mut self, text: &str) {
        for letter in text.chars() {
            if letter.is_whitespace() {
                self.pending_space = true;
            } else if is_visible(letter) {
                self.flush_pending(self.indent);
                self.pending_mark = None;
                self.out.push(letter);
            }
        }
    }

    /// Words as they stand.
    pub(super) fn add_verbatim(&mut self, text: &str) {
        self.flush_pending(self.indent);
        self.pending_mark = None;
        let keeps = |letter: &char| matches!(letter, '\n' | '\t') || is_visible(*letter);
        self.out.extend(text.chars().filter(keeps));
    }

    /// A mark before words to come, and where it stands.
    pub(super) fn add_mark(&mut self, mark: &str) -> usize {
        self.flush_pending(self.indent);
        let at = self.out.len();
        self.pending_mark.get_or_insert(at);
        self.out.push_str(mark);
        at
    }

    /// A mark at the beginning of a point in a list.
    pub(super) fn add_list_mark(&mut self, mark: &str) {
        self.remove_pending_mark();
        self.end_line(1);
        self.flush_pending(self.indent.saturating_sub(1));
        self.pending_mark.get_or_insert(self.out.len());
        self.out.push_str(mark);
    }

    /// A sign that belongs to the words before it.
    pub(super) fn append_sign(&mut self, sign: &str) {
        self.pending_mark = None;
        self.out.push_str(sign);
    }

    /// A sign on its own that counts as words.
    pub(super) fn add_sign(&mut self, sign: &str) {
        self.flush_pending(self.indent);
        self.append_sign(sign);
    }

    /// Parts two cells of a row.
    pub(super) fn add_cell_separator(&mut self) {
        self.pending_mark = None;
        self.pending_breaks = 0;
        self.pending_space = false;
        self.out.truncate(self.out.trim_end_matches(' ').len());
        self.out.push_str(" | ");
    }

    /// Begins a line now, even if nothing follows.
    pub(super) fn begin_line(&mut self) {
        self.remove_pending_mark();
        self.end_line(1);
        self.flush_pending(self.indent);
    }

    /// Takes back what stands after this place.
    pub(super) fn truncate(&mut self, at: usize) {
        self.out.truncate(at);
        self.pending_mark = self.pending_mark.filter(|fresh| *fresh < at);
    }

    /// Takes back one letter of one byte at this place.
    pub(super) fn remove_char(&mut self, at: usize) {
        if self.out.is_char_boundary(at) && self.out.is_char_boundary(at + 1) {
            self.out.remove(at);
        }
    }

    pub(super) fn finish(mut self) -> String {
        self.remove_pending_mark();
        self.out.truncate(self.out.trim_end().len());
        self.out
    }

    fn flush_pending(&mut self, deep: usize) {
        let breaks = std::mem::take(&mut self.pending_breaks);
        let blank = std::mem::take(&mut self.pending_space);
        if self.out.is_empty() {
            return;
        }
        if breaks > 0 {
            let end = self.out.trim_end_matches([' ', '\n']).len();
            let room = end.min(self.out.len());
            self.out.truncate(room);
            for _ in 0..breaks {
                self.out.push('\n');
            }
            for _ in 0..deep {
                self.out.push_str("  ");
            }
        } else if blank && self.pending_mark.is_none() && !self.out.ends_with([' ', '\n']) {
            self.out.push(' ');
        }
    }
}

/// Whether a person would see this letter. What people can't see is not meant for
/// them, and so not shown to a model either.
fn is_visible(letter: char) -> bool {
    !letter.is_control()
        && !matches!(letter,
            '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}
