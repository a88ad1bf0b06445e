//! Helpers: scripts in memory, and requests in all three APIs.

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_core::time::{Clock as _, Timestamp};
use longhaul_model::mock::{
    ApiKind, FaultSettings, IncomingRequest, MockBody, MockProvider, MockResponse,
    ScriptLookupError, ScriptSource,
};
use longhaul_model::scripted::Script;
use serde_json::{Value, json};

use super::spec;
use crate::suite::harness::FixedClock;

pub(crate) const APIS: [ApiKind; 3] = [ApiKind::Messages, ApiKind::Responses, ApiKind::Chat];

/// A script that uses every feature of a reply.
const PLAY_SCRIPT: &str = "replies:
- text: 'Looking for {{ input }} in two places.'
  tools:
  - { name: look, input: { where: 'Küche', deep: [1, 2.5, null] } }
  - { name: look, input: { where: '{{ input }}' } }
- text: 'Found: {{ last_result }}'
  usage: { input_tokens: 100, output_tokens: 20, cached_tokens: 30, cache_write_tokens: 5, reasoning_tokens: 7 }
- tools: [{ name: end }]
- text: 'The last word.'
";

const OUTAGE_SCRIPT: &str = "replies:
- error: { status: 529, times: 2 }
  text: 'After the outage.'
  delay: 50ms
";

/// Scripts by name.
#[derive(Debug)]
struct ScriptMap(BTreeMap<String, Result<Arc<Script>, String>>);

impl ScriptSource for ScriptMap {
    fn find_script(&self, name: &str, _: Timestamp) -> Result<Arc<Script>, ScriptLookupError> {
        let found = self.0.get(name).ok_or(ScriptLookupError::NotFound)?;
        found.clone().map_err(ScriptLookupError::Invalid)
    }

    fn script_names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }
}

pub(crate) fn mock_with_faults(faults: FaultSettings) -> MockProvider {
    let script = |name: &str, text: &str| {
        let script = Script::parse_yaml(name, text).map_err(|error| error.to_string());
        (name.to_owned(), script.map(Arc::new))
    };
    let scripts = ScriptMap(BTreeMap::from([
        script("broken", "replies: [{ txet: no }]"),
        script("outage", OUTAGE_SCRIPT),
        script("play", PLAY_SCRIPT),
    ]));
    MockProvider::new(Arc::new(scripts), faults)
}

pub(crate) fn mock() -> MockProvider {
    mock_with_faults(FaultSettings::default())
}

pub(crate) fn incoming_request(api: ApiKind, body: &[u8]) -> IncomingRequest<'_> {
    IncomingRequest { api, turn: None, fault: None, body, now: FixedClock.now() }
}

/// Sends a request and validates the response against the provider's API description.
pub(crate) fn respond(mock: &MockProvider, api: ApiKind, body: &Value) -> MockResponse {
    let text = body.to_string();
    let answer = mock.respond(&incoming_request(api, text.as_bytes()));
    spec::check(api, &answer);
    answer
}

/// Returns a complete body as text.
pub(crate) fn body(answer: &MockResponse) -> &str {
    match &answer.body {
        MockBody::Full(body) => std::str::from_utf8(body).unwrap(),
        MockBody::Stream(events) => panic!("a stream: {events:?}"),
    }
}

pub(crate) fn json_of(answer: &MockResponse) -> Value {
    serde_json::from_str(body(answer)).unwrap()
}

/// Returns the events of a stream as text.
pub(crate) fn events(answer: &MockResponse) -> Vec<&str> {
    match &answer.body {
        MockBody::Stream(events) => {
            let texts = events.iter().map(|event| std::str::from_utf8(event));
            texts.map(Result::unwrap).collect()
        }
        MockBody::Full(body) => panic!("no stream: {body:?}"),
    }
}

