//! Links to single gates, for people without a key.
//!
//! Never: shown twice. The server keeps a hash.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use longhaul_api::gate::{LinkBody, LinkView};
use longhaul_core::access::Role;
use longhaul_engine::handle::LinkAsk;

use crate::app::App;
use crate::ask::base;
use crate::body::Json;
use crate::caller::{Approver, may};
use crate::params::GatePath;
use crate::problem::Problem;
use crate::reply::made_secret;
use crate::spelled::GateWord;

/// Makes a link to an open gate.
#[utoipa::path(
    post, path = "/v1/gates/{id}/links", tag = "gates", operation_id = "make_link",
    params(("id" = inline(GateWord), Path, description = "The gate's id")),
    request_body = LinkBody,
    responses((status = 201, description = "The link, shown this once", body = LinkView)),
)]
pub(crate) async fn make(
    State(app): State<App>,
    caller: Approver,
    (GatePath(gate), headers): (GatePath, HeaderMap),
    Json(body): Json<LinkBody>,
) -> Result<Response, Problem> {
    // Where it counts who decides, a link is as good as a key for somebody else,
    // and only who may make those may make it.
    let asked = app.longhaul().gate(gate).await?.spec.approvers;
    if asked.count > 1 || asked.not_submitter {
        may(&caller.0, Role::Admin)?;
    }
    let ask = LinkAsk {
        gate,
        recipient: body.recipient,
        by: caller.name().to_owned(),
    };
    let recipient = ask.recipient.trim().to_owned();
    let secret = app.longhaul().make_link(ask).await?;
    let url = format!("{}/a/{}", base(&headers), secret.reveal());
    let view = LinkView {
        url,
        gate,
        recipient,
    };
    made_secret(&format!("/v1/gates/{gate}"), &view)
}
