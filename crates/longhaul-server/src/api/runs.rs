//! API handlers that create, list, show, cancel, close, pause, resume and retry runs.
//!
//! Invariant: a change is acknowledged only after it is on disk.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use longhaul_api::list::List;
use longhaul_api::run::{CancelBody, ResumeBody, RunBriefView, RunView};
use longhaul_api::submit::NewRunBody;
use longhaul_api::transcript::TranscriptView;
use longhaul_api::why::RunExplanation;
use longhaul_core::access::Role;
use longhaul_core::id::{AgentName, InboxName, LaneKey, RunId};
use longhaul_core::port::store::RunFilter;
use longhaul_core::status::Status;
use longhaul_engine::handle::SubmitOutcome;

use crate::api::create_run::{
    parse_budget, parse_optional_name_field, submit_task, submitted_run_response,
    task_from_run_body,
};
use crate::app::App;
use crate::body::{EmptyBody, Json, OptionalJsonBody};
use crate::caller::{Operator, Viewer, require_role};
use crate::error_mapping::{committed_but_unreadable_problem, result_read_problem_after_commit};
use crate::idempotency::{
    EngineHandleForRequest, caller_scoped_idempotency_key, idempotency_key_header,
};
use crate::openapi_types::{RunIdSchema, StatusListSchema};
use crate::params::{Query, RunPath};
use crate::problem::Problem;
use crate::response::{created_response, ok_response, ok_response_with_memory_permit, paginate};

/// Default number of runs per page.
const RUNS_DEFAULT: usize = 20;

/// Maximum number of runs per page, for full runs and for the short form (`brief`).
const RUNS_MAX: usize = 100;
const BRIEF_MAX: usize = 1_000;

/// Creates a run of an agent for a task.
#[utoipa::path(
    post, path = "/v1/runs", tag = "runs", operation_id = "submit_run",
    request_body = NewRunBody,
    responses(
        (status = 201, description = "The new run; it is on disk", body = RunView),
        (status = 200, description = "The run to which the task was added as a message, because its lane is busy", body = RunView),
    ),
)]
pub(crate) async fn submit_run(
    State(app): State<App>,
    Operator(caller): Operator,
    headers: HeaderMap,
    Json(body): Json<NewRunBody>,
) -> Result<Response, Problem> {
    let mut task = task_from_run_body(body, &caller.principal.name)?;
    task.idempotency_key =
        caller_scoped_idempotency_key(&caller, idempotency_key_header(&headers)?);
    submitted_run_response(&submit_task(&app, &caller, task).await?)
}

/// Lists runs, newest first.
#[utoipa::path(
    get, path = "/v1/runs", tag = "runs", operation_id = "list_runs",
    params(
        ("status" = inline(Option<StatusListSchema>), Query, description = "Only runs with this status; may be repeated"),
        ("agent" = Option<String>, Query, description = "Only runs of this agent", min_length = 1, max_length = 256),
        ("lane" = Option<String>, Query, description = "Only runs of this lane", min_length = 1, max_length = 256),
        ("inbox" = Option<String>, Query, description = "Only runs of this inbox", min_length = 1, max_length = 256),
        ("root" = inline(Option<RunIdSchema>), Query, description = "Only this run and its descendants"),
        ("parent" = inline(Option<RunIdSchema>), Query, description = "Only the child runs of this run"),
        ("after" = inline(Option<RunIdSchema>), Query, description = "The `next` of the previous page"),
        ("limit" = Option<u32>, Query, description = "1 to 100; with `brief` 1 to 1,000", minimum = 1, maximum = 1000),
        ("brief" = Option<bool>, Query, description = "Return short `RunBrief` entries, for long lists"),
    ),
    responses((status = 200, description = "A page of runs", body = RunList)),
)]
pub(crate) async fn list_runs(
    State(app): State<App>,
    _: Viewer,
    query: Query,
) -> Result<Response, Problem> {
    let query = query.allow_only_params(&[
        "status", "agent", "lane", "inbox", "root", "parent", "after", "limit", "brief",
    ])?;
    let brief = query.bool_param("brief")?;
    let limit =
        query.page_limit_param(RUNS_DEFAULT, 1..=if brief { BRIEF_MAX } else { RUNS_MAX })?;
    let text = |name| Ok::<_, Problem>(query.param_value(name)?.map(str::to_owned));
    let filter = RunFilter {
        statuses: parse_statuses(&query)?,
        agent: parse_optional_name_field("agent", text("agent")?, AgentName::new)?,
        lane: parse_optional_name_field("lane", text("lane")?, LaneKey::new)?,
        inbox: parse_optional_name_field("inbox", text("inbox")?, InboxName::new)?,
        not_retried: false,
        root: query.parse_param("root")?,
        parent: query.parse_param("parent")?,
        after: query.parse_param("after")?,
        limit: limit + 1,
    };
    let rows = app.longhaul().list_brief_runs(filter).await?;
    let rows = paginate(rows, limit, |row| row.id.to_string());
    if brief {
        return ok_response(&rows);
    }
    let _permit = app.acquire_journal_read_permit().await?;
    let mut data = Vec::with_capacity(rows.data.len());
    for row in &rows.data {
        data.push(app.longhaul().get_run(row.id).await?);
    }
    let next = rows.next;
    ok_response(&List { data, next })
}

