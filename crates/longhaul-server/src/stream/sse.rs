//! Formats server-sent events and builds the response that streams them.
//!
//! Invariant: the next chunk is produced only after the previous one was written, so a client that
//! does not read uses no memory.

use axum::body::{Body, Bytes};
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use longhaul_core::access::Role;
use longhaul_core::event::codec::EventCodecError;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::time::Millis;
use longhaul_engine::drive::deltas::ReplyDelta;
use serde::Serialize;

use crate::app::{App, EventStreamPermit};
use crate::call::require_role;
use crate::middleware::auth::{Credential, identify_caller};
use crate::problem::Problem;

/// Interval between two heartbeats of an event stream.
const HEARTBEAT_INTERVAL: Millis = Millis::from_secs(10);

/// Heartbeat of an event stream: a comment, which clients ignore.
const HEARTBEAT: &str = ": heartbeat\n\n";

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Returns whether the request accepts an event stream.
pub(crate) fn accepts_event_stream(headers: &HeaderMap) -> bool {
    let is_event_stream = |line: &str| {
        let kind = line.split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case("text/event-stream")
    };
    headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|accept| accept.to_str().ok())
        .flat_map(|accept| accept.split(','))
        .any(is_event_stream)
}

/// Returns the value of the `Last-Event-ID` header: the id of the last event that the client
/// received. `None` means that the header is missing or empty.
pub(crate) fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(header) = headers.get(LAST_EVENT_ID) else {
        return Ok(None);
    };
    let header = header.to_str().unwrap_or("?").trim();
    if header.is_empty() {
        return Ok(None);
    }
    let result = header.parse().map(Some);
    result.map_err(|_| {
        Problem::bad_request("invalid_last_event_id", "Last-Event-ID must be a number")
    })
}

/// A client that reads an event stream. It may read as long as its credential is valid.
#[derive(Debug)]
pub(crate) struct EventStreamClient {
    pub(crate) app: App,
    credential: Credential,
    /// Time at which the next heartbeat is due, on the monotonic clock.
    next_heartbeat: Millis,
    /// Permit for one open stream, released when the stream ends.
    _permit: EventStreamPermit,
}

impl EventStreamClient {
    /// Creates the client of a new stream, with a stream permit for this caller. Returns an error
    /// if the caller has the maximum number of streams open.
    pub(crate) fn new(app: &App, caller: &str, credential: Credential) -> Result<Self, Problem> {
        let Some(permit) = app.acquire_stream_permit(caller) else {
            let message = "you have too many streams open";
            return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_streams", message)
                .with_hint("close some of them, or read `/v1/events/stream` for all runs at once")
                .with_retry_after(1));
        };
        let clock = &app.longhaul().services().clock;
        Ok(Self {
            app: app.clone(),
            credential,
            next_heartbeat: clock.monotonic_time().plus(HEARTBEAT_INTERVAL),
            _permit: permit,
        })
    }

    /// Waits until the stream's next heartbeat is due.
    pub(crate) async fn wait_for_heartbeat(&self) {
        let clock = &self.app.longhaul().services().clock;
        let wait = self.next_heartbeat.minus(clock.monotonic_time());
        clock.sleep(wait).await;
    }

    /// Returns the bytes of a heartbeat. `None` means that the credential is no longer valid.
    pub(crate) async fn heartbeat_bytes_if_authorized(&mut self) -> Option<Bytes> {
        let clock = &self.app.longhaul().services().clock;
        self.next_heartbeat = clock.monotonic_time().plus(HEARTBEAT_INTERVAL);
        let identity = identify_caller(&self.app, &self.credential).await.ok().flatten()?;
        require_role(&identity, Role::Viewer).ok()?;
        Some(Bytes::from_static(HEARTBEAT.as_bytes()))
    }
}

/// A source of chunks for an event stream.
pub(crate) trait SseChunkSource: Send + 'static {
    /// Returns the next chunk of the stream. `None` means that the stream has ended.
    fn next_chunk(&mut self) -> impl Future<Output = Option<Bytes>> + Send;
}

/// Builds the HTTP response that streams the chunks.
pub(crate) fn event_stream_response(chunks: impl SseChunkSource) -> Response {
    let stream = stream::unfold(chunks, |mut chunks| async move {
        let chunk = chunks.next_chunk().await?;
        Some((Ok::<_, std::convert::Infallible>(chunk), chunks))
    });
    let headers = [
        (CONTENT_TYPE, "text/event-stream; charset=utf-8"),
        (CACHE_CONTROL, "no-cache, no-store"),
        (BUFFERING, "no"),
    ];
    (headers, Body::from_stream(stream)).into_response()
}

/// Appends one journal entry to the text, as a server-sent event with an id.
pub(crate) fn append_entry_as_sse(
    text: &mut String,
    id: u64,
    entry: &JournalEntry,
) -> Result<(), EventCodecError> {
    let envelope = entry.to_envelope()?;
    let data = serde_json::to_string(&envelope).unwrap_or_default();
    text.push_str(&format!("id: {id}\nevent: {}\ndata: {data}\n\n", envelope.kind));
    Ok(())
}

/// Formats a server-sent event that is not part of a journal.
pub(crate) fn format_sse_event(kind: &str, data: &impl Serialize) -> String {
    let data = serde_json::to_string(data).unwrap_or_default();
    format!("event: {kind}\ndata: {data}\n\n")
}

/// Formats a text delta of the model's reply as a server-sent event.
pub(crate) fn format_delta_event(delta: &ReplyDelta) -> String {
    format_sse_event(
        "message.delta",
        &serde_json::json!({
            "run": delta.run,
            "turn": delta.turn,
            "attempt": delta.attempt,
            "offset": delta.offset,
            "text": &*delta.text,
        }),
    )
}
