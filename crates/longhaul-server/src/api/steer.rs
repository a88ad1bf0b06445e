//! API handlers for messages to a run: send, list, update and withdraw. A message can be updated or
//! withdrawn until the run has read it.
//!
//! Invariant: a message is acknowledged only after it is on disk.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use longhaul_api::list::List;
use longhaul_api::steer::{SteerBody, SteerChange, SteerReceipt, SteerView};
use longhaul_core::event::steer::SteerMessage;
use longhaul_core::id::{RunId, SteerId};
use longhaul_core::raw::Hash;

use crate::app::App;
use crate::body::Json;
use crate::caller::{Operator, Viewer};
use crate::idempotency::{caller_scoped_idempotency_key, idempotency_key_header};
use crate::openapi_types::{RunIdSchema, SteerIdSchema};
use crate::params::{RunPath, SteerPath};
use crate::problem::Problem;
use crate::response::{json_response, ok_response};

/// Sends a message to a run. If the run has ended and belongs to a chain, the newest run of the
/// chain gets the message, and the receipt names that run.
#[utoipa::path(
    post, path = "/v1/runs/{id}/steer", tag = "steering", operation_id = "steer",
    params(("id" = inline(RunIdSchema), Path, description = "The run's id")),
    request_body = SteerBody,
    responses((status = 202, description = "The message is on disk and waits for the run to read it", body = SteerReceipt)),
)]
pub(crate) async fn send_steer(
    State(app): State<App>,
    caller: Operator,
    (RunPath(run), headers): (RunPath, HeaderMap),
    Json(body): Json<SteerBody>,
) -> Result<Response, Problem> {
    let longhaul = app.longhaul();
    let by = caller.name().to_owned();
    let delivery = body.delivery;
    let queued = match idempotency_key_header(&headers)? {
        None => longhaul.steer(run, body.text.clone(), delivery, &by).await?,
        // The id is derived from the request, so a retry does not add a second message, even if
        // the server died before it stored its response.
        Some(key) => {
            let text = body.text.clone();
            let key = caller_scoped_idempotency_key(&caller.0, Some(key)).unwrap_or_default();
            let steer = derive_steer_id(&format!("{run}\n{by}\n{key}\n{delivery:?}\n{text}"));
            let message = SteerMessage { steer, text, delivery, by, is_task: false };
            longhaul.steer_idempotently(run, message).await?
        }
    };
    tracing::info!(run = %queued.run, steer = %queued.id, caller = caller.name(), "message queued for the run");
    let receipt = longhaul.receipt_for_steer_message(queued, (&body.text, delivery)).await?;
    json_response(StatusCode::ACCEPTED, &receipt)
}

fn derive_steer_id(request_key: &str) -> SteerId {
    let hash = Hash::digest(request_key.as_bytes());
    let bits = hash.bytes().iter().take(16);
    SteerId::from_bits(bits.fold(0, |bits, byte| bits << 8 | u128::from(*byte)))
}

/// Lists the messages to a run with their status.
#[utoipa::path(
    get, path = "/v1/runs/{id}/steer", tag = "steering", operation_id = "list_steers",
    params(("id" = inline(RunIdSchema), Path, description = "The run's id")),
    responses((status = 200, description = "All messages, in order of arrival", body = List<SteerView>)),
)]
pub(crate) async fn list_steers(
    State(app): State<App>,
    _: Viewer,
    RunPath(run): RunPath,
) -> Result<Response, Problem> {
    let _permit = app.acquire_journal_read_permit().await?;
    let data = app.longhaul().list_steers(run).await?;
    ok_response(&List { data, next: None })
}

/// Updates a message that the run has not read yet.
#[utoipa::path(
    patch, path = "/v1/runs/{id}/steer/{steer}", tag = "steering", operation_id = "update_steer",
    params(
        ("id" = inline(RunIdSchema), Path, description = "The run's id"),
        ("steer" = inline(SteerIdSchema), Path, description = "The message's id"),
    ),
    request_body = SteerChange,
    responses((status = 200, description = "The updated message", body = SteerView)),
)]
pub(crate) async fn edit_queued_steer(
    State(app): State<App>,
    caller: Operator,
    (RunPath(run), SteerPath(steer)): (RunPath, SteerPath),
    Json(body): Json<SteerChange>,
) -> Result<Response, Problem> {
    let existing = find_steer(&app, run, steer).await?;
    let message = SteerMessage {
        steer,
        text: body.text.unwrap_or(existing.text),
        delivery: body.delivery.unwrap_or(existing.delivery),
        by: caller.name().to_owned(),
        is_task: false,
    };
    app.longhaul().update_steer(run, message).await?;
    ok_response(&find_steer(&app, run, steer).await?)
}

/// Withdraws a message that the run has not read yet.
#[utoipa::path(
    delete, path = "/v1/runs/{id}/steer/{steer}", tag = "steering", operation_id = "withdraw_steer",
    params(
        ("id" = inline(RunIdSchema), Path, description = "The run's id"),
        ("steer" = inline(SteerIdSchema), Path, description = "The message's id"),
    ),
    responses((status = 200, description = "The withdrawn message", body = SteerView)),
)]
pub(crate) async fn withdraw_steer(
    State(app): State<App>,
    caller: Operator,
    (RunPath(run), SteerPath(steer)): (RunPath, SteerPath),
) -> Result<Response, Problem> {
    find_steer(&app, run, steer).await?;
    let withdrawn = app.longhaul().withdraw_steer(run, steer, caller.name());
    withdrawn.await?;
    ok_response(&find_steer(&app, run, steer).await?)
}

async fn find_steer(app: &App, run: RunId, steer: SteerId) -> Result<SteerView, Problem> {
    let run = app.longhaul().resolve_run_of_steer_message(run, steer).await?;
    let steers = app.longhaul().list_steers(run).await?;
    let found = steers.into_iter().find(|message| message.id == steer);
    found.ok_or_else(|| longhaul_engine::Error::SteerNotFound(steer).into())
}
