//! Renders a reply of the OpenAI Responses API.

use longhaul_core::message::StopReason;
use serde_json::{Value, json};

use crate::mock::mock_reply::{MockReply, ReplyItem};

/// Value of the field `status` of a response that is not complete yet, and of its items.
const IN_PROGRESS: &str = "in_progress";
const COMPLETED: &str = "completed";

/// Renders the reply as one complete response body.
pub(super) fn render_body(mock_reply: &MockReply<'_>) -> Value {
    let items = mock_reply.items().map(|item| output_item(mock_reply, &item, COMPLETED));
    let mut response = response_object(mock_reply, final_status(&mock_reply.stop), items.collect());
    response["completed_at"] = mock_reply.unix_seconds().into();
    response["usage"] = render_usage(mock_reply);
    response
}

/// Renders the reply as the events of a stream, numbered in their order.
pub(super) fn render_events(mock_reply: &MockReply<'_>) -> Vec<Value> {
    let mut events = Vec::new();
    let mut push = |kind: &str, fields: Value| {
        let mut event =
            json!({ "type": format!("response.{kind}"), "sequence_number": events.len() });
        if let (Value::Object(event), Value::Object(fields)) = (&mut event, fields) {
            event.extend(fields);
        }
        events.push(event);
    };
    let started = response_object(mock_reply, IN_PROGRESS, Vec::new());
    push("created", json!({ "response": started }));
    push("in_progress", json!({ "response": started }));
    for (output, item) in mock_reply.items().enumerate() {
        let started_item = output_item(mock_reply, &item, IN_PROGRESS);
        push("output_item.added", json!({ "output_index": output, "item": started_item }));
        let id = item_id(mock_reply, &item);
        match item.call {
            Some(call) => {
                for piece in item.chunks() {
                    push(
                        "function_call_arguments.delta",
                        json!({ "item_id": id, "output_index": output, "delta": piece }),
                    );
                }
                push(
                    "function_call_arguments.done",
                    json!({
                        "item_id": id,
                        "output_index": output,
                        "name": call.name,
                        "arguments": item.text,
                    }),
                );
            }
            None => {
                let mut push_part = |kind: &str, name: &str, value: Value| {
                    let mut fields = json!({
                        "item_id": id,
                        "output_index": output,
                        "content_index": 0,
                        name: value,
                    });
                    if kind.starts_with("output_text") {
                        fields["logprobs"] = json!([]);
                    }
                    push(kind, fields);
                };
                push_part("content_part.added", "part", output_text_part(""));
                for piece in item.chunks() {
                    push_part("output_text.delta", "delta", piece.into());
                }
                push_part("output_text.done", "text", item.text.into());
                push_part("content_part.done", "part", output_text_part(item.text));
            }
        }
        let completed_item = output_item(mock_reply, &item, COMPLETED);
        push("output_item.done", json!({ "output_index": output, "item": completed_item }));
    }
    push(final_status(&mock_reply.stop), json!({ "response": render_body(mock_reply) }));
    events
}

fn item_id(mock_reply: &MockReply<'_>, item: &ReplyItem<'_>) -> String {
    let prefix = if item.call.is_some() { "fc_" } else { "msg_" };
    mock_reply.ids.item_id(prefix, item.index)
}

/// Returns an output item of a response: a message or a tool call. Its text or arguments are in it
/// only if it is complete.
fn output_item(mock_reply: &MockReply<'_>, item: &ReplyItem<'_>, status: &str) -> Value {
    let is_complete = status == COMPLETED;
    let id = item_id(mock_reply, item);
    match item.call {
        None => json!({
            "id": id,
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": Vec::from_iter(is_complete.then(|| output_text_part(item.text))),
        }),
        Some(call) => json!({
            "id": id,
            "type": "function_call",
            "status": status,
            "call_id": mock_reply.ids.item_id("call_", item.index),
            "name": call.name,
            "arguments": if is_complete { item.text } else { "" },
        }),
    }
}

fn output_text_part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

/// Returns a response object with the given status and output items, including the fields that
/// repeat the request.
fn response_object(mock_reply: &MockReply<'_>, status: &str, output: Vec<Value>) -> Value {
    // Returns the value of a request field, or the provider's default.
    let request_field_or = |name: &str, default: Value| {
        let requested = mock_reply.request.body.get(name).filter(|value| !value.is_null());
        requested.cloned().unwrap_or(default)
    };
    json!({
        "id": mock_reply.ids.response_id(),
        "object": "response",
        "created_at": mock_reply.unix_seconds(),
        "status": status,
        "background": false,
        "completed_at": null,
        "error": null,
        "incomplete_details": null,
        "instructions": request_field_or("instructions", Value::Null),
        "max_output_tokens": request_field_or("max_output_tokens", Value::Null),
        "model": mock_reply.request.model,
        "output": output,
        "parallel_tool_calls": request_field_or("parallel_tool_calls", json!(true)),
        "previous_response_id": request_field_or("previous_response_id", Value::Null),
        "reasoning": request_field_or("reasoning", json!({ "effort": null, "summary": null })),
        "service_tier": "default",
        "store": request_field_or("store", json!(true)),
        "temperature": request_field_or("temperature", json!(1.0)),
        "text": request_field_or("text", json!({ "format": { "type": "text" } })),
        "tool_choice": request_field_or("tool_choice", json!("auto")),
        "tools": request_field_or("tools", json!([])),
        "top_p": request_field_or("top_p", json!(1.0)),
        "truncation": request_field_or("truncation", json!("disabled")),
        "metadata": request_field_or("metadata", json!({})),
    })
}

fn render_usage(mock_reply: &MockReply<'_>) -> Value {
    let usage = &mock_reply.usage;
    let input = usage.sent_tokens();
    json!({
        "input_tokens": input,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": { "reasoning_tokens": usage.reasoning_tokens },
        "total_tokens": input.saturating_add(usage.output_tokens),
    })
}

/// Returns the final status of a response, which is also the name of the event that ends its stream.
fn final_status(reason: &StopReason) -> &'static str {
    match *reason == StopReason::MaxTokens {
        true => "incomplete",
        false => COMPLETED,
    }
}
