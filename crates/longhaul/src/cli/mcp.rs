//! `longhaul mcp`: the servers of tools that this project names, and whether they answer.
//!
//! Never: what a variable or a header holds.

mod check;
mod ls;
mod told;

use clap::{Args, Subcommand};

use crate::cli::exit::Exit;

const EXAMPLES: &str = "Examples:
  longhaul mcp                    the servers of .mcp.json; starts nothing
  longhaul mcp ls --json
  longhaul mcp check              starts each that is trusted, and lists its tools
  longhaul mcp check github       the same for one
  longhaul trust                  look at .mcp.json and decide whether it may be run

An agent uses them by name: `tools: [mcp:github]` or `tools: [mcp:github/search_issues]`.
Servers run beside Longhaul, outside any sandbox.

Exit codes of check: 0 all asked are well, 2 .mcp.json has a fault, 5 a server does not start or
  answer, 6 .mcp.json is not trusted";

/// Servers of tools.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct Mcp {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: ls::Ls,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists the servers of .mcp.json and what is wrong with them; starts nothing
    #[command(after_help = EXAMPLES)]
    Ls(ls::Ls),
    /// Starts trusted servers, and lists their tools
    #[command(after_help = EXAMPLES)]
    Check(check::Check),
}

impl Mcp {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        match &self.command {
            None => self.list.run(),
            Some(Command::Ls(ls)) => ls.run(),
            Some(Command::Check(check)) => check.run(),
        }
    }
}
