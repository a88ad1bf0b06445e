//! Runs: making one, listing them, showing one, and cancelling, pausing and resuming it. What is
//! acknowledged is on disk.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use longhaul_api::list::List;
use longhaul_api::run::{CancelBody, ResumeBody, RunBriefView, RunView};
use longhaul_api::submit::NewRunBody;
use longhaul_api::transcript::TranscriptView;
use longhaul_api::why::WhyView;
use longhaul_core::access::Role;
use longhaul_core::id::{AgentName, LaneKey, RunId};
use longhaul_core::port::store::RunFilter;
use longhaul_core::status::Status;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::api::create_run::{parse_budget, parse_name, submit, to_task};
use crate::app::App;
use crate::body::{Json, OptionalJson};
use crate::caller::{Operator, Viewer, require_role};
use crate::error_mapping::{after_commit, committed_unread};
use crate::idempotency::{RequestHandle, header_key, scoped_key};
use crate::openapi_types::{RunIdSchema, StatusListSchema};
use crate::params::{Query, RunPath};
use crate::problem::Problem;
use crate::response::{created, ok, ok_with_permit, paginate};

/// So many runs come unless it is said otherwise.
const RUNS_DEFAULT: usize = 20;

/// So many come at most, whole or briefly.
const RUNS_MAX: usize = 100;
const BRIEF_MAX: usize = 1_000;

/// Makes a run.
#[utoipa::path(
    post, path = "/v1/runs", tag = "runs", operation_id = "submit_run",
    request_body = NewRunBody,
    params(("Idempotency-Key" = Option<String>, Header, description = "Send it again under the same key, and it counts once", min_length = 1, max_length = 255, pattern = "^[\\t -~]*[!-~][\\t -~]*$")),
    responses((status = 201, description = "It is on disk", body = RunView)),
)]
pub(crate) async fn create(
    State(app): State<App>,
    Operator(caller): Operator,
    headers: HeaderMap,
    Json(body): Json<NewRunBody>,
) -> Result<Response, Problem> {
    let mut task = to_task(body, &caller)?;
    task.idempotency_key = scoped_key(&caller, header_key(&headers)?);
    let view = submit(&app, &caller, task).await?;
    created(&format!("/v1/runs/{}", view.id), &view)
}

/// Lists runs, newest first.
#[utoipa::path(
    get, path = "/v1/runs", tag = "runs", operation_id = "list_runs",
    params(
        ("status" = inline(Option<StatusListSchema>), Query, description = "Only runs that stand so; may be repeated"),
        ("agent" = Option<String>, Query, description = "Only this agent's", min_length = 1, max_length = 256),
        ("lane" = Option<String>, Query, description = "Only this lane's", min_length = 1, max_length = 256),
        ("root" = inline(Option<RunIdSchema>), Query, description = "Only this tree, its root included"),
        ("after" = inline(Option<RunIdSchema>), Query, description = "The `next` of the part before"),
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
    let query =
        query.allow_only(&["status", "agent", "lane", "root", "after", "limit", "brief"])?;
    let brief = query.flag("brief")?;
    let limit = query.limit(RUNS_DEFAULT, 1..=if brief { BRIEF_MAX } else { RUNS_MAX })?;
    let text = |name| Ok::<_, Problem>(query.value(name)?.map(str::to_owned));
    let ask = RunFilter {
        statuses: parse_statuses(&query)?,
        agent: parse_name("agent", text("agent")?, AgentName::new)?,
        lane: parse_name("lane", text("lane")?, LaneKey::new)?,
        root: query.parse_value("root")?,
        after: query.parse_value("after")?,
        limit: limit + 1,
    };
    let rows = app.longhaul().list_brief(ask).await?;
    let rows = paginate(rows, limit, |row| row.id.to_string());
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

fn parse_statuses(query: &Query) -> Result<Vec<Status>, Problem> {
    let said = query.values("status").flat_map(|said| said.split(','));
    said.map(|said| {
        let found = Status::ALL.into_iter().find(|known| known.as_str() == said);
        found.ok_or_else(|| {
            let known = Status::ALL.map(Status::as_str).join(", ");
            Problem::invalid(format!("`status` is one of {known}"))
        })
    })
    .collect()
}

/// Shows a run.
#[utoipa::path(
    get, path = "/v1/runs/{id}", tag = "runs", operation_id = "show_run",
    params(("id" = inline(RunIdSchema), Path, description = "The run's id")),
    responses((status = 200, description = "The run", body = RunView)),
)]
pub(crate) async fn show(
    State(app): State<App>,
    _: Viewer,
    RunPath(run): RunPath,
) -> Result<Response, Problem> {
    let _permit = app.fold_permit().await?;
    ok(&app.longhaul().show(run).await?)
}

