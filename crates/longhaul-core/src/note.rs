//! Notes: what agents write down about a resource to find it again, and the words
//! by which it is found.
//!
//! Never: a query's syntax. Whatever a model asks for is taken apart into words.

use crate::id::{NoteId, ResourceKey, RunId};
use crate::raw::Hash;
use crate::time::Timestamp;

/// The longest note, in bytes.
pub const NOTE_BYTES_MAX: usize = 16 * 1_024;
/// So many tags a note has at most.
pub const NOTE_TAGS_MAX: usize = 32;
/// The longest tag, in bytes.
pub const NOTE_TAG_BYTES_MAX: usize = 128;
/// So many notes are kept about one resource. The next one is refused: notes are
/// removed by people only, never to make room.
pub const NOTES_MAX: u64 = 10_000;
/// So many words of a query are looked for.
const QUERY_WORDS_MAX: usize = 32;
/// The longest word that is looked for, in letters.
const WORD_CHARS_MAX: usize = 64;

/// What is wrong with a note.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    /// Nothing is in it.
    #[error("a note has some text")]
    Empty,
    /// It is too long.
    #[error(
        "a note has {NOTE_BYTES_MAX} bytes at most, and this one has {bytes}: shorten it, or keep it as several"
    )]
    TooLong {
        /// How long it is.
        bytes: usize,
    },
    /// It has too many tags.
    #[error("a note has {NOTE_TAGS_MAX} tags at most, and this one has {tags}")]
    TooManyTags {
        /// How many it has.
        tags: usize,
    },
    /// A tag is empty, too long or has control characters in it.
    #[error("a tag has 1 to {NOTE_TAG_BYTES_MAX} bytes and no control characters")]
    InvalidTag,
}

/// A note on its way in, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewNote {
    key: String,
    text: String,
    tags: Vec<String>,
    run: Option<RunId>,
}

impl NewNote {
    /// A note with a key of its writer's: the same key is the same note.
    pub fn new(
        key: impl Into<String>,
        text: impl Into<String>,
        tags: Vec<String>,
        run: Option<RunId>,
    ) -> Result<Self, NoteError> {
        let text = text.into();
        let tags: Vec<String> = tags.iter().map(|tag| tag.trim().to_owned()).collect();
        if text.trim().is_empty() {
            return Err(NoteError::Empty);
        }
        if text.len() > NOTE_BYTES_MAX {
            return Err(NoteError::TooLong { bytes: text.len() });
        }
        if tags.len() > NOTE_TAGS_MAX {
            return Err(NoteError::TooManyTags { tags: tags.len() });
        }
        let is_bad = |tag: &String| {
            tag.is_empty() || tag.len() > NOTE_TAG_BYTES_MAX || tag.chars().any(char::is_control)
        };
        if tags.iter().any(is_bad) {
            return Err(NoteError::InvalidTag);
        }
        let key = key.into();
        Ok(Self { key, text, tags, run })
    }

    /// Its writer's key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The note as it stands from now on.
    pub fn to_note(&self, resource: &ResourceKey, now: Timestamp) -> Note {
        let hash = Hash::digest(resource.as_str().as_bytes());
        let parent = hash.bytes().iter().take(16);
        let parent = parent.fold(0_u128, |bits, byte| bits << 8 | u128::from(*byte));
        Note {
            id: NoteId::derive(parent, &self.key, now),
            text: self.text.clone(),
            tags: self.tags.clone(),
            run: self.run,
            at: now,
        }
    }
}

/// A note that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Which.
    pub id: NoteId,
    /// What it says.
    pub text: String,
    /// What it is filed under.
    pub tags: Vec<String>,
    /// The run that wrote it.
    pub run: Option<RunId>,
    /// When it was written.
    pub at: Timestamp,
}

/// What came of a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoteOutcome {
    /// It is kept.
    Stored(NoteId),
    /// It was kept before, under the same key.
    Existing(NoteId),
    /// So many notes are kept that no other is taken.
    Full,
}

/// A text with blanks around every letter of a script that sets none between its
/// words, so that each such letter is a word to whoever looks for words.
pub fn separate_unspaced(text: &str) -> String {
    let mut spaced = String::with_capacity(text.len());
    for letter in text.chars() {
        if is_unspaced_script(letter) {
            spaced.extend([' ', letter, ' ']);
        } else {
            spaced.push(letter);
        }
    }
    spaced
}

/// The words of a query, each once. Letters of a script without blanks that stand
/// together are one word with blanks in it: a phrase of letters.
pub fn query_words(query: &str) -> Vec<String> {
    let letters: Vec<char> = query.chars().collect();
    let mut words: Vec<String> = Vec::new();
    for run in letters.chunk_by(|one, next| kind(*one) == kind(*next)) {
        let letters = run.iter().take(WORD_CHARS_MAX);
        let word: String = match kind(run[0]) {
            CharClass::Separator => continue,
            CharClass::Spaced => letters.collect(),
            CharClass::Unspaced => letters.map(char::to_string).collect::<Vec<_>>().join(" "),
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

fn kind(letter: char) -> CharClass {
    match letter {
        _ if is_unspaced_script(letter) => CharClass::Unspaced,
        _ if letter.is_alphanumeric() || is_combining_mark(letter) => CharClass::Spaced,
        _ => CharClass::Separator,
    }
}

/// Whether a letter belongs to a script that sets no blanks between words, or
/// hangs its endings onto them.
pub fn is_unspaced_script(letter: char) -> bool {
    matches!(letter,
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
    ) && (letter.is_alphanumeric() || letter == '\u{30fc}')
}

/// A mark that stands on the letter before it.
pub const fn is_combining_mark(letter: char) -> bool {
    matches!(letter, '\u{0300}'..='\u{036f}')
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
        assert_eq!(separate_unspaced("in 東京, v2"), "in  東  京 , v2");
        assert_eq!(separate_unspaced("plain"), "plain");
    }

    #[test]
    fn the_size_of_a_note_is_limited() {
        let note = |text: &str, tags: &[&str]| {
            let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
            NewNote::new("k", text, tags, None).map(drop)
        };
        assert_eq!(note("x", &["a", " b "]), Ok(()));
        assert_eq!(note(" \n", &[]), Err(NoteError::Empty));
        assert_eq!(note(&"x".repeat(NOTE_BYTES_MAX), &[]), Ok(()));
        let bytes = NOTE_BYTES_MAX + 1;
        assert_eq!(note(&"x".repeat(bytes), &[]), Err(NoteError::TooLong { bytes }));
        assert_eq!(note("x", &["a"; 33]), Err(NoteError::TooManyTags { tags: 33 }));
        for tag in ["", "  ", "a\nb", &"x".repeat(129)] {
            assert_eq!(note("x", &[tag]), Err(NoteError::InvalidTag), "{tag:?}");
        }
    }
}
