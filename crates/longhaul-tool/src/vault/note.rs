//! A note as text: what the vault writes, and what it makes of any note it meets.
//!
//! Never: drops what a person has put into the front matter.

use serde_json::{Map, Value, json};

use longhaul_core::id::RunId;
use longhaul_core::time::Timestamp;

use crate::safe_dir::FileSnapshot;
use crate::vault::front_matter::{self, FrontMatter};

/// The keys of the vault's own; all others are kept as they are.
const OWN_KEYS: &[&str] = &["title", "folder", "tags", "confidence", "created", "updated", "run"];
/// How many tags a note has, or is shown with.
pub(crate) const TAGS_MAX: usize = 50;

/// What a call wants a note to say.
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
    /// The note's text, after what stood there before. `None` when a note that
    /// says just this is there already, from this very run.
    pub(crate) fn render_over(&self, before: Option<&str>, now: Timestamp) -> Option<String> {
        let (head, body) = before.map_or((FrontMatter::Absent, ""), front_matter::split);
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
        let kept = before.iter().filter(|(key, _)| !OWN_KEYS.contains(&key.as_str()));
        fields.extend(kept.map(|(key, value)| (key.clone(), value.clone())));
        if fields == before && body == self.content {
            return None;
        }
        fields.insert("updated".into(), json!(now.to_string()));
        let head = front_matter::render(&fields);
        Some(format!("---\n{head}---\n\n{}", self.content))
    }

    /// Whether this text is read back as what was meant.
    pub(crate) fn is_read_back_from(&self, text: &str) -> bool {
        let seen = ParsedNote::parse(text);
        let is_whole = seen.problem.is_none() && seen.updated.is_some();
        is_whole && seen.body == self.content && seen.tags == self.tags
    }
}

/// Why a note can't be replaced without the loss of what it says, in words that go
/// on from its name.
pub(crate) fn replace_error(taken: &FileSnapshot) -> Option<String> {
    let text = match std::str::from_utf8(&taken.bytes) {
        Ok(text) => text,
        // Only the last letter, which the bound cut in two.
        Err(error) if taken.is_truncated && error.error_len().is_none() => {
            return front_matter_error(&taken.text());
        }
        Err(_) => return Some("is not text in UTF-8".to_owned()),
    };
    front_matter_error(text)
}

fn front_matter_error(text: &str) -> Option<String> {
    match front_matter::split(text).0 {
        FrontMatter::Invalid(why) => Some(format!("has front matter that can't be read ({why})")),
        FrontMatter::Absent | FrontMatter::Parsed(_) => None,
    }
}

/// What any note says, ours or a person's.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ParsedNote<'a> {
    pub(crate) tags: Vec<String>,
    pub(crate) confidence: Option<Value>,
    pub(crate) updated: Option<Value>,
    pub(crate) problem: Option<String>,
    pub(crate) body: &'a str,
}

impl<'a> ParsedNote<'a> {
    /// Reads a note; front matter that can't be read is a problem, not an end.
    pub(crate) fn parse(text: &'a str) -> Self {
        let (head, body) = front_matter::split(text);
        let (fields, problem) = match head {
            FrontMatter::Absent => (Map::new(), None),
            FrontMatter::Parsed(fields) => (fields, None),
            FrontMatter::Invalid(why) => (Map::new(), Some(why)),
        };
        let plain = |key: &str| {
            let value = fields.get(key);
            value.filter(|value| value.is_number() || value.is_string()).cloned()
        };
        Self {
            tags: parse_tags(fields.get("tags").or_else(|| fields.get("tag"))),
            confidence: plain("confidence"),
            updated: plain("updated"),
            problem,
            body,
        }
    }

    /// Whether it has this tag or one below it, as Obsidian counts.
    pub(crate) fn has_tag(&self, wanted: &str) -> bool {
        let wanted = wanted.to_lowercase();
        self.tags.iter().any(|tag| {
            let tag = tag.to_lowercase();
            let rest = tag.strip_prefix(&wanted);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }
}

/// People write tags as a list or in one line.
fn parse_tags(value: Option<&Value>) -> Vec<String> {
    let Some(value) = value else {
        return Vec::new();
    };
    let all: Vec<String> = match value {
        Value::String(line) => line
            .split(|letter: char| letter == ',' || letter.is_whitespace())
            .map(str::to_owned)
            .collect(),
        Value::Array(items) => items
            .iter()
            .filter(|item| item.is_string() || item.is_number())
            .map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    };
    all.iter()
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
        let text = new_note("Two litres.").render_over(None, NOW).unwrap();
        let expected = "---\ntitle: \"Buy: milk\"\nfolder: Tasks\ntags:\n  - home\nconfidence: 90\n\
            created: \"2026-01-01T00:00:00.000000Z\"\nupdated: \"2026-01-01T00:00:00.000000Z\"\n\
            run: run_00000000000000000000000001\n---\n\nTwo litres.";
        assert_eq!(text, expected);
        assert_eq!(new_note("Two litres.").render_over(Some(&text), LATER), None);
    }

    #[test]
    fn an_update_keeps_created_and_manual_fields() {
        let before = "---\naliases: [M, 'a: b']\ncreated: 2020-05-05\nconfidence: 1\n---\nold";
        let text = new_note("new").render_over(Some(before), LATER).unwrap();
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
            let text = draft.render_over(None, NOW).unwrap();
            prop_assert!(draft.is_read_back_from(&text));
            prop_assert_eq!(draft.render_over(Some(&text), LATER), None);
        }
    }
}
