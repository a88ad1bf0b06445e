//! Notes that agents store about a resource (a person or thing), and the word search over them.
//!
//! Search queries have no syntax: a query is split into words.

use crate::id::{NoteId, ResourceKey, RunId};
use crate::raw::Hash;
use crate::time::Timestamp;

/// Maximum length of a note in bytes.
pub const NOTE_BYTES_MAX: usize = 16 * 1_024;
/// Maximum number of tags per note.
pub const NOTE_TAGS_MAX: usize = 32;
/// Maximum length of a tag in bytes.
pub const NOTE_TAG_BYTES_MAX: usize = 128;
/// Maximum number of notes per resource (person or thing that notes are about). Further notes are
/// rejected: only people delete notes, and none is deleted to make room.
pub const NOTES_MAX: u64 = 10_000;
/// Maximum number of words that are searched for in one query.
const QUERY_WORDS_MAX: usize = 32;
/// Maximum length of a search word in characters.
const WORD_CHARS_MAX: usize = 64;

/// A validated note that is not stored yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMemoryNote {
    key: String,
    text: String,
    tags: Vec<String>,
    run: Option<RunId>,
}

impl NewMemoryNote {
    /// Creates a note after checking its text and tags. The author chooses the key; notes with the
    /// same key count as the same note.
    pub fn new(
        key: impl Into<String>,
        text: impl Into<String>,
        tags: Vec<String>,
        run: Option<RunId>,
    ) -> Result<Self, String> {
        let text = text.into();
        let tags: Vec<String> = tags.iter().map(|tag| tag.trim().to_owned()).collect();
        if text.trim().is_empty() {
            return Err("a note must not be empty".to_owned());
        }
        if text.len() > NOTE_BYTES_MAX {
            return Err(format!(
                "a note may have at most {NOTE_BYTES_MAX} bytes, but this one has {}: shorten it, or \
                 split it into several notes",
                text.len()
            ));
        }
        if tags.len() > NOTE_TAGS_MAX {
            let tags = tags.len();
            return Err(format!(
                "a note may have at most {NOTE_TAGS_MAX} tags, but this one has {tags}: remove some"
            ));
        }
        let is_invalid = |tag: &String| {
            tag.is_empty() || tag.len() > NOTE_TAG_BYTES_MAX || tag.chars().any(char::is_control)
        };
        if tags.iter().any(is_invalid) {
            return Err(format!(
                "a tag must have 1 to {NOTE_TAG_BYTES_MAX} bytes and no control characters"
            ));
        }
        let key = key.into();
        Ok(Self { key, text, tags, run })
    }

    /// Returns the key of the note, which its author chose.
    pub fn note_key(&self) -> &str {
        &self.key
    }

    /// Returns the note as it is stored: with an id and the time.
    pub fn to_stored_note(&self, resource: &ResourceKey, now: Timestamp) -> MemoryNote {
        let hash = Hash::digest(resource.as_str().as_bytes());
        let parent = hash.bytes().iter().take(16);
        let parent = parent.fold(0_u128, |bits, byte| bits << 8 | u128::from(*byte));
        MemoryNote {
            id: NoteId::derive(parent, &self.key, now),
            text: self.text.clone(),
            tags: self.tags.clone(),
            run: self.run,
            at: now,
        }
    }
}

/// A note as stored, with its id and time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryNote {
    pub id: NoteId,
    pub text: String,
    pub tags: Vec<String>,
    /// Run that wrote the note. `None` if no run wrote it.
    pub run: Option<RunId>,
    /// Time at which the note was written.
    pub at: Timestamp,
}

/// Outcome of storing a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddNoteOutcome {
    /// The note was stored under this id.
    Stored(NoteId),
    /// The note was not stored, because this note with the same key already exists.
    Existing(NoteId),
    /// The note was not stored, because the resource (person or thing that notes are about) has the
    /// maximum number of notes.
    Full,
}

/// Puts spaces around every character of a script that writes no spaces between words, so that a
/// full-text index treats each such character as a word.
pub fn insert_spaces_in_unspaced_scripts(text: &str) -> String {
    let mut separated = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unspaced_script(c) {
            separated.extend([' ', c, ' ']);
        } else {
            separated.push(c);
        }
    }
    separated
}

