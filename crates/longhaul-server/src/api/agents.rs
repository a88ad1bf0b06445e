//! API handlers for the agents of the project and for the statistics of their runs. Agents with an
//! invalid file are not listed; `longhaul agents check` reports their errors.

use longhaul_api::agent::AgentView;
use longhaul_api::agent_stats::AgentStatsView;
use longhaul_api::list::List;
use longhaul_api::path::AgentParam;
use longhaul_api::query::AgentStatsQuery;
use longhaul_core::duration;
use longhaul_core::id::AgentName;
use longhaul_core::time::Millis;
use longhaul_engine::Error;
use longhaul_engine::view::agent_view;

use crate::call::{Call, Reply};
use crate::problem::Problem;

/// Default window of statistics: 7 days.
const STATS_WINDOW: Millis = Millis::from_secs(7 * 24 * 60 * 60);

pub(crate) async fn list_agents(Call { ctx, .. }: Call) -> Result<Reply<List<AgentView>>, Problem> {
    let agents = ctx.longhaul().agents();
    let data = agents.iter().map(|agent| agent_view(agent)).collect();
    Ok(Reply::ok(List { data, next: None }))
}

pub(crate) async fn show_agent(
    Call { ctx, path: AgentParam(name), .. }: Call<AgentParam>,
) -> Result<Reply<AgentView>, Problem> {
    match ctx.longhaul().get_agent(&name) {
        Ok(agent) => Ok(Reply::ok(agent_view(&agent))),
        Err(suggestion) => Err(agent_not_found(&name, suggestion)),
    }
}

fn agent_not_found(name: &str, suggestion: Option<String>) -> Problem {
    let display_name: String = name.chars().filter(|c| !c.is_control()).take(80).collect();
    let message = format!("there is no agent named `{display_name}`");
    let problem = Problem::not_found("agent_not_found", message);
    Problem { suggestion, ..problem.with_hint("GET /v1/agents lists all agents") }
}

pub(crate) async fn show_agent_stats(
    Call { ctx, path: AgentParam(name), query, .. }: Call<AgentParam, (), AgentStatsQuery>,
) -> Result<Reply<AgentStatsView>, Problem> {
    let window = match query.window {
        None => STATS_WINDOW,
        Some(text) => duration::parse_duration(&text).ok_or_else(|| {
            let examples = duration::DURATION_EXAMPLES;
            Problem::unprocessable(format!("`window` must be a duration such as {examples}"))
        })?,
    };
    let Ok(agent) = AgentName::new(&name) else {
        return Err(agent_not_found(&name, None));
    };
    match ctx.longhaul().agent_stats(&agent, window).await {
        Err(Error::AgentNotFound { suggestion, .. }) => Err(agent_not_found(&name, suggestion)),
        stats => Ok(Reply::ok(stats?)),
    }
}