fn parse_statuses(query: &Query) -> Result<Vec<Status>, Problem> {
    let text = query.param_values("status").flat_map(|text| text.split(','));
    text.map(|text| {
        let found = Status::ALL.into_iter().find(|valid| valid.as_str() == text);
        found.ok_or_else(|| {
            let valid = Status::ALL.map(Status::as_str).join(", ");
            Problem::unprocessable(format!("`status` must be one of {valid}"))
        })
    })
    .collect()
}

/// Shows one run.
#[utoipa::path(
    get, path = "/v1/runs/{id}", tag = "runs", operation_id = "show_run",
    params(("id" = inline(RunIdSchema), Path, description = "The run's id")),
    responses((status = 200, description = "The run", body = RunView)),
)]
pub(crate) async fn show_run(
    State(app): State<App>,
    _: Viewer,
    RunPath(run): RunPath,
) -> Result<Response, Problem> {
    let _permit = app.acquire_journal_read_permit().await?;
    ok_response(&app.longhaul().get_run(run).await?)
}

/// Shows the conversation of a run with the model.
#[utoipa::path(
    get, path = "/v1/runs/{id}/transcript", tag = "runs", operation_id = "show_transcript",
    params(("id" = inline(RunIdSchema), Path, description = "The run's id")),
    responses((status = 200, description = "The conversation", body = TranscriptView)),
)]
pub(crate) async fn show_transcript(
    State(app): State<App>,
    _: Viewer,
    RunPath(run): RunPath,
) -> Result<Response, Problem> {
    let permit = app.acquire_transcript_permit().await?;
    let view = app.longhaul().transcript(run).await?;
    // The view is in memory until it is sent.
    ok_response_with_memory_permit(&view, permit)
}

/// Explains the current status of a run and what to do next.
#[utoipa::path(
    get, path = "/v1/runs/{id}/why", tag = "runs", operation_id = "why",
    params(("id" = inline(RunIdSchema), Path, description = "The run's id")),
    responses((status = 200, description = "The explanation and a command", body = RunExplanation)),
)]
pub(crate) async fn explain_run(
    State(app): State<App>,
    _: Viewer,
    RunPath(run): RunPath,
) -> Result<Response, Problem> {
    let _permit = app.acquire_journal_read_permit().await?;
    ok_response(&app.longhaul().explain_run(run).await?)
}

/// Cancels a run. If the run has ended and belongs to a chain, the newest run of the chain is
/// cancelled and returned instead.
#[utoipa::path(
    post, path = "/v1/runs/{id}/cancel", tag = "runs", operation_id = "cancel_run",
    params(("id" = inline(RunIdSchema), Path, description = "The run's id")),
    request_body(content = Option<CancelBody>),
    responses((status = 200, description = "The run, cancelled or about to be", body = RunView)),
)]
pub(crate) async fn cancel_run(
    request: EngineHandleForRequest,
    caller: Operator,
    RunPath(run): RunPath,
    OptionalJsonBody(body): OptionalJsonBody<CancelBody>,
) -> Result<Response, Problem> {
    let reason = match body.reason.trim() {
        "" => format!("cancelled by {}", caller.name()),
        reason_text => reason_text.to_owned(),
    };
    let run = match request.effect {
        None => request.longhaul.cancel_run(run, caller.name(), &reason).await?,
        Some(_) => id_of_run_changed_by_request(&request, run).await?,
    };
    tracing::info!(%run, caller = caller.name(), "cancel requested");
    response_with_updated_run(&request, run).await
}

/// Completes a run that has its result and stays open for messages (`keep_open`), with this result.
/// If the run has ended and belongs to a chain, the newest run of the chain is closed and returned
/// instead.
#[utoipa::path(
    post, path = "/v1/runs/{id}/close", tag = "runs", operation_id = "close_run",
    params(("id" = inline(RunIdSchema), Path, description = "The run's id")),
    request_body(content = Option<EmptyBody>),
    responses((status = 200, description = "The completed run", body = RunView)),
)]
pub(crate) async fn close_run(
    request: EngineHandleForRequest,
    caller: Operator,
    RunPath(run): RunPath,
    OptionalJsonBody(EmptyBody {}): OptionalJsonBody<EmptyBody>,
) -> Result<Response, Problem> {
    let run = match request.effect {
        None => request.longhaul.close_run(run, caller.name()).await?,
        Some(_) => id_of_run_changed_by_request(&request, run).await?,
    };
    tracing::info!(%run, caller = caller.name(), "run closed");
    response_with_updated_run(&request, run).await
}

