//! `longhaul models`: which models can be asked, with which key, and what they cost.
//!
//! Never: a key. What is shown of one is the name of the variable it is in.

mod check;
mod ls;
mod price;

use clap::{Args, Subcommand};
use longhaul::assemble::menu::Menu;
use longhaul::config::settings::Config;

use crate::cli::exit::Exit;
use crate::cli::fail::Failure;
use crate::cli::{here, say};

const EXAMPLES: &str = "Examples:
  longhaul models                          providers, keys, short names and the default
  longhaul models check                    asks every provider that has a key, and costs nothing
  longhaul models check anthropic ollama   asks these two
  longhaul models price                    list prices, and those that you have set
  longhaul models price fast openai/gpt-5-mini
  ANTHROPIC_API_KEY=... longhaul models check --json

Exit codes of check: 0 all asked are well, 2 one answers otherwise, 5 one can't be reached,
  6 a key is refused";

/// Which models can be asked.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct Models {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: ls::Ls,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists providers, their keys by name, short names and the default; asks nobody
    #[command(after_help = EXAMPLES)]
    Ls(ls::Ls),
    /// Asks providers for their models: is the address right, is the key taken?
    #[command(after_help = EXAMPLES)]
    Check(check::Check),
    /// Prints what models cost by the list
    #[command(after_help = EXAMPLES)]
    Price(price::Price),
}

impl Models {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let config = here::config(&here::surroundings()?)?;
        let menu = Menu::of(&config).map_err(Failure::usage)?;
        match &self.command {
            None => self.list.run(&menu)?,
            Some(Command::Ls(ls)) => ls.run(&menu)?,
            Some(Command::Price(price)) => price.run(&menu)?,
            Some(Command::Check(check)) => {
                tell_of_env_file(&config);
                return check.run(&menu);
            }
        }
        if !matches!(self.command, Some(Command::Price(_))) {
            tell_of_env_file(&config);
        }
        Ok(Exit::Done)
    }
}

/// Two commands find keys in a file that this one does not read.
fn tell_of_env_file(config: &Config) {
    if config.root.join(".env").is_file() {
        say::talk("note: `run` and `dev` read .env too, and may find more keys there");
    }
}