/// Parses the data of an event. `None` means the `[DONE]` of Chat Completions.
pub(crate) fn data(event: &str) -> Option<Value> {
    assert!(event.ends_with("\n\n"), "{event:?}");
    let line = event.lines().find_map(|line| line.strip_prefix("data: "));
    let line = line.unwrap_or_else(|| panic!("{event:?}"));
    (line != "[DONE]").then(|| serde_json::from_str(line).unwrap())
}

pub(crate) fn header<'a>(answer: &'a MockResponse, name: &str) -> Option<&'a str> {
    let found = answer.headers.iter().find(|(header_name, _)| *header_name == name);
    found.map(|(_, value)| value.as_str())
}

/// Returns the request of a first turn.
pub(crate) fn first_request(api: ApiKind, model: &str) -> Value {
    match api {
        ApiKind::Messages => json!({
            "model": model,
            "max_tokens": 1_000,
            "system": [{ "type": "text", "text": "Be brief." }],
            "messages": [{ "role": "user", "content": "the key" }],
        }),
        ApiKind::Responses => {
            json!({ "model": model, "instructions": "Be brief.", "input": "the key" })
        }
        ApiKind::Chat => json!({
            "model": model,
            "messages": [
                { "role": "developer", "content": "Be brief." },
                { "role": "user", "content": [{ "type": "text", "text": "the key" }] },
            ],
        }),
    }
}

/// Returns the request of the next turn, with the reply and its tool results.
pub(crate) fn second_request(api: ApiKind, first: &Value, answer: &Value) -> Value {
    let mut request = first.clone();
    match api {
        ApiKind::Messages => {
            let blocks = answer["content"].as_array().unwrap().iter();
            let ids = blocks.filter_map(|block| block["id"].as_str());
            let results = ids.enumerate().map(|(index, id)| {
                let content = json!([{ "type": "text", "text": format!("result {index}") }]);
                json!({ "type": "tool_result", "tool_use_id": id, "content": content })
            });
            let results: Vec<Value> = results.collect();
            let messages = request["messages"].as_array_mut().unwrap();
            messages.push(json!({ "role": "assistant", "content": answer["content"] }));
            messages.push(json!({ "role": "user", "content": results }));
        }
        ApiKind::Responses => {
            let mut items = vec![json!({ "role": "user", "content": first["input"] })];
            let output = answer["output"].as_array().unwrap();
            items.extend(output.iter().cloned());
            let ids = output.iter().filter_map(|item| item["call_id"].as_str());
            items.extend(ids.enumerate().map(|(index, id)| {
                let output = format!("result {index}");
                json!({ "type": "function_call_output", "call_id": id, "output": output })
            }));
            request["input"] = items.into();
        }
        ApiKind::Chat => {
            let message = &answer["choices"][0]["message"];
            let messages = request["messages"].as_array_mut().unwrap();
            messages.push(message.clone());
            let calls = message["tool_calls"].as_array().into_iter().flatten();
            messages.extend(calls.enumerate().map(|(index, call)| {
                let content = format!("result {index}");
                json!({ "role": "tool", "tool_call_id": call["id"], "content": content })
            }));
        }
    }
    request
}

/// Returns the request with streaming turned on.
pub(crate) fn as_stream(mut question: Value) -> Value {
    question["stream"] = true.into();
    question
}

/// Returns all text of a complete reply.
pub(crate) fn reply_text(api: ApiKind, reply: &Value) -> String {
    let texts: Vec<&str> = match api {
        ApiKind::Messages => {
            let blocks = reply["content"].as_array().unwrap().iter();
            blocks.filter_map(|block| block["text"].as_str()).collect()
        }
        ApiKind::Responses => {
            let items = reply["output"].as_array().unwrap().iter();
            let texts = items.filter_map(|item| item["content"][0]["text"].as_str());
            texts.collect()
        }
        ApiKind::Chat => {
            let text = reply["choices"][0]["message"]["content"].as_str();
            text.into_iter().collect()
        }
    };
    texts.concat()
}
