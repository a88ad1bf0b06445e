//! `longhaul agents`: which agents there are, what they are, and what is wrong with them.
//!
//! Never: runs one.

mod check;
mod ls;
mod new;
mod project;
mod show;

use clap::{Args, Subcommand};

use crate::agents::check::Check;
use crate::agents::ls::Ls;
use crate::agents::new::New;
use crate::agents::project::AgentsProject;
use crate::agents::show::Show;

const EXAMPLES: &str = "Examples:
  longhaul agents                  all agents, and which are hidden or broken
  longhaul agents new tidy         writes agents/tidy.md to begin with
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
    /// Writes the file of a new agent
    New(New),
}

impl Agents {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let project = AgentsProject::load()?;
        match &self.command {
            None => self.list.run(&project.loaded),
            Some(Command::Ls(ls)) => ls.run(&project.loaded),
            Some(Command::Check(check)) => check.run(&project),
            Some(Command::Show(show)) => show.run(&project.loaded),
            Some(Command::New(new)) => new.run(&project),
        }
    }
}
