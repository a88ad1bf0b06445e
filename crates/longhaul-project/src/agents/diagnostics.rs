//! Parses single values of a project file (an agent file, a chain file, a skill or `.mcp.json`) and
//! collects the problems. An invalid value adds a problem and gives `None`, and parsing continues.

use std::path::{Path, PathBuf};
use std::{fmt, mem};

use longhaul_core::suggest;
use longhaul_core::time::Millis;
use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeOwned};

use crate::agents::load_context::AgentLoadContext;
use crate::agents::problem::{AgentFileProblem, ProblemKind};
use crate::spanned::{Node, NodeValue, Position, TableEntry, escape_control_characters};
use longhaul_core::duration::{self, DURATION_EXAMPLES};
use longhaul_engine::agent::template_check;

/// Problems and notes about one file of a project.
#[derive(Debug)]
pub(crate) struct Diagnostics<'c> {
    /// Project of the file, and the names that the file may refer to.
    pub(crate) ctx: AgentLoadContext<'c>,
    /// Path of the file as shown to people.
    pub(crate) path: PathBuf,
    pub(crate) problems: Vec<AgentFileProblem>,
    /// Remarks about how valid values were interpreted.
    pub(crate) notes: Vec<String>,
    /// Name in the file that is not valid and that the file's or folder's name replaces.
    pub(crate) replaced_name: Option<String>,
    /// Files that were read while the agent file was parsed, such as an output schema.
    pub(crate) files: Vec<PathBuf>,
    /// Whether the file is JSON for several programs, such as `.mcp.json`. Then unknown and
    /// duplicate keys are not problems, and no value is shown, since it may be a secret.
    pub(crate) is_shared_json: bool,
    /// The unknown and duplicate keys of shared JSON.
    pub(crate) ignored_keys: Vec<(Position, String)>,
}

/// Reads the fields of a table one by one. Every key that is read counts as valid; all other keys
/// are reported as unknown when this is dropped. So no separate list of valid keys is needed.
#[derive(Debug)]
pub(crate) struct Fields<'s, 'a, 'c> {
    pub(crate) diagnostics: &'s mut Diagnostics<'c>,
    entries: &'a [TableEntry],
    requested: Vec<&'static str>,
    /// Those of the valid keys that this build does not support.
    unsupported: &'static [&'static str],
}

impl<'s, 'a, 'c> Fields<'s, 'a, 'c> {
    /// Starts to read the fields of the table in `entry`. `None` means that the value is not a
    /// table. This is reported, and the message shows a table with the key `example_key` as an
    /// example.
    pub(crate) fn new(
        diagnostics: &'s mut Diagnostics<'c>,
        entry: &'a TableEntry,
        example_key: &str,
    ) -> Option<Self> {
        let Some(entries) = entry.node.as_table() else {
            let expected = match diagnostics.is_shared_json {
                true => "an object".to_owned(),
                false => format!("a table such as `{}: {{ {example_key}: ... }}`", entry.key),
            };
            return diagnostics.report_mismatch(entry, &expected);
        };
        Some(Self { diagnostics, entries, requested: Vec::new(), unsupported: &[] })
    }

    /// Returns the field with this key. `None` means that it is missing. From now on the key counts
    /// as valid, so it is not reported as unknown.
    pub(crate) fn get(&mut self, field_key: &'static str) -> Option<&'a TableEntry> {
        if !self.requested.contains(&field_key) {
            self.requested.push(field_key);
        }
        self.entries.iter().rfind(|entry| entry.key == field_key)
    }

    /// Parses the field with this key by calling `parse`. `None` means that the field is missing or
    /// invalid.
    pub(crate) fn parse<T>(
        &mut self,
        key: &'static str,
        parse: impl FnOnce(&mut Diagnostics<'c>, &'a TableEntry) -> Option<T>,
    ) -> Option<T> {
        let entry = self.get(key)?;
        parse(self.diagnostics, entry)
    }

    /// Parses the field with this key into `target`, which keeps its value if the field is missing
    /// or invalid.
    pub(crate) fn set<T, U: From<T>>(
        &mut self,
        key: &'static str,
        target: &mut U,
        parse: impl FnOnce(&mut Diagnostics<'c>, &'a TableEntry) -> Option<T>,
    ) {
        if let Some(value) = self.parse(key, parse) {
            *target = value.into();
        }
    }

    /// Whether the table has any of the fields that were read so far.
    pub(crate) fn has_any_requested(&self) -> bool {
        self.entries.iter().any(|entry| self.requested.contains(&entry.key.as_str()))
    }

    /// Reports each of these keys that the table contains as not supported by this build.
    pub(crate) fn report_unsupported_fields(&mut self, keys: &'static [&'static str]) {
        self.unsupported = keys;
        for key in keys {
            if let Some(entry) = self.get(key) {
                let message = format!("`{key}` is not supported by this build yet: remove it");
                self.diagnostics.report_unsupported(entry.position, message);
            }
        }
    }
}

