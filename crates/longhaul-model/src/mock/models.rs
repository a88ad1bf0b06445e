//! Lists the scripts (prepared replies) of the mock provider in the format of the provider's model
//! list, always on one page.

use serde_json::{Value, json};

use crate::mock::api_kind::ApiKind;
use crate::mock::response::MockResponse;

/// Creation date of every listed model, as text and in Unix seconds. Clients expect a date.
const CREATED: (&str, u64) = ("2026-01-01T00:00:00Z", 1_767_225_600);

/// Returns a response that lists the scripts with these names as models.
pub(crate) fn model_list_response(
    api: ApiKind,
    script_names: &[String],
    request_id: &str,
) -> MockResponse {
    let list = match api {
        ApiKind::Messages => json!({
            "data": script_names.iter().map(|name| anthropic_model_json(name)).collect::<Vec<_>>(),
            "has_more": false,
            "first_id": script_names.first(),
            "last_id": script_names.last(),
        }),
        ApiKind::Responses | ApiKind::Chat => json!({
            "object": "list",
            "data": script_names.iter().map(|name| openai_model_json(name)).collect::<Vec<_>>(),
        }),
    };
    MockResponse::with_json_body(200, list.to_string()).with_request_id(api, request_id)
}

fn anthropic_model_json(script_name: &str) -> Value {
    json!({
        "type": "model",
        "id": script_name,
        "display_name": format!("{script_name} (scripted, no AI)"),
        "created_at": CREATED.0,
        "max_input_tokens": null,
        "max_tokens": null,
        "capabilities": null,
    })
}

fn openai_model_json(script_name: &str) -> Value {
    json!({ "id": script_name, "object": "model", "created": CREATED.1, "owned_by": "longhaul-scripted" })
}
