//! `longhaul dev`: the server and the driver of a project while it is written:
//! agents, skills and rules are read again when their files change.
//!
//! Never: another server than `serve`. Only what is read, and when, differs.

use clap::Args;

use crate::exit::Exit;
use crate::here;
use crate::serving::{Manner, Serving, ServingArgs};

const EXAMPLES: &str = "Examples:
  longhaul dev                       http://127.0.0.1:4180; agents are read again when saved
  longhaul dev --listen 127.0.0.1:0  any free port
  longhaul run AGENT \"...\"           in another terminal: it finds this server by itself

Read again: agents/, .claude/agents/, skills/, .claude/skills/, AGENTS.md and the schemas that
agents name. A run under way keeps the agent it began with.

Variables in .env count as if they were set, where nothing else sets them.";

/// Serves and drives, and reads agents again.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Dev {
    #[command(flatten)]
    serving: ServingArgs,
}

impl Dev {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let manner = Manner {
            command: "dev",
            reloads: true,
            asks: true,
            env_file: true,
        };
        Serving::open(&self.serving, here::surroundings()?, manner)?.run()
    }
}
