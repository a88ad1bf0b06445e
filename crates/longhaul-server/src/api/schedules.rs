//! API handlers for schedules, which start agents at certain times.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use longhaul_api::list::List;
use longhaul_api::run::RunView;
use longhaul_api::schedule::{NewScheduleBody, ScheduleView};
use longhaul_core::port::auth::IdempotencyKey;

use crate::api::create_run::check_schedule_models_have_price;
use crate::app::App;
use crate::body::{EmptyBody, Json, OptionalJsonBody};
use crate::caller::{Operator, Viewer};
use crate::idempotency::{caller_scoped_idempotency_key, idempotency_key_header};
use crate::params::{NamePathParam, Query};
use crate::problem::Problem;
use crate::response::{created_response, ok_response};

/// Lists all schedules by name.
#[utoipa::path(
    get, path = "/v1/schedules", tag = "schedules", operation_id = "list_schedules",
    responses((status = 200, description = "All schedules", body = List<ScheduleView>)),
)]
pub(crate) async fn list_schedules(
    State(app): State<App>,
    _: Viewer,
    query: Query,
) -> Result<Response, Problem> {
    query.allow_only_params(&[])?;
    let data = app.longhaul().schedules().await?;
    ok_response(&List { data, next: None })
}

/// Creates a schedule.
#[utoipa::path(
    post, path = "/v1/schedules", tag = "schedules", operation_id = "create_schedule",
    request_body = NewScheduleBody,
    responses((status = 201, description = "The new schedule", body = ScheduleView)),
)]
pub(crate) async fn create_schedule(
    State(app): State<App>,
    Operator(caller): Operator,
    Json(body): Json<NewScheduleBody>,
) -> Result<Response, Problem> {
    let target = (body.agent.as_deref(), body.chain.as_deref());
    check_schedule_models_have_price(&app, &caller, target)?;
    let schedule = app.longhaul().create_schedule(body, Some(&caller.principal.name)).await?;
    let (name, caller) = (&schedule.name, &caller.principal.name);
    tracing::info!(schedule = name, caller, "schedule created");
    created_response(&format!("/v1/schedules/{name}"), &schedule)
}

/// Shows one schedule.
#[utoipa::path(
    get, path = "/v1/schedules/{name}", tag = "schedules", operation_id = "show_schedule",
    params(("name" = String, Path, description = "Name of the schedule")),
    responses((status = 200, description = "The schedule", body = ScheduleView)),
)]
pub(crate) async fn show_schedule(
    State(app): State<App>,
    _: Viewer,
    NamePathParam(name): NamePathParam,
) -> Result<Response, Problem> {
    ok_response(&app.longhaul().schedule(&name).await?)
}

/// Deletes a schedule. Its runs are kept.
#[utoipa::path(
    delete, path = "/v1/schedules/{name}", tag = "schedules", operation_id = "delete_schedule",
    params(("name" = String, Path, description = "Name of the schedule")),
    responses((status = 200, description = "The deleted schedule", body = ScheduleView)),
)]
pub(crate) async fn delete_schedule(
    State(app): State<App>,
    Operator(caller): Operator,
    NamePathParam(name): NamePathParam,
) -> Result<Response, Problem> {
    let schedule = app.longhaul().delete_schedule(&name).await?;
    tracing::info!(schedule = name, caller = caller.principal.name, "schedule deleted");
    ok_response(&schedule)
}

/// Starts a run of a schedule now. The time of the schedule's next firing does not change.
#[utoipa::path(
    post, path = "/v1/schedules/{name}/run", tag = "schedules", operation_id = "run_schedule",
    params(("name" = String, Path, description = "Name of the schedule")),
    request_body(content = Option<EmptyBody>),
    responses((status = 201, description = "The new run; it is on disk", body = RunView)),
)]
pub(crate) async fn run_schedule(
    State(app): State<App>,
    Operator(caller): Operator,
    (NamePathParam(name), headers): (NamePathParam, HeaderMap),
    OptionalJsonBody(EmptyBody {}): OptionalJsonBody<EmptyBody>,
) -> Result<Response, Problem> {
    let schedule = app.longhaul().schedule(&name).await?;
    let target = (Some(schedule.agent.as_str()), schedule.chain.as_deref());
    check_schedule_models_have_price(&app, &caller, target)?;
    let key = caller_scoped_idempotency_key(&caller, idempotency_key_header(&headers)?);
    let principal = caller.principal.name.clone();
    // Stored in the commit that creates the run, so that a crash before the response is stored does
    // not lead to a second run.
    let key = key.map(|key| IdempotencyKey { principal, key });
    let view = app.longhaul().run_schedule(&name, key, Some(&caller.principal.name)).await?;
    tracing::info!(run = %view.id, schedule = name, caller = caller.principal.name, "run submitted");
    created_response(&format!("/v1/runs/{}", view.id), &view)
}
