//! Messages to a run: sent, listed with what became of them, changed and taken
//! back until they are read.
//!
//! Never: a receipt for what is not on disk.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use longhaul_api::list::List;
use longhaul_api::steer::{SteerBody, SteerChange, SteerReceipt, SteerState, SteerView};
use longhaul_core::event::steer::SteerMessage;
use longhaul_core::id::{RunId, SteerId};
use longhaul_core::raw::Hash;

use crate::app::App;
use crate::body::Json;
use crate::caller::{Operator, Viewer};
use crate::idempotency::{header_key, scoped_key};
use crate::openapi_types::{RunIdSchema, SteerIdSchema};
use crate::params::{RunPath, SteerPath};
use crate::problem::Problem;
use crate::response::{json, ok};

/// Writes a message to a run.
#[utoipa::path(
    post, path = "/v1/runs/{id}/steer", tag = "steering", operation_id = "steer",
    params(
        ("id" = inline(RunIdSchema), Path, description = "The run's id"),
        ("Idempotency-Key" = Option<String>, Header, description = "Send it again under the same key, and it counts once", min_length = 1, max_length = 255, pattern = "^[\\t -~]*[!-~][\\t -~]*$"),
    ),
    request_body = SteerBody,
    responses((status = 202, description = "It is on disk and waits to be read", body = SteerReceipt)),
)]
pub(crate) async fn send(
    State(app): State<App>,
    caller: Operator,
    (RunPath(run), headers): (RunPath, HeaderMap),
    Json(body): Json<SteerBody>,
) -> Result<Response, Problem> {
    let longhaul = app.longhaul();
    let by = caller.name().to_owned();
    let delivery = body.delivery;
    let id = match header_key(&headers)? {
        None => longhaul.steer(run, body.text, delivery, &by).await?,
        // The same request makes the same id, so that it stands there once even
        // if the server died before it could keep its answer.
        Some(key) => {
            let text = body.text;
            let key = scoped_key(&caller.0, Some(key)).unwrap_or_default();
            let steer = derive_steer_id(&format!("{run}\n{by}\n{key}\n{delivery:?}\n{text}"));
            let message = SteerMessage { steer, text, delivery, by };
            longhaul.steer_once(run, message).await?
        }
    };
    tracing::info!(%run, steer = %id, caller = caller.name(), "steered");
    let status = SteerState::Queued;
    let receipt = SteerReceipt { id, run, status, delivery };
    json(StatusCode::ACCEPTED, &receipt)
}

fn derive_steer_id(request: &str) -> SteerId {
    let hash = Hash::digest(request.as_bytes());
    let bits = hash.bytes().iter().take(16);
    SteerId::from_bits(bits.fold(0, |bits, byte| bits << 8 | u128::from(*byte)))
}

/// Lists the messages of a run, and what became of each.
#[utoipa::path(
    get, path = "/v1/runs/{id}/steer", tag = "steering", operation_id = "list_steers",
    params(("id" = inline(RunIdSchema), Path, description = "The run's id")),
    responses((status = 200, description = "All messages, in order of arrival", body = List<SteerView>)),
)]
pub(crate) async fn list(
    State(app): State<App>,
    _: Viewer,
    RunPath(run): RunPath,
) -> Result<Response, Problem> {
    let _permit = app.fold_permit().await?;
    let data = app.longhaul().steers(run).await?;
    ok(&List { data, next: None })
}

/// Changes a message that was not read yet.
#[utoipa::path(
    patch, path = "/v1/runs/{id}/steer/{steer}", tag = "steering", operation_id = "update_steer",
    params(
        ("id" = inline(RunIdSchema), Path, description = "The run's id"),
        ("steer" = inline(SteerIdSchema), Path, description = "The message's id"),
    ),
    request_body = SteerChange,
    responses((status = 200, description = "The message as it stands now", body = SteerView)),
)]
pub(crate) async fn update(
    State(app): State<App>,
    caller: Operator,
    (RunPath(run), SteerPath(steer)): (RunPath, SteerPath),
    Json(body): Json<SteerChange>,
) -> Result<Response, Problem> {
    let standing = find(&app, run, steer).await?;
    let message = SteerMessage {
        steer,
        text: body.text.unwrap_or(standing.text),
        delivery: body.delivery.unwrap_or(standing.delivery),
        by: caller.name().to_owned(),
    };
    app.longhaul().update_steer(run, message).await?;
    ok(&find(&app, run, steer).await?)
}

/// Takes a message back that was not read yet.
#[utoipa::path(
    delete, path = "/v1/runs/{id}/steer/{steer}", tag = "steering", operation_id = "withdraw_steer",
    params(
        ("id" = inline(RunIdSchema), Path, description = "The run's id"),
        ("steer" = inline(SteerIdSchema), Path, description = "The message's id"),
    ),
    responses((status = 200, description = "The message, withdrawn", body = SteerView)),
)]
pub(crate) async fn withdraw(
    State(app): State<App>,
    caller: Operator,
    (RunPath(run), SteerPath(steer)): (RunPath, SteerPath),
) -> Result<Response, Problem> {
    find(&app, run, steer).await?;
    let withdrawn = app.longhaul().withdraw_steer(run, steer, caller.name());
    withdrawn.await?;
    ok(&find(&app, run, steer).await?)
}

async fn find(app: &App, run: RunId, steer: SteerId) -> Result<SteerView, Problem> {
    let steers = app.longhaul().steers(run).await?;
    let found = steers.into_iter().find(|known| known.id == steer);
    found.ok_or_else(|| longhaul_engine::Error::SteerNotFound(steer).into())
}
