//! Reads single values of front matter and keeps a list of what is wrong.
//!
//! Never: stops. A value that can't be read is a line in the list and `None`.

use std::path::{Path, PathBuf};

use longhaul_core::suggest;
use longhaul_core::time::Millis;

use crate::agents::problem::{Problem, ProblemKind};
use crate::agents::template::{self, AllowedNames};
use crate::duration::{self, DURATION_EXAMPLES};
use crate::spanned::{Node, NodeValue, Position, TableEntry, escape_controls};

/// What was found wrong so far.
#[derive(Debug, Default)]
pub(crate) struct Diagnostics {
    pub(crate) problems: Vec<Diagnostic>,
    /// What the file names and is not there.
    pub(crate) missing: Vec<Diagnostic>,
    /// How something was understood that is not wrong.
    pub(crate) notes: Vec<String>,
    /// The files that were read on the way.
    pub(crate) files: Vec<PathBuf>,
}

/// One thing that is wrong.
#[derive(Debug)]
pub(crate) struct Diagnostic {
    pub(crate) position: Position,
    pub(crate) message: String,
    pub(crate) kind: ProblemKind,
}

impl Diagnostic {
    fn new(kind: ProblemKind, place: Position, message: impl Into<String>) -> Self {
        Self { position: place, message: escape_controls(&message.into()), kind }
    }

    /// The same as a problem of this file.
    pub(crate) fn into_problem(self, path: &Path) -> Problem {
        Problem {
            path: path.to_path_buf(),
            line: self.position.line,
            column: self.position.column,
            message: self.message,
            kind: self.kind,
        }
    }
}

/// The fields of a table, asked for one by one. The keys that were asked for are those that the
/// table may have, so that no list of them can differ from what is read.
#[derive(Debug)]
pub(crate) struct FieldReader<'s, 'a> {
    pub(crate) diagnostics: &'s mut Diagnostics,
    entries: &'a [TableEntry],
    requested: Vec<&'static str>,
}

impl<'s, 'a> FieldReader<'s, 'a> {
    /// The fields of this table; `first` is the key that a message names as an example.
    pub(crate) fn new(
        sheet: &'s mut Diagnostics,
        entry: &'a TableEntry,
        first: &str,
    ) -> Option<Self> {
        let Some(entries) = entry.node.table() else {
            let right = format!("a table such as `{}: {{ {first}: ... }}`", entry.key);
            return sheet.type_mismatch(entry, &right);
        };
        Some(Self { diagnostics: sheet, entries, requested: Vec::new() })
    }

