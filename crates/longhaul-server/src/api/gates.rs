//! Gates: what waits for an answer.
//!
//! Never: answers one by being read.

use axum::extract::State;
use axum::response::Response;
use longhaul_api::gate::GateView;
use longhaul_api::list::List;
use longhaul_core::policy::gate::GateStatus;
use longhaul_core::port::store::GatesAsk;
use longhaul_engine::view::gate_view;

use crate::app::App;
use crate::caller::Viewer;
use crate::params::{GatePath, Query};
use crate::problem::Problem;
use crate::reply::{cut, ok};
use crate::spelled::{GateStatusWord, GateWord, RunWord};

/// So many gates come unless it is said otherwise, and at most.
const GATES: usize = 100;
const GATES_MAX: usize = 1_000;

/// Lists gates, newest first.
#[utoipa::path(
    get, path = "/v1/gates", tag = "gates", operation_id = "list_gates",
    params(
        ("status" = inline(Option<GateStatusWord>), Query, description = "open, answered, expired or withdrawn"),
        ("run" = inline(Option<RunWord>), Query, description = "Only this run's"),
        ("after" = inline(Option<GateWord>), Query, description = "The `next` of the part before"),
        ("limit" = Option<u32>, Query, description = "1 to 1,000", minimum = 1, maximum = 1000),
    ),
    responses((status = 200, description = "A part of the list", body = List<GateView>)),
)]
pub(crate) async fn list(
    State(app): State<App>,
    _: Viewer,
    query: Query,
) -> Result<Response, Problem> {
    let query = query.only(&["status", "run", "after", "limit"])?;
    let limit = query.limit(GATES, 1..=GATES_MAX)?;
    let ask = GatesAsk {
        gate: None,
        run: query.read_as("run")?,
        status: query.one("status")?.map(status).transpose()?,
        after: query.read_as("after")?,
        limit: limit + 1,
    };
    let rows = app.longhaul().gates(ask).await?;
    let views: Vec<GateView> = rows.iter().map(gate_view).collect();
    ok(&cut(views, limit, |gate| gate.id.to_string()))
}

fn status(said: &str) -> Result<GateStatus, Problem> {
    match said {
        "open" => Ok(GateStatus::Open),
        "answered" => Ok(GateStatus::Answered),
        "expired" => Ok(GateStatus::Expired),
        "withdrawn" => Ok(GateStatus::Withdrawn),
        _ => Err(Problem::invalid(
            "`status` is one of open, answered, expired, withdrawn",
        )),
    }
}

/// Shows a gate with all that is frozen.
#[utoipa::path(
    get, path = "/v1/gates/{id}", tag = "gates", operation_id = "show_gate",
    params(("id" = inline(GateWord), Path, description = "The gate's id")),
    responses((status = 200, description = "The gate", body = GateView)),
)]
pub(crate) async fn show(
    State(app): State<App>,
    _: Viewer,
    GatePath(gate): GatePath,
) -> Result<Response, Problem> {
    ok(&gate_view(&app.longhaul().gate(gate).await?))
}
