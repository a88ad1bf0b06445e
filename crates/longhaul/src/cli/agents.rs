//! `longhaul agents`: which agents there are, what they are, and what is wrong with them.
//!
//! Never: runs one.

mod check;
mod ls;
mod new;
mod show;

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};
use longhaul::agents::loaded::Loaded;
use longhaul::assemble::{agents, toolbox};
use longhaul::config::settings::Config;
use longhaul::config::surroundings::Surroundings;
use longhaul_core::time::Clock;
use longhaul_engine::clock::SystemClock;
use longhaul_engine::toolbox::Toolbox;

use crate::cli::agents::check::Check;
use crate::cli::agents::ls::Ls;
use crate::cli::agents::new::New;
use crate::cli::agents::show::Show;
use crate::cli::{fail, here};

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

/// A project, as far as it is about agents.
#[derive(Debug)]
struct Project {
    here: Surroundings,
    config: Config,
    clock: Arc<dyn Clock>,
    tools: Toolbox,
    /// The project's folder as it is said to people.
    said: PathBuf,
    loaded: Loaded,
}

impl Agents {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let here = here::surroundings()?;
        let config = here::config(&here)?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let tools = toolbox(&config, &clock).map_err(fail::assemble)?;
        let said = here.said(&config.root);
        let loaded = agents(&config, &tools, &said);
        let project = Project {
            here,
            config,
            clock,
            tools,
            said,
            loaded,
        };
        match &self.command {
            None => self.list.run(&project.loaded),
            Some(Command::Ls(ls)) => ls.run(&project.loaded),
            Some(Command::Check(check)) => check.run(&project),
            Some(Command::Show(show)) => show.run(&project.loaded),
            Some(Command::New(new)) => new.run(&project),
        }
    }
}
