//! Notes: stored under the writer's key and searched by words. Matches are ranked by Okapi BM25
//! over all notes, with the same formula as the store on disk.

use std::cmp::Ordering;

use longhaul_core::id::{NoteId, ResourceKey};
use longhaul_core::note::{
    AddNoteOutcome, MemoryNote, NOTES_MAX, NewMemoryNote, insert_spaces_in_unspaced_scripts,
    is_combining_mark, query_words,
};

use crate::mem_store::rows::{StoredNote, Tables};
use crate::mem_store::tx::Tx;

/// BM25 parameter for the saturation of repeated words.
const K1: f64 = 1.2;
/// BM25 parameter for the penalty of long notes.
const B: f64 = 0.75;
/// Minimum weight of a very common word.
const COMMON_WORD_IDF: f64 = 1e-6;

impl Tx<'_> {
    /// Adds a note, unless its key exists or the limit is reached.
    pub(crate) fn add_note(
        &mut self,
        resource: &ResourceKey,
        note: &NewMemoryNote,
    ) -> AddNoteOutcome {
        let mut count = 0;
        for (_, stored) in self.tables.notes_of(resource) {
            if stored.key == note.note_key() {
                return AddNoteOutcome::Existing(stored.note.id);
            }
            count += 1;
        }
        if count >= NOTES_MAX {
            return AddNoteOutcome::Full;
        }
        let stored = note.to_stored_note(resource, self.now);
        let id = stored.id;
        let row = StoredNote { key: note.note_key().to_owned(), note: stored };
        let row_id = self.tables.next_row_id();
        self.tables.notes.insert((resource.clone(), row_id), row);
        AddNoteOutcome::Stored(id)
    }
}

impl Tables {
    fn notes_of(
        &self,
        resource: &ResourceKey,
    ) -> impl DoubleEndedIterator<Item = (&(ResourceKey, u64), &StoredNote)> {
        let range = (resource.clone(), 0)..=(resource.clone(), u64::MAX);
        self.notes.range(range)
    }

    /// Returns the notes of a resource after `after`, newest first.
    pub(crate) fn notes_after(
        &self,
        resource: &ResourceKey,
        after: Option<NoteId>,
        limit: usize,
    ) -> Vec<MemoryNote> {
        let newest = self.notes_of(resource).rev().map(|(_, stored)| &stored.note);
        let from_start = after.is_none();
        let mut is_past_cursor = from_start;
        let remaining = newest.filter(|note| {
            let is_after = is_past_cursor;
            is_past_cursor |= Some(note.id) == after;
            is_after
        });
        remaining.take(limit).cloned().collect()
    }

    /// Returns the notes that match a query, best first. A query without words returns the
    /// newest notes.
    pub(crate) fn search_notes(
        &self,
        resource: &ResourceKey,
        query: &str,
        limit: usize,
    ) -> Vec<MemoryNote> {
        let phrases: Vec<Vec<String>> =
            query_words(query).iter().map(|word| tokens(word)).collect();
        if phrases.is_empty() {
            return self.notes_after(resource, None, limit);
        }
        let all: Vec<(&(ResourceKey, u64), &StoredNote)> = self.notes.iter().collect();
        let texts: Vec<NoteTokens> =
            all.iter().map(|(_, stored)| NoteTokens::from_note(&stored.note)).collect();
        let bm25 = Bm25::from_notes(&texts, &phrases);
        let matches = all.iter().zip(&texts).filter(|((key, _), text)| {
            key.0 == *resource && phrases.iter().any(|phrase| text.count(phrase) > 0)
        });
        let mut matches: Vec<(f64, u64, &MemoryNote)> = matches
            .map(|((key, stored), text)| (bm25.score(text, &phrases), key.1, &stored.note))
            .collect();
        matches.sort_by(|one, other| {
            let ordering = other.0.partial_cmp(&one.0).unwrap_or(Ordering::Equal);
            ordering.then(other.1.cmp(&one.1))
        });
        let best = matches.into_iter().take(limit);
        best.map(|(_, _, note)| note.clone()).collect()
    }
}