/// Pauses a run until it is resumed. If the run has ended and belongs to a chain, the newest run of
/// the chain is paused and returned instead.
#[utoipa::path(
    post, path = "/v1/runs/{id}/pause", tag = "runs", operation_id = "pause_run",
    params(("id" = inline(RunIdSchema), Path, description = "The run's id")),
    request_body(content = Option<EmptyBody>),
    responses((status = 200, description = "The run, paused or about to be", body = RunView)),
)]
pub(crate) async fn pause_run(
    request: EngineHandleForRequest,
    caller: Operator,
    RunPath(run): RunPath,
    OptionalJsonBody(EmptyBody {}): OptionalJsonBody<EmptyBody>,
) -> Result<Response, Problem> {
    let run = match request.effect {
        None => request.longhaul.pause_run(run, caller.name()).await?,
        Some(_) => id_of_run_changed_by_request(&request, run).await?,
    };
    tracing::info!(%run, caller = caller.name(), "pause requested");
    response_with_updated_run(&request, run).await
}

/// Resumes a run, optionally with a larger budget. If the run has ended and belongs to a chain, the
/// newest run of the chain is resumed and returned instead.
#[utoipa::path(
    post, path = "/v1/runs/{id}/resume", tag = "runs", operation_id = "resume_run",
    params(("id" = inline(RunIdSchema), Path, description = "The run's id")),
    request_body(content = Option<ResumeBody>),
    responses((status = 200, description = "The resumed run", body = RunView)),
)]
pub(crate) async fn resume_run(
    request: EngineHandleForRequest,
    caller: Operator,
    RunPath(run): RunPath,
    OptionalJsonBody(body): OptionalJsonBody<ResumeBody>,
) -> Result<Response, Problem> {
    let raise = match body.budget {
        None => None,
        Some(caps) => {
            require_role(&caller.0, Role::Approver)?;
            Some(parse_budget(caps)?.caps)
        }
    };
    let run = match request.effect {
        None => request.longhaul.resume_run(run, raise, caller.name()).await?,
        Some(_) => id_of_run_changed_by_request(&request, run).await?,
    };
    tracing::info!(%run, caller = caller.name(), "run resumed");
    response_with_updated_run(&request, run).await
}

/// Retries a failed run, as a new run that continues from the last good event of the failed run and
/// uses its budget. A failed run has at most one retry: later requests return the existing run. If
/// the run has completed and belongs to a chain, the newest run of the chain is retried instead.
#[utoipa::path(
    post, path = "/v1/runs/{id}/retry", tag = "runs", operation_id = "retry_run",
    params(("id" = inline(RunIdSchema), Path, description = "The failed run's id")),
    request_body(content = Option<EmptyBody>),
    responses(
        (status = 201, description = "The new run; it is on disk", body = RunView),
        (status = 200, description = "The run that already retries this run", body = RunView),
    ),
)]
pub(crate) async fn retry_run(
    request: EngineHandleForRequest,
    caller: Operator,
    RunPath(run): RunPath,
    OptionalJsonBody(EmptyBody {}): OptionalJsonBody<EmptyBody>,
) -> Result<Response, Problem> {
    let outcome = request.longhaul.retry(run, caller.name()).await?;
    let Some(&new) = outcome.run_ids().first() else {
        return Err(Problem::internal_error());
    };
    tracing::info!(%run, %new, caller = caller.name(), "run retried");
    if let SubmitOutcome::Existing(_) = outcome {
        return response_with_updated_run(&request, new).await;
    }
    let view = request.longhaul.get_run(new).await.map_err(result_read_problem_after_commit)?;
    created_response(&format!("/v1/runs/{new}"), &view)
}

/// Returns the run that a request about this run has changed: the newest run of its chain if the run
/// has ended, and otherwise the run itself.
async fn id_of_run_changed_by_request(
    request: &EngineHandleForRequest,
    run: RunId,
) -> Result<RunId, Problem> {
    let newest = request.longhaul.newest_run_of_chain(run).await;
    Ok(newest.map_err(result_read_problem_after_commit)?.unwrap_or(run))
}

/// Builds the response with the run as it is after the request's change was committed.
async fn response_with_updated_run(
    request: &EngineHandleForRequest,
    run: RunId,
) -> Result<Response, Problem> {
    let _permit = request
        .app
        .acquire_journal_read_permit()
        .await
        .map_err(|_| committed_but_unreadable_problem())?;
    let view = request.longhaul.get_run(run).await.map_err(result_read_problem_after_commit)?;
    ok_response(&view)
}

/// A page of runs.
#[derive(Debug, utoipa::ToSchema)]
#[expect(dead_code, reason = "OpenAPI schema of the response of `list`")]
pub(crate) struct RunList {
    /// Runs of this page, newest first. With `brief` they have the short form `RunBrief`.
    data: Vec<FullOrBriefRun>,
    /// Value of the `after` parameter for the next page. `None` means that this is the last page.
    next: Option<String>,
}

/// A run in full or in short form.
#[derive(Debug, utoipa::ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "OpenAPI schema of the response of `list`")]
pub(crate) enum FullOrBriefRun {
    /// All fields of the run.
    Full(Box<RunView>),
    /// Short form of the run, for lists.
    Brief(Box<RunBriefView>),
}
