//! API handlers for the chains of the project. A chain runs several agents on one task, one after
//! another. Chains with an invalid file are not listed; `longhaul chains check` reports their
//! errors.

use longhaul_api::chain::ChainView;
use longhaul_api::list::List;
use longhaul_api::path::ChainParam;
use longhaul_engine::Error;

use crate::call::{Call, Reply};
use crate::problem::Problem;

pub(crate) async fn list_chains(Call { ctx, .. }: Call) -> Result<Reply<List<ChainView>>, Problem> {
    Ok(Reply::ok(List { data: ctx.longhaul().chains(), next: None }))
}

pub(crate) async fn show_chain(
    Call { ctx, path: ChainParam(name), .. }: Call<ChainParam>,
) -> Result<Reply<ChainView>, Problem> {
    match ctx.longhaul().chain(&name) {
        Err(Error::ChainNotFound { suggestion, .. }) => {
            let display_name: String = name.chars().filter(|c| !c.is_control()).take(80).collect();
            let message = format!("there is no chain named `{display_name}`");
            let problem = Problem::not_found("chain_not_found", message);
            Err(Problem { suggestion, ..problem.with_hint("GET /v1/chains lists all chains") })
        }
        chain => Ok(Reply::ok(chain?)),
    }
}