impl Drop for Fields<'_, '_, '_> {
    /// Reports all fields whose keys were never read as unknown, and duplicate keys.
    fn drop(&mut self) {
        for key in &self.requested {
            let duplicates = self.entries.iter().filter(|entry| entry.key == *key).skip(1);
            for entry in duplicates {
                self.diagnostics.report_duplicate_key(entry);
            }
        }
        let is_requested = |entry: &&TableEntry| self.requested.contains(&entry.key.as_str());
        for entry in self.entries.iter().filter(|entry| !is_requested(entry)) {
            let mut message = suggest::unknown_name_message("key", &entry.key, &self.requested);
            let is_suggested = |key: &&&str| message.ends_with(&format!("did you mean `{key}`?"));
            if let Some(key) = self.unsupported.iter().find(is_suggested) {
                message.push_str(&format!(" `{key}` is not supported by this build yet"));
            }
            if self.diagnostics.is_shared_json {
                self.diagnostics.ignore_key(entry, format!("{message}; the key is ignored"));
            } else {
                self.diagnostics.report_invalid(entry.position, message);
            }
        }
    }
}

impl<'c> Diagnostics<'c> {
    pub(crate) fn new(ctx: AgentLoadContext<'c>, path: &Path) -> Self {
        Self {
            ctx,
            path: path.to_owned(),
            problems: Vec::new(),
            notes: Vec::new(),
            replaced_name: None,
            files: Vec::new(),
            is_shared_json: false,
            ignored_keys: Vec::new(),
        }
    }

    /// Whether the file can be used. It may refer to things that do not exist.
    pub(crate) fn is_valid(&self) -> bool {
        self.problems.iter().all(|problem| problem.kind == ProblemKind::Missing)
    }

    /// Removes all problems and returns them in the order of the file.
    pub(crate) fn take_problems(&mut self) -> Vec<AgentFileProblem> {
        self.problems.sort_by_key(|problem| (problem.line, problem.column));
        mem::take(&mut self.problems)
    }

