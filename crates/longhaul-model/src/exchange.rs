//! One exchange with a provider: sends the request and feeds the response to a decoder.
//!
//! This module does not interpret the provider's JSON and never retries.

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
use crate::http::HttpClient;
use crate::http::error::HttpError;
use crate::http::response::SizeLimitedResponse;
use crate::lenient_object::LenientObject;
use crate::sse::{SseEvent, SseStream};
use crate::token_counts::{TokenCounts, UsageJsonPaths};

/// Decoder that builds a reply from the events or the body of a provider's response.
pub(crate) trait StreamEventDecoder: Send {
    /// Decodes one event of the stream. User-visible text is passed to the sink.
    fn decode_event(
        &mut self,
        event: &SseEvent,
        sink: &dyn DeltaSink,
    ) -> Result<StreamEventEffect, DecodeError>;

    /// Decodes a complete reply from a server that does not stream.
    fn decode_body(&mut self, body: &str, sink: &dyn DeltaSink) -> Result<(), DecodeError>;

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
}

/// Effect of a stream event on the reply that is being decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamEventEffect {
    /// The event does not affect the reply, such as a keep-alive event.
    Ignored,
    /// The event contained a part of the reply.
    Progress,
    /// The event ended the reply.
    Done,
}

/// Passes text to the sink unless the text is empty.
pub(crate) fn emit_non_empty_text(text: &str, sink: &dyn DeltaSink) {
    if !text.is_empty() {
        sink.on_text(text);
    }
}

/// Data of the event with which some APIs end a stream. Compatible servers of other APIs send it
/// too.
const DONE: &str = "[DONE]";

/// Returns the JSON objects in an event. An empty event and the end marker `[DONE]` contain no
/// objects.
pub(crate) fn parse_event_objects(event: &SseEvent) -> Result<Vec<&RawValue>, DecodeError> {
    if event.data == DONE || event.data.is_empty() {
        return Ok(Vec::new());
    }
    let objects: Vec<&RawValue> = event.parse_json_data().map_err(invalid_json_error)?;
    match objects.iter().all(|raw| raw.get().starts_with('{')) {
        true => Ok(objects),
        false => Err(DecodeError::Malformed("an event is not an object".to_owned())),
    }
}

