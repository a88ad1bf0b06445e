//! A conversation as people keep it: a list of who said what.
//!
//! Never: more than words. Calls and their results come as messages.

use std::sync::Arc;

use longhaul_core::message::{Block, Message, Reply, Words};
use serde::Deserialize;

/// The longest history, in bytes.
pub const HISTORY_BYTES_MAX: usize = 1024 * 1024;

/// So many messages it may have.
const MESSAGES_MAX: usize = 1_000;

/// The dialect of what was said elsewhere.
const DIALECT: &str = "history";

/// What is wrong with a history.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadHistory {
    /// It is too long.
    #[error("is longer than {HISTORY_BYTES_MAX} bytes")]
    Long,
    /// It has too many messages.
    #[error("has more than {MESSAGES_MAX} messages")]
    Many,
    /// It is no list of messages.
    #[error("is no JSON list of {{\"role\": \"user\" or \"assistant\", \"content\": TEXT}}: {0}")]
    Shape(String),
    /// A message says nothing; they are counted from 1.
    #[error("says nothing in message {0}")]
    Empty(usize),
    /// It begins with an answer.
    #[error("begins with the assistant; a conversation begins with the user")]
    Begins,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Role {
    User,
    Assistant,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    role: Role,
    content: String,
}

/// Reads a history.
pub fn history(bytes: &[u8]) -> Result<Vec<Message>, BadHistory> {
    if bytes.len() > HISTORY_BYTES_MAX {
        return Err(BadHistory::Long);
    }
    let shape = |error: serde_json::Error| BadHistory::Shape(error.to_string());
    let said: Vec<Said> = serde_json::from_slice(bytes).map_err(shape)?;
    if said.len() > MESSAGES_MAX {
        return Err(BadHistory::Many);
    }
    if let Some(place) = said.iter().position(|said| said.content.trim().is_empty()) {
        return Err(BadHistory::Empty(place + 1));
    }
    if said
        .first()
        .is_some_and(|said| said.role == Role::Assistant)
    {
        return Err(BadHistory::Begins);
    }
    Ok(said.into_iter().map(message).collect())
}

fn message(said: Said) -> Message {
    match said.role {
        Role::User => Message::user(said.content),
        Role::Assistant => Message::Assistant(Arc::new(Reply {
            dialect: DIALECT.to_owned(),
            blocks: vec![Block::Text(Words {
                text: said.content.into(),
                extra: None,
            })],
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::{HISTORY_BYTES_MAX, history};

    #[test]
    fn what_is_no_history_is_refused() {
        let many = format!(
            "[{}]",
            [r#"{"role":"user","content":"a"}"#; 1_001].join(",")
        );
        let long = format!("[{}]", " ".repeat(HISTORY_BYTES_MAX));
        for (text, why) in [
            ("", "is no JSON list"),
            ("{}", "is no JSON list"),
            ("[3]", "is no JSON list"),
            (
                r#"[{"role":"system","content":"a"}]"#,
                "unknown variant `system`",
            ),
            (r#"[{"role":"user","content":["a"]}]"#, "invalid type"),
            (
                r#"[{"role":"user","content":"a","id":1}]"#,
                "unknown field `id`",
            ),
            (
                r#"[{"role":"user","content":"a"},{"role":"assistant","content":" "}]"#,
                "message 2",
            ),
            (
                r#"[{"role":"assistant","content":"a"}]"#,
                "begins with the user",
            ),
            (&many, "more than 1000 messages"),
            (&long, "longer than"),
        ] {
            let bad = history(text.as_bytes()).unwrap_err().to_string();
            assert!(bad.contains(why), "{bad}");
        }
        assert_eq!(history(b"[]"), Ok(Vec::new()));
        let both = br#"[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]"#;
        assert_eq!(history(both).map(|messages| messages.len()), Ok(2));
    }
}
