//! `longhaul serve` and `longhaul dev`: the server and the driver of a project. They differ only in
//! what is read, and when: `serve` reads neither `.env` nor a definition that changed after the start.

use clap::Args;

use crate::environment;
use crate::exit::Exit;
use crate::server::{ServeArgs, ServeMode, ServeSession};

const SERVE_EXAMPLES: &str = "Examples:
  longhaul serve                              http://127.0.0.1:4180, drives this project's runs
  longhaul serve --listen 0.0.0.0:4180        for other machines: put TLS in front of it
  longhaul keys new ci --role operator        a key for a program
  curl -H \"Authorization: Bearer $LONGHAUL_KEY\" http://127.0.0.1:4180/v1/runs

SIGTERM or Ctrl-C lets every run go at its next fact; a second one cuts off what still runs.
Whatever happens, runs go on from their last fact when it starts again.
Agents, skills and rules are read once, at the start: start it again after a change.";

const DEV_EXAMPLES: &str = "Examples:
  longhaul dev                       http://127.0.0.1:4180; agents are read again when saved
  longhaul dev --listen 127.0.0.1:0  any free port
  longhaul run AGENT \"...\"           in another terminal: it finds this server by itself

Read again: agents/, .claude/agents/, skills/, .claude/skills/, AGENTS.md and the schemas that
agents name. A run under way keeps the agent it began with.

Variables in .env count as if they were set, where nothing else sets them.";

/// Serves and drives.
#[derive(Debug, Args)]
#[command(after_help = SERVE_EXAMPLES)]
pub(crate) struct Serve {
    #[command(flatten)]
    args: ServeArgs,
}

/// Serves and drives, and reads agents again.
#[derive(Debug, Args)]
#[command(after_help = DEV_EXAMPLES)]
pub(crate) struct Dev {
    #[command(flatten)]
    args: ServeArgs,
}

impl Serve {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        ServeSession::open(&self.args, environment::process_env()?, ServeMode::Serve)?.run()
    }
}

impl Dev {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        ServeSession::open(&self.args, environment::process_env()?, ServeMode::Dev)?.run()
    }
}
