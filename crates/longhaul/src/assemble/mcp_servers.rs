//! The clients that speak with the servers of `.mcp.json`.
//!
//! Never: starts one before it is asked for.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::oauth::OAuthConfig;
use longhaul_core::port::tool::{ClaimId, Tool};
use longhaul_core::time::Clock;
use longhaul_mcp::{LoginContext, McpError, ServerCheck, ServerSpec, ServerTransport, Servers};
pub(crate) use longhaul_mcp::{partial_token_len, redact_tokens};

use crate::assemble::mcp_client::{McpCheckError, McpClient, ReportedTool, ServerReport};
use crate::assemble::mcp_tools::resolve_servers;
use crate::config::settings::Config;
use crate::mcp::file::McpFile;
use crate::mcp::resolved::ResolvedServer;
use crate::mcp::server::{self, ServerConfig};

/// Where logins are kept, in the folder for what the user's programs remember.
const LOGINS_FOLDER: &str = "logins";

/// What becomes of those who were stopped for want of a login.
const RESUME_HINT: &str = "Runs that wait for it go on with `longhaul answer`.";

/// A line to every server of this file that can be started.
pub fn client(config: &Config, file: &McpFile, clock: &Arc<dyn Clock>) -> Arc<dyn McpClient> {
    Arc::new(ServersClient(servers(config, file, clock)))
}

/// Every server of this file that can be started, with who logs in there.
pub fn servers(config: &Config, file: &McpFile, clock: &Arc<dyn Clock>) -> Servers {
    let mut ready = resolve_servers(config, file);
    let specs = file.servers.iter().filter_map(|server| {
        let filled = ready.remove(&server.name)?.ok()?;
        let login = |oauth| {
            let state = config.state_folder.as_ref()?;
            let folder = state.join(LOGINS_FOLDER);
            Some(LoginContext::new(folder, oauth, Arc::clone(clock)))
        };
        Some(server_spec(server, filled, login))
    });
    Servers::new(specs.collect(), Arc::clone(clock))
}

fn server_spec(
    server: &ServerConfig,
    filled: ResolvedServer,
    login: impl FnOnce(OAuthConfig) -> Option<LoginContext>,
) -> ServerSpec {
    ServerSpec {
        name: server.name.clone(),
        transport: match filled.transport {
            server::Transport::Stdio { command, args, env, .. } => ServerTransport::Stdio {
                command: resolve_command(command, &filled.cwd),
                args,
                env,
                cwd: Some(filled.cwd),
            },
            server::Transport::Http { url, headers, oauth } => {
                ServerTransport::Http { url, headers, login: login(oauth) }
            }
        },
        per_run: server.per_run,
        timeout: server.timeout,
    }
}

/// A program that is named by a path is looked for from where it is started.
fn resolve_command(command: String, cwd: &Path) -> String {
    match command.contains('/') {
        true => cwd.join(&command).to_string_lossy().into_owned(),
        false => command,
    }
}

#[derive(Debug)]
struct ServersClient(Servers);

#[async_trait]
impl McpClient for ServersClient {
    async fn tools(
        &self,
        server: &str,
        tool: Option<&str>,
        stay: ClaimId,
    ) -> Result<Vec<Arc<dyn Tool>>, String> {
        let asked = self.0.tools(server, tool, stay).await;
        asked.map_err(|why| match matches!(why, McpError::LoginRequired { .. }) {
            true => format!("{why} {RESUME_HINT}"),
            false => why.to_string(),
        })
    }

    async fn check(&self, server: &str) -> Result<ServerReport, McpCheckError> {
        let asked = self.0.check(server).await;
        asked.map(to_report).map_err(|error| McpCheckError {
            message: error.to_string(),
            needs_login: matches!(error, McpError::LoginRequired { is_transient: false, .. }),
        })
    }

    async fn release(&self, stay: ClaimId) {
        self.0.release(stay).await;
    }

    async fn close(&self) {
        self.0.close().await;
    }

    async fn finish_refreshes(&self) {
        self.0.finish_refreshes().await;
    }
}

fn to_report(checked: ServerCheck) -> ServerReport {
    let tools = checked.tools.into_iter().map(|offered| ReportedTool {
        name: offered.spec.name.as_str().to_owned(),
        class: offered.class,
    });
    ServerReport {
        name: checked.name,
        version: checked.version,
        protocol: checked.protocol,
        tools: tools.collect(),
        notes: checked.notes,
        duration: checked.duration,
    }
}
