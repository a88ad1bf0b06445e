//! Reads single values of front matter and keeps a list of what is wrong.
//!
//! Never: stops. A value that can't be read is a line in the list and `None`.

use std::path::{Path, PathBuf};

use longhaul_core::suggest;
use longhaul_core::time::Millis;

use crate::agents::problem::{Problem, ProblemKind};
use crate::agents::template::{self, Names};
use crate::span::{self, SPAN_EXAMPLES};
use crate::written::{Content, Entry, Node, Place, plain};

/// What was found wrong so far.
#[derive(Debug, Default)]
pub(crate) struct Sheet {
    pub(crate) found: Vec<Found>,
    /// What the file names and is not there.
    pub(crate) lacks: Vec<Found>,
    /// How something was understood that is not wrong.
    pub(crate) notes: Vec<String>,
    /// The files that were read on the way.
    pub(crate) files: Vec<PathBuf>,
}

/// One thing that is wrong.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) place: Place,
    pub(crate) message: String,
    pub(crate) kind: ProblemKind,
}

impl Found {
    fn new(kind: ProblemKind, place: Place, message: impl Into<String>) -> Self {
        Self {
            place,
            message: plain(&message.into()),
            kind,
        }
    }

    /// The same as a problem of this file.
    pub(crate) fn problem(self, path: &Path) -> Problem {
        Problem {
            path: path.to_path_buf(),
            line: self.place.line,
            column: self.place.column,
            message: self.message,
            kind: self.kind,
        }
    }
}

/// The fields of a table, asked for one by one. The keys that were asked for are those that the
/// table may have, so that no list of them can differ from what is read.
#[derive(Debug)]
pub(crate) struct Fields<'s, 'a> {
    pub(crate) sheet: &'s mut Sheet,
    entries: &'a [Entry],
    asked: Vec<&'static str>,
}

impl<'s, 'a> Fields<'s, 'a> {
    /// The fields of this table; `first` is the key that a message names as an example.
    pub(crate) fn new(sheet: &'s mut Sheet, entry: &'a Entry, first: &str) -> Option<Self> {
        let Some(entries) = entry.node.table() else {
            let right = format!("a table such as `{}: {{ {first}: ... }}`", entry.key);
            return sheet.misfit(entry, &right);
        };
        Some(Self {
            sheet,
            entries,
            asked: Vec::new(),
        })
    }

