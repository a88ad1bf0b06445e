//! Reads single values of front matter and keeps a list of what is wrong.
//!
//! Never: stops. A value that can't be read is a line in the list and `None`.

use std::path::PathBuf;

use longhaul_core::time::Millis;

use crate::agents::problem::ProblemKind;
use crate::agents::template::{self, Names};
use crate::like;
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

/// The fields of a table, all of them known.
#[derive(Debug)]
pub(crate) struct Fields<'a>(Vec<&'a Entry>);

impl<'a> Fields<'a> {
    pub(crate) fn get(&self, key: &str) -> Option<&'a Entry> {
        self.0.iter().find(|entry| entry.key == key).copied()
    }
}

impl Sheet {
    /// Notes a fault of the file.
    pub(crate) fn fault(&mut self, place: Place, message: impl Into<String>) {
        self.found.push(Found {
            place,
            message: plain(&message.into()),
            kind: ProblemKind::Fault,
        });
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
        self.found.push(Found {
            place,
            message: plain(&message.into()),
            kind: ProblemKind::NotYet,
        });
    }

    /// Notes that the file is right and what it names is not there.
    pub(crate) fn lack(&mut self, place: Place, message: impl Into<String>) {
        self.lacks.push(Found {
            place,
            message: plain(&message.into()),
            kind: ProblemKind::Missing,
        });
    }

    /// Notes which of these fields come later.
    pub(crate) fn all_later(&mut self, fields: &Fields<'_>, keys: &[&str]) {
        for entry in keys.iter().filter_map(|key| fields.get(key)) {
            self.later(entry.place, &entry.key);
        }
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

    /// A table with known keys; an unknown one is noted.
    pub(crate) fn table<'a>(&mut self, entry: &'a Entry, known: &[&str]) -> Option<Fields<'a>> {
        let Content::Table(entries) = &entry.node.content else {
            let right = format!("a table such as `{}: {{ {}: ... }}`", entry.key, known[0]);
            return self.misfit(entry, &right);
        };
        let (fields, unknown): (Vec<&Entry>, Vec<&Entry>) = entries
            .iter()
            .partition(|field| known.contains(&field.key.as_str()));
        for field in unknown {
            self.fault(field.place, like::unknown("key", &field.key, known));
        }
        Some(Fields(fields))
    }

    /// A list; each element is named like its list, with its number.
    pub(crate) fn list(&mut self, entry: &Entry) -> Vec<Entry> {
        let Content::List(nodes) = &entry.node.content else {
            let right = format!("a list such as `{}: [...]`", entry.key);
            self.misfit::<()>(entry, &right);
            return Vec::new();
        };
        let element = |(index, node): (usize, &Node)| Entry {
            key: format!("{}[{index}]", entry.key),
            place: node.place,
            node: node.clone(),
        };
        nodes.iter().enumerate().map(element).collect()
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

    /// A list of texts that stand in it as they are.
    pub(crate) fn words(&mut self, entry: &Entry) -> Vec<String> {
        let elements = self.list(entry);
        elements
            .iter()
            .filter_map(|element| self.text(element))
            .collect()
    }

    /// A list of texts, each of them once.
    pub(crate) fn texts(&mut self, entry: &Entry) -> Vec<(Place, String)> {
        let mut texts: Vec<(Place, String)> = Vec::new();
        for element in self.list(entry) {
            let Some(text) = self.text(&element) else {
                continue;
            };
            if texts.iter().any(|(_, known)| *known == text) {
                self.fault(
                    element.place,
                    format!("`{}` names `{text}` twice", entry.key),
                );
            } else {
                texts.push((element.place, text));
            }
        }
        texts
    }

    /// `true` or `false`.
    pub(crate) fn flag(&mut self, entry: &Entry) -> Option<bool> {
        match &entry.node.content {
            Content::Flag(flag) => Some(*flag),
            Content::Nothing
            | Content::Whole(_)
            | Content::Real(_)
            | Content::Text(_)
            | Content::List(_)
            | Content::Table(_) => self.misfit(entry, "true or false"),
        }
    }

    /// A whole number from `least` on that its place can hold.
    pub(crate) fn whole<T: TryFrom<i128>>(&mut self, entry: &Entry, least: i128) -> Option<T> {
        let whole = match &entry.node.content {
            Content::Whole(whole) if *whole >= least => T::try_from(*whole).ok(),
            Content::Nothing
            | Content::Flag(_)
            | Content::Whole(_)
            | Content::Real(_)
            | Content::Text(_)
            | Content::List(_)
            | Content::Table(_) => None,
        };
        whole.or_else(|| self.misfit(entry, &format!("a whole number, {least} or more")))
    }

    /// A number in this range.
    pub(crate) fn real(&mut self, entry: &Entry, least: f64, most: f64) -> Option<f64> {
        let real = match &entry.node.content {
            Content::Whole(whole) => Some(*whole as f64),
            Content::Real(real) => Some(*real),
            Content::Nothing | Content::Flag(_) | Content::Text(_) => None,
            Content::List(_) | Content::Table(_) => None,
        };
        let real = real.filter(|real| (least..=most).contains(real));
        real.or_else(|| self.misfit(entry, &format!("a number from {least} to {most}")))
    }

    /// A span of time that is more than nothing.
    pub(crate) fn span(&mut self, entry: &Entry) -> Option<Millis> {
        let span = match &entry.node.content {
            Content::Text(text) => span::read(text).filter(|span| span.0 > 0),
            Content::Nothing | Content::Flag(_) | Content::Whole(_) | Content::Real(_) => None,
            Content::List(_) | Content::Table(_) => None,
        };
        span.or_else(|| self.misfit(entry, &format!("a span of time such as {SPAN_EXAMPLES}")))
    }

    /// One of these words.
    pub(crate) fn word<T: Copy>(&mut self, entry: &Entry, words: &[(&str, T)]) -> Option<T> {
        let text = self.text(entry)?;
        let found = words.iter().find(|(word, _)| *word == text);
        if found.is_none() {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let what = format!("word for `{}`:", entry.key);
            self.fault(entry.node.place, like::unknown(&what, &text, &known));
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
