//! A pretended provider: scripts that answer over the wires of Anthropic and
//! OpenAI, so that adapters and SDKs can be tried without a key.
//!
//! Never: opens a socket, waits, or reads a clock. It says what is to be sent
//! and how slowly; whoever holds the connection does it.

mod api_error;
mod api_kind;
mod attempts;
mod event;
mod fault;
mod mock_reply;
mod models;
mod parse;
mod render;
mod request;
mod response;
mod scripts;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use longhaul_core::id::RunId;
use longhaul_core::port::model::ModelRequest;
use longhaul_core::raw::{Hash, StoredText};
use longhaul_core::time::{Millis, Timestamp};

use crate::mock::api_error::ApiError;
use crate::mock::attempts::AttemptCounter;
use crate::mock::fault::Fault;
use crate::mock::mock_reply::{MockReply, ReplyIds};
use crate::mock::request::ParsedRequest;
use crate::scripted::render::Renderer;
use crate::scripted::reply;
use crate::scripted::script::{Script, ScriptedReply};

pub use crate::mock::api_kind::ApiKind;
pub use crate::mock::fault::{Faults, RecurringFailure};
pub use crate::mock::response::{MockBody, MockResponse, Termination};
pub use crate::mock::scripts::{ScriptLookupError, ScriptSource, is_valid_name};

/// The longest request that is read.
pub const BODY_BYTES_MAX: usize = 32 << 20;

/// The header that says which turn is asked for, from 1.
pub const TURN_HEADER: &str = "x-longhaul-turn";

/// The header that asks for something to go wrong.
pub const FAULT_HEADER: &str = "x-longhaul-fault";

/// A request to a provider that isn't there.
#[derive(Debug, Clone, Copy)]
pub struct IncomingRequest<'a> {
    /// Whose words it is written in.
    pub api: ApiKind,
    /// What `TURN_HEADER` says.
    pub turn: Option<&'a str>,
    /// What `FAULT_HEADER` says.
    pub fault: Option<&'a str>,
    /// The JSON.
    pub body: &'a [u8],
    /// When it came.
    pub now: Timestamp,
}

/// Plays scripts as providers would speak them.
#[derive(Debug)]
pub struct MockProvider {
    scripts: Arc<dyn ScriptSource>,
    faults: Faults,
    renderer: Renderer,
    /// Requests of every kind: they are named by it.
    requests: AtomicU64,
    /// Questions for a reply: faults come back by it.
    reply_requests: AtomicU64,
    streams: AtomicU64,
    attempts: AttemptCounter,
}

impl MockProvider {
    /// A mock of these scripts, with these faults for every request.
    pub fn new(scripts: Arc<dyn ScriptSource>, faults: Faults) -> Self {
        Self {
            scripts,
            faults,
            renderer: Renderer::new(),
            requests: AtomicU64::new(0),
            reply_requests: AtomicU64::new(0),
            streams: AtomicU64::new(0),
            attempts: AttemptCounter::default(),
        }
    }

    /// Answers a question for a reply.
    pub fn respond(&self, asked: &IncomingRequest<'_>) -> MockResponse {
        let id = self.request_id();
        let mut delay = Millis::ZERO;
        let answer = self.try_respond(asked, &id, &mut delay);
        let mut answer = answer.unwrap_or_else(|refusal| refusal.to_response(asked.api, &id));
        answer.initial_delay = self.faults.latency.plus(delay);
        answer.event_delay = self.faults.token_delay;
        answer
    }

    /// Lists the scripts as this provider lists its models.
    pub fn list_models(&self, dialect: ApiKind) -> MockResponse {
        models::list_response(dialect, &self.scripts.names(), &self.request_id())
    }

    /// Says no in this provider's words: for what is wrong before there is a question.
    pub fn reject(&self, dialect: ApiKind, status: u16, message: &str) -> MockResponse {
        ApiError::new(status, message).to_response(dialect, &self.request_id())
    }

    fn request_id(&self) -> String {
        format!("req_{:024}", next(&self.requests))
    }

