//! `longhaul agents`: which agents there are, what they are, and what is wrong with them.
//!
//! Never: runs one.

use std::sync::Arc;

use anyhow::bail;
use clap::{Args, Subcommand};
use longhaul::agents::check;
use longhaul::agents::load::{AgentError, Loaded, LoadedAgent};
use longhaul::assemble::menu::Menu;
use longhaul::assemble::{agents, models, toolbox};
use longhaul::span;
use longhaul::written::plain;
use longhaul_core::policy::gate::{GATE_TIMEOUT, GateRule, Verdict};
use longhaul_core::time::Clock;
use longhaul_engine::agent::{Agent, BudgetPatch, Defaults};
use longhaul_engine::clock::SystemClock;
use longhaul_engine::ports::Models;
use serde_json::{Value, json};

use crate::cli::fail::{self, Failure};
use crate::cli::submit::only_with_env_file;
use crate::cli::{here, say};

const EXAMPLES: &str = "Examples:
  longhaul agents                  all agents, and which are hidden or broken
  longhaul agents check            every problem of every file as file:line:column
  longhaul agents check implement  the problems and notes of one agent
  longhaul agents show implement   what one agent is, and its version";

/// Which agents there are.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct Agents {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: Ls,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists all agents, and which are hidden or broken
    #[command(after_help = EXAMPLES)]
    Ls(Ls),
    /// Reports every problem as file:line:column
    #[command(after_help = EXAMPLES)]
    Check(Check),
    /// Prints what one agent is
    #[command(after_help = EXAMPLES)]
    Show(Show),
}

