//! A mock provider that serves scripted replies over the APIs of Anthropic and OpenAI, so that
//! adapters and SDKs can be tested without an API key.
//!
//! Invariant: no sockets, no waiting and no clock. The mock returns what to send and with which
//! delays; the caller sends it.

mod api_error;
mod fault;
mod mock_reply;
mod render;
mod reply_ids;
mod request;
mod response;
mod scripts;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use longhaul_core::id::RunId;
use longhaul_core::port::model::ModelRequest;
use longhaul_core::raw::{Hash, StoredText};
use longhaul_core::time::{Millis, Timestamp};
use serde_json::{Value, json};

use crate::mock::api_error::ApiError;
use crate::mock::fault::Fault;
use crate::mock::mock_reply::MockReply;
use crate::mock::reply_ids::ReplyIdGenerator;
use crate::mock::request::ParsedRequest;
use crate::scripted::render::TemplateRenderer;
use crate::scripted::reply;
use crate::scripted::script::{Script, ScriptedUsage};

pub use crate::mock::fault::{FaultSettings, RecurringFailure};
pub use crate::mock::response::{ApiKind, MockBody, MockResponse, ResponseTermination};
pub use crate::mock::scripts::{ScriptLookupError, ScriptSource, is_valid_script_name};

/// Maximum size in bytes of the body of a request to the mock provider.
pub const BODY_BYTES_MAX: usize = 32 << 20;

/// Request header with the number of the turn whose reply is requested, from 1.
pub const TURN_HEADER: &str = "x-longhaul-turn";

/// Request header that makes the mock provider inject a fault into the response.
pub const FAULT_HEADER: &str = "x-longhaul-fault";

/// A request that the mock provider has received.
#[derive(Debug, Clone, Copy)]
pub struct IncomingRequest<'a> {
    /// API that the request uses.
    pub api: ApiKind,
    /// Value of the header `x-longhaul-turn`. `None` means that the turn follows from the number of
    /// assistant messages in the body.
    pub turn: Option<&'a str>,
    /// Value of the header `x-longhaul-fault`. `None` means that no fault is requested.
    pub fault: Option<&'a str>,
    /// JSON body of the request.
    pub body: &'a [u8],
    /// Time at which the request was received.
    pub now: Timestamp,
}

/// A mock provider whose replies come from scripts.
#[derive(Debug)]
pub struct MockProvider {
    scripts: Arc<dyn ScriptSource>,
    faults: FaultSettings,
    renderer: TemplateRenderer,
    /// Number of requests of all kinds so far. Request IDs are made from this number.
    requests: AtomicU64,
    /// Number of requests for a reply so far, which decides when a recurring failure is due.
    reply_requests: AtomicU64,
    streams: AtomicU64,
    attempts: FailedAttemptCounter,
}

impl MockProvider {
    /// Creates a mock provider with the given scripts and injected faults.
    pub fn new(scripts: Arc<dyn ScriptSource>, faults: FaultSettings) -> Self {
        Self {
            scripts,
            faults,
            renderer: TemplateRenderer::new(),
            requests: AtomicU64::new(0),
            reply_requests: AtomicU64::new(0),
            streams: AtomicU64::new(0),
            attempts: FailedAttemptCounter::default(),
        }
    }

    /// Responds to a request for a model reply.
    pub fn respond(&self, request: &IncomingRequest<'_>) -> MockResponse {
        let id = self.next_request_id();
        let mut delay = Millis::ZERO;
        let response = self.try_respond(request, &id, &mut delay);
        let mut response = response.unwrap_or_else(|error| error.to_response(request.api, &id));
        response.initial_delay = self.faults.latency.plus(delay);
        response.event_delay = self.faults.token_delay;
        response
    }

    /// Responds to a request for the list of models. Each script is listed as a model.
    pub fn list_models(&self, api: ApiKind) -> MockResponse {
        model_list_response(api, &self.scripts.script_names(), &self.next_request_id())
    }

    /// Returns an error response in the format of an API, for requests that can't be parsed or
    /// routed.
    pub fn reject_request(&self, api: ApiKind, status: u16, message: &str) -> MockResponse {
        ApiError::new(status, message).to_response(api, &self.next_request_id())
    }

