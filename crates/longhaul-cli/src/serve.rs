//! `longhaul serve`: the server and the driver of a project, for production.
//!
//! Never: reads `.env`, or loads an agent that was changed behind its back.

use clap::Args;

use crate::exit::Exit;
use crate::here;
use crate::serving::{Manner, Serving, ServingArgs};

const EXAMPLES: &str = "Examples:
  longhaul serve                              http://127.0.0.1:4180, drives this project's runs
  longhaul serve --listen 0.0.0.0:4180        for other machines: put TLS in front of it
  longhaul keys new ci --role operator        a key for a program
  curl -H \"Authorization: Bearer $LONGHAUL_KEY\" http://127.0.0.1:4180/v1/runs

SIGTERM or Ctrl-C lets every run go at its next fact; a second one cuts off what still runs.
Whatever happens, runs go on from their last fact when it starts again.
Agents, skills and rules are read once, at the start: start it again after a change.";

/// Serves and drives.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Serve {
    #[command(flatten)]
    serving: ServingArgs,
}

impl Serve {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let manner = Manner {
            command: "serve",
            reloads: false,
            asks: false,
            env_file: false,
        };
        Serving::open(&self.serving, here::surroundings()?, manner)?.run()
    }
}
