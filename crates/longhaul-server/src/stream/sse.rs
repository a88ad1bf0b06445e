//! Events as text, and the answer that carries them.
//!
//! Never: buffers for a client that does not read. A piece is made when the
//! last one has left.

use axum::body::{Body, Bytes};
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use longhaul_core::access::Role;
use longhaul_core::event::codec::EventCodecError;
use longhaul_core::event::entry::Entry;
use longhaul_core::time::Millis;
use longhaul_engine::deltas::Delta;
use serde::Serialize;

use crate::app::{App, StreamPermit};
use crate::caller::require_role;
use crate::middleware::auth::{Credential, identify};
use crate::problem::Problem;

/// A stream says this often that it is there.
const HEARTBEAT_INTERVAL: Millis = Millis::from_secs(10);

/// What it says then.
const HEARTBEAT: &str = ": heartbeat\n\n";

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Whether a caller wants a stream.
pub(crate) fn accepts_event_stream(headers: &HeaderMap) -> bool {
    let wanted = |line: &str| {
        let kind = line.split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case("text/event-stream")
    };
    headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|accept| accept.to_str().ok())
        .flat_map(|accept| accept.split(','))
        .any(wanted)
}

/// The place after which a client goes on, as it heard it last.
pub(crate) fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(said) = headers.get(LAST_EVENT_ID) else {
        return Ok(None);
    };
    let said = said.to_str().unwrap_or("?").trim();
    if said.is_empty() {
        return Ok(None);
    }
    let read = said.parse().map(Some);
    read.map_err(|_| Problem::bad_request("bad_last_event_id", "Last-Event-ID is a number"))
}

/// Whoever reads a stream, and may do so as long as their key counts.
#[derive(Debug)]
pub(crate) struct StreamReader {
    pub(crate) app: App,
    credential: Credential,
    /// By the monotonic clock.
    next_heartbeat: Millis,
    /// Given back when the stream ends.
    _permit: StreamPermit,
}

impl StreamReader {
    /// A seat for whoever has shown this.
    pub(crate) fn acquire(app: &App, caller: &str, shown: Credential) -> Result<Self, Problem> {
        let Some(seat) = app.acquire_stream(caller) else {
            let words = "you have too many streams open";
            return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_streams", words)
                .hint("close some, or read `/v1/events/stream` for all runs at once")
                .retry_after(1));
        };
        let clock = &app.longhaul().services().clock;
        Ok(Self {
            app: app.clone(),
            credential: shown,
            next_heartbeat: clock.monotonic().plus(HEARTBEAT_INTERVAL),
            _permit: seat,
        })
    }

    /// Returns when it is time for the next beat.
    pub(crate) async fn heartbeat_due(&self) {
        let clock = &self.app.longhaul().services().clock;
        let wait = self.next_heartbeat.minus(clock.monotonic());
        clock.sleep(wait).await;
    }

    /// The beat, whatever else is said; none: the key counts no longer.
    pub(crate) async fn heartbeat(&mut self) -> Option<Bytes> {
        let clock = &self.app.longhaul().services().clock;
        self.next_heartbeat = clock.monotonic().plus(HEARTBEAT_INTERVAL);
        let known = identify(&self.app, &self.credential).await.ok().flatten()?;
        require_role(&known, Role::Viewer).ok()?;
        Some(Bytes::from_static(HEARTBEAT.as_bytes()))
    }
}

/// Something that can be read piece by piece.
pub(crate) trait ChunkSource: Send + 'static {
    /// The next piece; none: it is over.
    fn next(&mut self) -> impl Future<Output = Option<Bytes>> + Send;
}

/// The answer that carries pieces.
pub(crate) fn stream_response(pieces: impl ChunkSource) -> Response {
    let stream = stream::unfold(pieces, |mut pieces| async move {
        let piece = pieces.next().await?;
        Some((Ok::<_, std::convert::Infallible>(piece), pieces))
    });
    let mut response = Body::from_stream(stream).into_response();
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, "text/event-stream; charset=utf-8"),
        (CACHE_CONTROL, "no-cache, no-store"),
        (BUFFERING, "no"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Appends one entry under its id.
pub(crate) fn write_entry(
    text: &mut String,
    id: u64,
    entry: &Entry,
) -> Result<(), EventCodecError> {
    let envelope = entry.to_envelope()?;
    let data = serde_json::to_string(&envelope).unwrap_or_default();
    text.push_str(&format!("id: {id}\nevent: {}\ndata: {data}\n\n", envelope.kind));
    Ok(())
}

/// An event that has no place in a journal.
pub(crate) fn format_event(kind: &str, data: &impl Serialize) -> String {
    let data = serde_json::to_string(data).unwrap_or_default();
    format!("event: {kind}\ndata: {data}\n\n")
}

/// Words as they are spoken.
pub(crate) fn format_delta(delta: &Delta) -> String {
    format_event(
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
