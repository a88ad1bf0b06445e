//! `longhaul serve` and `longhaul dev`: run the server and a worker for a project. Only `dev` reads
//! `.env` and reloads agents, skills and project rules (`AGENTS.md`) that change.

use clap::Args;

use crate::environment;
use crate::exit::Exit;
use crate::server::{PreparedServer, ServeArgs, ServeMode};

const SERVE_EXAMPLES: &str = "Examples:
  longhaul serve                              http://127.0.0.1:4180, drives this project's runs
  longhaul serve --listen 0.0.0.0:4180        for other machines: put TLS in front of it
  longhaul keys new ci --role operator        a key for a program
  curl -H \"Authorization: Bearer $LONGHAUL_KEY\" http://127.0.0.1:4180/v1/runs

SIGTERM or Ctrl-C releases every run at its next event; a second one aborts what still runs.
In any case runs continue from their last event when it starts again.
Agents, skills and rules are read once at the start: restart it after a change.";

const DEV_EXAMPLES: &str = "Examples:
  longhaul dev                       http://127.0.0.1:4180; agents are reloaded when saved
  longhaul dev --listen 127.0.0.1:0  any free port
  longhaul run AGENT \"...\"           in another terminal: it finds this server by itself

Reloaded: agents/, .claude/agents/, skills/, .claude/skills/, AGENTS.md and the schemas that
agents name. A run keeps the agent that it started with.

Variables in .env apply unless they are set otherwise.";

/// Arguments of `longhaul serve`, which runs the server and a worker for production.
#[derive(Debug, Args)]
#[command(after_help = SERVE_EXAMPLES)]
pub(crate) struct ServeCommand {
    #[command(flatten)]
    args: ServeArgs,
}

/// Arguments of `longhaul dev`, which runs the server and a worker for development.
#[derive(Debug, Args)]
#[command(after_help = DEV_EXAMPLES)]
pub(crate) struct DevServerCommand {
    #[command(flatten)]
    args: ServeArgs,
}

impl ServeCommand {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let process_env = environment::current_process_env()?;
        PreparedServer::bind_and_open_store(&self.args, process_env, ServeMode::Serve)?.run()
    }
}

impl DevServerCommand {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let process_env = environment::current_process_env()?;
        PreparedServer::bind_and_open_store(&self.args, process_env, ServeMode::Dev)?.run()
    }
}
