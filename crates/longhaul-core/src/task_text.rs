//! Texts of tasks for lists and searches. Both are bounded: a task may have a long input.

use crate::raw::RawJson;
use crate::task::TaskSpec;

/// Maximum number of characters of a task's title.
pub const TITLE_CHARS_MAX: usize = 160;

/// Maximum number of characters of a task that a search reads.
pub const SEARCHED_CHARS_MAX: usize = 4_000;

/// Maximum number of bytes of an input that are read for the texts.
const INPUT_BYTES_MAX: usize = 4 * SEARCHED_CHARS_MAX;

/// Maximum number of bytes by which a cut JSON string is shortened until it does not end within an
/// escape sequence.
const ESCAPE_BYTES_MAX: usize = 12;

impl TaskSpec {
    /// Returns the first words of the task, on one line. The words of an event start with its kind.
    pub fn title(&self) -> String {
        let text = self.leading_text();
        let mut title = String::new();
        for part in text.split_whitespace() {
            if title.len() >= TITLE_CHARS_MAX {
                break;
            }
            title.push_str(if title.is_empty() { "" } else { " " });
            title.push_str(part);
        }
        title.chars().take(TITLE_CHARS_MAX).collect()
    }

    /// Returns the text in which a search for this task looks: the beginning of its input, in lower
    /// case.
    pub fn searched_text(&self) -> String {
        let text = self.leading_text().to_lowercase();
        text.chars().take(SEARCHED_CHARS_MAX).collect()
    }

    fn leading_text(&self) -> String {
        let input = leading_input_text(&self.input);
        match self.kind.as_deref().filter(|_| self.event) {
            Some(kind) => format!("{kind} {input}"),
            None => input,
        }
    }
}

/// Returns the beginning of an input: of its text, or of its JSON if it is not a text.
fn leading_input_text(input: &RawJson) -> String {
    let json = input.as_str();
    if json == "null" {
        return String::new();
    }
    let cut = json.floor_char_boundary(INPUT_BYTES_MAX);
    if !json.starts_with('"') {
        return json[..cut].to_owned();
    }
    if cut == json.len() {
        return serde_json::from_str(json).unwrap_or_default();
    }
    let ends = (cut.saturating_sub(ESCAPE_BYTES_MAX)..=cut).rev();
    let mut starts = ends.filter_map(|end| json.get(..end));
    starts.find_map(|start| serde_json::from_str(&format!("{start}\"")).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::id::{AgentName, InboxName, RunId};

    fn task(input: &str) -> TaskSpec {
        let input = RawJson::parse(input).unwrap();
        TaskSpec::new(RunId::from_bits(1), AgentName::default(), input, InboxName::default())
    }

    #[test]
    fn the_title_is_the_beginning_of_the_input_on_one_line() {
        for (input, title) in [
            (json!("Fix\n  the\tleak"), "Fix the leak"),
            (json!({ "ticket": 123 }), r#"{"ticket":123}"#),
            (json!(null), ""),
            (json!(7), "7"),
        ] {
            assert_eq!(task(&input.to_string()).title(), title);
        }
        let event = TaskSpec { kind: Some("tick".into()), event: true, ..task("{}") };
        assert_eq!(event.title(), "tick {}");
        assert_eq!(task(&json!("ä".repeat(500)).to_string()).title().chars().count(), 160);
    }

    #[test]
    fn a_long_text_is_cut_between_its_characters_and_escapes() {
        for padding in 0..16 {
            for repeated in ["é", r"\u00e9", r"\ud83d\ude00", r"\\", r#"\""#] {
                let text = format!("\"{}{}\"", "A".repeat(padding), repeated.repeat(20_000));
                let searched = task(&text).searched_text();
                assert!(searched.starts_with(&"a".repeat(padding)), "{repeated}");
                let count = searched.chars().count();
                assert!((1_000..=SEARCHED_CHARS_MAX).contains(&count), "{repeated}: {count}");
            }
        }
    }
}