/// Splits a search query into distinct words. Consecutive characters of a script that writes no
/// spaces between words become one phrase: the characters separated by spaces.
pub fn query_words(query: &str) -> Vec<String> {
    let chars: Vec<char> = query.chars().collect();
    let mut words: Vec<String> = Vec::new();
    for run in chars.chunk_by(|one, next| char_class(*one) == char_class(*next)) {
        let chars = run.iter().take(WORD_CHARS_MAX);
        let word: String = match char_class(run[0]) {
            CharClass::Separator => continue,
            CharClass::Spaced => chars.collect(),
            CharClass::Unspaced => chars.map(char::to_string).collect::<Vec<_>>().join(" "),
        };
        if !words.contains(&word) {
            words.push(word);
        }
        if words.len() == QUERY_WORDS_MAX {
            break;
        }
    }
    words
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CharClass {
    Separator,
    Spaced,
    Unspaced,
}

fn char_class(c: char) -> CharClass {
    match c {
        _ if is_unspaced_script(c) => CharClass::Unspaced,
        _ if c.is_alphanumeric() || is_combining_mark(c) => CharClass::Spaced,
        _ => CharClass::Separator,
    }
}

/// Returns whether a character belongs to a script that puts no spaces between words, or
/// attaches endings to words.
pub fn is_unspaced_script(c: char) -> bool {
    matches!(c,
        '\u{0e00}'..='\u{0eff}'      // Thai, Lao
        | '\u{1000}'..='\u{109f}'    // Burmese
        | '\u{1780}'..='\u{17ff}'    // Khmer
        | '\u{3005}'..='\u{3007}'
        | '\u{3040}'..='\u{30ff}'    // Hiragana, Katakana
        | '\u{3100}'..='\u{312f}'    // Bopomofo
        | '\u{31f0}'..='\u{31ff}'
        | '\u{3400}'..='\u{4dbf}'    // Han
        | '\u{4e00}'..='\u{9fff}'
        | '\u{ac00}'..='\u{d7a3}'    // Hangul
        | '\u{f900}'..='\u{faff}'
        | '\u{ff66}'..='\u{ff9f}'    // half-width Katakana
        | '\u{20000}'..='\u{3ffff}'
    ) && (c.is_alphanumeric() || c == '\u{30fc}')
}

/// Returns whether a character is a combining mark of the character before it.
pub const fn is_combining_mark(c: char) -> bool {
    matches!(c, '\u{0300}'..='\u{036f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_split_into_plain_words() {
        let check =
            |query: &str, expect: &[&str]| assert_eq!(query_words(query), expect, "{query}");
        check("", &[]);
        check(" \t\n*\"'():^-+{}💥", &[]);
        check("deploy key", &["deploy", "key"]);
        check("key key KEY", &["key", "KEY"]);
        check(
            "\"NEAR(a b, 2)\" OR text:* AND NOT ^x",
            &["NEAR", "a", "b", "2", "OR", "text", "AND", "NOT", "x"],
        );
        check("Zu\u{308}rich", &["Zu\u{308}rich"]);
        check("東京タワー", &["東 京 タ ワ ー"]);
        check("Rust と東京!", &["Rust", "と 東 京"]);
        check("v2東京", &["v2", "東 京"]);
        check(&"x".repeat(500), &[&"x".repeat(64)]);
        let many: Vec<String> = (0..100).map(|number| number.to_string()).collect();
        assert_eq!(query_words(&many.join(" ")), many[..32]);
    }

    #[test]
    fn characters_of_unspaced_scripts_are_separated() {
        assert_eq!(insert_spaces_in_unspaced_scripts("in 東京, v2"), "in  東  京 , v2");
        assert_eq!(insert_spaces_in_unspaced_scripts("plain"), "plain");
    }

    #[test]
    fn the_size_of_a_note_is_limited() {
        let note = |text: &str, tags: &[&str]| {
            let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
            NewMemoryNote::new("k", text, tags, None).map(drop)
        };
        assert_eq!(note("x", &["a", " b "]), Ok(()));
        let is_refused = |note: Result<(), String>, reason: &str| {
            let error = note.unwrap_err();
            assert!(error.contains(reason), "{error}");
        };
        is_refused(note(" \n", &[]), "must not be empty");
        assert_eq!(note(&"x".repeat(NOTE_BYTES_MAX), &[]), Ok(()));
        let bytes = NOTE_BYTES_MAX + 1;
        is_refused(note(&"x".repeat(bytes), &[]), &format!("has {bytes}: shorten it"));
        is_refused(note("x", &["a"; 33]), "this one has 33: remove some");
        for tag in ["", "  ", "a\nb", &"x".repeat(129)] {
            is_refused(note("x", &[tag]), "a tag must have");
        }
    }
}
