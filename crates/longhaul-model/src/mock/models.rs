//! The scripts as a provider's list of models.
//!
//! Never: a page of it. There are never so many scripts.

use serde_json::{Value, json};

use crate::mock::answer::Answer;
use crate::mock::dialect::Dialect;

/// When every script was made, as far as a client is told: it must be a date.
const MADE: (&str, u64) = ("2026-01-01T00:00:00Z", 1_767_225_600);

/// The list of these scripts.
pub(crate) fn answer(dialect: Dialect, names: &[String], request: &str) -> Answer {
    let list = match dialect {
        Dialect::Messages => json!({
            "data": names.iter().map(|name| anthropic(name)).collect::<Vec<_>>(),
            "has_more": false,
            "first_id": names.first(),
            "last_id": names.last(),
        }),
        Dialect::Responses | Dialect::Chat => json!({
            "object": "list",
            "data": names.iter().map(|name| openai(name)).collect::<Vec<_>>(),
        }),
    };
    Answer::whole(200, list.to_string()).named(dialect, request)
}

fn anthropic(name: &str) -> Value {
    json!({
        "type": "model",
        "id": name,
        "display_name": format!("{name} (scripted, no AI)"),
        "created_at": MADE.0,
        "max_input_tokens": null,
        "max_tokens": null,
        "capabilities": null,
    })
}

fn openai(name: &str) -> Value {
    json!({ "id": name, "object": "model", "created": MADE.1, "owned_by": "longhaul-scripted" })
}
