//! Runs: making one, listing them.
//!
//! Never: acknowledges what is not on disk.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use longhaul_api::list::List;
use longhaul_api::run::{BriefView, RunView};
use longhaul_api::submit::NewRun;
use longhaul_core::id::{AgentName, LaneKey};
use longhaul_core::port::store::RowsAsk;
use longhaul_core::status::Status;

use crate::api::task::{named, submit, task};
use crate::app::App;
use crate::body::Json;
use crate::caller::{Operator, Viewer};
use crate::once::{own_key, said_key};
use crate::params::Query;
use crate::problem::Problem;
use crate::reply::{cut, made, ok};
use crate::spelled::{RunWord, StatusWords};

/// So many runs come unless it is said otherwise.
const RUNS: usize = 20;

/// So many come at most, whole or briefly.
const RUNS_MAX: usize = 100;
const BRIEF_MAX: usize = 1_000;

/// Makes a run.
#[utoipa::path(
    post, path = "/v1/runs", tag = "runs", operation_id = "submit_run",
    request_body = NewRun,
    params(("Idempotency-Key" = Option<String>, Header, description = "Send it again under the same key, and it counts once", min_length = 1, max_length = 255, pattern = "^[\\t -~]*[!-~][\\t -~]*$")),
    responses((status = 201, description = "It is on disk", body = RunView)),
)]
pub(crate) async fn create(
    State(app): State<App>,
    Operator(caller): Operator,
    headers: HeaderMap,
    Json(body): Json<NewRun>,
) -> Result<Response, Problem> {
    let mut task = task(body, &caller)?;
    task.idempotency_key = own_key(&caller, said_key(&headers)?);
    let view = submit(&app, &caller, task).await?;
    made(&format!("/v1/runs/{}", view.id), &view)
}

/// Lists runs, newest first.
#[utoipa::path(
    get, path = "/v1/runs", tag = "runs", operation_id = "list_runs",
    params(
        ("status" = inline(Option<StatusWords>), Query, description = "Only runs that stand so; may be repeated"),
        ("agent" = Option<String>, Query, description = "Only this agent's", min_length = 1, max_length = 256),
        ("lane" = Option<String>, Query, description = "Only this lane's", min_length = 1, max_length = 256),
        ("root" = inline(Option<RunWord>), Query, description = "Only this tree, its root included"),
        ("after" = inline(Option<RunWord>), Query, description = "The `next` of the part before"),
        ("limit" = Option<u32>, Query, description = "1 to 100; with `brief` 1 to 1,000", minimum = 1, maximum = 1000),
        ("brief" = Option<bool>, Query, description = "Only what a row says, for long lists: the things are `RunBrief`"),
    ),
    responses((status = 200, description = "A part of the list", body = RunList)),
)]
pub(crate) async fn list(
    State(app): State<App>,
    _: Viewer,
    query: Query,
) -> Result<Response, Problem> {
    let query = query.only(&["status", "agent", "lane", "root", "after", "limit", "brief"])?;
    let brief = query.flag("brief")?;
    let limit = query.limit(RUNS, 1..=if brief { BRIEF_MAX } else { RUNS_MAX })?;
    let text = |name| Ok::<_, Problem>(query.one(name)?.map(str::to_owned));
    let ask = RowsAsk {
        statuses: statuses(&query)?,
        agent: named("agent", text("agent")?, AgentName::new)?,
        lane: named("lane", text("lane")?, LaneKey::new)?,
        root: query.read_as("root")?,
        after: query.read_as("after")?,
        limit: limit + 1,
    };
    let rows = app.longhaul().brief(ask).await?;
    let rows = cut(rows, limit, |row| row.id.to_string());
    if brief {
        return ok(&rows);
    }
    let _permit = app.fold_permit().await?;
    let mut data = Vec::with_capacity(rows.data.len());
    for row in &rows.data {
        data.push(app.longhaul().show(row.id).await?);
    }
    let next = rows.next;
    ok(&List { data, next })
}

fn statuses(query: &Query) -> Result<Vec<Status>, Problem> {
    let said = query.all("status").flat_map(|said| said.split(','));
    said.map(|said| {
        let found = Status::ALL.into_iter().find(|known| known.as_str() == said);
        found.ok_or_else(|| {
            let known = Status::ALL.map(Status::as_str).join(", ");
            Problem::invalid(format!("`status` is one of {known}"))
        })
    })
    .collect()
}

/// A part of the list of runs.
#[derive(Debug, utoipa::ToSchema)]
#[expect(dead_code, reason = "it only describes what `list` answers")]
pub(crate) struct RunList {
    /// The runs, newest first; with `brief` they are `RunBrief`.
    data: Vec<RunOrBrief>,
    /// What to give as `after` for the next part; none: this was the last.
    next: Option<String>,
}

/// A run, whole or briefly.
#[derive(Debug, utoipa::ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it only describes what `list` answers")]
pub(crate) enum RunOrBrief {
    /// All of it.
    Whole(Box<RunView>),
    /// What its row says.
    Brief(Box<BriefView>),
}
