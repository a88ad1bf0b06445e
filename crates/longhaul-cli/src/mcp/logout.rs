//! `longhaul mcp logout`: deletes the login for an MCP server on this machine. The server is not
//! contacted.

use clap::Args;
use longhaul_project::assemble::mcp_servers;
use longhaul_project::assemble::mcp_tools::resolve_enabled_servers;
use serde_json::json;

use crate::error::CliError;
use crate::exit::Exit;
use crate::mcp::login::login_error;
use crate::mcp::report::load_config_and_mcp_file;
use crate::{environment, output, runtime};

#[derive(Debug, Args)]
pub(crate) struct LogoutCommand {
    /// Name of the server in .mcp.json
    #[arg(value_name = "SERVER")]
    name: String,
    /// Print the outcome as one JSON object
    #[arg(long)]
    json: bool,
}

impl LogoutCommand {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let (config, file) = load_config_and_mcp_file()?;
        let error_with_hint = |message: String| {
            CliError::usage_error(message).with_hint("all servers", "longhaul mcp ls")
        };
        let name = &self.name;
        file.find_server(name).map_err(error_with_hint)?;
        match resolve_enabled_servers(&config, &file).get(name) {
            Some(Ok(_)) => {}
            Some(Err(reason)) => {
                let message = format!("the address of the server `{name}` is unknown: {reason}");
                return Err(error_with_hint(message).into());
            }
            None => return Err(error_with_hint(format!("the server `{name}` is disabled")).into()),
        }
        let servers = mcp_servers::create_mcp_servers(&config, &file, &environment::system_clock());
        let tokio = runtime::build_single_thread_tokio()?;
        let was_logged_in = tokio.block_on(servers.logout(name)).map_err(login_error)?;
        match (self.json, was_logged_in) {
            (true, _) => output::print_json(&json!({ "server": name, "removed": was_logged_in }))?,
            (false, false) => output::print_text(&format!("{name}: there was no login"))?,
            (false, true) => output::print_text(&format!(
                "{name}: the login is deleted on this machine; to end it at the server too, \
                 remove Longhaul's access there"
            ))?,
        }
        Ok(Exit::Done)
    }
}
