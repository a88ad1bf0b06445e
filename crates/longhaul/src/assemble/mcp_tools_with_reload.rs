//! Creates the MCP tools of a project, which apply changes of `.mcp.json`.

use std::sync::Arc;

use longhaul_core::time::Clock;

#[cfg(feature = "mcp")]
use crate::assemble::mcp_servers;
use crate::assemble::mcp_tools::McpTools;
#[cfg(not(feature = "mcp"))]
use crate::assemble::no_mcp_servers as mcp_servers;
use crate::config::settings::Config;
use crate::mcp::file::McpFile;

/// Creates the tools of the MCP servers in this file, and in later versions of it.
pub(crate) fn create_mcp_tools(
    config: &Config,
    file: McpFile,
    clock: &Arc<dyn Clock>,
) -> Arc<McpTools> {
    let client = mcp_servers::create_mcp_client(config, &file, clock);
    let (config_of_clients, clock) = (config.clone(), Arc::clone(clock));
    let create_client =
        move |file: &McpFile| mcp_servers::create_mcp_client(&config_of_clients, file, &clock);
    Arc::new(McpTools::new(config, file, client).with_client_factory(create_client))
}