    /// The field of this key.
    pub(crate) fn get(&mut self, key: &'static str) -> Option<&'a Entry> {
        if !self.asked.contains(&key) {
            self.asked.push(key);
        }
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// The value of this key, read so.
    pub(crate) fn read<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&mut Sheet, &'a Entry) -> Option<T>,
    ) -> Option<T> {
        let entry = self.get(key)?;
        read(self.sheet, entry)
    }

    /// Notes which of these fields are there: the file is right, and this build can't do them.
    pub(crate) fn later(&mut self, keys: &[&'static str]) {
        for key in keys {
            if let Some(entry) = self.get(key) {
                self.sheet.later(entry.place, key);
            }
        }
    }

    /// Notes the fields that nobody asked for.
    pub(crate) fn end(self) {
        let is_asked = |entry: &&Entry| self.asked.contains(&entry.key.as_str());
        for entry in self.entries.iter().filter(|entry| !is_asked(entry)) {
            let message = suggest::unknown("key", &entry.key, &self.asked);
            self.sheet.fault(entry.place, message);
        }
    }
}

impl Sheet {
    /// Notes a fault of the file.
    pub(crate) fn fault(&mut self, place: Place, message: impl Into<String>) {
        self.found
            .push(Found::new(ProblemKind::Fault, place, message));
    }

    /// Notes that the file is right and we are late.
    pub(crate) fn later(&mut self, place: Place, what: &str) {
        self.not_yet(
            place,
            format!("`{what}` is understood, but this build can't do it yet: remove it"),
        );
    }

    /// The same in these words.
    pub(crate) fn not_yet(&mut self, place: Place, message: impl Into<String>) {
        self.found
            .push(Found::new(ProblemKind::NotYet, place, message));
    }

    /// Notes that the file is right and what it names is not there.
    pub(crate) fn lack(&mut self, place: Place, message: impl Into<String>) {
        self.lacks
            .push(Found::new(ProblemKind::Missing, place, message));
    }

    /// Notes how something was understood.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(plain(&note.into()));
    }

    fn misfit<T>(&mut self, entry: &Entry, right: &str) -> Option<T> {
        let node = &entry.node;
        let found = match &node.content {
            Content::Nothing => "has no value".to_owned(),
            Content::Flag(flag) => format!("is {flag}"),
            Content::Whole(whole) => format!("is {whole}"),
            Content::Real(real) => format!("is {real}"),
            Content::Text(text) => format!("is {text:?}"),
            Content::List(_) | Content::Table(_) => format!("is {}", node.what()),
        };
        self.fault(
            node.place,
            format!("`{}` {found}, write {right}", entry.key),
        );
        None
    }

    /// A list; each element is named like its list, with its number.
    pub(crate) fn list(&mut self, entry: &Entry) -> Option<Vec<Entry>> {
        let Some(nodes) = entry.node.list() else {
            let right = format!("a list such as `{}: [...]`", entry.key);
            return self.misfit(entry, &right);
        };
        let element = |(index, node): (usize, &Node)| Entry {
            key: format!("{}[{index}]", entry.key),
            place: node.place,
            node: node.clone(),
        };
        Some(nodes.iter().enumerate().map(element).collect())
    }

    /// A list whose elements are each read so. One that can't be read is left out.
    pub(crate) fn each<T>(
        &mut self,
        entry: &Entry,
        read: impl Fn(&mut Self, &Entry) -> Option<T>,
    ) -> Option<Vec<T>> {
        let elements = self.list(entry)?;
        let read = elements.iter().filter_map(|element| read(self, element));
        Some(read.collect())
    }

    /// Text that is not empty.
    pub(crate) fn text(&mut self, entry: &Entry) -> Option<String> {
        match &entry.node.content {
            Content::Text(text) if !text.trim().is_empty() => Some(text.clone()),
            Content::Whole(_) | Content::Real(_) | Content::Flag(_) => {
                self.misfit(entry, "text: put it in quotes")
            }
            Content::Text(_) | Content::Nothing | Content::List(_) | Content::Table(_) => {
                self.misfit(entry, "text")
            }
        }
    }

    /// A list of texts, each of them once, with their places.
    pub(crate) fn placed_texts(&mut self, entry: &Entry) -> Vec<(Place, String)> {
        let mut texts: Vec<(Place, String)> = Vec::new();
        for element in self.list(entry).unwrap_or_default() {
            let Some(text) = self.text(&element) else {
                continue;
            };
            if texts.iter().any(|(_, known)| *known == text) {
                let message = format!("`{}` names `{text}` twice", entry.key);
                self.fault(element.place, message);
            } else {
                texts.push((element.place, text));
            }
        }
        texts
    }

    /// A list of texts, each of them once.
    pub(crate) fn texts(&mut self, entry: &Entry) -> Option<Vec<String>> {
        let texts = self.placed_texts(entry);
        Some(texts.into_iter().map(|(_, text)| text).collect())
    }

    /// `true` or `false`.
    pub(crate) fn flag(&mut self, entry: &Entry) -> Option<bool> {
        if let Content::Flag(flag) = entry.node.content {
            return Some(flag);
        }
        self.misfit(entry, "true or false")
    }

    /// A whole number from `least` on that its place can hold.
    pub(crate) fn whole<T: TryFrom<i128>>(&mut self, entry: &Entry, least: i128) -> Option<T> {
        if let Content::Whole(whole) = entry.node.content
            && whole >= least
            && let Ok(whole) = T::try_from(whole)
        {
            return Some(whole);
        }
        self.misfit(entry, &format!("a whole number, {least} or more"))
    }

    /// A number in this range.
    pub(crate) fn real(&mut self, entry: &Entry, least: f64, most: f64) -> Option<f64> {
        let real = entry.node.real();
        let real = real.filter(|real| (least..=most).contains(real));
        real.or_else(|| self.misfit(entry, &format!("a number from {least} to {most}")))
    }

    /// A span of time that is more than nothing.
    pub(crate) fn span(&mut self, entry: &Entry) -> Option<Millis> {
        let span = entry.node.text().and_then(span::read);
        let span = span.filter(|span| span.0 > 0);
        span.or_else(|| self.misfit(entry, &format!("a span of time such as {SPAN_EXAMPLES}")))
    }

    /// One of these words.
    pub(crate) fn word<T: Copy>(&mut self, entry: &Entry, words: &[(&str, T)]) -> Option<T> {
        let text = self.text(entry)?;
        let found = words.iter().find(|(word, _)| *word == text);
        if found.is_none() {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let what = format!("word for `{}`:", entry.key);
            self.fault(entry.node.place, suggest::unknown(&what, &text, &known));
        }
        found.map(|(_, meaning)| *meaning)
    }

    /// Text that is a template over these names.
    pub(crate) fn template(&mut self, entry: &Entry, names: Names<'_>) -> Option<String> {
        let text = self.text(entry)?;
        if let Some(fault) = template::fault(&text, names) {
            // A text over several lines begins below its key, in its own indentation.
            let within = match fault.place.line {
                1 => String::new(),
                line => format!(" (line {line} of it)"),
            };
            let message = format!("`{}`: {}{within}", entry.key, fault.message);
            self.fault(entry.node.place, message);
        }
        Some(text)
    }
}
