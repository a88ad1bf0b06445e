//! API handlers for the agents of the project and for the statistics of their runs. Agents with an invalid file are not listed;
//! `longhaul agents check` reports their errors.

use axum::extract::State;
use axum::response::Response;
use longhaul_api::agent::AgentView;
use longhaul_api::agent_stats::AgentStatsView;
use longhaul_api::list::List;
use longhaul_core::duration;
use longhaul_core::id::AgentName;
use longhaul_core::time::Millis;
use longhaul_engine::Error;
use longhaul_engine::view::agent_view;

use crate::app::App;
use crate::caller::Viewer;
use crate::params::{NamePathParam, Query};
use crate::problem::Problem;
use crate::response::ok_response;

/// Default window of statistics: 7 days.
const STATS_WINDOW: Millis = Millis::from_secs(7 * 24 * 60 * 60);

/// Lists all agents of the project by name.
#[utoipa::path(
    get, path = "/v1/agents", tag = "agents", operation_id = "list_agents",
    responses((status = 200, description = "All agents", body = List<AgentView>)),
)]
pub(crate) async fn list_agents(State(app): State<App>, _: Viewer) -> Result<Response, Problem> {
    let agents = app.longhaul().agents();
    let data: Vec<AgentView> = agents.iter().map(|agent| agent_view(agent)).collect();
    ok_response(&List { data, next: None })
}

/// Shows one agent of the project.
#[utoipa::path(
    get, path = "/v1/agents/{name}", tag = "agents", operation_id = "show_agent",
    params(("name" = String, Path, description = "Name of the agent")),
    responses((status = 200, description = "The agent", body = AgentView)),
)]
pub(crate) async fn show_agent(
    State(app): State<App>,
    _: Viewer,
    NamePathParam(name): NamePathParam,
) -> Result<Response, Problem> {
    match app.longhaul().get_agent(&name) {
        Ok(agent) => ok_response(&agent_view(&agent)),
        Err(suggestion) => Err(agent_not_found(&name, suggestion)),
    }
}

fn agent_not_found(name: &str, suggestion: Option<String>) -> Problem {
    let display_name: String = name.chars().filter(|c| !c.is_control()).take(80).collect();
    let message = format!("there is no agent named `{display_name}`");
    let problem = Problem::not_found("agent_not_found", message);
    Problem { suggestion, ..problem.with_hint("GET /v1/agents lists all agents") }
}

/// Shows statistics of an agent's runs that were created in a time window.
#[utoipa::path(
    get, path = "/v1/agents/{name}/stats", tag = "agents", operation_id = "show_agent_stats",
    params(
        ("name" = String, Path, description = "Name of the agent"),
        ("window" = Option<String>, Query, description = "Length of the window, such as `24h`; default: `7d`", min_length = 1),
    ),
    responses((status = 200, description = "The statistics", body = AgentStatsView)),
)]
pub(crate) async fn show_agent_stats(
    State(app): State<App>,
    _: Viewer,
    (NamePathParam(name), query): (NamePathParam, Query),
) -> Result<Response, Problem> {
    let query = query.allow_only_params(&["window"])?;
    let window = match query.param_value("window")? {
        None => STATS_WINDOW,
        Some(text) => duration::parse_duration(text).ok_or_else(|| {
            let examples = duration::DURATION_EXAMPLES;
            Problem::unprocessable(format!("`window` must be a duration such as {examples}"))
        })?,
    };
    let Ok(agent) = AgentName::new(&name) else {
        return Err(agent_not_found(&name, None));
    };
    match app.longhaul().agent_stats(&agent, window).await {
        Err(Error::AgentNotFound { suggestion, .. }) => Err(agent_not_found(&name, suggestion)),
        stats => ok_response(&stats?),
    }
}