    fn next_request_id(&self) -> String {
        format!("req_{:024}", increment_counter(&self.requests))
    }

    fn try_respond(
        &self,
        request: &IncomingRequest<'_>,
        id: &str,
        delay: &mut Millis,
    ) -> Result<MockResponse, ApiError> {
        let number = increment_counter(&self.reply_requests);
        let fault = request.fault.map(Fault::parse_header_value).transpose();
        let fault = fault.map_err(|reason| ApiError::new(400, reason))?;
        let status = match fault {
            Some(Fault::Status(status)) => Some(status),
            Some(Fault::Cut | Fault::Stall | Fault::Garbage | Fault::Error) | None => None,
        };
        let is_due = |failure: &RecurringFailure| number.is_multiple_of(failure.every.get());
        let recurring = self.faults.failure.filter(is_due).map(|failure| failure.status);
        if let Some(status) = status.or(recurring) {
            let message = format!("the mock provider injected a failure with status {status}");
            return Err(ApiError::new(status, message));
        }
        if request.body.len() > BODY_BYTES_MAX {
            let message = format!("the request body may have at most {BODY_BYTES_MAX} bytes");
            return Err(ApiError::new(413, message));
        }
        let parsed = request::parse_request(request.api, request.body)?;
        let turn = match request.turn {
            None => parsed.assistant_messages.saturating_add(1),
            Some(header) => parse_turn_header(header)?,
        };
        let hash = Hash::digest(request.body);
        let (mut scripted_request, name) = to_model_request(&parsed, turn);
        let script = self.script(&parsed.model, name, request.now)?;
        let index = script.reply_index(turn);
        let script_error = |error: &str| {
            let message = format!("{}: replies[{index}]: {error}", scripted_request.model);
            ApiError::new(400, message)
        };
        let scripted_reply = script.replies.get(index);
        let scripted_reply = scripted_reply.ok_or_else(|| script_error("no such reply"))?;
        *delay = scripted_reply.delay;
        let rendered = reply::render_reply(scripted_reply, &scripted_request, &self.renderer)
            .map_err(|error| script_error(&error))?;
        // Attempts are counted only for replies that are scripted to fail.
        if let Some(scripted_failure) = scripted_reply.error {
            let attempt = self.attempts.next_attempt(name, hash, scripted_failure.times);
            scripted_request.attempt = attempt;
            if let Some(failure) = reply::failure_of_attempt(scripted_failure, attempt) {
                return Err(ApiError::new(failure.status.unwrap_or(500), failure.message));
            }
        }
        let rendered = Arc::new(rendered);
        let mock_reply = MockReply {
            request: &parsed,
            stop: reply::stop_reason(&rendered),
            usage: scripted_reply.usage.map_or_else(
                || reply::estimate_usage(&scripted_request, &rendered),
                ScriptedUsage::to_usage,
            ),
            ids: ReplyIdGenerator::from_request_hash(hash, turn),
            now: request.now,
            reply: &rendered,
        };
        self.render_reply(request.api, &mock_reply, (fault, id))
    }

    fn script(&self, model: &str, name: &str, now: Timestamp) -> Result<Arc<Script>, ApiError> {
        let script = match is_valid_script_name(name) {
            true => self.scripts.find_script(name, now),
            false => Err(ScriptLookupError::NotFound),
        };
        script.map_err(|error| match error {
            ScriptLookupError::NotFound => {
                ApiError::unknown_model(model, &self.scripts.script_names())
            }
            ScriptLookupError::Invalid(reason) => ApiError::new(400, reason),
        })
    }

