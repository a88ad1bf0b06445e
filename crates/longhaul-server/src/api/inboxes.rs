//! API handlers that list and show inboxes (named queues of tasks) and submit tasks to them. A task
//! must name an agent unless its inbox has a default agent.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use longhaul_api::inbox::{InboxDetailView, InboxView, NewTaskBody};
use longhaul_api::list::List;
use longhaul_api::run::RunView;
use longhaul_core::id::InboxName;
use longhaul_engine::handle::build_inbox_task;

use crate::api::create_run::{parse_optional_name_field, submit_task, submitted_run_response};
use crate::app::App;
use crate::body::Json;
use crate::caller::{Operator, Viewer};
use crate::idempotency::{caller_scoped_idempotency_key, idempotency_key_header};
use crate::params::{NamePathParam, Query};
use crate::problem::Problem;
use crate::response::{ok_response, paginate};

/// Default and maximum number of inboxes per page.
const INBOXES_DEFAULT: usize = 100;
const INBOXES_MAX: usize = 1_000;

/// Lists the inboxes that have open or failed tasks or a default agent, by name.
#[utoipa::path(
    get, path = "/v1/inboxes", tag = "inboxes", operation_id = "list_inboxes",
    params(
        ("after" = Option<String>, Query, description = "The `next` of the previous page", min_length = 1, max_length = 256),
        ("limit" = Option<u32>, Query, description = "1 to 1,000", minimum = 1, maximum = 1000),
    ),
    responses((status = 200, description = "A page of inboxes", body = List<InboxView>)),
)]
pub(crate) async fn list_inboxes(
    State(app): State<App>,
    _: Viewer,
    query: Query,
) -> Result<Response, Problem> {
    let query = query.allow_only_params(&["after", "limit"])?;
    let limit = query.page_limit_param(INBOXES_DEFAULT, 1..=INBOXES_MAX)?;
    let after = query.param_value("after")?.map(str::to_owned);
    let after = parse_optional_name_field("after", after, InboxName::new)?;
    let _permit = app.acquire_journal_read_permit().await?;
    let mut inboxes = app.longhaul().inboxes(&app.options().inboxes).await?;
    inboxes.retain(|inbox| after.as_ref().is_none_or(|after| inbox.name.as_str() > after.as_str()));
    ok_response(&paginate(inboxes, limit, |inbox| inbox.name.clone()))
}

/// Shows one inbox with its newest tasks and its dead letters (failed tasks that nobody has
/// retried).
#[utoipa::path(
    get, path = "/v1/inboxes/{name}", tag = "inboxes", operation_id = "show_inbox",
    params(("name" = String, Path, description = "Name of the inbox")),
    responses((status = 200, description = "The inbox", body = InboxDetailView)),
)]
pub(crate) async fn show_inbox(
    State(app): State<App>,
    _: Viewer,
    NamePathParam(name): NamePathParam,
) -> Result<Response, Problem> {
    let inbox = InboxName::new(&name).map_err(|error| Problem::unprocessable(error.to_string()))?;
    let _permit = app.acquire_journal_read_permit().await?;
    ok_response(&app.longhaul().inbox(&inbox, &app.options().inboxes).await?)
}

/// Submits a task to an inbox. The task becomes a run.
#[utoipa::path(
    post, path = "/v1/inboxes/{name}/tasks", tag = "inboxes", operation_id = "post_task",
    params(("name" = String, Path, description = "Name of the inbox")),
    request_body = NewTaskBody,
    responses(
        (status = 201, description = "The new run; it is on disk", body = RunView),
        (status = 200, description = "The run to which the task was added as a message, because its lane is busy", body = RunView),
    ),
)]
pub(crate) async fn submit_task_to_inbox(
    State(app): State<App>,
    Operator(caller): Operator,
    (NamePathParam(name), headers): (NamePathParam, HeaderMap),
    Json(body): Json<NewTaskBody>,
) -> Result<Response, Problem> {
    let inbox = InboxName::new(&name).map_err(|error| Problem::unprocessable(error.to_string()))?;
    let mut task = build_inbox_task(inbox, body, &app.options().inboxes)?;
    task.submitter = Some(caller.principal.name.clone());
    let idempotency_key = task.idempotency_key.take().or(idempotency_key_header(&headers)?);
    task.idempotency_key = caller_scoped_idempotency_key(&caller, idempotency_key);
    submitted_run_response(&submit_task(&app, &caller, task).await?)
}