    fn try_respond(
        &self,
        asked: &IncomingRequest<'_>,
        id: &str,
        delay: &mut Millis,
    ) -> Result<MockResponse, ApiError> {
        let number = next(&self.reply_requests);
        let fault = asked.fault.map(Fault::parse).transpose();
        let fault = fault.map_err(|bad| ApiError::new(400, bad))?;
        let status = match fault {
            Some(Fault::Status(status)) => Some(status),
            Some(Fault::Cut | Fault::Stall | Fault::Garbage | Fault::Error) | None => None,
        };
        if let Some(status) = status.or_else(|| self.faults.status_of(number)) {
            let message = format!("this failure with status {status} was asked for");
            return Err(ApiError::new(status, message));
        }
        if asked.body.len() > BODY_BYTES_MAX {
            let message = format!("a request has at most {BODY_BYTES_MAX} bytes");
            return Err(ApiError::new(413, message));
        }
        let heard = parse::parse(asked.api, asked.body)?;
        let turn = match asked.turn {
            None => heard.assistant_messages.saturating_add(1),
            Some(said) => parse_turn(said)?,
        };
        let hash = Hash::digest(asked.body);
        let (mut ask, name) = model_request(&heard, turn);
        let script = self.find_script(&heard.model, name, asked.now)?;
        let place = script.reply_index(turn);
        let broken = |fault: &str| {
            let message = format!("{}: replies[{place}]: {fault}", ask.model);
            ApiError::new(400, message)
        };
        let line = script.replies.get(place);
        let line = line.ok_or_else(|| broken("there is no such reply"))?;
        *delay = line.delay;
        let said =
            reply::render_reply(line, &ask, &self.renderer).map_err(|fault| broken(&fault))?;
        ask.attempt = self.next_attempt(line, name, hash);
        if let Some(failure) =
            line.failure.and_then(|outage| reply::scripted_failure(outage, ask.attempt))
        {
            let status = failure.status.unwrap_or(500);
            return Err(ApiError::new(status, failure.message));
        }
        let said = Arc::new(said);
        let speech = MockReply {
            request: &heard,
            stop: reply::stop_reason(&said),
            usage: line.usage.unwrap_or_else(|| reply::estimate_usage(&ask, &said)),
            ids: ReplyIds::new(hash, turn),
            now: asked.now,
            reply: &said,
        };
        self.render_reply(asked.api, &speech, (fault, id))
    }

    fn find_script(
        &self,
        model: &str,
        name: &str,
        now: Timestamp,
    ) -> Result<Arc<Script>, ApiError> {
        let found = match is_valid_name(name) {
            true => self.scripts.find(name, now),
            false => Err(ScriptLookupError::NotFound),
        };
        found.map_err(|missing| match missing {
            ScriptLookupError::NotFound => ApiError::unknown_model(model, &self.scripts.names()),
            ScriptLookupError::Invalid(why) => ApiError::new(400, why),
        })
    }

    /// Which try this is, counted only where a script fails some.
    fn next_attempt(&self, line: &ScriptedReply, name: &str, hash: Hash) -> u32 {
        match line.failure {
            None => 1,
            Some(outage) => self.attempts.next(name, hash, outage.times),
        }
    }

    /// The reply on the wire, with what is to go wrong with it.
    fn render_reply(
        &self,
        dialect: ApiKind,
        speech: &MockReply<'_>,
        (fault, id): (Option<Fault>, &str),
    ) -> Result<MockResponse, ApiError> {
        if speech.request.stream {
            let stream = next(&self.streams);
            let answer =
                MockResponse::stream(render::events(dialect, speech)).with_request_id(dialect, id);
            let regular = self.faults.should_cut(stream).then_some(Fault::Cut);
            let trouble = || render::error_event(dialect, id);
            return Ok(fault::inject(answer, fault.or(regular), trouble));
        }
        if fault == Some(Fault::Error) {
            return Err(ApiError::new(render::OVERLOADED_STATUS, render::OVERLOADED_MESSAGE));
        }
        let answer =
            MockResponse::json(200, render::body(dialect, speech)).with_request_id(dialect, id);
        Ok(fault::inject(answer, fault, Bytes::new))
    }
}

fn next(count: &AtomicU64) -> u64 {
    count.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
}

fn parse_turn(said: &str) -> Result<u32, ApiError> {
    let turn = said.trim().parse().ok().filter(|turn| *turn > 0);
    turn.ok_or_else(|| {
        let message = format!("{TURN_HEADER}: a turn is a whole number from 1");
        ApiError::new(400, message)
    })
}

/// The question as a scripted model is asked it, and the name of its script.
fn model_request<'a>(heard: &'a ParsedRequest<'_>, turn: u32) -> (ModelRequest, &'a str) {
    let name = heard.model.strip_prefix("scripted/");
    let name = name.unwrap_or(&heard.model);
    let ask = ModelRequest {
        run: RunId::from_bits(0),
        turn,
        attempt: 1,
        model: format!("{}/{name}", reply::API),
        system: StoredText::inline(heard.system.as_str()),
        tools: StoredText::inline(heard.tools),
        messages: Arc::clone(&heard.messages),
        max_tokens: 0,
    };
    (ask, name)
}
