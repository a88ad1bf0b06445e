//! Asks MCP servers for their tools. Only trusted servers are started.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use longhaul_project::assemble::mcp_tools::{McpCheckError, McpClient, McpServerReport};
use longhaul_project::assemble::{mcp_servers, mcp_tools};
use longhaul_project::config::settings::Config;
use longhaul_project::mcp::file::McpFile;

use crate::exit::Exit;
use crate::mcp::report::load_config_and_mcp_file;
use crate::{environment, output, runtime};

/// Timeout for checking one MCP server. It is longer than two attempts at the handshake, 30 s each,
/// because the error of a failed handshake says more than this timeout.
const CHECK_TIMEOUT: Duration = Duration::from_secs(75);

/// Maximum number of MCP servers that are checked concurrently.
const CONCURRENCY: usize = 8;

/// Result of checking one MCP server.
pub(crate) struct ServerCheckResult {
    pub(crate) name: String,
    /// The error has the exit code of the command.
    pub(crate) outcome: Result<McpServerReport, (Exit, McpCheckError)>,
}

/// Asks those enabled servers of the project whose names are wanted for their tools. An error is
/// the reason why a server has no answer.
pub(crate) fn ask_trusted_servers(
    is_wanted: impl Fn(&str) -> bool,
) -> anyhow::Result<Vec<(String, Result<McpServerReport, String>)>> {
    let (config, file) = load_config_and_mcp_file()?;
    let enabled = file.servers.iter().filter(|server| !server.disabled && is_wanted(&server.name));
    let names: Vec<String> = enabled.map(|server| server.name.clone()).collect();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let checks = check_mcp_servers(&config, &file, names);
    let results = runtime::build_multi_thread_tokio()?.block_on(checks).into_iter();
    Ok(results.map(|one| (one.name, one.outcome.map_err(|(_, error)| error.message))).collect())
}

/// Starts these servers, if they are trusted, and asks them for their tools.
pub(crate) async fn check_mcp_servers(
    config: &Config,
    file: &McpFile,
    names: Vec<String>,
) -> Vec<ServerCheckResult> {
    let client = mcp_servers::new_client(config, file, &environment::system_clock());
    let tools = mcp_tools::McpTools::new(config, file.clone(), client.clone());
    let pending = names.into_iter().map(|name| {
        let (tools, client) = (&tools, &*client);
        async move {
            let outcome = match tools.check_server_usable(&name) {
                Err(message) => Err((Exit::Usage, McpCheckError { message, needs_login: false })),
                Ok(()) => check_server(client, &name).await.map_err(|error| (Exit::Busy, error)),
            };
            ServerCheckResult { name, outcome }
        }
    });
    let checks = stream::iter(pending).buffered(CONCURRENCY).collect().await;
    tools.close_mcp_clients().await;
    checks
}

async fn check_server(
    client: &dyn McpClient,
    server_name: &str,
) -> Result<McpServerReport, McpCheckError> {
    output::eprint_line(&format!("{server_name}: starting ..."));
    let max_seconds = CHECK_TIMEOUT.as_secs();
    let check = mcp_tools::wait_and_notify_if_slow(
        tokio::time::timeout(CHECK_TIMEOUT, client.check_server(server_name)),
        || {
            output::eprint_line(&format!(
                "{server_name}: no response yet; waiting up to {max_seconds} s"
            ));
        },
    );
    check.await.unwrap_or_else(|_| {
        let message = format!("the server sent no complete response within {max_seconds} s");
        Err(McpCheckError { message, needs_login: false })
    })
}
