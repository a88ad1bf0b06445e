//! The agents that can be asked.
//!
//! Never: one whose file is broken. `longhaul agents check` says what is wrong.

use axum::extract::State;
use axum::response::Response;
use longhaul_api::agent::AgentView;
use longhaul_api::list::List;
use longhaul_engine::view::agent_view;

use crate::app::App;
use crate::caller::Viewer;
use crate::params::NamePath;
use crate::problem::Problem;
use crate::response::ok;

/// Lists agents by name.
#[utoipa::path(
    get, path = "/v1/agents", tag = "agents", operation_id = "list_agents",
    responses((status = 200, description = "All agents", body = List<AgentView>)),
)]
pub(crate) async fn list(State(app): State<App>, _: Viewer) -> Result<Response, Problem> {
    let agents = app.longhaul().agents();
    let data: Vec<AgentView> = agents.iter().map(|agent| agent_view(agent)).collect();
    ok(&List { data, next: None })
}

/// Shows an agent.
#[utoipa::path(
    get, path = "/v1/agents/{name}", tag = "agents", operation_id = "show_agent",
    params(("name" = String, Path, description = "The agent")),
    responses((status = 200, description = "The agent", body = AgentView)),
)]
pub(crate) async fn show(
    State(app): State<App>,
    _: Viewer,
    NamePath(name): NamePath,
) -> Result<Response, Problem> {
    match app.longhaul().agent(&name) {
        Ok(agent) => ok(&agent_view(&agent)),
        Err(like) => {
            let shown: String = name.chars().filter(|c| !c.is_control()).take(80).collect();
            let words = format!("there is no agent named `{shown}`");
            let problem = Problem::not_found("no_agent", words);
            Err(Problem { suggestion: like, ..problem.hint("GET /v1/agents lists what there is") })
        }
    }
}