    /// Renders the reply in the format of the API and injects the fault.
    fn render_reply(
        &self,
        api: ApiKind,
        mock_reply: &MockReply<'_>,
        (fault, id): (Option<Fault>, &str),
    ) -> Result<MockResponse, ApiError> {
        if mock_reply.request.body["stream"] == true {
            let stream = increment_counter(&self.streams);
            let response =
                MockResponse::event_stream(render::render_events(api, mock_reply), (api, id));
            let cut_every = self.faults.cut_every;
            let is_cut = cut_every.is_some_and(|every| stream.is_multiple_of(every.get()));
            let configured_fault = is_cut.then_some(Fault::Cut);
            let error_event = || render::error_event(api, id);
            return Ok(fault::inject_fault(response, fault.or(configured_fault), error_event));
        }
        if fault == Some(Fault::Error) {
            return Err(ApiError::new(render::OVERLOADED_STATUS, render::OVERLOADED_MESSAGE));
        }
        let response = MockResponse::json(200, render::render_body(api, mock_reply), (api, id));
        Ok(fault::inject_fault(response, fault, Bytes::new))
    }
}

/// Maximum number of remembered requests. When there are more, all are forgotten.
const COUNTED_REQUESTS_MAX: usize = 65_536;

/// Number of failures of each request to a script.
#[derive(Debug, Default)]
struct FailedAttemptCounter(Mutex<HashMap<(Box<str>, Hash), u32>>);

impl FailedAttemptCounter {
    /// Returns the number of the current attempt at a request, from 1. The script makes the first
    /// `failures` attempts fail. Failures are counted up to that number, so that every later
    /// attempt succeeds.
    fn next_attempt(&self, script: &str, request: Hash, failures: u32) -> u32 {
        if failures == 0 {
            return 1;
        }
        let mut failed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (script.into(), request);
        if failed.len() >= COUNTED_REQUESTS_MAX && !failed.contains_key(&key) {
            // Any entry: an old request is rarely repeated after this number of other requests.
            let forgotten = failed.keys().next().cloned();
            forgotten.and_then(|key| failed.remove(&key));
        }
        let count = failed.entry(key).or_default();
        let attempt = count.saturating_add(1);
        *count = attempt.min(failures);
        attempt
    }
}

fn increment_counter(count: &AtomicU64) -> u64 {
    count.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
}

fn parse_turn_header(header_value: &str) -> Result<u32, ApiError> {
    let turn = header_value.trim().parse().ok().filter(|turn| *turn > 0);
    turn.ok_or_else(|| {
        let message = format!("{TURN_HEADER}: must be a whole number of at least 1");
        ApiError::new(400, message)
    })
}

/// Returns the request in the form that the scripted model expects, and the name of the script.
fn to_model_request(parsed: &ParsedRequest, turn: u32) -> (ModelRequest, &str) {
    let name = parsed.model.strip_prefix("scripted/");
    let name = name.unwrap_or(&parsed.model);
    let request = ModelRequest {
        run: RunId::from_bits(0),
        turn,
        attempt: 1,
        model: format!("{}/{name}", reply::API),
        system: StoredText::new_inline(parsed.system.as_str()),
        tools: StoredText::new_inline(
            parsed.body.get("tools").map(Value::to_string).unwrap_or_default(),
        ),
        messages: Arc::clone(&parsed.messages),
        max_tokens: 0,
    };
    (request, name)
}

/// Creation date of every listed model, as text and in Unix seconds. Clients expect a date.
const CREATED: (&str, u64) = ("2026-01-01T00:00:00Z", 1_767_225_600);

/// Returns a response that lists the scripts with these names as models.
fn model_list_response(api: ApiKind, script_names: &[String], request_id: &str) -> MockResponse {
    let anthropic_model = |name: &String| {
        json!({
            "type": "model",
            "id": name,
            "display_name": format!("{name} (scripted, no AI)"),
            "created_at": CREATED.0,
            "max_input_tokens": null,
            "max_tokens": null,
            "capabilities": null,
        })
    };
    let openai_model = |name: &String| json!({ "id": name, "object": "model", "created": CREATED.1, "owned_by": "longhaul-scripted" });
    let list = match api {
        ApiKind::Messages => json!({
            "data": script_names.iter().map(anthropic_model).collect::<Value>(),
            "has_more": false,
            "first_id": script_names.first(),
            "last_id": script_names.last(),
        }),
        ApiKind::Responses | ApiKind::Chat => json!({
            "object": "list",
            "data": script_names.iter().map(openai_model).collect::<Value>(),
        }),
    };
    MockResponse::json(200, list.to_string(), (api, request_id))
}