/// Shows what was said.
#[utoipa::path(
    get, path = "/v1/runs/{id}/transcript", tag = "runs", operation_id = "show_transcript",
    params(("id" = inline(RunIdSchema), Path, description = "The run's id")),
    responses((status = 200, description = "The conversation", body = TranscriptView)),
)]
pub(crate) async fn transcript(
    State(app): State<App>,
    _: Viewer,
    RunPath(run): RunPath,
) -> Result<Response, Problem> {
    let permit = app.transcript_permit().await?;
    let view = app.longhaul().transcript(run).await?;
    // It is in memory until it is sent.
    ok_with_permit(&view, permit)
}

/// Says why a run stands as it does, and what helps.
#[utoipa::path(
    get, path = "/v1/runs/{id}/why", tag = "runs", operation_id = "why",
    params(("id" = inline(RunIdSchema), Path, description = "The run's id")),
    responses((status = 200, description = "A sentence and a command", body = WhyView)),
)]
pub(crate) async fn why(
    State(app): State<App>,
    _: Viewer,
    RunPath(run): RunPath,
) -> Result<Response, Problem> {
    let _permit = app.fold_permit().await?;
    ok(&app.longhaul().why_view(run).await?)
}

/// A body without fields.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Empty {}

/// Ends a run.
#[utoipa::path(
    post, path = "/v1/runs/{id}/cancel", tag = "runs", operation_id = "cancel_run",
    params(("id" = inline(RunIdSchema), Path, description = "The run's id")),
    request_body(content = Option<CancelBody>),
    responses((status = 200, description = "The run, ended or about to be", body = RunView)),
)]
pub(crate) async fn cancel(
    request: RequestHandle,
    caller: Operator,
    RunPath(run): RunPath,
    OptionalJson(body): OptionalJson<CancelBody>,
) -> Result<Response, Problem> {
    let reason = match body.reason.trim() {
        "" => format!("cancelled by {}", caller.name()),
        said => said.to_owned(),
    };
    if request.effect.is_none() {
        request.longhaul.cancel(run, caller.name(), &reason).await?;
    }
    tracing::info!(%run, caller = caller.name(), "told to end");
    run_response(&request, run).await
}

/// Stills a run until somebody lets it go on.
#[utoipa::path(
    post, path = "/v1/runs/{id}/pause", tag = "runs", operation_id = "pause_run",
    params(("id" = inline(RunIdSchema), Path, description = "The run's id")),
    request_body(content = Option<Empty>),
    responses((status = 200, description = "The run, paused or about to be", body = RunView)),
)]
pub(crate) async fn pause(
    request: RequestHandle,
    caller: Operator,
    RunPath(run): RunPath,
    OptionalJson(Empty {}): OptionalJson<Empty>,
) -> Result<Response, Problem> {
    if request.effect.is_none() {
        request.longhaul.pause(run, caller.name()).await?;
    }
    tracing::info!(%run, caller = caller.name(), "told to stand still");
    run_response(&request, run).await
}

/// Lets a run go on, maybe with more to spend.
#[utoipa::path(
    post, path = "/v1/runs/{id}/resume", tag = "runs", operation_id = "resume_run",
    params(("id" = inline(RunIdSchema), Path, description = "The run's id")),
    request_body(content = Option<ResumeBody>),
    responses((status = 200, description = "The run, ready to go on", body = RunView)),
)]
pub(crate) async fn resume(
    request: RequestHandle,
    caller: Operator,
    RunPath(run): RunPath,
    OptionalJson(body): OptionalJson<ResumeBody>,
) -> Result<Response, Problem> {
    let raise = match body.budget {
        None => None,
        Some(caps) => {
            require_role(&caller.0, Role::Approver)?;
            Some(parse_budget(caps)?.caps)
        }
    };
    if request.effect.is_none() {
        request.longhaul.resume(run, raise, caller.name()).await?;
    }
    tracing::info!(%run, caller = caller.name(), "told to go on");
    run_response(&request, run).await
}

/// The run after its change was committed.
async fn run_response(request: &RequestHandle, run: RunId) -> Result<Response, Problem> {
    let _permit = request.app.fold_permit().await.map_err(|_| committed_unread())?;
    let view = request.longhaul.show(run).await.map_err(after_commit)?;
    ok(&view)
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
    Full(Box<RunView>),
    /// What its row says.
    Brief(Box<RunBriefView>),
}
