//! Events: a page of a run's journal, a stream that follows it to its end, and one stream of all
//! runs. A page's `after` and a stream's ids are the same number.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use longhaul_api::list::List;
use longhaul_api::schema;
use longhaul_core::event::entry::Envelope;
use longhaul_core::id::Seq;
use longhaul_core::port::records::GlobalSeq;
use serde_json::Value;

use crate::app::App;
use crate::caller::Viewer;
use crate::middleware::auth::Credential;
use crate::openapi_types::RunIdSchema;
use crate::params::{Query, RunPath};
use crate::problem::Problem;
use crate::response::{ok, paginate};
use crate::stream::all::{AllStream, KindFilter};
use crate::stream::run::RunStream;
use crate::stream::sse::{StreamReader, accepts_event_stream, last_event_id, stream_response};

/// So many events come unless it is said otherwise, and at most.
const EVENTS_DEFAULT: usize = 100;
const EVENTS_MAX: usize = 1_000;

/// Reads a journal.
#[utoipa::path(
    get, path = "/v1/runs/{id}/events", tag = "events", operation_id = "read_events",
    params(
        ("id" = inline(RunIdSchema), Path, description = "The run's id"),
        ("after" = Option<u64>, Query, description = "Only events after this one; 0 is all"),
        ("limit" = Option<u32>, Query, description = "1 to 1,000; not for streams", minimum = 1, maximum = 1000),
        ("Last-Event-ID" = Option<String>, Header, description = "For streams: the last event that was heard", pattern = "^[\\t ]*[0-9]{0,19}[\\t ]*$"),
    ),
    responses((status = 200, description = "A page; with `Accept: text/event-stream` a stream that ends with the run", content(
        (List<EventView> = "application/json"),
        (String = "text/event-stream"),
    ))),
)]
pub(crate) async fn read(
    State(app): State<App>,
    caller: Viewer,
    RunPath(run): RunPath,
    (query, headers, shown): (Query, HeaderMap, Credential),
) -> Result<Response, Problem> {
    let query = query.allow_only(&["after", "limit"])?;
    let after = query.parse_value::<u64>("after")?.unwrap_or_default();
    let heard = last_event_id(&headers)?;
    if accepts_event_stream(&headers) {
        // A client that reconnects says what it heard last; that is the newer word.
        let after = heard.unwrap_or(after);
        let reader = StreamReader::acquire(&app, caller.name(), shown)?;
        return Ok(stream_response(RunStream::open(reader, run, Seq(after)).await?));
    }
    let limit = query.limit(EVENTS_DEFAULT, 1..=EVENTS_MAX)?;
    let entries = app.longhaul().events(run, Seq(after), limit + 1).await?;
    let page: Result<Vec<Envelope>, _> = entries.iter().map(|entry| entry.to_envelope()).collect();
    let page = page.map_err(|error| {
        tracing::error!(%run, %error, "an event can't be written");
        Problem::internal()
    })?;
    ok(&paginate(page, limit, |last| last.seq.to_string()))
}

/// Follows all runs.
#[utoipa::path(
    get, path = "/v1/events/stream", tag = "events", operation_id = "stream_all_events",
    params(
        ("filter" = Option<String>, Query, description = "Kinds with commas between, such as `gate.raised,run.*`"),
        ("after" = Option<u64>, Query, description = "The id that was heard last; unless it is said, from now on"),
        ("Last-Event-ID" = Option<String>, Header, description = "The same, as browsers say it", pattern = "^[\\t ]*[0-9]{0,19}[\\t ]*$"),
    ),
    responses((status = 200, description = "A stream without an end", content_type = "text/event-stream", body = String)),
)]
pub(crate) async fn stream_all_events(
    State(app): State<App>,
    caller: Viewer,
    (query, headers, shown): (Query, HeaderMap, Credential),
) -> Result<Response, Problem> {
    let query = query.allow_only(&["filter", "after"])?;
    let filter = KindFilter::parse(query.value("filter")?.unwrap_or_default())?;
    let after = match last_event_id(&headers)? {
        Some(heard) => Some(heard),
        None => query.parse_value("after")?,
    };
    let reader = StreamReader::acquire(&app, caller.name(), shown)?;
    Ok(stream_response(AllStream::open(reader, filter, after.map(GlobalSeq)).await?))
}

/// A fact in its place: how [`Envelope`] is described.
#[derive(Debug, serde::Serialize, utoipa::ToSchema)]
#[schema(as = Event)]
pub(crate) struct EventView {
    /// Whose journal.
    #[schema(schema_with = schema::run_id)]
    run: String,
    /// Which place in it, from 1.
    seq: u64,
    /// When.
    #[schema(schema_with = schema::time)]
    at: String,
    /// The kind of fact.
    #[serde(rename = "type")]
    kind: String,
    /// The version of its data.
    v: u16,
    /// The turn it belongs to.
    #[schema(required = false)]
    turn: u32,
    /// The fence.
    epoch: u64,
    /// The fact's data.
    #[schema(schema_with = schema::any)]
    data: Value,
}
