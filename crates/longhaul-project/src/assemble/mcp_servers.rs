//! Clients for the MCP servers in `.mcp.json`. A server is started on its first use.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::oauth::OAuthConfig;
use longhaul_core::port::tool::{RunClaimId, Tool};
use longhaul_core::time::Clock;
use longhaul_mcp::{
    LoginContext, McpError, McpServers, ServerCheckReport, ServerSpec, ServerTransport,
};
pub(crate) use longhaul_mcp::{partial_token_suffix_len, redact_tokens};

use crate::assemble::mcp_client::{McpCheckError, McpClient, McpReportedTool, McpServerReport};
use crate::assemble::mcp_start_check::TrustedStartCheck;
use crate::assemble::mcp_tools::resolve_enabled_servers;
use crate::config::settings::Config;
use crate::mcp::file::McpFile;
use crate::mcp::resolved::ResolvedMcpServer;
use crate::mcp::server::{self, McpServerConfig};

/// Folder of the saved OAuth logins of MCP servers, inside the user's state folder.
const LOGINS_FOLDER: &str = "logins";

/// Hint that is added to messages about a missing login.
const RESUME_HINT: &str = "Continue blocked runs with `longhaul resume`.";

/// Creates a client for all usable MCP servers of this `.mcp.json`.
pub fn create_mcp_client(
    config: &Config,
    file: &McpFile,
    clock: &Arc<dyn Clock>,
) -> Arc<dyn McpClient> {
    Arc::new(McpServersClient(create_mcp_servers(config, file, clock)))
}

/// Returns the usable MCP servers of this `.mcp.json`, with their login settings. No server is
/// started here. A server is started only if it is trusted at that time.
pub fn create_mcp_servers(config: &Config, file: &McpFile, clock: &Arc<dyn Clock>) -> McpServers {
    let mut resolved_servers = resolve_enabled_servers(config, file);
    let specs = file.servers.iter().filter_map(|server| {
        let resolved = resolved_servers.remove(&server.name)?.ok()?;
        let login = |oauth| {
            let state = config.state_folder.as_ref()?;
            let folder = state.join(LOGINS_FOLDER);
            Some(LoginContext::new(folder, oauth, Arc::clone(clock)))
        };
        Some(server_config_to_spec(server, resolved, login))
    });
    let start_check = Arc::new(TrustedStartCheck::new(config, file));
    McpServers::with_start_check(specs.collect(), Arc::clone(clock), Some(start_check))
}

/// Converts the settings of an MCP server to the format of the MCP client. `login` creates the
/// login data of a server that is reached over HTTP.
fn server_config_to_spec(
    server: &McpServerConfig,
    resolved: ResolvedMcpServer,
    login: impl FnOnce(OAuthConfig) -> Option<LoginContext>,
) -> ServerSpec {
    ServerSpec {
        name: server.name.clone(),
        transport: match resolved.transport {
            server::Transport::Stdio { command, args, env, .. } => ServerTransport::Stdio {
                command: resolve_command_path(command, &resolved.cwd),
                args,
                env,
                cwd: Some(resolved.cwd),
            },
            server::Transport::Http { url, headers, oauth } => {
                ServerTransport::Http { url, headers, login: login(oauth) }
            }
        },
        per_run: server.per_run,
        timeout: server.timeout,
    }
}

/// Resolves a command that is a path relative to the server's working directory.
fn resolve_command_path(command: String, cwd: &Path) -> String {
    match command.contains('/') {
        true => cwd.join(&command).to_string_lossy().into_owned(),
        false => command,
    }
}

#[derive(Debug)]
struct McpServersClient(McpServers);

#[async_trait]
impl McpClient for McpServersClient {
    async fn list_server_tools(
        &self,
        server: &str,
        tool: Option<&str>,
        claim_id: RunClaimId,
    ) -> Result<Vec<Arc<dyn Tool>>, String> {
        let result = self.0.server_tools(server, tool, claim_id).await;
        result.map_err(|error| match matches!(error, McpError::LoginRequired { .. }) {
            true => format!("{error} {RESUME_HINT}"),
            false => error.to_string(),
        })
    }

    async fn check_server(&self, server_name: &str) -> Result<McpServerReport, McpCheckError> {
        let result = self.0.check_server(server_name).await;
        result.map(to_server_report).map_err(|error| McpCheckError {
            message: error.to_string(),
            needs_login: matches!(error, McpError::LoginRequired { is_transient: false, .. }),
        })
    }

    async fn close_connections_of_run_claim(&self, claim_id: RunClaimId) {
        self.0.close_servers_of_claim(claim_id).await;
    }

    async fn close_all_connections(&self) {
        self.0.close_all_servers().await;
    }

    async fn wait_for_token_refreshes(&self) {
        self.0.finish_token_refreshes().await;
    }
}

fn to_server_report(report: ServerCheckReport) -> McpServerReport {
    let tools = report.tools.into_iter().map(|tool| McpReportedTool {
        name: tool.spec.name.as_str().to_owned(),
        class: tool.class,
    });
    McpServerReport {
        name: report.name,
        version: report.version,
        protocol: report.protocol,
        tools: tools.collect(),
        notes: report.notes,
        duration: report.duration,
    }
}
