//! One exchange with a provider: sends the request and feeds the response to a decoder.
//!
//! This module does not interpret the provider's JSON and never retries.

use std::sync::Arc;

use bytes::Bytes;
use longhaul_core::failure::Failure;
use longhaul_core::message::{Block, Reply, StopReason};
use longhaul_core::port::model::DeltaSink;
use longhaul_core::redact::Redactor;
use longhaul_core::time::Clock;
use longhaul_core::usage::{ModelPricing, Usage};
use reqwest::Url;
use reqwest::header::HeaderMap;
use serde_json::value::RawValue;

use crate::decode_error::{DecodeError, Decoded};
use crate::error_mapping::ErrorMapper;
use crate::http::HttpClient;
use crate::http::error::HttpError;
use crate::http::response::LimitedResponse;
use crate::lenient_json::remove_too_deep_extras;
use crate::lenient_object::LenientObject;
use crate::sse::{SseEvent, SseStream};
use crate::token_counts::{TokenCounts, UsageJsonPaths};

/// Decoder that builds a reply from the events or the body of a provider's response.
pub(crate) trait ReplyDecoder: Default + Send {
    /// Decodes one event of the stream.
    fn decode_event(&mut self, event: &SseEvent) -> Decoded<EventEffect>;

    /// Decodes a complete reply from a server that does not stream.
    fn decode_body(&mut self, body: &str) -> Decoded;

    /// Returns the user-visible text that was decoded since the last call.
    fn take_new_text(&mut self) -> String;

    /// Whether the reply counts as complete if the stream ends now, without a final event. True
    /// only for APIs whose servers may omit the final event.
    fn is_complete_at_eof(&self) -> bool {
        false
    }

    /// Returns the token counts received so far.
    fn token_counts(&self) -> TokenCounts;

    /// Returns the number of bytes of the reply received so far. Used to estimate token counts that
    /// the provider does not report.
    fn received_byte_count(&self) -> u64;

    /// Returns the complete reply, with the given label of the API and provider that it came from.
    fn into_decoded_reply(self, api_label: &str) -> DecodedReply;
}

/// A decoded reply with its stop reason and the model name that the provider reported.
#[derive(Debug)]
pub(crate) struct DecodedReply {
    pub(crate) reply: Reply,
    pub(crate) stop: StopReason,
    /// Model name as reported by the provider. `None` if it reported none.
    pub(crate) model: Option<String>,
}

/// Builds a reply from its blocks and the label of its API. The returned flag says whether the
/// reply contains tool calls.
pub(crate) fn build_reply(api: &str, blocks: impl IntoIterator<Item = Block>) -> (Reply, bool) {
    let blocks = blocks.into_iter().filter_map(remove_too_deep_extras).collect();
    let reply = Reply { api: api.to_owned(), blocks };
    let has_calls = reply.tool_calls().next().is_some();
    (reply, has_calls)
}

/// Effect of a stream event on the reply that is being decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventEffect {
    /// The event does not affect the reply, such as a keep-alive event.
    Ignored,
    /// The event contained a part of the reply.
    Progress,
    /// The event ended the reply.
    Done,
}

/// Data of the event with which some APIs end a stream. Compatible servers of other APIs send it
/// too.
const DONE: &str = "[DONE]";

/// Problem of an event that is not valid JSON.
pub(crate) const NOT_JSON: &str = "an event is not valid JSON";

/// Decodes the JSON objects of an event in order and stops at the end of the reply. An empty event
/// and the end marker `[DONE]` contain no objects.
pub(crate) fn decode_event_objects<'a>(
    event: &'a SseEvent,
    mut decode: impl FnMut(&'a RawValue) -> Decoded<EventEffect>,
) -> Decoded<EventEffect> {
    let mut effect = EventEffect::Ignored;
    if event.data == DONE || event.data.is_empty() {
        return Ok(effect);
    }
    let objects: Vec<&RawValue> =
        event.parse_json_data().map_err(DecodeError::invalid_json(NOT_JSON))?;
    if !objects.iter().all(|raw| raw.get().starts_with('{')) {
        return Err(DecodeError::malformed("an event is not an object"));
    }
    for raw in objects {
        match decode(raw)? {
            EventEffect::Ignored => {}
            EventEffect::Progress => effect = EventEffect::Progress,
            EventEffect::Done => return Ok(EventEffect::Done),
        }
    }
    Ok(effect)
}

/// Returns the `type` of a JSON object, or else the name of the event that contains the object.
pub(crate) fn event_type(object: &LenientObject<'_>, event: &SseEvent) -> String {
    let kind = object.string_field("type").filter(|kind| !kind.is_empty());
    kind.or_else(|| event.name.clone()).unwrap_or_default()
}

/// Returns a required field of an event, or an error if the field is missing.
pub(crate) fn required_field<'a>(frame: &LenientObject<'a>, name: &str) -> Decoded<&'a str> {
    let raw = frame.raw_field(name).map(RawValue::get);
    raw.ok_or_else(|| DecodeError::Malformed(format!("an event lacks the field `{name}`")))
}

/// One operation of a provider's API: the URL, and everything needed to send requests to that URL.
#[derive(Debug)]
pub(crate) struct ProviderEndpoint {
    pub(crate) provider: String,
    pub(crate) http: HttpClient,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) secrets: Redactor,
    pub(crate) clock: Arc<dyn Clock>,
    /// JSON paths of the token counts in the `usage` object of a response.
    pub(crate) usage: &'static UsageJsonPaths,
}

