//! Client for tools of Model Context Protocol (MCP) servers, over stdio or HTTP.
//!
//! A server is started when it is first needed, once per worker, and shared by all runs of that
//! worker. A server with `per_run` is started for each run and closed with the run. A stdio server
//! runs outside any sandbox. Of our environment it gets only `PATH` and the variables that its spec
//! sets.
//!
//! Invariant: servers are untrusted. Their output is bounded, their schemas are checked, and a
//! misbehaving server affects only its own tools.

mod auth;
mod client_handler;
mod connection;
mod error;
mod exit;
mod guard;
mod handshake;
mod http;
mod http_auth;
mod http_client;
mod listing;
mod observe;
mod output;
mod reconnect;
mod schema_check;
mod shared_task;
mod spec;
mod stdio;
mod suspended_call;
mod tool;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::join_all;
use longhaul_core::port::tool::{RunClaimId, Tool};
use longhaul_core::time::Clock;
use tokio::time::timeout;

use crate::auth::error::login_command;
use crate::http_auth::LOGIN_TIMEOUT_MAX;
use crate::http_client::RequiredCredentials;
use crate::reconnect::{ReconnectingServer, ServerSetup};
use crate::tool::McpTool;

pub use crate::auth::callback_server::CallbackServer;
pub use crate::auth::context::LoginContext;
pub use crate::auth::credential_file::CredentialFileError;
pub use crate::auth::error::LoginError;
pub use crate::auth::login_flow::{LoginRequest, PendingLogin};
pub use crate::auth::redaction::{partial_token_suffix_len, redact_tokens};
pub use crate::auth::server_login::{LoginStatus, ServerLogin};
pub use crate::error::McpError;
pub use crate::listing::{ListedTool, ServerCheckReport};
pub use crate::spec::{ServerSpec, ServerTransport, StartCheck};
pub use longhaul_core::oauth::OAuthConfig;

/// The configured servers of a project. Cheap to clone; clones share state.
#[derive(Clone)]
pub struct McpServers(Arc<BTreeMap<String, ConfiguredServer>>);

/// A configured server and its connections.
struct ConfiguredServer {
    setup: ServerSetup,
    shared: Arc<ReconnectingServer>,
    /// The instances of the server that were started for one claim of a run each. A claim is a
    /// worker's exclusive right to drive a run.
    of_claims: Mutex<BTreeMap<RunClaimId, Arc<ReconnectingServer>>>,
}

impl fmt::Debug for McpServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("McpServers").field(&self.server_names()).finish()
    }
}

impl ConfiguredServer {
    fn new(setup: ServerSetup) -> Self {
        let shared = Arc::new(ReconnectingServer::new(setup.clone()));
        Self { setup, shared, of_claims: Mutex::default() }
    }

    fn lock_of_claims(&self) -> MutexGuard<'_, BTreeMap<RunClaimId, Arc<ReconnectingServer>>> {
        self.of_claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the server that a claim of a run uses: its own instance if `per_run` is set, else
    /// the shared one.
    fn server_for_claim(&self, claim: RunClaimId) -> Arc<ReconnectingServer> {
        if !self.setup.spec.per_run {
            return Arc::clone(&self.shared);
        }
        let new = || Arc::new(ReconnectingServer::new(self.setup.clone()));
        Arc::clone(self.lock_of_claims().entry(claim).or_insert_with(new))
    }
}

impl McpServers {
    /// Creates the servers from their specs without starting any. If two specs have the same name,
    /// the last one is used.
    pub fn new(specs: Vec<ServerSpec>, clock: Arc<dyn Clock>) -> Self {
        Self::with_start_check(specs, clock, None)
    }

    /// Creates the servers as [`McpServers::new`] does. If there is a check, each server is checked
    /// before each start, and restarted before its next use when its program has changed.
    pub fn with_start_check(
        specs: Vec<ServerSpec>,
        clock: Arc<dyn Clock>,
        start_check: Option<Arc<dyn StartCheck>>,
    ) -> Self {
        let servers = specs.into_iter().map(|spec| {
            let setup = ServerSetup {
                spec: Arc::new(spec),
                needs_legacy_handshake: Arc::default(),
                clock: Arc::clone(&clock),
                start_check: start_check.clone(),
            };
            (setup.spec.name.clone(), ConfiguredServer::new(setup))
        });
        Self(Arc::new(servers.collect()))
    }

    /// Returns the names of the configured servers, sorted.
    pub fn server_names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    /// Returns the tools of a server, or only the named tool. Starts the server and fetches its
    /// tool list if that has not happened yet.
    pub async fn server_tools(
        &self,
        server: &str,
        tool: Option<&str>,
        claim: RunClaimId,
    ) -> Result<Vec<Arc<dyn Tool>>, McpError> {
        let run_server = self.find_server(server)?.server_for_claim(claim);
        if let Some(reason) = self.login_error_message(server).await {
            return Err(McpError::LoginRequired {
                server: server.to_owned(),
                reason,
                is_transient: false,
            });
        }
        let listing = run_server.tool_listing().await?;
        let make_tool = |listed: &ListedTool| -> Arc<dyn Tool> {
            Arc::new(McpTool::new(listed.clone(), Arc::clone(&run_server)))
        };
        let Some(tool_name) = tool else {
            return Ok(listing.tools.iter().map(make_tool).collect());
        };
        let name = spec::prefixed_tool_name(server, tool_name);
        let found = listing.tools.iter().find(|listed| listed.spec.name.as_str() == name);
        let found = found.ok_or_else(|| McpError::tool_not_found(server, tool_name, &listing))?;
        Ok(vec![make_tool(found)])
    }