    /// Removes everything that was recorded about the file.
    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.ctx, &self.path);
    }

    fn report(&mut self, kind: ProblemKind, position: Position, message: impl Into<String>) {
        let Position { line, column } = position;
        let message = escape_control_characters(&message.into());
        let path = self.path.clone();
        self.problems.push(AgentFileProblem { path, line, column, message, kind });
    }

    /// Notes a key of shared JSON that has no effect.
    pub(crate) fn ignore_key(&mut self, entry: &TableEntry, message: impl Into<String>) {
        self.ignored_keys.push((entry.position, message.into()));
    }

    /// Notes a key that occurs a second time.
    pub(crate) fn report_duplicate_key(&mut self, entry: &TableEntry) {
        self.ignore_key(entry, format!("`{}` is a duplicate; the last one is used", entry.key));
    }

    /// Reports that the agent file is invalid at this position.
    pub(crate) fn report_invalid(&mut self, position: Position, message: impl Into<String>) {
        self.report(ProblemKind::Invalid, position, message);
    }

    /// Reports that the agent file is invalid at this position. Always returns `None`.
    pub(crate) fn reject<T>(&mut self, at: Position, message: impl Into<String>) -> Option<T> {
        self.report_invalid(at, message);
        None
    }

    /// Reports with this message that this build does not support something in the file.
    pub(crate) fn report_unsupported(&mut self, position: Position, message: impl Into<String>) {
        self.report(ProblemKind::Unsupported, position, message);
    }

    /// Reports a model that can't be used, whatever keys are set.
    pub(crate) fn report_unusable_model(&mut self, position: Position, model: &str) {
        if let Some(reason) = self.ctx.models.and_then(|models| models.unusable_reason(model)) {
            let message = format!("the model `{model}` can't be used: {reason}");
            self.report_missing(position, message);
        }
    }

    /// Reports that the file refers to something that does not exist.
    pub(crate) fn report_missing(&mut self, position: Position, message: impl Into<String>) {
        self.report(ProblemKind::Missing, position, message);
    }

    /// Adds a note: a remark that is not a problem.
    pub(crate) fn add_note(&mut self, note: impl Into<String>) {
        self.notes.push(escape_control_characters(&note.into()));
    }

    /// Reports that the value of `entry` is not what is expected. Always returns `None`.
    pub(crate) fn report_mismatch<T>(&mut self, entry: &TableEntry, expected: &str) -> Option<T> {
        let node = &entry.node;
        let problem = match &node.value {
            _ if self.is_shared_json => format!("is {}", node.json_type_name()),
            NodeValue::Null => "has no value".to_owned(),
            NodeValue::Boolean(flag) => format!("is {flag}"),
            NodeValue::Integer(integer) => format!("is {integer}"),
            NodeValue::Float(float) => format!("is {float}"),
            NodeValue::Text(text) => format!("is {text:?}"),
            NodeValue::List(_) | NodeValue::Table(_) => format!("is {}", node.type_name()),
        };
        self.reject(node.position, format!("`{}` {problem}: write {expected}", entry.key))
    }

    /// Parses a list. The returned entries have the key of the list with an index, such as
    /// `tools[0]`.
    pub(crate) fn list_entries(&mut self, entry: &TableEntry) -> Option<Vec<TableEntry>> {
        let Some(nodes) = entry.node.as_list() else {
            let expected = format!("a list such as `{}: [...]`", entry.key);
            return self.report_mismatch(entry, &expected);
        };
        let element = |(index, node): (usize, &Node)| TableEntry {
            key: format!("{}[{index}]", entry.key),
            position: node.position,
            node: node.clone(),
        };
        Some(nodes.iter().enumerate().map(element).collect())
    }

    /// Parses a list by calling `parse` for each element. Invalid elements are left out.
    pub(crate) fn list_items<T>(
        &mut self,
        entry: &TableEntry,
        parse: impl Fn(&mut Self, &TableEntry) -> Option<T>,
    ) -> Option<Vec<T>> {
        let elements = self.list_entries(entry)?;
        let values = elements.iter().filter_map(|element| parse(self, element));
        Some(values.collect())
    }

    /// Parses a text that is not empty.
    pub(crate) fn text(&mut self, entry: &TableEntry) -> Option<String> {
        match &entry.node.value {
            NodeValue::Text(text) if !text.trim().is_empty() => Some(text.clone()),
            NodeValue::Integer(_) | NodeValue::Float(_) | NodeValue::Boolean(_) => {
                self.report_mismatch(entry, "text in quotes")
            }
            NodeValue::Text(_) | NodeValue::Null | NodeValue::List(_) | NodeValue::Table(_) => {
                self.report_mismatch(entry, "text")
            }
        }
    }

    /// Parses a text, which may be empty.
    pub(crate) fn any_text(&mut self, entry: &TableEntry) -> Option<String> {
        let text = entry.node.as_text().map(str::to_owned);
        text.or_else(|| self.report_mismatch(entry, "text in quotes"))
    }

    /// Parses a list of texts without duplicates, with the position of each text.
    pub(crate) fn texts_with_positions(&mut self, entry: &TableEntry) -> Vec<(Position, String)> {
        let mut texts: Vec<(Position, String)> = Vec::new();
        for element in self.list_entries(entry).unwrap_or_default() {
            let Some(text) = self.text(&element) else {
                continue;
            };
            if texts.iter().any(|(_, seen_text)| *seen_text == text) {
                let message = format!("`{}` lists `{text}` twice", entry.key);
                self.report_invalid(element.position, message);
            } else {
                texts.push((element.position, text));
            }
        }
        texts
    }

    /// Parses a list of texts without duplicates.
    pub(crate) fn unique_texts(&mut self, entry: &TableEntry) -> Option<Vec<String>> {
        let texts = self.texts_with_positions(entry);
        Some(texts.into_iter().map(|(_, text)| text).collect())
    }

    /// Parses `true` or `false`.
    pub(crate) fn boolean(&mut self, entry: &TableEntry) -> Option<bool> {
        if let NodeValue::Boolean(flag) = entry.node.value {
            return Some(flag);
        }
        self.report_mismatch(entry, "true or false")
    }

    /// Parses a duration greater than zero.
    pub(crate) fn duration(&mut self, entry: &TableEntry) -> Option<Millis> {
        self.duration_of_at_least(Millis(1), entry)
    }

    /// Parses a duration, which may be zero.
    pub(crate) fn duration_or_zero(&mut self, entry: &TableEntry) -> Option<Millis> {
        self.duration_of_at_least(Millis::ZERO, entry)
    }

    fn duration_of_at_least(&mut self, min: Millis, entry: &TableEntry) -> Option<Millis> {
        let value = entry.node.as_text().and_then(duration::parse_duration);
        let expected = format!("a duration such as {DURATION_EXAMPLES}");
        let value = value.filter(|duration| *duration >= min);
        value.or_else(|| self.report_mismatch(entry, &expected))
    }

    /// Parses a text that must be the name of one of the type's values.
    pub(crate) fn one_of<T: DeserializeOwned>(&mut self, entry: &TableEntry) -> Option<T> {
        let text = self.text(entry)?;
        let value = T::deserialize(StrDeserializer::<UnknownNameError>::new(&text));
        let unknown = |UnknownNameError(names): UnknownNameError| {
            let kind = format!("value for `{}`:", entry.key);
            let message = suggest::unknown_name_message(&kind, &text, names);
            self.report_invalid(entry.node.position, message);
        };
        value.map_err(unknown).ok()
    }

    /// Parses a template that may use only the allowed variables.
    pub(crate) fn template(
        &mut self,
        entry: &TableEntry,
        names: Option<&[&str]>,
    ) -> Option<String> {
        let text = self.text(entry)?;
        if let Some(error) = template_check::find_template_error(&text, names) {
            // A text of several lines starts below its key with its own indentation, so its
            // position is only known by line.
            let line_note = match error.position.line {
                1 => String::new(),
                line => format!(" (line {line} of the template)"),
            };
            let message = format!("`{}`: {}{line_note}", entry.key, error.message);
            self.report_invalid(entry.node.position, message);
        }
        Some(text)
    }
}

