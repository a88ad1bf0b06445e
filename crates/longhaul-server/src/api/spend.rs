//! API handlers that list spend caps and raise one.

use axum::extract::State;
use axum::response::Response;
use longhaul_api::list::List;
use longhaul_api::spend::{RaiseCapBody, SpendCapView};

use crate::app::App;
use crate::body::Json;
use crate::caller::{Approver, Viewer};
use crate::params::{NamePathParam, Query};
use crate::problem::Problem;
use crate::response::ok_response;

/// Lists the spend caps, each with the usage counted in its current window.
#[utoipa::path(
    get, path = "/v1/spend", tag = "spend", operation_id = "list_spend",
    responses((status = 200, description = "All spend caps", body = List<SpendCapView>)),
)]
pub(crate) async fn list_spend(
    State(app): State<App>,
    _: Viewer,
    query: Query,
) -> Result<Response, Problem> {
    query.allow_only_params(&[])?;
    ok_response(&List { data: app.longhaul().list_spend_caps().await?, next: None })
}

/// Raises a spend cap until its current window ends. Runs that wait because of the cap continue.
#[utoipa::path(
    post, path = "/v1/spend/{name}/raise", tag = "spend", operation_id = "raise_cap",
    params(("name" = String, Path, description = "Id of the cap, such as `day-usd-key`")),
    request_body = RaiseCapBody,
    responses((status = 200, description = "The raised cap", body = SpendCapView)),
)]
pub(crate) async fn raise_cap(
    State(app): State<App>,
    caller: Approver,
    NamePathParam(name): NamePathParam,
    Json(body): Json<RaiseCapBody>,
) -> Result<Response, Problem> {
    let cap = app.longhaul().raise_cap(&name, &body).await?;
    tracing::info!(cap = cap.id, subject = body.subject, caller = caller.name(), "cap raised");
    ok_response(&cap)
}
