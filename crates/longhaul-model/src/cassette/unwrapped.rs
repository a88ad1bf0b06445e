//! A text as if its lines were one, to find what they cut in pieces, and what has only
//! begun at its end.
//!
//! Never: changes the text; it says where in it something stands.

use std::ops::Range;

/// So many bytes at the end of this text are the beginning of that one.
pub(super) fn begun(text: &str, spelled: &str) -> Option<usize> {
    let ends = spelled.char_indices().map(|(end, _)| end);
    let ends = ends.take_while(|end| *end <= text.len());
    ends.filter(|end| text.ends_with(&spelled[..*end])).last()
}

/// A text without the ends of its lines.
pub(super) struct Unwrapped {
    text: String,
    /// Where the lines were cut: at this place of the text so many bytes are left out.
    cuts: Vec<(usize, usize)>,
}

impl Unwrapped {
    pub(super) fn of(text: &str) -> Self {
        let mut whole = String::with_capacity(text.len());
        let mut cuts = Vec::new();
        for (at, ends) in text.match_indices(['\n', '\r']) {
            let before = cuts.last().map_or(0, |(_, left_out)| *left_out);
            whole.push_str(&text[whole.len() + before..at]);
            cuts.push((whole.len(), before + ends.len()));
        }
        let before = cuts.last().map_or(0, |(_, left_out)| *left_out);
        whole.push_str(&text[whole.len() + before..]);
        Self { text: whole, cuts }
    }

    /// Whether this stands in it; a text of one line is left to others.
    pub(super) fn has(&self, spelled: &str) -> bool {
        !self.cuts.is_empty() && self.text.contains(spelled)
    }

    /// Where in the text this stands, the ends of lines in its midst included.
    pub(super) fn places(&self, spelled: &str) -> Vec<Range<usize>> {
        let found = self.text.match_indices(spelled).map(|(start, found)| {
            let last = start + found.len().saturating_sub(1);
            start + self.left_out(start)..last + self.left_out(last) + 1
        });
        found.collect()
    }

    /// So many bytes at the end of the text, the ends of lines among them, may be the
    /// beginning of this; a text of one line is left to others.
    pub(super) fn begun(&self, spelled: &str) -> Option<usize> {
        let last = self.cuts.last().map(|(_, left_out)| *left_out)?;
        let bytes = begun(&self.text, spelled).filter(|bytes| *bytes > 0)?;
        let start = self.text.len() - bytes;
        Some(bytes + last - self.left_out(start))
    }

    /// How many bytes are left out before this place.
    fn left_out(&self, at: usize) -> usize {
        let cuts = self.cuts.partition_point(|(cut, _)| *cut <= at);
        cuts.checked_sub(1).map_or(0, |last| self.cuts[last].1)
    }
}
