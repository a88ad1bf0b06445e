//! One exchange with a provider: the question goes out, the codec hears the answer.
//!
//! Never: knows what a provider's JSON means, or asks again when it failed.

use std::sync::Arc;

use bytes::Bytes;
use longhaul_core::failure::Failure;
use longhaul_core::port::model::DeltaSink;
use longhaul_core::redact::Redactor;
use longhaul_core::time::Clock;
use longhaul_core::usage::{ModelPricing, Usage};
use reqwest::Url;
use reqwest::header::HeaderMap;
use serde_json::value::RawValue;

use crate::decode_error::DecodeError;
use crate::error_mapping::ErrorMapper;
use crate::http::Http;
use crate::http::error::HttpError;
use crate::http::response::BoundedResponse;
use crate::lenient_object::LenientObject;
use crate::sse::{SseEvent, SseStream};
use crate::token_counts::{TokenCounts, UsagePaths};

/// Somebody who puts a reply together from what a provider sends.
pub(crate) trait EventDecoder: Send {
    /// Hears one event; words for the reader go to `ear`.
    fn decode_event(
        &mut self,
        event: &SseEvent,
        ear: &dyn DeltaSink,
    ) -> Result<EventEffect, DecodeError>;

    /// Hears a reply that came whole, from a server that does not stream.
    fn decode_body(&mut self, body: &str, ear: &dyn DeltaSink) -> Result<(), DecodeError>;

    /// Whether all was said that makes a reply, should the stream end here. Only
    /// for providers who may leave out the event that closes a stream.
    fn is_complete(&self) -> bool {
        false
    }

    /// The tokens that were counted so far.
    fn counts(&self) -> TokenCounts;

    /// So much of a reply has come, for a guess where nobody counts.
    fn received_bytes(&self) -> u64;
}

/// What an event was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventEffect {
    /// A sign of life.
    Ignored,
    /// Something of the reply.
    Progress,
    /// The end of the reply.
    Done,
}

/// Passes words on, where there are any.
pub(crate) fn emit_text(words: &str, ear: &dyn DeltaSink) {
    if !words.is_empty() {
        ear.on_text(words);
    }
}

/// The end as some providers say it, and servers that speak as others do say too.
const DONE: &str = "[DONE]";

/// The objects in an event; none: it says nothing, or that all was said.
pub(crate) fn objects(event: &SseEvent) -> Result<Vec<&RawValue>, DecodeError> {
    if event.data == DONE || event.data.is_empty() {
        return Ok(Vec::new());
    }
    let objects: Vec<&RawValue> = event.parse().map_err(invalid_json)?;
    match objects.iter().all(|raw| raw.get().starts_with('{')) {
        true => Ok(objects),
        false => Err(DecodeError::Malformed("an event that is no object".to_owned())),
    }
}

/// Hears the objects of an event one after another, until one is the end.
pub(crate) fn decode_objects<'a>(
    event: &'a SseEvent,
    mut hear: impl FnMut(&'a RawValue) -> Result<EventEffect, DecodeError>,
) -> Result<EventEffect, DecodeError> {
    let mut heed = EventEffect::Ignored;
    for raw in objects(event)? {
        match hear(raw)? {
            EventEffect::Ignored => {}
            EventEffect::Progress => heed = EventEffect::Progress,
            EventEffect::Done => return Ok(EventEffect::Done),
        }
    }
    Ok(heed)
}

/// The kind of a frame: as it says itself, or as the event around it is called.
pub(crate) fn event_type(frame: &LenientObject<'_>, event: &SseEvent) -> String {
    let kind = frame.text("type").filter(|kind| !kind.is_empty());
    kind.or_else(|| event.name.clone()).unwrap_or_default()
}

/// A field without which a frame means nothing.
pub(crate) fn required_field<'a>(
    frame: &LenientObject<'a>,
    name: &str,
) -> Result<&'a str, DecodeError> {
    let raw = frame.raw(name).map(RawValue::get);
    raw.ok_or_else(|| DecodeError::Malformed(format!("an event without its `{name}`")))
}

/// What an event says makes no sense.
pub(crate) fn invalid_json(bad: serde_json::Error) -> DecodeError {
    DecodeError::Malformed(format!("an event is no JSON: {bad}"))
}

/// A line to one operation of a provider.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) provider: String,
    pub(crate) http: Http,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) secrets: Redactor,
    pub(crate) clock: Arc<dyn Clock>,
    /// Where the provider counts tokens.
    pub(crate) usage: &'static UsagePaths,
}

/// What a question is estimated by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestSize {
    pub(crate) pricing: ModelPricing,
    /// The bytes of the conversation in it.
    pub(crate) bytes: u64,
}

