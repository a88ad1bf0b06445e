//! `longhaul mcp`: the servers of tools that this project names, and whether they answer.
//!
//! Never: what a variable or a header holds.

mod check;
mod login;
mod logout;
mod ls;
mod report;

use clap::{Args, Subcommand};

use crate::exit::Exit;

const EXAMPLES: &str = "Examples:
  longhaul mcp                    the servers of .mcp.json; starts nothing
  longhaul mcp ls --json
  longhaul mcp check              starts each that is trusted, and lists its tools
  longhaul mcp check github       the same for one
  longhaul mcp login docs         logs in at a server over HTTP that wants OAuth, in a browser
  longhaul mcp login docs --no-browser    only prints the address to open
  longhaul mcp logout docs        forgets that login, and takes it back there
  longhaul trust                  look at .mcp.json and decide whether it may be run

An agent uses them by name: `tools: [mcp:github]` or `tools: [mcp:github/search_issues]`.
Servers run beside Longhaul, outside any sandbox.

Exit codes of check: 0 all asked are well, 2 .mcp.json has a fault, 5 a server does not start or
  answer, 6 .mcp.json is not trusted
Exit codes of login: 0 logged in or not needed, 2 it came to nothing, 5 the server does not answer,
  6 .mcp.json is not trusted, 124 nobody came back in time, 130 stopped
Exit codes of logout: 0 forgotten here, whatever the server said, or there was none, 2 it came to
  nothing, 130 stopped";

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
    /// Logs in at a server over HTTP, in a browser, and keeps that for all runs
    #[command(after_help = EXAMPLES)]
    Login(login::Login),
    /// Forgets the login at a server, and has it taken back there
    #[command(after_help = EXAMPLES)]
    Logout(logout::Logout),
}

impl Mcp {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        match &self.command {
            None => self.list.run(),
            Some(Command::Ls(ls)) => ls.run(),
            Some(Command::Check(check)) => check.run(),
            Some(Command::Login(login)) => login.run(),
            Some(Command::Logout(logout)) => logout.run(),
        }
    }
}
