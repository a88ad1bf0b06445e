//! The scripts as a provider's list of models.
//!
//! Never: a page of it. There are never so many scripts.

use serde_json::{Value, json};

use crate::mock::api_kind::ApiKind;
use crate::mock::response::MockResponse;

/// When every script was made, as far as a client is told: it must be a date.
const CREATED: (&str, u64) = ("2026-01-01T00:00:00Z", 1_767_225_600);

/// The list of these scripts.
pub(crate) fn list_response(dialect: ApiKind, names: &[String], request: &str) -> MockResponse {
    let list = match dialect {
        ApiKind::Messages => json!({
            "data": names.iter().map(|name| anthropic_model(name)).collect::<Vec<_>>(),
            "has_more": false,
            "first_id": names.first(),
            "last_id": names.last(),
        }),
        ApiKind::Responses | ApiKind::Chat => json!({
            "object": "list",
            "data": names.iter().map(|name| openai_model(name)).collect::<Vec<_>>(),
        }),
    };
    MockResponse::json(200, list.to_string()).with_request_id(dialect, request)
}

fn anthropic_model(name: &str) -> Value {
    json!({
        "type": "model",
        "id": name,
        "display_name": format!("{name} (scripted, no AI)"),
        "created_at": CREATED.0,
        "max_input_tokens": null,
        "max_tokens": null,
        "capabilities": null,
    })
}

fn openai_model(name: &str) -> Value {
    json!({ "id": name, "object": "model", "created": CREATED.1, "owned_by": "longhaul-scripted" })
}
