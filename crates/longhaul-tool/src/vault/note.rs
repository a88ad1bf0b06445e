//! The text of notes: rendering new notes, and parsing notes of any origin.
//!
//! Invariant: fields that a person added to the front matter are kept.

use serde_json::{Map, Value, json};

use longhaul_core::id::RunId;
use longhaul_core::time::Timestamp;

use crate::safe_dir::FileSnapshot;
use crate::vault::front_matter::{self, FrontMatter};

/// Front matter fields that the vault tools set. All other fields are kept as they are.
const OWN_KEYS: &[&str] = &["title", "folder", "tags", "confidence", "created", "updated", "run"];
/// Maximum number of tags of a note.
pub(crate) const TAGS_MAX: usize = 50;

/// Maximum number of bytes read of a note.
pub(crate) const READ_BYTES_MAX: usize = 256 * 1024;
/// Hint in the error message for a note that can't be replaced.
pub(crate) const REPLACE_HINT: &str = "use another title, or let a person fix the file";

/// The note that a call of `vault_write` wants to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NoteDraft {
    pub(crate) title: String,
    pub(crate) folder: String,
    pub(crate) tags: Vec<String>,
    pub(crate) confidence: u8,
    pub(crate) content: String,
    pub(crate) run: RunId,
}

impl NoteDraft {
    /// Returns the new text of the note, given its text before. `None` if the note already has this
    /// content from the same run.
    pub(crate) fn render(&self, before: Option<&str>, now: Timestamp) -> Option<String> {
        let (head, body) =
            before.map_or((FrontMatter::Absent, ""), front_matter::split_front_matter);
        let before = match head {
            FrontMatter::Parsed(fields) => fields,
            FrontMatter::Absent | FrontMatter::Invalid(_) => Map::new(),
        };
        let created = match before.get("created") {
            Some(Value::String(created)) => created.clone(),
            Some(_) | None => now.to_string(),
        };
        let mut fields = Map::new();
        fields.insert("title".into(), json!(self.title));
        fields.insert("folder".into(), json!(self.folder));
        fields.insert("tags".into(), json!(self.tags));
        fields.insert("confidence".into(), json!(self.confidence));
        fields.insert("created".into(), json!(created));
        let updated = before.get("updated").cloned();
        fields.insert("updated".into(), updated.unwrap_or(Value::Null));
        fields.insert("run".into(), json!(self.run));
        let other_fields = before.iter().filter(|(key, _)| !OWN_KEYS.contains(&key.as_str()));
        fields.extend(other_fields.map(|(key, value)| (key.clone(), value.clone())));
        if fields == before && body == self.content {
            return None;
        }
        fields.insert("updated".into(), json!(now.to_string()));
        let head = front_matter::render_yaml_fields(&fields);
        Some(format!("---\n{head}---\n\n{}", self.content))
    }

    /// Returns whether parsing this text returns the content and tags of this draft.
    pub(crate) fn round_trips(&self, note_text: &str) -> bool {
        let parsed = ParsedNote::parse(note_text);
        let is_valid = parsed.problem.is_none() && parsed.updated.is_some();
        is_valid && parsed.body == self.content && parsed.tags == self.tags
    }
}

/// Returns why replacing a note would lose data. `None` if the note can be replaced.
pub(crate) fn note_replacement_error(snapshot: &FileSnapshot) -> Option<String> {
    let text = match std::str::from_utf8(&snapshot.bytes) {
        Ok(text) => text,
        // Only the last character is incomplete, because the size limit split it.
        Err(error) if snapshot.is_truncated && error.error_len().is_none() => {
            return front_matter_error(&snapshot.lossy_text());
        }
        Err(_) => return Some("the note is not UTF-8 text".to_owned()),
    };
    front_matter_error(text)
}

fn front_matter_error(text: &str) -> Option<String> {
    match front_matter::split_front_matter(text).0 {
        FrontMatter::Invalid(reason) => {
            Some(format!("the front matter can't be parsed ({reason})"))
        }
        FrontMatter::Absent | FrontMatter::Parsed(_) => None,
    }
}

/// A parsed note, written by an agent or a person.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ParsedNote<'a> {
    pub(crate) tags: Vec<String>,
    pub(crate) confidence: Option<Value>,
    pub(crate) updated: Option<Value>,
    pub(crate) problem: Option<String>,
    pub(crate) body: &'a str,
}

