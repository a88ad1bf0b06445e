//! API handlers for the agents of the project. Agents with an invalid file are not listed;
//! `longhaul agents check` reports their errors.

use axum::extract::State;
use axum::response::Response;
use longhaul_api::agent::AgentView;
use longhaul_api::list::List;
use longhaul_engine::view::agent_view;

use crate::app::App;
use crate::caller::Viewer;
use crate::params::NamePath;
use crate::problem::Problem;
use crate::response::ok_response;

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
    NamePath(name): NamePath,
) -> Result<Response, Problem> {
    match app.longhaul().agent(&name) {
        Ok(agent) => ok_response(&agent_view(&agent)),
        Err(suggestion) => {
            let display_name: String = name.chars().filter(|c| !c.is_control()).take(80).collect();
            let message = format!("there is no agent named `{display_name}`");
            let problem = Problem::not_found("no_agent", message);
            Err(Problem { suggestion, ..problem.hint("GET /v1/agents lists all agents") })
        }
    }
}