/// Size of a request and pricing of its model, used to estimate the usage of the request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UsageEstimator {
    pub(crate) pricing: ModelPricing,
    /// Size of the conversation in bytes.
    pub(crate) bytes: u64,
}

impl UsageEstimator {
    /// Estimates the usage of an exchange for which the provider reports no token counts.
    pub(crate) fn estimated_usage(&self, decoder: &impl ReplyDecoder) -> Usage {
        self.pricing.estimate_usage(self.bytes, decoder.received_byte_count())
    }
}

/// Why an exchange ended without a complete reply.
enum ReplyError {
    Http(HttpError),
    Decode(DecodeError),
    /// The response body is complete, but it is not a reply. Contains the reason and the body.
    UnexpectedBody(String, Vec<u8>),
}

impl From<HttpError> for ReplyError {
    fn from(error: HttpError) -> Self {
        Self::Http(error)
    }
}

impl ProviderEndpoint {
    /// Sends a request and passes the response to the decoder until the reply is complete.
    pub(crate) async fn request_reply(
        &self,
        (body, usage_estimator): (Bytes, UsageEstimator),
        decoder: &mut impl ReplyDecoder,
        sink: &dyn DeltaSink,
    ) -> Result<(), Failure> {
        let response = self.http.post(&self.url, &self.headers, body).await;
        let mut response =
            response.map_err(|http_error| self.error_mapper().http_error(&http_error, None))?;
        let (status, headers) = (response.status(), response.headers().clone());
        if !(200..300).contains(&status) {
            let body = response.read_error_body().await;
            return Err(self.error_mapper().error_status(status, &headers, &body));
        }
        let result = match response.is_event_stream() {
            true => self.decode_event_stream(response, decoder, sink).await,
            false => self.decode_response_body(response, decoder, sink).await,
        };
        result.map_err(|error| {
            let mapper = self.error_mapper();
            let failure = match error {
                ReplyError::Http(http_error) => mapper.http_error(&http_error, Some(&headers)),
                ReplyError::Decode(error) => mapper.decode_error(&headers, &error),
                ReplyError::UnexpectedBody(message, body) => {
                    mapper.not_a_reply(&headers, &message, &body)
                }
            };
            let estimate = usage_estimator.estimated_usage(decoder);
            let usage = decoder.token_counts().complete_usage(self.usage, estimate);
            Failure { usage: Some(Usage { estimated: true, ..usage }), ..failure }
        })
    }

    async fn decode_event_stream(
        &self,
        response: LimitedResponse,
        decoder: &mut impl ReplyDecoder,
        sink: &dyn DeltaSink,
    ) -> Result<(), ReplyError> {
        let stall = self.http.limits().stall;
        let mut events = SseStream::new(response);
        let mut effect = EventEffect::Ignored;
        while effect != EventEffect::Done {
            let next = read_until_progress(&mut events, decoder, sink);
            let next = tokio::time::timeout(stall, next).await;
            effect = next.map_err(|_| HttpError::stall_timeout(stall))??;
        }
        events.drain_body().await;
        Ok(())
    }

    async fn decode_response_body(
        &self,
        mut response: LimitedResponse,
        decoder: &mut impl ReplyDecoder,
        sink: &dyn DeltaSink,
    ) -> Result<(), ReplyError> {
        let Some(body) = response.read_body_unless_stream().await? else {
            return self.decode_event_stream(response, decoder, sink).await;
        };
        let result = match std::str::from_utf8(&body) {
            Ok(text) => decoder.decode_body(text),
            Err(_) => Err(DecodeError::malformed("the reply is not UTF-8")),
        };
        emit_new_text(decoder, sink);
        result.map_err(|error| match error {
            DecodeError::ProviderError(_) | DecodeError::TooLarge(_) => ReplyError::Decode(error),
            DecodeError::Malformed(message) => ReplyError::UnexpectedBody(message, body),
        })
    }

    fn error_mapper(&self) -> ErrorMapper<'_> {
        ErrorMapper { provider: &self.provider, secrets: &self.secrets, now: self.clock.now() }
    }
}

fn emit_new_text(decoder: &mut impl ReplyDecoder, sink: &dyn DeltaSink) {
    let text = decoder.take_new_text();
    if !text.is_empty() {
        sink.on_text(&text);
    }
}

/// Reads events until an event adds to the reply or ends the reply.
async fn read_until_progress(
    events: &mut SseStream,
    decoder: &mut impl ReplyDecoder,
    sink: &dyn DeltaSink,
) -> Result<EventEffect, ReplyError> {
    while let Some(event) = events.next_event().await? {
        let result = decoder.decode_event(&event);
        emit_new_text(decoder, sink);
        match result {
            Ok(EventEffect::Ignored) => {}
            Ok(effect @ (EventEffect::Progress | EventEffect::Done)) => {
                return Ok(effect);
            }
            // A truncated event means that the stream ended early, not that the event is malformed.
            Err(DecodeError::Malformed(_)) if event.is_truncated => {
                return Err(HttpError::unexpected_eof().into());
            }
            Err(error) => return Err(ReplyError::Decode(error)),
        }
    }
    match decoder.is_complete_at_eof() {
        true => Ok(EventEffect::Done),
        false => Err(HttpError::unexpected_eof().into()),
    }
}
