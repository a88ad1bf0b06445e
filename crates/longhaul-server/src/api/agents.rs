//! API handlers for the agents and chains of the project, and for the statistics of their runs. Those
//! with an invalid file are not listed; `longhaul agents check` and `longhaul chains check` report
//! their errors.

use axum::http::StatusCode;
use longhaul_api::agent::{AgentStatsView, AgentView, ChainView};
use longhaul_api::list::List;
use longhaul_api::path::{AgentParam, ChainParam};
use longhaul_api::query::AgentStatsQuery;
use longhaul_core::duration;
use longhaul_core::id::AgentName;
use longhaul_core::time::Millis;
use longhaul_engine::Error;
use longhaul_engine::view::agent_view;

use crate::call::{Call, Replied, Reply};
use crate::problem::Problem;

/// Default window of statistics: 7 days.
const STATS_WINDOW: Millis = Millis::from_secs(7 * 24 * 60 * 60);

pub(crate) async fn list_agents(call: Call) -> Replied<List<AgentView>> {
    let agents = call.ctx.longhaul().agents();
    Ok(Reply::list(agents.iter().map(|agent| agent_view(agent)).collect()))
}

pub(crate) async fn show_agent(call: Call<AgentParam>) -> Replied<AgentView> {
    let name = call.path.0;
    match call.ctx.longhaul().get_agent(&name) {
        Ok(agent) => Ok(Reply::ok(agent_view(&agent))),
        Err(suggestion) => Err(not_found(Error::AgentNotFound { name, suggestion })),
    }
}

pub(crate) async fn show_chain(call: Call<ChainParam>) -> Replied<ChainView> {
    call.ctx.longhaul().chain(&call.path.0).map(Reply::ok).map_err(not_found)
}

/// Returns the error response for a path with an agent or chain that does not exist.
fn not_found(mut error: Error) -> Problem {
    let (Error::AgentNotFound { name, .. } | Error::ChainNotFound { name, .. }) = &mut error else {
        return error.into();
    };
    *name = name.chars().filter(|c| !c.is_control()).take(80).collect();
    Problem { status: StatusCode::NOT_FOUND, ..error.into() }
}

pub(crate) async fn show_agent_stats(
    Call { ctx, path: AgentParam(name), query, .. }: Call<AgentParam, (), AgentStatsQuery>,
) -> Replied<AgentStatsView> {
    let window = match query.window {
        None => STATS_WINDOW,
        Some(text) => duration::parse_duration(&text).ok_or_else(|| {
            let examples = duration::DURATION_EXAMPLES;
            Problem::unprocessable(format!("`window` must be a duration such as {examples}"))
        })?,
    };
    let Ok(agent) = AgentName::new(&name) else {
        return Err(not_found(Error::AgentNotFound { name, suggestion: None }));
    };
    ctx.longhaul().agent_stats(&agent, window).await.map(Reply::ok).map_err(not_found)
}