#[derive(Debug, Args)]
struct Ls {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Check {
    /// Only this agent
    name: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Show {
    /// Which
    name: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Agents {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let here = here::surroundings()?;
        let config = here::config(&here)?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let tools = toolbox(&config, &clock).map_err(fail::assemble)?;
        let folder = config.root.join("agents");
        let loaded = agents(&config, &tools, &here.said(&folder));
        match &self.command {
            None => self.list.run(&loaded),
            Some(Command::Ls(ls)) => ls.run(&loaded),
            Some(Command::Check(check)) => {
                // `read_output` needs a store, and only reads.
                let is_once = |tool: &str| match tools.find(tool) {
                    Some(equipped) => Some(equipped.may_be_once()),
                    None => (tool == "read_output").then_some(false),
                };
                let filed = here::with_env_file_if_sound(here.clone());
                let filed = (filed.env != here.env)
                    .then(|| here::quiet_config(&filed))
                    .transpose()?;
                let asking = Asking {
                    models: models(&config, &clock),
                    filed: filed.map(|config| models(&config, &clock)),
                    menu: Menu::of(&config).map_err(Failure::usage)?,
                    defaults: config.defaults(),
                };
                check.run(&loaded, |agent| {
                    let mut notes = check::notes(agent, is_once);
                    notes.extend(asking.notes(agent));
                    notes
                })
            }
            Some(Command::Show(show)) => show.run(&loaded),
        }
    }
}

/// The models that can be asked here, and what binds those who ask.
#[derive(Debug)]
struct Asking {
    models: Arc<dyn Models>,
    /// The same with the project's `.env`, where there is one.
    filed: Option<Arc<dyn Models>>,
    menu: Menu,
    defaults: Defaults,
}

impl Asking {
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

impl Ls {
    fn run(&self, loaded: &Loaded) -> anyhow::Result<()> {
        if self.json {
            return say::data(&listed(loaded).to_string());
        }
        let mut rows: Vec<[String; 3]> = Vec::new();
        for one in &loaded.agents {
            rows.push([
                one.agent.name.to_string(),
                one.source.as_str().to_owned(),
                plain(one.agent.description.lines().next().unwrap_or_default()),
            ]);
        }
        for one in &loaded.broken {
            let count = loaded.problems_of(&one.path).count();
            let said = format!(
                "broken, {count} to mend: longhaul agents check {}",
                one.name
            );
            rows.push([one.name.clone(), one.source.as_str().to_owned(), said]);
        }
        for one in &loaded.hidden {
            let said = format!("hidden by {}", one.by.display());
            rows.push([one.name.clone(), one.source.as_str().to_owned(), said]);
        }
        rows.sort();
        let wide = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
        let (first, second) = (wide(0).unwrap_or(0), wide(1).unwrap_or(0));
        for [name, source, said] in &rows {
            let line = format!("{name:first$}  {source:second$}  {said}");
            say::data(line.trim_end())?;
        }
        if rows.is_empty() {
            say::talk("no agents here: write one as agents/NAME.md");
        }
        Ok(())
    }
}

fn listed(loaded: &Loaded) -> Value {
    let agents = loaded.agents.iter().map(|one| {
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
            "problems": loaded.problems_of(&one.path).count(),
        })
    });
    let hidden = loaded.hidden.iter().map(|one| {
        json!({
            "name": one.name,
            "source": one.source.as_str(),
            "path": one.path,
            "by": one.by,
        })
    });
    json!({
        "agents": agents.collect::<Value>(),
        "broken": broken.collect::<Value>(),
        "hidden": hidden.collect::<Value>(),
    })
}

impl Check {
    fn run(&self, loaded: &Loaded, notes: impl Fn(&Agent) -> Vec<String>) -> anyhow::Result<()> {
        let name = self.name.as_deref();
        let wanted = |one: &&LoadedAgent| name.is_none_or(|name| one.agent.name.as_str() == name);
        let problems: Vec<_> = match name.map(|name| loaded.find(name)) {
            None => loaded.problems.clone(),
            Some(Ok(_)) => Vec::new(),
            Some(Err(AgentError::Broken { problems, .. })) => problems,
            Some(Err(AgentError::Unknown(said))) => bail!("{said}\n`longhaul agents` lists them"),
        };
        let notes = loaded.agents.iter().filter(wanted).flat_map(|one| {
            let notes = notes(&one.agent).into_iter();
            notes.map(|note| (one.path.clone(), note))
        });
        let notes: Vec<_> = notes.collect();
        if self.json {
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
            let problems: Value = problems.collect();
            say::data(
                &json!({ "problems": problems, "notes": notes.collect::<Value>() }).to_string(),
            )?;
        } else {
            for problem in &problems {
                say::data(&problem.to_string())?;
            }
            for (path, note) in &notes {
                say::data(&format!("{}: note: {note}", path.display()))?;
            }
        }
        let fine = loaded.agents.iter().filter(wanted).count();
        match problems.len() {
            0 => say::talk(&format!("{fine} fine")),
            1 => bail!("1 problem; an agent is used only when its file has none"),
            many => bail!("{many} problems; an agent is used only when its file has none"),
        }
        Ok(())
    }
}

impl Show {
    fn run(&self, loaded: &Loaded) -> anyhow::Result<()> {
        let one = match loaded.find(&self.name) {
            Ok(one) => one,
            Err(AgentError::Unknown(said)) => bail!("{said}\n`longhaul agents` lists them"),
            Err(error @ AgentError::Broken { .. }) => bail!("{error}"),
        };
        let agent = &one.agent;
        if self.json {
            let source = one.source.as_str();
            let shown = json!({
                "version": agent.version(), "path": one.path, "source": source, "agent": agent,
            });
            return say::data(&shown.to_string());
        }
        let line = |name: &str, text: String| match text.is_empty() {
            true => Ok(()),
            false => say::data(&format!("{name:12}{}", plain(&text))),
        };
        line("name", agent.name.to_string())?;
        line("file", one.path.display().to_string())?;
        line("version", agent.version().to_string())?;
        for (name, text) in described(agent) {
            line(name, text)?;
        }
        if agent.prompt.is_empty() {
            return Ok(());
        }
        say::data(&format!("\n{}", plain(&agent.prompt)))
    }
}

/// What an agent says of itself, a line for each.
fn described(agent: &Agent) -> Vec<(&'static str, String)> {
    let caps = agent.budget.caps;
    let retry = agent.retry;
    let said = |name: &str, value: Option<String>| value.map(|value| format!("{name} {value}"));
    let budget = [
        said(
            "usd",
            caps.micros
                .map(|micros| (micros.0 as f64 / 1e6).to_string()),
        ),
        said("tokens", caps.tokens.map(|tokens| tokens.to_string())),
        said("turns", caps.turns.map(|turns| turns.to_string())),
        said("active time", caps.active.map(span::write)),
    ];
    let retry = [
        said(
            "retries",
            retry.max_retries.map(|retries| retries.to_string()),
        ),
        said("first after", retry.initial_delay.map(span::write)),
        said("at most", retry.max_delay.map(span::write)),
        said("overdue after", retry.soft_timeout.map(span::write)),
        said("ended after", retry.hard_timeout.map(span::write)),
    ];
    let joined = |parts: &[Option<String>]| {
        parts
            .iter()
            .flatten()
            .cloned()
            .collect::<Vec<_>>()
            .join(", ")
    };
    let mut lines = vec![
        ("about", agent.description.trim_end().to_owned()),
        ("model", agent.models.join(", then ")),
        ("tools", agent.tools.join(", ")),
        ("context", agent.context.join(", ")),
        ("lane", agent.lane.clone().unwrap_or_default()),
        (
            "keep open",
            agent.keep_open.map(span::write).unwrap_or_default(),
        ),
        (
            "max turns",
            agent
                .max_turns
                .map(|turns| turns.to_string())
                .unwrap_or_default(),
        ),
        ("budget", joined(&budget)),
        ("retry", joined(&retry)),
    ];
    lines.extend(agent.rules.iter().map(|rule| ("rule", ruled(rule))));
    lines
}

fn ruled(rule: &GateRule) -> String {
    let what = rule.subject.as_ref();
    let what = what.map_or_else(|| rule.tool.clone(), |what| format!("{} {what}", rule.tool));
    match &rule.verdict {
        Verdict::Allow => format!("{what}: allowed"),
        Verdict::Deny(why) => format!("{what}: denied, {why}"),
        Verdict::Ask(ask) => {
            let timeout = span::write(rule.timeout.unwrap_or(GATE_TIMEOUT));
            format!("{what}: asks \"{ask}\", for {timeout}")
        }
    }
}