/// Words of a note, in the two searched columns.
#[derive(Debug)]
struct NoteTokens {
    columns: [Vec<String>; 2],
}

impl NoteTokens {
    fn from_note(note: &MemoryNote) -> Self {
        let tags = note.tags.join(" ");
        Self {
            columns: [
                tokens(&insert_spaces_in_unspaced_scripts(&note.text)),
                tokens(&insert_spaces_in_unspaced_scripts(&tags)),
            ],
        }
    }

    /// Returns how often a phrase occurs.
    fn count(&self, phrase: &[String]) -> usize {
        if phrase.is_empty() {
            return 0;
        }
        let columns = self.columns.iter();
        let hits = columns.map(|tokens| tokens.windows(phrase.len()).filter(|at| *at == phrase));
        hits.map(Iterator::count).sum()
    }

    /// Returns the length in words, including one word for the resource.
    fn length(&self) -> usize {
        1 + self.columns.iter().map(Vec::len).sum::<usize>()
    }
}

/// Statistics of all notes in the store.
#[derive(Debug)]
struct Bm25 {
    /// Weight of each phrase; rarer phrases weigh more.
    idf: Vec<f64>,
    average_length: f64,
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of words and notes are exactly representable as floats"
)]
impl Bm25 {
    fn from_notes(texts: &[NoteTokens], phrases: &[Vec<String>]) -> Self {
        let note_count = texts.len() as f64;
        let total_length: usize = texts.iter().map(NoteTokens::length).sum();
        let idf = phrases.iter().map(|phrase| {
            let hits = texts.iter().filter(|text| text.count(phrase) > 0).count() as f64;
            let weight = ((note_count - hits + 0.5) / (hits + 0.5)).ln();
            if weight > 0.0 { weight } else { COMMON_WORD_IDF }
        });
        Self { idf: idf.collect(), average_length: total_length as f64 / note_count }
    }

    fn score(&self, text: &NoteTokens, phrases: &[Vec<String>]) -> f64 {
        let long = K1 * (1.0 - B + B * text.length() as f64 / self.average_length);
        let parts = phrases.iter().zip(&self.idf).map(|(phrase, idf)| {
            let count = text.count(phrase) as f64;
            idf * (count * (K1 + 1.0)) / (count + long)
        });
        parts.sum()
    }
}

/// Splits a text into words in lower case and without accents.
fn tokens(text: &str) -> Vec<String> {
    let is_word_char = |c: char| c.is_alphanumeric() || is_combining_mark(c);
    let words = text.split(|c| !is_word_char(c));
    let words = words.filter(|word| !word.is_empty()).map(|word| {
        let base_chars = word.chars().filter(|c| !is_combining_mark(*c));
        base_chars.flat_map(char::to_lowercase).map(strip_accent).collect::<String>()
    });
    words.filter(|word| !word.is_empty()).collect()
}

/// Returns a character without its accent, for European languages.
const fn strip_accent(c: char) -> char {
    match c {
        'à'..='å' | 'ā' | 'ă' | 'ą' => 'a',
        'ç' | 'ć' | 'ĉ' | 'ċ' | 'č' => 'c',
        'ď' => 'd',
        'è'..='ë' | 'ē' | 'ĕ' | 'ė' | 'ę' | 'ě' => 'e',
        'ĝ' | 'ğ' | 'ġ' | 'ģ' => 'g',
        'ì'..='ï' | 'ĩ' | 'ī' | 'ĭ' | 'į' => 'i',
        'ñ' | 'ń' | 'ņ' | 'ň' => 'n',
        'ò'..='ö' | 'ō' | 'ŏ' | 'ő' => 'o',
        'ŕ' | 'ŗ' | 'ř' => 'r',
        'ś' | 'ŝ' | 'ş' | 'š' => 's',
        'ţ' | 'ť' => 't',
        'ù'..='ü' | 'ũ' | 'ū' | 'ŭ' | 'ů' | 'ű' | 'ų' => 'u',
        'ý' | 'ÿ' => 'y',
        'ź' | 'ż' | 'ž' => 'z',
        other => other,
    }
}
