//! `longhaul agents`: lists, checks, shows and creates agents.

mod check;
mod ls;
mod new;
pub(crate) mod project;
mod show;
mod stats;

use clap::Subcommand;

use crate::agents::check::CheckAgentsCommand;
use crate::agents::ls::ListAgentsCommand;
use crate::agents::new::NewAgentCommand;
use crate::agents::project::ProjectWithAgents;
use crate::agents::show::ShowAgentCommand;
use crate::agents::stats::AgentStatsCommand;
use crate::table::ListOr;

pub(crate) const EXAMPLES: &str = "Examples:
  longhaul agents                  all agents, and which are hidden or broken
  longhaul agents new tidy         creates agents/tidy.md from a template
  longhaul agents check            every problem of every file as file:line:column
  longhaul agents check implement  the problems and notes of one agent
  longhaul agents show implement   the fields of one agent, and its version
  longhaul agents stats --since 24h  how the runs of each agent ended, and their cost and time";

/// Arguments of `longhaul agents`.
pub(crate) type AgentsCommand = ListOr<ListAgentsCommand, AgentsSubcommand>;

#[derive(Debug, Subcommand)]
pub(crate) enum AgentsSubcommand {
    /// Lists all agents, including invalid ones and those hidden by another agent of the same name
    Ls(ListAgentsCommand),
    /// Checks agent files and reports every problem as file:line:column
    Check(CheckAgentsCommand),
    /// Prints the fields that one agent's file sets
    Show(ShowAgentCommand),
    /// Creates the file of a new agent
    New(NewAgentCommand),
    /// Shows how the runs of agents ended, and their turns, cost and time
    Stats(AgentStatsCommand),
}

impl AgentsCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        // Statistics come from the store or the server, which need not be in a project.
        if let Some(AgentsSubcommand::Stats(stats)) = &self.command {
            return stats.run();
        }
        let project = ProjectWithAgents::load()?;
        match &self.command {
            None => self.list.run(&project.loaded),
            Some(AgentsSubcommand::Ls(ls)) => ls.run(&project.loaded),
            Some(AgentsSubcommand::Check(check)) => check.run(&project),
            Some(AgentsSubcommand::Show(show)) => show.run(&project),
            Some(AgentsSubcommand::New(new)) => new.run(&project),
            Some(AgentsSubcommand::Stats(stats)) => stats.run(),
        }
    }
}
