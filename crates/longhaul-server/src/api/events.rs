//! API handlers for events: a page of a run's journal, a stream that follows a run until it ends,
//! and a stream of all runs. The `after` parameter of a page and the event ids of a run's stream
//! are the same sequence numbers.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use longhaul_api::list::List;
use longhaul_api::schema;
use longhaul_core::event::entry::JournalEntryEnvelope;
use longhaul_core::id::Seq;
use longhaul_core::port::records::GlobalSeq;
use serde_json::Value;

use crate::app::App;
use crate::caller::Viewer;
use crate::middleware::auth::Credential;
use crate::openapi_types::RunIdSchema;
use crate::params::{Query, RunPath};
use crate::problem::Problem;
use crate::response::{ok_response, paginate};
use crate::stream::all::{AllRunsEventStream, EventKindFilter};
use crate::stream::run::RunEventStream;
use crate::stream::sse::{
    EventStreamClient, accepts_event_stream, event_stream_response, last_event_id,
};

/// Default and maximum number of events per page of a run's journal.
const EVENTS_DEFAULT: usize = 100;
const EVENTS_MAX: usize = 1_000;

/// Reads the journal of a run, as a page or as a stream.
#[utoipa::path(
    get, path = "/v1/runs/{id}/events", tag = "events", operation_id = "read_events",
    params(
        ("id" = inline(RunIdSchema), Path, description = "The run's id"),
        ("after" = Option<u64>, Query, description = "Return only events after this sequence number; 0 means all"),
        ("limit" = Option<u32>, Query, description = "1 to 1,000; not for streams", minimum = 1, maximum = 1000),
        ("Last-Event-ID" = Option<String>, Header, description = "For streams: id of the last received event", pattern = "^[\\t ]*[0-9]{0,19}[\\t ]*$"),
    ),
    responses((status = 200, description = "A page; with `Accept: text/event-stream` a stream that ends with the run", content(
        (List<EventView> = "application/json"),
        (String = "text/event-stream"),
    ))),
)]
pub(crate) async fn read_run_events(
    State(app): State<App>,
    caller: Viewer,
    RunPath(run): RunPath,
    (query, headers, credential): (Query, HeaderMap, Credential),
) -> Result<Response, Problem> {
    let query = query.allow_only_params(&["after", "limit"])?;
    let after = query.parse_param::<u64>("after")?.unwrap_or_default();
    let last_id = last_event_id(&headers)?;
    if accepts_event_stream(&headers) {
        // A reconnecting client sends the id of the last event it received, which is newer than
        // `after`.
        let after = last_id.unwrap_or(after);
        let reader = EventStreamClient::new(&app, caller.name(), credential)?;
        return Ok(event_stream_response(
            RunEventStream::open_stream(reader, run, Seq(after)).await?,
        ));
    }
    let limit = query.page_limit_param(EVENTS_DEFAULT, 1..=EVENTS_MAX)?;
    let entries = app.longhaul().read_run_journal(run, Seq(after), limit + 1).await?;
    let page: Result<Vec<JournalEntryEnvelope>, _> =
        entries.iter().map(|entry| entry.to_envelope()).collect();
    let page = page.map_err(|error| {
        tracing::error!(%run, %error, "could not serialize an event");
        Problem::internal_error()
    })?;
    ok_response(&paginate(page, limit, |last| last.seq.to_string()))
}

/// Streams the events of all runs.
#[utoipa::path(
    get, path = "/v1/events/stream", tag = "events", operation_id = "stream_all_events",
    params(
        ("filter" = Option<String>, Query, description = "Comma-separated event types, such as `gate.raised,run.*`"),
        ("after" = Option<u64>, Query, description = "Id of the last received event; default: only new events"),
        ("Last-Event-ID" = Option<String>, Header, description = "Like `after`; sent by browsers when they reconnect", pattern = "^[\\t ]*[0-9]{0,19}[\\t ]*$"),
    ),
    responses((status = 200, description = "An endless stream of events", content_type = "text/event-stream", body = String)),
)]
pub(crate) async fn stream_all_events(
    State(app): State<App>,
    caller: Viewer,
    (query, headers, credential): (Query, HeaderMap, Credential),
) -> Result<Response, Problem> {
    let query = query.allow_only_params(&["filter", "after"])?;
    let filter =
        EventKindFilter::parse_kind_list(query.param_value("filter")?.unwrap_or_default())?;
    let after = match last_event_id(&headers)? {
        Some(last_id) => Some(last_id),
        None => query.parse_param("after")?,
    };
    let reader = EventStreamClient::new(&app, caller.name(), credential)?;
    Ok(event_stream_response(
        AllRunsEventStream::open_stream(reader, filter, after.map(GlobalSeq)).await?,
    ))
}

/// OpenAPI schema of a journal event ([`JournalEntryEnvelope`]).
#[derive(Debug, serde::Serialize, utoipa::ToSchema)]
#[schema(as = Event)]
pub(crate) struct EventView {
    /// Id of the run whose journal has the event.
    #[schema(schema_with = schema::run_id_schema)]
    run: String,
    /// Sequence number of the event in the run's journal, from 1.
    seq: u64,
    /// Time at which the event was appended.
    #[schema(schema_with = schema::timestamp_schema)]
    at: String,
    /// Type of the event, such as `run.created`.
    #[serde(rename = "type")]
    kind: String,
    /// Version of the event's `data` format.
    v: u16,
    /// Number of the turn to which the event belongs.
    #[schema(required = false)]
    turn: u32,
    /// Epoch of the claim under which the event was written. Each claim of a run by a worker has a
    /// higher epoch.
    epoch: u64,
    /// Data of the event, in the format of its `type` and `v`.
    #[schema(schema_with = schema::any_json_schema)]
    data: Value,
}
