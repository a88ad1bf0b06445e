//! Notes: kept under their writer's key, found again by their words.
//!
//! Never: another order than a store on disk has. What fits is weighed by the same
//! formula, Okapi BM25 over all notes of the store.

use std::cmp::Ordering;

use longhaul_core::id::{NoteId, ResourceKey};
use longhaul_core::note::{
    NOTES_MAX, NewNote, Note, NoteOutcome, is_combining_mark, query_words, separate_unspaced,
};

use crate::mem_store::rows::{StoredNote, Tables};
use crate::mem_store::tx::Tx;

/// How soon more of the same word counts for less.
const K1: f64 = 1.2;
/// How much a long note counts for less.
const B: f64 = 0.75;
/// What a word that stands nearly everywhere still counts.
const COMMON_WORD_IDF: f64 = 1e-6;

impl Tx<'_> {
    /// Keeps a note, unless its key is known or there are too many.
    pub(crate) fn add_note(&mut self, resource: &ResourceKey, note: &NewNote) -> NoteOutcome {
        let mut count = 0;
        for (_, kept) in self.tables.notes_of(resource) {
            if kept.key == note.key() {
                return NoteOutcome::Existing(kept.note.id);
            }
            count += 1;
        }
        if count >= NOTES_MAX {
            return NoteOutcome::Full;
        }
        let kept = note.to_note(resource, self.now);
        let id = kept.id;
        let row = StoredNote { key: note.key().to_owned(), note: kept };
        let place = self.tables.next_row_id();
        self.tables.notes.insert((resource.clone(), place), row);
        NoteOutcome::Stored(id)
    }
}

impl Tables {
    fn notes_of(
        &self,
        resource: &ResourceKey,
    ) -> impl DoubleEndedIterator<Item = (&(ResourceKey, u64), &StoredNote)> {
        let places = (resource.clone(), 0)..=(resource.clone(), u64::MAX);
        self.notes.range(places)
    }

    /// The notes of a resource, the newest first, after one of them.
    pub(crate) fn notes_after(
        &self,
        resource: &ResourceKey,
        after: Option<NoteId>,
        limit: usize,
    ) -> Vec<Note> {
        let newest = self.notes_of(resource).rev().map(|(_, kept)| &kept.note);
        let known = after.is_none();
        let mut passed = known;
        let rest = newest.filter(|note| {
            let is_after = passed;
            passed |= Some(note.id) == after;
            is_after
        });
        rest.take(limit).cloned().collect()
    }

    /// The notes that fit a query, the best first; without a word in it the newest.
    pub(crate) fn search_notes(
        &self,
        resource: &ResourceKey,
        query: &str,
        limit: usize,
    ) -> Vec<Note> {
        let wanted: Vec<Vec<String>> = query_words(query).iter().map(|word| tokens(word)).collect();
        if wanted.is_empty() {
            return self.notes_after(resource, None, limit);
        }
        let all: Vec<(&(ResourceKey, u64), &StoredNote)> = self.notes.iter().collect();
        let texts: Vec<NoteTokens> =
            all.iter().map(|(_, kept)| NoteTokens::from_note(&kept.note)).collect();
        let scale = Bm25::from_notes(&texts, &wanted);
        let fits = all.iter().zip(&texts).filter(|((key, _), text)| {
            key.0 == *resource && wanted.iter().any(|phrase| text.count(phrase) > 0)
        });
        let mut fits: Vec<(f64, u64, &Note)> = fits
            .map(|((key, kept), text)| (scale.score(text, &wanted), key.1, &kept.note))
            .collect();
        fits.sort_by(|one, other| {
            let best = other.0.partial_cmp(&one.0).unwrap_or(Ordering::Equal);
            best.then(other.1.cmp(&one.1))
        });
        let best = fits.into_iter().take(limit);
        best.map(|(_, _, note)| note.clone()).collect()
    }
}

/// The words of a note, in the two columns that are looked at.
#[derive(Debug)]
struct NoteTokens {
    columns: [Vec<String>; 2],
}

impl NoteTokens {
    fn from_note(note: &Note) -> Self {
        let tags = note.tags.join(" ");
        Self {
            columns: [tokens(&separate_unspaced(&note.text)), tokens(&separate_unspaced(&tags))],
        }
    }

    /// How often a phrase stands in it.
    fn count(&self, phrase: &[String]) -> usize {
        if phrase.is_empty() {
            return 0;
        }
        let columns = self.columns.iter();
        let hits = columns.map(|words| words.windows(phrase.len()).filter(|at| *at == phrase));
        hits.map(Iterator::count).sum()
    }

    /// How long it is, with the one word for its resource.
    fn length(&self) -> usize {
        1 + self.columns.iter().map(Vec::len).sum::<usize>()
    }
}

/// What the whole store says about words.
#[derive(Debug)]
struct Bm25 {
    /// What each phrase counts: the rarer, the more.
    idf: Vec<f64>,
    /// How long a note is on average.
    average_length: f64,
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of words and notes are far below the bound of a float"
)]
impl Bm25 {
    fn from_notes(texts: &[NoteTokens], wanted: &[Vec<String>]) -> Self {
        let notes = texts.len() as f64;
        let lengths: usize = texts.iter().map(NoteTokens::length).sum();
        let rarity = wanted.iter().map(|phrase| {
            let hits = texts.iter().filter(|text| text.count(phrase) > 0).count() as f64;
            let weight = ((notes - hits + 0.5) / (hits + 0.5)).ln();
            if weight > 0.0 { weight } else { COMMON_WORD_IDF }
        });
        Self { idf: rarity.collect(), average_length: lengths as f64 / notes }
    }

    fn score(&self, text: &NoteTokens, wanted: &[Vec<String>]) -> f64 {
        let long = K1 * (1.0 - B + B * text.length() as f64 / self.average_length);
        let parts = wanted.iter().zip(&self.idf).map(|(phrase, rarity)| {
            let count = text.count(phrase) as f64;
            rarity * (count * (K1 + 1.0)) / (count + long)
        });
        parts.sum()
    }
}

/// A text as words in lower case and without marks on their letters.
fn tokens(text: &str) -> Vec<String> {
    let inside = |letter: char| letter.is_alphanumeric() || is_combining_mark(letter);
    let words = text.split(|letter| !inside(letter));
    let words = words.filter(|word| !word.is_empty()).map(|word| {
        let plain = word.chars().filter(|letter| !is_combining_mark(*letter));
        plain.flat_map(char::to_lowercase).map(strip_accent).collect::<String>()
    });
    words.filter(|word| !word.is_empty()).collect()
}

/// A letter without its mark, as far as European languages go.
const fn strip_accent(letter: char) -> char {
    match letter {
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