    /// The field of this key.
    pub(crate) fn get(&mut self, key: &'static str) -> Option<&'a TableEntry> {
        if !self.requested.contains(&key) {
            self.requested.push(key);
        }
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// The value of this key, read so.
    pub(crate) fn parse<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&mut Diagnostics, &'a TableEntry) -> Option<T>,
    ) -> Option<T> {
        let entry = self.get(key)?;
        read(self.diagnostics, entry)
    }

    /// Notes which of these fields are there: the file is right, and this build can't do them.
    pub(crate) fn unsupported(&mut self, keys: &[&'static str]) {
        for key in keys {
            if let Some(entry) = self.get(key) {
                self.diagnostics.unsupported_field(entry.position, key);
            }
        }
    }

    /// Notes the fields that nobody asked for.
    pub(crate) fn finish(self) {
        let is_asked = |entry: &&TableEntry| self.requested.contains(&entry.key.as_str());
        for entry in self.entries.iter().filter(|entry| !is_asked(entry)) {
            let message = suggest::unknown_message("key", &entry.key, &self.requested);
            self.diagnostics.invalid(entry.position, message);
        }
    }
}

impl Diagnostics {
    /// Notes a fault of the file.
    pub(crate) fn invalid(&mut self, place: Position, message: impl Into<String>) {
        self.problems.push(Diagnostic::new(ProblemKind::Invalid, place, message));
    }

    /// Notes that the file is right and we are late.
    pub(crate) fn unsupported_field(&mut self, place: Position, what: &str) {
        self.unsupported(
            place,
            format!("`{what}` is understood, but this build can't do it yet: remove it"),
        );
    }

    /// The same in these words.
    pub(crate) fn unsupported(&mut self, place: Position, message: impl Into<String>) {
        self.problems.push(Diagnostic::new(ProblemKind::Unsupported, place, message));
    }

    /// Notes that the file is right and what it names is not there.
    pub(crate) fn missing(&mut self, place: Position, message: impl Into<String>) {
        self.missing.push(Diagnostic::new(ProblemKind::Missing, place, message));
    }

    /// Notes how something was understood.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(escape_controls(&note.into()));
    }

    fn type_mismatch<T>(&mut self, entry: &TableEntry, right: &str) -> Option<T> {
        let node = &entry.node;
        let found = match &node.value {
            NodeValue::Null => "has no value".to_owned(),
            NodeValue::Boolean(flag) => format!("is {flag}"),
            NodeValue::Integer(whole) => format!("is {whole}"),
            NodeValue::Float(real) => format!("is {real}"),
            NodeValue::Text(text) => format!("is {text:?}"),
            NodeValue::List(_) | NodeValue::Table(_) => format!("is {}", node.type_name()),
        };
        self.invalid(node.position, format!("`{}` {found}, write {right}", entry.key));
        None
    }

    /// A list; each element is named like its list, with its number.
    pub(crate) fn list(&mut self, entry: &TableEntry) -> Option<Vec<TableEntry>> {
        let Some(nodes) = entry.node.list() else {
            let right = format!("a list such as `{}: [...]`", entry.key);
            return self.type_mismatch(entry, &right);
        };
        let element = |(index, node): (usize, &Node)| TableEntry {
            key: format!("{}[{index}]", entry.key),
            position: node.position,
            node: node.clone(),
        };
        Some(nodes.iter().enumerate().map(element).collect())
    }

    /// A list whose elements are each read so. One that can't be read is left out.
    pub(crate) fn parse_each<T>(
        &mut self,
        entry: &TableEntry,
        read: impl Fn(&mut Self, &TableEntry) -> Option<T>,
    ) -> Option<Vec<T>> {
        let elements = self.list(entry)?;
        let read = elements.iter().filter_map(|element| read(self, element));
        Some(read.collect())
    }

    /// Text that is not empty.
    pub(crate) fn text(&mut self, entry: &TableEntry) -> Option<String> {
        match &entry.node.value {
            NodeValue::Text(text) if !text.trim().is_empty() => Some(text.clone()),
            NodeValue::Integer(_) | NodeValue::Float(_) | NodeValue::Boolean(_) => {
                self.type_mismatch(entry, "text: put it in quotes")
            }
            NodeValue::Text(_) | NodeValue::Null | NodeValue::List(_) | NodeValue::Table(_) => {
                self.type_mismatch(entry, "text")
            }
        }
    }

    /// A list of texts, each of them once, with their places.
    pub(crate) fn texts_with_positions(&mut self, entry: &TableEntry) -> Vec<(Position, String)> {
        let mut texts: Vec<(Position, String)> = Vec::new();
        for element in self.list(entry).unwrap_or_default() {
            let Some(text) = self.text(&element) else {
                continue;
            };
            if texts.iter().any(|(_, known)| *known == text) {
                let message = format!("`{}` names `{text}` twice", entry.key);
                self.invalid(element.position, message);
            } else {
                texts.push((element.position, text));
            }
        }
        texts
    }

    /// A list of texts, each of them once.
    pub(crate) fn texts(&mut self, entry: &TableEntry) -> Option<Vec<String>> {
        let texts = self.texts_with_positions(entry);
        Some(texts.into_iter().map(|(_, text)| text).collect())
    }

    /// `true` or `false`.
    pub(crate) fn boolean(&mut self, entry: &TableEntry) -> Option<bool> {
        if let NodeValue::Boolean(flag) = entry.node.value {
            return Some(flag);
        }
        self.type_mismatch(entry, "true or false")
    }

    /// A whole number from `least` on that its place can hold.
    pub(crate) fn integer<T: TryFrom<i128>>(
        &mut self,
        entry: &TableEntry,
        least: i128,
    ) -> Option<T> {
        if let NodeValue::Integer(whole) = entry.node.value
            && whole >= least
            && let Ok(whole) = T::try_from(whole)
        {
            return Some(whole);
        }
        self.type_mismatch(entry, &format!("a whole number, {least} or more"))
    }

    /// A number in this range.
    pub(crate) fn number(&mut self, entry: &TableEntry, least: f64, most: f64) -> Option<f64> {
        let real = entry.node.number();
        let real = real.filter(|real| (least..=most).contains(real));
        real.or_else(|| self.type_mismatch(entry, &format!("a number from {least} to {most}")))
    }

    /// A span of time that is more than nothing.
    pub(crate) fn duration(&mut self, entry: &TableEntry) -> Option<Millis> {
        let span = entry.node.text().and_then(duration::parse);
        let span = span.filter(|span| span.0 > 0);
        span.or_else(|| {
            self.type_mismatch(entry, &format!("a span of time such as {DURATION_EXAMPLES}"))
        })
    }

    /// One of these words.
    pub(crate) fn one_of<T: Copy>(&mut self, entry: &TableEntry, words: &[(&str, T)]) -> Option<T> {
        let text = self.text(entry)?;
        let found = words.iter().find(|(word, _)| *word == text);
        if found.is_none() {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let what = format!("word for `{}`:", entry.key);
            self.invalid(entry.node.position, suggest::unknown_message(&what, &text, &known));
        }
        found.map(|(_, meaning)| *meaning)
    }

    /// Text that is a template over these names.
    pub(crate) fn template(
        &mut self,
        entry: &TableEntry,
        names: AllowedNames<'_>,
    ) -> Option<String> {
        let text = self.text(entry)?;
        if let Some(fault) = template::find_error(&text, names) {
            // A text over several lines begins below its key, in its own indentation.
            let within = match fault.position.line {
                1 => String::new(),
                line => format!(" (line {line} of it)"),
            };
            let message = format!("`{}`: {}{within}", entry.key, fault.message);
            self.invalid(entry.node.position, message);
        }
        Some(text)
    }
}
