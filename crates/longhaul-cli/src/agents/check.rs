//! `longhaul agents check`: every problem as file:line:column, and what else to know.
//!
//! Never: mends one.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::bail;
use clap::Args;
use longhaul::agents::check;
use longhaul::agents::loaded::{AgentError, LoadedAgent, Source};
use longhaul::agents::problem::{Problem, ProblemKind};
use longhaul::assemble::menu::Menu;
use longhaul::assemble::models;
use longhaul::config::secrets;
use longhaul::written::plain_line;
use longhaul_engine::agent::{Agent, BudgetPatch, Defaults};
use longhaul_engine::ports::Models;
use longhaul_tool::memory;
use serde_json::{Value, json};

use crate::agents::project::Project;
use crate::error::CliError;
use crate::submit::only_with_env_file;
use crate::{here, say};

/// Reports every problem.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Only this agent
    name: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Check {
    pub(crate) fn run(&self, project: &Project) -> anyhow::Result<()> {
        let name = self.name.as_deref();
        let loaded = &project.loaded;
        // Those that ship are our own affair, unless somebody asks about one.
        let wanted = |one: &&LoadedAgent| match name {
            Some(name) => one.agent.name.as_str() == name,
            None => one.source != Source::BuiltIn,
        };
        let mut problems: Vec<_> = match name.map(|name| loaded.find(name)) {
            None => loaded.problems.clone(),
            Some(Ok(_)) => Vec::new(),
            Some(Err(AgentError::Broken { problems, .. })) => problems,
            Some(Err(AgentError::Unknown(said))) => bail!("{said}\n`longhaul agents` lists them"),
        };
        let asking = Asking::of(project)?;
        let mut notes = match name {
            None => loaded.notes.clone(),
            Some(_) => Vec::new(),
        };
        for one in loaded.agents.iter().filter(wanted) {
            let said = one.notes.iter().cloned().chain(asking.about(&one.agent));
            notes.extend(said.map(|note| (one.path.clone(), note)));
        }
        match name {
            None => problems.extend(loaded.lacks.iter().cloned()),
            Some(name) => problems.extend(loaded.lacks_of(name).cloned()),
        }
        match self.json {
            true => say::json(&json(&problems, &notes))?,
            false => print(&problems, &notes)?,
        }
        for note in secrets::notes(&project.config) {
            say::talk(&format!("note: {note}"));
        }
        let fine = loaded.agents.iter().filter(wanted).count();
        if problems.is_empty() {
            say::talk(&format!("{fine} fine"));
            return Ok(());
        }
        let many = match problems.len() {
            1 => "1 problem".to_owned(),
            many => format!("{many} problems"),
        };
        let is_missing = |problem: &Problem| problem.kind == ProblemKind::Missing;
        match problems.iter().all(is_missing) {
            true => bail!("{many}; runs wait until what is missing is there"),
            false => bail!("{many}; an agent is used only when its file has none"),
        }
    }
}

fn json(problems: &[Problem], notes: &[(PathBuf, String)]) -> Value {
    let problems = problems.iter().map(|problem| {
        json!({
            "path": problem.path,
            "line": problem.line,
            "column": problem.column,
            "kind": problem.kind.as_str(),
            "message": problem.message,
        })
    });
    let notes = notes
        .iter()
        .map(|(path, note)| json!({ "path": path, "message": note }));
    json!({ "problems": problems.collect::<Value>(), "notes": notes.collect::<Value>() })
}

fn print(problems: &[Problem], notes: &[(PathBuf, String)]) -> anyhow::Result<()> {
    // Whoever wrote the files named them too.
    for problem in problems {
        say::words(&problem.to_string())?;
    }
    for (path, note) in notes {
        let path = plain_line(&path.display().to_string());
        say::words(&format!("{path}: note: {note}"))?;
    }
    Ok(())
}

/// The models that can be asked here, and what binds those who ask.
#[derive(Debug)]
struct Asking<'a> {
    project: &'a Project,
    models: Arc<dyn Models>,
    /// The same with the project's `.env`, where there is one.
    filed: Option<Arc<dyn Models>>,
    menu: Menu,
    defaults: Defaults,
}

impl<'a> Asking<'a> {
    fn of(project: &'a Project) -> anyhow::Result<Self> {
        let (here, config, clock) = (&project.here, &project.config, &project.clock);
        let filed = here::with_env_file_if_sound(here.clone());
        let filed = (filed.env != here.env)
            .then(|| here::quiet_config(&filed))
            .transpose()?;
        Ok(Self {
            project,
            models: models(config, clock),
            filed: filed.map(|config| models(&config, clock)),
            menu: Menu::of(config).map_err(CliError::usage)?,
            defaults: config.defaults(),
        })
    }

    /// Everything that is to be said of an agent.
    fn about(&self, agent: &Agent) -> Vec<String> {
        // What needs a store is not in this toolbox, and may always be repeated.
        let repeats = |tool: &str| tool == "read_output" || memory::NAMES.contains(&tool);
        let is_once = |tool: &str| match self.project.tools.find(tool) {
            Some(equipped) => Some(equipped.may_be_once()),
            None => repeats(tool).then_some(false),
        };
        let mut notes = check::notes(agent, is_once);
        notes.extend(self.notes(agent));
        notes
    }

    /// What is to be said of an agent's models, the first and those behind it.
    fn notes(&self, agent: &Agent) -> Vec<String> {
        let named: Vec<Option<&str>> = match agent.models.as_slice() {
            [] => vec![None],
            models => models.iter().map(|model| Some(model.as_str())).collect(),
        };
        let (mut notes, mut asked) = (Vec::new(), Vec::new());
        for named in named {
            let why = match self.models.find(named) {
                Ok(found) => {
                    asked.push(found.name);
                    continue;
                }
                Err(why) => why,
            };
            let filed = self.filed.as_ref();
            let filed = filed.and_then(|filed| filed.find(named).ok());
            notes.push(match (&filed, named) {
                (Some(found), _) => only_with_env_file(&found.name),
                (None, Some(named)) => format!("its model `{named}` can't be asked. {why}"),
                (None, None) => format!("it has no model here. {why}"),
            });
            asked.extend(filed.map(|found| found.name));
        }
        let policy = agent.policy(&self.defaults, BudgetPatch::default());
        notes.extend(self.menu.unbound(&asked, policy.budget.micros));
        notes
    }
}
