//! Every run's events in one stream.
//!
//! Never: what happened before somebody came, unless they say from where on.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use longhaul_core::port::shelves::Place;

use crate::app::App;
use crate::caller::Viewer;
use crate::guard::key::Shown;
use crate::params::Query;
use crate::problem::Problem;
use crate::stream::all::{AllStream, Filter};
use crate::stream::sse::{Reader, answer, last_heard};

/// Follows all runs.
#[utoipa::path(
    get, path = "/v1/events/stream", tag = "events", operation_id = "follow_all",
    params(
        ("filter" = Option<String>, Query, description = "Kinds with commas between, such as `gate.raised,run.*`"),
        ("after" = Option<u64>, Query, description = "The id that was heard last; unless it is said, from now on"),
        ("Last-Event-ID" = Option<String>, Header, description = "The same, as browsers say it", pattern = "^[\\t ]*[0-9]{0,19}[\\t ]*$"),
    ),
    responses((status = 200, description = "A stream without an end", content_type = "text/event-stream", body = String)),
)]
pub(crate) async fn follow(
    State(app): State<App>,
    caller: Viewer,
    (query, headers, shown): (Query, HeaderMap, Shown),
) -> Result<Response, Problem> {
    let query = query.only(&["filter", "after"])?;
    let filter = Filter::read(query.one("filter")?.unwrap_or_default())?;
    let after = match last_heard(&headers)? {
        Some(heard) => Some(heard),
        None => query.read_as("after")?,
    };
    let reader = Reader::sit(&app, caller.name(), shown)?;
    Ok(answer(
        AllStream::open(reader, filter, after.map(Place)).await?,
    ))
}
