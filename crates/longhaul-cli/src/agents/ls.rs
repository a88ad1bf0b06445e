//! `longhaul agents ls`: a line for each agent, also for those that are hidden or broken.
//!
//! Never: more than a line for one.

use clap::Args;
use longhaul::agents::diff::short_version;
use longhaul::agents::loaded_agents::{AgentSource, LoadedAgents};
use serde_json::{Value, json};

use crate::{output, sanitize};

/// Lists all agents.
#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The source of what comes last in the list.
const BUILT_IN: &str = AgentSource::BuiltIn.as_str();

/// Name, source, model, tools, version, and what it is for.
type Row = [String; 6];

impl Ls {
    pub(crate) fn run(&self, loaded: &LoadedAgents) -> anyhow::Result<()> {
        if self.json {
            return output::stdout_json(&to_json(loaded));
        }
        let rows = agent_rows(loaded);
        let wide = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
        let widths: Vec<usize> = (0..5).map(|column| wide(column).unwrap_or(0)).collect();
        for row in &rows {
            let mut line = String::new();
            for (text, width) in row.iter().zip(&widths) {
                line.push_str(&format!("{text:width$}  "));
            }
            line.push_str(&row[5]);
            output::stdout_line(&sanitize::line(line.trim_end()))?;
        }
        if rows.is_empty() {
            output::stderr_line("no agents here: longhaul agents new NAME writes one");
        }
        Ok(())
    }
}

fn agent_rows(loaded: &LoadedAgents) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for one in &loaded.agents {
        let agent = &one.agent;
        let model = match agent.models.as_slice() {
            [] => "default".to_owned(),
            [model] => model.clone(),
            [model, more @ ..] => format!("{model} +{}", more.len()),
        };
        let tools = match agent.tools.len() {
            1 => "1 tool".to_owned(),
            count => format!("{count} tools"),
        };
        rows.push([
            agent.name.to_string(),
            one.source.as_str().to_owned(),
            model,
            tools,
            short_version(&agent.version()),
            agent.description.lines().next().unwrap_or_default().to_owned(),
        ]);
    }
    let none = || ["-", "-", "-"].map(str::to_owned);
    let mut unusable = |name: &String, source: &str, said: String| {
        let [model, tools, version] = none();
        rows.push([name.clone(), source.to_owned(), model, tools, version, said]);
    };
    for one in &loaded.broken {
        let count = loaded.problems_in(&one.path).count();
        let said = format!("broken, {count} to mend: longhaul agents check {}", one.name);
        unusable(&one.name, one.source.as_str(), said);
    }
    for one in &loaded.hidden {
        let said = format!("hidden by {}", one.hidden_by.display());
        unusable(&one.name, one.source.as_str(), said);
    }
    // What is the project's own comes first.
    rows.sort_by(|a, b| (a[1] == BUILT_IN, a).cmp(&(b[1] == BUILT_IN, b)));
    rows
}

fn to_json(loaded: &LoadedAgents) -> Value {
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
            "version": one.agent.version(),
        })
    });
    let broken = loaded.broken.iter().map(|one| {
        json!({
            "name": one.name,
            "source": one.source.as_str(),
            "path": one.path,
            "problems": loaded.problems_in(&one.path).count(),
        })
    });
    let hidden = loaded.hidden.iter().map(|one| {
        json!({
            "name": one.name,
            "source": one.source.as_str(),
            "path": one.path,
            "hidden_by": one.hidden_by,
        })
    });
    json!({
        "agents": agents.collect::<Value>(),
        "broken": broken.collect::<Value>(),
        "hidden": hidden.collect::<Value>(),
    })
}
