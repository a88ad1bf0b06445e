//! API handlers for events: a page of a run's journal, a stream that follows a run until it ends,
//! and a stream of all runs. The `after` parameter of a page and the event ids of a run's stream
//! are the same sequence numbers.

use axum::response::Response;
use longhaul_api::query::{EventStreamQuery, EventsQuery};
use longhaul_core::event::entry::JournalEntryEnvelope;
use longhaul_core::id::{RunId, Seq};
use longhaul_core::port::records::GlobalSeq;

use crate::call::{Call, Context, IntoReply as _, Reply, paginate};
use crate::params::page_limit;
use crate::problem::Problem;
use crate::stream::all::{AllRunsEventStream, EventKindFilter};
use crate::stream::run::RunEventStream;
use crate::stream::sse::{
    EventStreamClient, accepts_event_stream, event_stream_response, last_event_id,
};

/// Default and maximum number of events per page of a run's journal.
const EVENTS_DEFAULT: usize = 100;
const EVENTS_MAX: usize = 1_000;

fn event_stream_client(ctx: &Context) -> Result<EventStreamClient, Problem> {
    EventStreamClient::new(&ctx.app, ctx.by(), ctx.credential.clone())
}

pub(crate) async fn read_run_events(
    Call { ctx, path: run, query, .. }: Call<RunId, (), EventsQuery>,
) -> Result<Response, Problem> {
    let last_id = last_event_id(&ctx.headers)?;
    if accepts_event_stream(&ctx.headers) {
        // A reconnecting client sends the id of the last event it received, which is newer than
        // `after`.
        let after = last_id.map_or(query.after, Seq);
        let stream = RunEventStream::open_stream(event_stream_client(&ctx)?, run, after).await?;
        return Ok(event_stream_response(stream));
    }
    let limit = page_limit(query.limit, EVENTS_DEFAULT, EVENTS_MAX)?;
    let entries = ctx.longhaul().read_run_journal(run, query.after, limit + 1).await?;
    let page: Result<Vec<JournalEntryEnvelope>, _> =
        entries.iter().map(|entry| entry.to_envelope()).collect();
    let page = page.map_err(|error| {
        tracing::error!(%run, %error, "could not serialize an event");
        Problem::internal_error()
    })?;
    Reply::ok(paginate(page, limit, |last| last.seq.to_string())).into_response()
}

pub(crate) async fn stream_all_events(
    Call { ctx, query, .. }: Call<(), (), EventStreamQuery>,
) -> Result<Response, Problem> {
    let filter = EventKindFilter::parse_kind_list(query.filter.as_deref().unwrap_or_default())?;
    let after = last_event_id(&ctx.headers)?.or(query.after).map(GlobalSeq);
    let client = event_stream_client(&ctx)?;
    Ok(event_stream_response(AllRunsEventStream::open_stream(client, filter, after).await?))
}