/// Decodes the JSON objects of an event in order and stops at the end of the reply.
pub(crate) fn decode_event_objects<'a>(
    event: &'a SseEvent,
    mut decode: impl FnMut(&'a RawValue) -> Result<StreamEventEffect, DecodeError>,
) -> Result<StreamEventEffect, DecodeError> {
    let mut effect = StreamEventEffect::Ignored;
    for raw in parse_event_objects(event)? {
        match decode(raw)? {
            StreamEventEffect::Ignored => {}
            StreamEventEffect::Progress => effect = StreamEventEffect::Progress,
            StreamEventEffect::Done => return Ok(StreamEventEffect::Done),
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
pub(crate) fn required_field<'a>(
    frame: &LenientObject<'a>,
    name: &str,
) -> Result<&'a str, DecodeError> {
    let raw = frame.raw_field(name).map(RawValue::get);
    raw.ok_or_else(|| DecodeError::Malformed(format!("an event lacks the field `{name}`")))
}

/// Returns the error for an event that is not valid JSON.
pub(crate) fn invalid_json_error(error: serde_json::Error) -> DecodeError {
    DecodeError::Malformed(format!("an event is not valid JSON: {error}"))
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
    pub(crate) fn estimated_usage(&self, decoder: &dyn StreamEventDecoder) -> Usage {
        self.pricing.estimate_usage(self.bytes, decoder.received_byte_count())
    }
}

/// Why an exchange ended without a complete reply.
enum ReplyRequestError {
    Http(HttpError),
    Decode(DecodeError),
    /// The response body is complete, but it is not a reply. Contains the reason and the body.
    UnexpectedBody(String, Vec<u8>),
}

impl From<HttpError> for ReplyRequestError {
    fn from(error: HttpError) -> Self {
        Self::Http(error)
    }
}

impl ProviderEndpoint {
    /// Sends a request and passes the response to the decoder until the reply is complete.
    pub(crate) async fn request_reply(
        &self,
        (body, usage_estimator): (Bytes, UsageEstimator),
        decoder: &mut dyn StreamEventDecoder,
        sink: &dyn DeltaSink,
    ) -> Result<(), Failure> {
        let response = self.http.post(&self.url, &self.headers, body).await;
        let mut response = response
            .map_err(|http_error| self.error_mapper().transport_error(&http_error, None))?;
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
                ReplyRequestError::Http(http_error) => {
                    mapper.transport_error(&http_error, Some(&headers))
                }
                ReplyRequestError::Decode(DecodeError::ProviderError(error)) => {
                    mapper.stream_error(&headers, &error)
                }
                ReplyRequestError::Decode(DecodeError::Malformed(message)) => {
                    mapper.malformed_response(&headers, &message)
                }
                ReplyRequestError::Decode(DecodeError::TooLarge(message)) => {
                    mapper.oversized_response(&headers, &message)
                }
                ReplyRequestError::UnexpectedBody(message, body) => {
                    mapper.unexpected_body(&headers, &message, &body)
                }
            };
            Failure {
                usage: Some(
                    decoder
                        .token_counts()
                        .failed_usage(self.usage, usage_estimator.estimated_usage(decoder)),
                ),
                ..failure
            }
        })
    }

    async fn decode_event_stream(
        &self,
        response: SizeLimitedResponse,
        decoder: &mut dyn StreamEventDecoder,
        sink: &dyn DeltaSink,
    ) -> Result<(), ReplyRequestError> {
        let stall = self.http.limits().stall;
        let mut events = SseStream::new(response);
        loop {
            let effect =
                tokio::time::timeout(stall, read_until_progress(&mut events, decoder, sink)).await;
            match effect.map_err(|_| HttpError::StallTimeout(stall))?? {
                StreamEventEffect::Done => break,
                StreamEventEffect::Progress | StreamEventEffect::Ignored => {}
            }
        }
        events.drain_body().await;
        Ok(())
    }

    async fn decode_response_body(
        &self,
        mut response: SizeLimitedResponse,
        decoder: &mut dyn StreamEventDecoder,
        sink: &dyn DeltaSink,
    ) -> Result<(), ReplyRequestError> {
        let Some(body) = response.read_body_unless_stream().await? else {
            return self.decode_event_stream(response, decoder, sink).await;
        };
        let result = match std::str::from_utf8(&body) {
            Ok(text) => decoder.decode_body(text, sink),
            Err(_) => Err(DecodeError::Malformed("the reply is not UTF-8".to_owned())),
        };
        result.map_err(|error| match error {
            DecodeError::ProviderError(_) | DecodeError::TooLarge(_) => {
                ReplyRequestError::Decode(error)
            }
            DecodeError::Malformed(message) => ReplyRequestError::UnexpectedBody(message, body),
        })
    }

    fn error_mapper(&self) -> ErrorMapper<'_> {
        ErrorMapper { provider: &self.provider, secrets: &self.secrets, now: self.clock.now() }
    }
}

/// Reads events until an event adds to the reply or ends the reply.
async fn read_until_progress(
    events: &mut SseStream,
    decoder: &mut dyn StreamEventDecoder,
    sink: &dyn DeltaSink,
) -> Result<StreamEventEffect, ReplyRequestError> {
    while let Some(event) = events.next_event().await? {
        match decoder.decode_event(&event, sink) {
            Ok(StreamEventEffect::Ignored) => {}
            Ok(effect @ (StreamEventEffect::Progress | StreamEventEffect::Done)) => {
                return Ok(effect);
            }
            // A truncated event means that the stream ended early, not that the event is malformed.
            Err(DecodeError::Malformed(_)) if event.is_truncated => {
                return Err(HttpError::UnexpectedEof.into());
            }
            Err(error) => return Err(ReplyRequestError::Decode(error)),
        }
    }
    match decoder.is_complete_at_eof() {
        true => Ok(StreamEventEffect::Done),
        false => Err(HttpError::UnexpectedEof.into()),
    }
}