/// Returns a parser of integers that are at least `min` and fit into `T`.
pub(crate) fn integer<T: TryFrom<i128>>(
    min: i128,
) -> impl Fn(&mut Diagnostics<'_>, &TableEntry) -> Option<T> {
    move |diagnostics, entry| {
        let value = entry.node.as_integer().filter(|integer| *integer >= min);
        let value = value.and_then(|integer| T::try_from(integer).ok());
        let expected = || format!("a whole number, {min} or more");
        value.or_else(|| diagnostics.report_mismatch(entry, &expected()))
    }
}

/// Returns a parser of numbers from `min` to `max`.
pub(crate) fn number(
    min: f64,
    max: f64,
) -> impl Fn(&mut Diagnostics<'_>, &TableEntry) -> Option<f64> {
    move |diagnostics, entry| {
        let value = entry.node.as_number().filter(|number| (min..=max).contains(number));
        let expected = || format!("a number from {min} to {max}");
        value.or_else(|| diagnostics.report_mismatch(entry, &expected()))
    }
}

/// Error for a text that names no value of an enum. It has the names of all values.
#[derive(Debug)]
struct UnknownNameError(&'static [&'static str]);

impl fmt::Display for UnknownNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the names are {:?}", self.0)
    }
}

impl std::error::Error for UnknownNameError {}

impl de::Error for UnknownNameError {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self(&[])
    }

    fn unknown_variant(_: &str, names: &'static [&'static str]) -> Self {
        Self(names)
    }
}
