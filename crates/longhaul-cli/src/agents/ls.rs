//! `longhaul agents ls`: prints one line per agent, including agents with an invalid file and
//! agents hidden by another one of the same name.

use clap::Args;
use longhaul_engine::agent::Agent;
use longhaul_project::agents::diff::short_agent_version;
use longhaul_project::agents::loaded_agents::{AgentSource, LoadedAgent, LoadedAgents};
use serde_json::{Value, json};

use crate::format::count_with_noun;
use crate::output;
use crate::table::{self, TableCell};

/// Arguments of `longhaul agents ls`.
#[derive(Debug, Args)]
pub(crate) struct ListAgentsCommand {
    /// Print the agents as one JSON object
    #[arg(long)]
    json: bool,
}

/// Name of the source of built-in agents, which are listed after the project's own agents.
const BUILT_IN: &str = AgentSource::BuiltIn.as_str();

impl ListAgentsCommand {
    pub(crate) fn run(&self, loaded: &LoadedAgents) -> anyhow::Result<()> {
        if self.json {
            return output::print_json(&agents_to_json(loaded));
        }
        let rows = agent_table_rows(loaded);
        if rows.is_empty() {
            output::eprint_line("there are no agents here; create one: longhaul agents new NAME");
        }
        table::print_table(&[], rows.iter().map(|row| row.iter().map(TableCell::new).collect()))
    }
}

/// Returns the table rows of all agents: name, source, model, tools, version and description.
fn agent_table_rows(loaded: &LoadedAgents) -> Vec<[String; 6]> {
    let rows = loaded.agents.iter().map(|LoadedAgent { agent, source, .. }| {
        let model = match agent.models.as_slice() {
            [] => "default".to_owned(),
            [model] => model.clone(),
            [model, more @ ..] => format!("{model} +{}", more.len()),
        };
        let tools = count_with_noun(agent.tools.len(), "tool");
        let version = short_agent_version(&agent.definition_hash());
        let description = agent.description.lines().next().unwrap_or_default();
        let name = agent.name.to_string();
        [name, source.as_str().to_owned(), model, tools, version, description.to_owned()]
    });
    let unusable_row = |name: &str, source: AgentSource, problem: String| {
        let [model, tools, version] = ["-", "-", "-"].map(str::to_owned);
        [name.to_owned(), source.as_str().to_owned(), model, tools, version, problem]
    };
    let broken = loaded.broken.iter().map(|broken| {
        let (name, count) = (&broken.name, loaded.problems_in(&broken.path).count());
        let problem = format!("broken, problems found: {count}; see: longhaul agents check {name}");
        unusable_row(name, broken.source, problem)
    });
    let hidden = loaded.hidden.iter().map(|hidden| {
        let other = hidden.hidden_by.display();
        let problem = format!("hidden by {other}, which defines the same agent");
        unusable_row(&hidden.name, hidden.source, problem)
    });
    let mut rows: Vec<_> = rows.chain(broken).chain(hidden).collect();
    // The project's own agents come first.
    rows.sort_by(|a, b| (a[1] == BUILT_IN, a).cmp(&(b[1] == BUILT_IN, b)));
    rows
}

fn agents_to_json(loaded: &LoadedAgents) -> Value {
    let mut agents: Vec<_> = loaded.agents.iter().collect();
    agents.sort_by_key(|one| one.source == AgentSource::BuiltIn);
    let agents = agents.into_iter().map(|one| {
        let Agent { name, description, models, tools, .. } = &one.agent;
        json!({
            "name": name, "source": one.source.as_str(), "path": one.path,
            "description": description, "models": models, "tools": tools,
            "version": one.agent.definition_hash(),
        })
    });
    let broken = loaded.broken.iter().map(|one| {
        let problems = loaded.problems_in(&one.path).count();
        json!({
            "name": one.name, "source": one.source.as_str(), "path": one.path,
            "problems": problems,
        })
    });
    json!({
        "agents": agents.collect::<Value>(),
        "broken": broken.collect::<Value>(),
        "hidden": loaded.hidden,
    })
}
