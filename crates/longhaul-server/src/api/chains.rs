//! API handlers for the chains of the project. A chain runs several agents on one task, one after
//! another. Chains with an invalid file are not listed; `longhaul chains check` reports their
//! errors.

use axum::extract::State;
use axum::response::Response;
use longhaul_api::chain::ChainView;
use longhaul_api::list::List;
use longhaul_engine::Error;

use crate::app::App;
use crate::caller::Viewer;
use crate::params::NamePathParam;
use crate::problem::Problem;
use crate::response::ok_response;

/// Lists all chains of the project by name. A chain runs several agents on one task, one after
/// another.
#[utoipa::path(
    get, path = "/v1/chains", tag = "chains", operation_id = "list_chains",
    responses((status = 200, description = "All chains", body = List<ChainView>)),
)]
pub(crate) async fn list_chains(State(app): State<App>, _: Viewer) -> Result<Response, Problem> {
    ok_response(&List { data: app.longhaul().chains(), next: None })
}

/// Shows one chain of the project. A chain runs several agents on one task, one after another.
#[utoipa::path(
    get, path = "/v1/chains/{name}", tag = "chains", operation_id = "show_chain",
    params(("name" = String, Path, description = "Name of the chain")),
    responses((status = 200, description = "The chain", body = ChainView)),
)]
pub(crate) async fn show_chain(
    State(app): State<App>,
    _: Viewer,
    NamePathParam(name): NamePathParam,
) -> Result<Response, Problem> {
    match app.longhaul().chain(&name) {
        Err(Error::ChainNotFound { suggestion, .. }) => {
            let display_name: String = name.chars().filter(|c| !c.is_control()).take(80).collect();
            let message = format!("there is no chain named `{display_name}`");
            let problem = Problem::not_found("chain_not_found", message);
            Err(Problem { suggestion, ..problem.with_hint("GET /v1/chains lists all chains") })
        }
        chain => ok_response(&chain?),
    }
}