    /// Returns the message about a login that has expired or was rejected. `None` means the login
    /// can be used. Without this check, an open connection and a cached tool list would hide an
    /// expired login until a call fails.
    async fn login_error_message(&self, server: &str) -> Option<String> {
        let login = ServerLogin::from_spec(&self.find_server(server).ok()?.setup.spec)?;
        // No call has been sent, so nothing can be in doubt. A refresh that takes longer continues,
        // and the next request waits for it.
        match timeout(LOGIN_TIMEOUT_MAX, login.access_token(None)).await.ok()? {
            Ok(access_token) => {
                let reason = access_token.missing_reason?;
                Some(format!("{reason}; run `{}`", login_command(server)))
            }
            Err(error) => (error.required_credentials
                == RequiredCredentials::Login { is_transient: false })
            .then_some(error.reason),
        }
    }

    /// Starts a server, reads its identity and tool list, and closes it again unless its shared
    /// connection was already open.
    pub async fn check_server(&self, server: &str) -> Result<ServerCheckReport, McpError> {
        let configured = self.find_server(server)?;
        let started = configured.setup.clock.monotonic_time();
        let (connection, is_temporary) = match configured.shared.current_connection() {
            Some(connection) => (connection, false),
            None => (Arc::new(configured.setup.connect_for_check().await?), true),
        };
        let listing = connection.tool_listing().await;
        let identity = connection.identity_report();
        if is_temporary {
            connection.close().await;
        }
        let listing = listing.map_err(|error| connection.to_mcp_error(&error))?;
        Ok(ServerCheckReport {
            tools: listing.tools.clone(),
            notes: listing.notes.clone(),
            duration: configured.setup.clock.monotonic_time().minus(started),
            ..identity
        })
    }

    /// Returns whether a server rejects clients that are not logged in. Stores the server's
    /// `WWW-Authenticate` challenge for the next login.
    pub async fn requires_login(&self, server: &str) -> Result<bool, McpError> {
        let mut setup = self.find_server(server)?.setup.clone();
        Arc::make_mut(&mut setup.spec).transport.forget_login();
        let attempt = async {
            let connection = setup.connect_for_check().await?;
            let listing = connection.tool_listing().await;
            connection.close().await;
            listing.map_err(|error| connection.to_mcp_error(&error))
        };
        match attempt.await {
            Ok(_) => Ok(false),
            Err(McpError::LoginRequired { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Returns the login at a server. The error says why the server has none.
    pub fn login(&self, server: &str) -> Result<ServerLogin, LoginError> {
        let spec = &self.find_server(server)?.setup.spec;
        ServerLogin::from_spec(spec).ok_or_else(|| {
            let reason = match &spec.transport {
                ServerTransport::Stdio { .. } => "a local stdio server reads its keys from `env`",
                ServerTransport::Http { .. } if spec.transport.login_context().is_some() => {
                    "the server's URL is invalid"
                }
                ServerTransport::Http { .. } => {
                    "the project sends an Authorization header itself, or there is no directory \
                     to store a login in"
                }
            };
            let message = format!("The MCP server `{server}` does not use a login: {reason}.");
            LoginError::Failed(message)
        })
    }

    /// Closes the servers that were started only for this claim (a worker's exclusive right to
    /// drive a run).
    pub async fn close_servers_of_claim(&self, claim: RunClaimId) {
        let servers = self.0.values();
        let servers = servers.filter_map(|server| server.lock_of_claims().remove(&claim));
        let servers: Vec<Arc<ReconnectingServer>> = servers.collect();
        join_all(servers.iter().map(|server| server.close())).await;
    }

    /// Closes all servers permanently. Call [`McpServers::finish_token_refreshes`] afterwards.
    pub async fn close_all_servers(&self) {
        let mut all = Vec::new();
        for server in self.0.values() {
            all.push(Arc::clone(&server.shared));
            all.extend(std::mem::take(&mut *server.lock_of_claims()).into_values());
        }
        join_all(all.iter().map(|server| server.close())).await;
    }

    /// Waits a limited time for token refreshes that are in flight: only their responses hold the
    /// next refresh token. Call it after [`McpServers::close_all_servers`], because closing may start a refresh.
    pub async fn finish_token_refreshes(&self) {
        let servers = self.0.values();
        let logins = servers.filter_map(|server| server.setup.spec.transport.login_context());
        join_all(logins.map(LoginContext::shut_down)).await;
    }

    fn find_server(&self, server: &str) -> Result<&ConfiguredServer, McpError> {
        let found = self.0.get(server);
        found.ok_or_else(|| McpError::server_not_found(server, &self.server_names()))
    }
}
