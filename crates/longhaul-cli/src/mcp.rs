//! `longhaul mcp`: lists, checks and logs in to the MCP servers of this project.
//!
//! Invariant: the values of a server's environment variables and headers are never shown.

pub(crate) mod ask;
mod check;
mod login;
mod ls;
mod report;

use clap::Subcommand;

use crate::exit::Exit;
use crate::table::{JsonArgs, ListOr};

pub(crate) const EXAMPLES: &str = "Examples:
  longhaul mcp                    the servers of .mcp.json; starts nothing
  longhaul mcp ls --json
  longhaul mcp check              starts each trusted server and lists its tools
  longhaul mcp check github       the same for one
  longhaul mcp login docs         logs in to an HTTP server that needs OAuth, in a browser
  longhaul mcp login docs --no-browser    only prints the URL to open
  longhaul mcp logout docs        deletes that login on this machine
  longhaul trust                  shows .mcp.json and asks whether to trust it

An agent uses them by name: `tools: [mcp:github]` or `tools: [mcp:github/search_issues]`.
Servers run beside Longhaul, outside any sandbox.

Exit codes of check: 0 all checked are ok, 2 .mcp.json is invalid, 5 a server does not start or
  respond, 6 .mcp.json is not trusted
Exit codes of login: 0 logged in or not needed, 2 failed, 5 the server does not respond,
  6 .mcp.json is not trusted, 124 timeout, 130 stopped
Exit codes of logout: 0 deleted, or there was no login, 2 failed";

/// Arguments of `longhaul mcp`.
pub(crate) type McpCommand = ListOr<JsonArgs, McpSubcommand>;

#[derive(Debug, Subcommand)]
pub(crate) enum McpSubcommand {
    /// Lists the servers of .mcp.json and what is wrong with them; starts nothing
    Ls(JsonArgs),
    /// Starts trusted servers and lists their tools
    Check(check::CheckServersCommand),
    /// Logs in to an HTTP server in a browser, and stores the login for all runs
    Login(login::LoginCommand),
    /// Deletes the login for a server on this machine
    Logout {
        /// Name of the server in .mcp.json
        #[arg(value_name = "SERVER")]
        name: String,
        /// Print the outcome as one JSON object
        #[arg(long)]
        json: bool,
    },
}

impl McpCommand {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        match &self.command {
            None => ls::run(&self.list),
            Some(McpSubcommand::Ls(list)) => ls::run(list),
            Some(McpSubcommand::Check(check)) => check.run(),
            Some(McpSubcommand::Login(login)) => login.run(),
            Some(McpSubcommand::Logout { name, json }) => login::log_out(name, *json),
        }
    }
}