impl<'a> ParsedNote<'a> {
    /// Parses a note. Invalid front matter is reported in `problem`.
    pub(crate) fn parse(note_text: &'a str) -> Self {
        let (head, body) = front_matter::split_front_matter(note_text);
        let (fields, problem) = match head {
            FrontMatter::Absent => (Map::new(), None),
            FrontMatter::Parsed(fields) => (fields, None),
            FrontMatter::Invalid(reason) => (Map::new(), Some(reason)),
        };
        let scalar_field = |key: &str| {
            let value = fields.get(key);
            value.filter(|value| value.is_number() || value.is_string()).cloned()
        };
        Self {
            tags: parse_tags(fields.get("tags").or_else(|| fields.get("tag"))),
            confidence: scalar_field("confidence"),
            updated: scalar_field("updated"),
            problem,
            body,
        }
    }

    /// Returns whether the note has the tag `parent_tag` or a tag nested below it, as in Obsidian.
    pub(crate) fn has_tag(&self, parent_tag: &str) -> bool {
        let parent_tag = parent_tag.to_lowercase();
        self.tags.iter().any(|tag| {
            let tag = tag.to_lowercase();
            let rest = tag.strip_prefix(&parent_tag);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }
}

/// Parses the value of the `tags` field, which people write as a list or on one line. `None` gives
/// no tags.
fn parse_tags(value: Option<&Value>) -> Vec<String> {
    let Some(value) = value else {
        return Vec::new();
    };
    let tags: Vec<String> = match value {
        Value::String(line) => {
            line.split(|c: char| c == ',' || c.is_whitespace()).map(str::to_owned).collect()
        }
        Value::Array(items) => items
            .iter()
            .filter(|item| item.is_string() || item.is_number())
            .map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    };
    tags.iter()
        .map(|tag| tag.trim_start_matches('#').chars().take(100).collect())
        .filter(|tag: &String| !tag.is_empty())
        .take(TAGS_MAX)
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, proptest};

    use longhaul_core::id::RunId;
    use longhaul_core::time::Timestamp;

    use super::{NoteDraft, ParsedNote};
    use crate::vault::name;

    const NOW: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);
    const LATER: Timestamp = Timestamp::from_micros(1_767_225_700_000_000);

    fn new_note(content: &str) -> NoteDraft {
        NoteDraft {
            title: "Buy: milk".into(),
            folder: "Tasks".into(),
            tags: vec!["home".into()],
            confidence: 90,
            content: content.into(),
            run: RunId::from_bits(1),
        }
    }

    #[test]
    fn a_new_note_has_front_matter() {
        let text = new_note("Two litres.").render(None, NOW).unwrap();
        let expected = "---\ntitle: \"Buy: milk\"\nfolder: Tasks\ntags:\n  - home\nconfidence: 90\n\
            created: \"2026-01-01T00:00:00.000000Z\"\nupdated: \"2026-01-01T00:00:00.000000Z\"\n\
            run: run_00000000000000000000000001\n---\n\nTwo litres.";
        assert_eq!(text, expected);
        assert_eq!(new_note("Two litres.").render(Some(&text), LATER), None);
    }

    #[test]
    fn an_update_keeps_created_and_manual_fields() {
        let before = "---\naliases: [M, 'a: b']\ncreated: 2020-05-05\nconfidence: 1\n---\nold";
        let text = new_note("new").render(Some(before), LATER).unwrap();
        let lines = [
            "created: \"2020-05-05\"\n",
            "updated: \"2026-01-01T00:01:40.000000Z\"\n",
            "aliases:\n  - M\n  - \"a: b\"\n---\n\nnew",
        ];
        for line in lines {
            assert!(text.contains(line), "{line} in {text}");
        }
    }

    #[test]
    fn tags_are_parsed_in_every_yaml_form() {
        let check = |head: &str, expected: &[&str]| {
            let text = format!("---\n{head}\n---\n");
            assert_eq!(ParsedNote::parse(&text).tags, expected, "{head}");
        };
        check("tags: a, b", &["a", "b"]);
        check("tags: ['#a', 2026]", &["a", "2026"]);
        check("tag: a", &["a"]);
        check("tags: { a: b }", &[]);
        assert!(ParsedNote::parse("---\ntags: [Work/Alpha]\n---\n").has_tag("work"));
        assert!(!ParsedNote::parse("---\ntags: [Workshop]\n---\n").has_tag("work"));
    }

    proptest! {
        #[test]
        fn notes_round_trip(
            title in any::<String>(),
            tags in prop::collection::vec("[\\pL\\pN_/-]{1,20}", 0..5),
            content in any::<String>(),
            confidence in 0_u8..=100,
        ) {
            let tags = tags.iter().filter_map(|tag| name::parse_tag(tag).ok()).collect();
            let draft = NoteDraft { title, tags, confidence, ..new_note(&content) };
            let text = draft.render(None, NOW).unwrap();
            prop_assert!(draft.round_trips(&text));
            prop_assert_eq!(draft.render(Some(&text), LATER), None);
        }
    }
}
