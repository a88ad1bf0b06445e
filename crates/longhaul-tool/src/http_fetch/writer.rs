//! Puts words, breaks and marks in a row, so that no two of them stand wrong:
//! blanks are one, empty lines are one, and a mark that nothing follows is gone.
//!
//! Never: longer than its bound by more than one piece.

/// So deep lists are set in; deeper ones stand where these do.
const DEEP: usize = 12;

/// A text in the making.
#[derive(Debug, Default)]
pub(super) struct Writer {
    out: String,
    /// So many ends of lines are wanted before the next words.
    breaks: usize,
    /// A blank is wanted before the next words.
    blank: bool,
    /// Where marks begin that have no words yet.
    fresh: Option<usize>,
    /// How far lines are set in.
    deep: usize,
}

impl Writer {
    pub(super) const fn len(&self) -> usize {
        self.out.len()
    }

    /// What stands after this place.
    pub(super) fn since(&self, at: usize) -> &str {
        self.out.get(at..).unwrap_or_default()
    }

    /// So deep in lists the next lines stand.
    pub(super) fn set_in(&mut self, deep: usize) {
        self.deep = deep.min(DEEP);
    }

    /// Wants so many ends of lines, unless a mark waits for its words.
    pub(super) fn end_line(&mut self, breaks: usize) {
        if self.fresh.is_none() {
            self.breaks = self.breaks.max(breaks);
        }
    }

    /// Takes marks back that have no words.
    pub(super) fn take_back(&mut self) {
        if let Some(at) = self.fresh.take() {
            self.out.truncate(at);
            self.breaks = self.breaks.max(1);
        }
    }

    pub(super) fn blank(&mut self) {
        self.blank = true;
    }

    /// Words in which blanks mean nothing but themselves.
    pub(super) fn words(&mut self, text: &str) {
        for letter in text.chars() {
            if letter.is_whitespace() {
                self.blank = true;
            } else if is_visible(letter) {
                self.settle(self.deep);
                self.fresh = None;
                self.out.push(letter);
            }
        }
    }

    /// Words as they stand.
    pub(super) fn verbatim(&mut self, text: &str) {
        self.settle(self.deep);
        self.fresh = None;
        let keeps = |letter: &char| matches!(letter, '\n' | '\t') || is_visible(*letter);
        self.out.extend(text.chars().filter(keeps));
    }

    /// A mark before words to come, and where it stands.
    pub(super) fn mark(&mut self, mark: &str) -> usize {
        self.settle(self.deep);
        let at = self.out.len();
        self.fresh.get_or_insert(at);
        self.out.push_str(mark);
        at
    }

    /// A mark at the beginning of a point in a list.
    pub(super) fn point(&mut self, mark: &str) {
        self.take_back();
        self.end_line(1);
        self.settle(self.deep.saturating_sub(1));
        self.fresh.get_or_insert(self.out.len());
        self.out.push_str(mark);
    }

    /// A sign that belongs to the words before it.
    pub(super) fn close(&mut self, sign: &str) {
        self.fresh = None;
        self.out.push_str(sign);
    }

    /// A sign on its own that counts as words.
    pub(super) fn sign(&mut self, sign: &str) {
        self.settle(self.deep);
        self.close(sign);
    }

    /// Parts two cells of a row.
    pub(super) fn part(&mut self) {
        self.fresh = None;
        self.breaks = 0;
        self.blank = false;
        self.out.truncate(self.out.trim_end_matches(' ').len());
        self.out.push_str(" | ");
    }

    /// Begins a line now, even if nothing follows.
    pub(super) fn begin_line(&mut self) {
        self.take_back();
        self.end_line(1);
        self.settle(self.deep);
    }

    /// Takes back what stands after this place.
    pub(super) fn cut(&mut self, at: usize) {
        self.out.truncate(at);
        self.fresh = self.fresh.filter(|fresh| *fresh < at);
    }

    /// Takes back one letter of one byte at this place.
    pub(super) fn unmark(&mut self, at: usize) {
        if self.out.is_char_boundary(at) && self.out.is_char_boundary(at + 1) {
            self.out.remove(at);
        }
    }

    pub(super) fn finish(mut self) -> String {
        self.take_back();
        self.out.truncate(self.out.trim_end().len());
        self.out
    }

    fn settle(&mut self, deep: usize) {
        let breaks = std::mem::take(&mut self.breaks);
        let blank = std::mem::take(&mut self.blank);
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
        } else if blank && self.fresh.is_none() && !self.out.ends_with([' ', '\n']) {
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