impl RequestSize {
    /// What was used, about, where the provider does not say it.
    pub(crate) fn estimated_usage(&self, codec: &dyn EventDecoder) -> Usage {
        self.pricing.estimate(self.bytes, codec.received_bytes())
    }
}

/// How hearing ended without a reply.
enum ExchangeError {
    Http(HttpError),
    Decode(DecodeError),
    /// The answer is this, which is no reply, and why not.
    UnexpectedBody(String, Vec<u8>),
}

impl From<HttpError> for ExchangeError {
    fn from(trouble: HttpError) -> Self {
        Self::Http(trouble)
    }
}

impl Endpoint {
    /// Sends a question and lets the codec hear the answer to its end.
    pub(crate) async fn send(
        &self,
        (body, question): (Bytes, RequestSize),
        codec: &mut dyn EventDecoder,
        ear: &dyn DeltaSink,
    ) -> Result<(), Failure> {
        let sent = self.http.post(&self.url, &self.headers, body).await;
        let mut answer =
            sent.map_err(|trouble| self.error_mapper().transport_error(&trouble, None))?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        if !(200..300).contains(&status) {
            let body = answer.read_error_body().await;
            return Err(self.error_mapper().http_status(status, &headers, &body));
        }
        let heard = match answer.is_stream() {
            true => self.read_stream(answer, codec, ear).await,
            false => self.read_body(answer, codec, ear).await,
        };
        heard.map_err(|ended| {
            let blame = self.error_mapper();
            let failure = match ended {
                ExchangeError::Http(trouble) => blame.transport_error(&trouble, Some(&headers)),
                ExchangeError::Decode(DecodeError::ProviderError(error)) => {
                    blame.stream_error(&headers, &error)
                }
                ExchangeError::Decode(DecodeError::Malformed(what)) => {
                    blame.malformed_response(&headers, &what)
                }
                ExchangeError::Decode(DecodeError::TooLarge(what)) => {
                    blame.oversized_response(&headers, &what)
                }
                ExchangeError::UnexpectedBody(what, body) => {
                    blame.unexpected_body(&headers, &what, &body)
                }
            };
            Failure {
                usage: Some(
                    codec.counts().partial_usage(self.usage, question.estimated_usage(codec)),
                ),
                ..failure
            }
        })
    }

    async fn read_stream(
        &self,
        answer: BoundedResponse,
        codec: &mut dyn EventDecoder,
        ear: &dyn DeltaSink,
    ) -> Result<(), ExchangeError> {
        let stall = self.http.limits().stall;
        let mut events = SseStream::new(answer);
        loop {
            let moved =
                tokio::time::timeout(stall, read_until_progress(&mut events, codec, ear)).await;
            match moved.map_err(|_| HttpError::StallTimeout(stall))?? {
                EventEffect::Done => break,
                EventEffect::Progress | EventEffect::Ignored => {}
            }
        }
        events.drain().await;
        Ok(())
    }

    async fn read_body(
        &self,
        mut answer: BoundedResponse,
        codec: &mut dyn EventDecoder,
        ear: &dyn DeltaSink,
    ) -> Result<(), ExchangeError> {
        let Some(body) = answer.read_all().await? else {
            return self.read_stream(answer, codec, ear).await;
        };
        let heard = match std::str::from_utf8(&body) {
            Ok(text) => codec.decode_body(text, ear),
            Err(_) => Err(DecodeError::Malformed("the reply is no text".to_owned())),
        };
        heard.map_err(|fault| match fault {
            DecodeError::ProviderError(_) | DecodeError::TooLarge(_) => {
                ExchangeError::Decode(fault)
            }
            DecodeError::Malformed(what) => ExchangeError::UnexpectedBody(what, body),
        })
    }

    fn error_mapper(&self) -> ErrorMapper<'_> {
        ErrorMapper { provider: &self.provider, secrets: &self.secrets, now: self.clock.now() }
    }
}

/// Hears events until one moves the reply on.
async fn read_until_progress(
    events: &mut SseStream,
    codec: &mut dyn EventDecoder,
    ear: &dyn DeltaSink,
) -> Result<EventEffect, ExchangeError> {
    while let Some(event) = events.next().await? {
        match codec.decode_event(&event, ear) {
            Ok(EventEffect::Ignored) => {}
            Ok(heed @ (EventEffect::Progress | EventEffect::Done)) => return Ok(heed),
            // Half an event is the end of the stream, not nonsense.
            Err(DecodeError::Malformed(_)) if event.is_truncated => {
                return Err(HttpError::UnexpectedEof.into());
            }
            Err(fault) => return Err(ExchangeError::Decode(fault)),
        }
    }
    match codec.is_complete() {
        true => Ok(EventEffect::Done),
        false => Err(HttpError::UnexpectedEof.into()),
    }
}
