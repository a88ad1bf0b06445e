//! `longhaul agents ls`: prints one line per agent, including agents with an invalid file and
//! agents hidden by another one of the same name.

use clap::Args;
use longhaul_project::agents::diff::short_agent_version;
use longhaul_project::agents::loaded_agents::{AgentSource, LoadedAgents};
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

/// Table row of an agent: name, source, model, tools, version and description.
type AgentRow = [String; 6];

impl ListAgentsCommand {
    pub(crate) fn run(&self, loaded: &LoadedAgents) -> anyhow::Result<()> {
        if self.json {
            return output::print_json(&agents_to_json(loaded));
        }
        let rows = agent_table_rows(loaded);
        if rows.is_empty() {
            output::eprint_line("there are no agents here; create one: longhaul agents new NAME");
        }
        let row = |row: &AgentRow| row.iter().map(TableCell::new).collect();
        table::print_table(&[], rows.iter().map(row))
    }
}

fn agent_table_rows(loaded: &LoadedAgents) -> Vec<AgentRow> {
    let mut rows: Vec<AgentRow> = Vec::new();
    for loaded_agent in &loaded.agents {
        let agent = &loaded_agent.agent;
        let model = match agent.models.as_slice() {
            [] => "default".to_owned(),
            [model] => model.clone(),
            [model, more @ ..] => format!("{model} +{}", more.len()),
        };
        rows.push([
            agent.name.to_string(),
            loaded_agent.source.as_str().to_owned(),
            model,
            count_with_noun(agent.tools.len(), "tool"),
            short_agent_version(&agent.definition_hash()),
            agent.description.lines().next().unwrap_or_default().to_owned(),
        ]);
    }
    let empty_cells = || ["-", "-", "-"].map(str::to_owned);
    let mut add_unusable_row = |name: &String, source: &str, problem: String| {
        let [model, tools, version] = empty_cells();
        rows.push([name.clone(), source.to_owned(), model, tools, version, problem]);
    };
    for broken in &loaded.broken {
        let count = loaded.problems_of_file(&broken.path).count();
        let problem =
            format!("broken, problems found: {count}; see: longhaul agents check {}", broken.name);
        add_unusable_row(&broken.name, broken.source.as_str(), problem);
    }
    for hidden in &loaded.hidden {
        let problem =
            format!("hidden by {}, which defines the same agent", hidden.hidden_by.display());
        add_unusable_row(&hidden.name, hidden.source.as_str(), problem);
    }
    // The project's own agents come first.
    rows.sort_by(|a, b| (a[1] == BUILT_IN, a).cmp(&(b[1] == BUILT_IN, b)));
    rows
}

fn agents_to_json(loaded: &LoadedAgents) -> Value {
    let mut agents: Vec<_> = loaded.agents.iter().collect();
    agents.sort_by_key(|one| one.source == AgentSource::BuiltIn);
    let agents = agents.into_iter().map(|one| {
        json!({
            "name": one.agent.name,
            "source": one.source.as_str(),
            "path": one.path,
            "description": one.agent.description,
            "models": one.agent.models,
            "tools": one.agent.tools,
            "version": one.agent.definition_hash(),
        })
    });
    let broken = loaded.broken.iter().map(|one| {
        json!({
            "name": one.name,
            "source": one.source.as_str(),
            "path": one.path,
            "problems": loaded.problems_of_file(&one.path).count(),
        })
    });
    json!({
        "agents": agents.collect::<Value>(),
        "broken": broken.collect::<Value>(),
        "hidden": loaded.hidden,
    })
}
