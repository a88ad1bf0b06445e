//! The tools of the MCP servers in `.mcp.json`, under names such as `mcp:github` and
//! `mcp:github/search`, and the interface to the MCP client, which hides the MCP protocol.
//!
//! Invariant: an untrusted server is not started. Every error names a command that helps.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::tool::{RunClaimId, Tool};
use longhaul_core::time::Millis;
use longhaul_engine::services::ExternalToolSource;
use longhaul_engine::tools::registry::RegisteredTool;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::config::settings::Config;
use crate::mcp::file::{McpFile, NO_CLIENT};
use crate::mcp::name::{ALL_SERVERS, FILE_NAME, split_mcp_server_and_tool};
use crate::mcp::server::ResolvedMcpServer;
use crate::trust::decisions::TrustDecisions;
use crate::trust::item::TrustItem;

/// Maximum time to close all MCP servers at shutdown.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The MCP servers of a file by name, with expanded variables. The error is the reason why a server
/// can't be started.
pub type ResolvedMcpServers = BTreeMap<String, Result<ResolvedMcpServer, String>>;

/// Time to wait for a server before it is reported as slow.
const SLOW_NOTICE_DELAY: Duration = Duration::from_secs(2);

/// The tools of a project's MCP servers.
pub struct McpTools {
    config: Config,
    decisions: TrustDecisions,
    current: Mutex<Arc<McpServerSet>>,
    /// Earlier versions of `.mcp.json`, each with its MCP client. A version is kept while runs use
    /// it.
    retired: Mutex<Vec<Arc<McpServerSet>>>,
    closing: Mutex<ClosingMcpClients>,
    /// Creates the client for a changed `.mcp.json`. `None` means that changes are not applied.
    create_client: Option<Box<CreateClient>>,
    /// Callback that receives the name of a slow server. Without it, the server is logged.
    slow_callback: OnceLock<Box<NoticeFn>>,
}

type CreateClient = dyn Fn(&McpFile) -> Arc<dyn McpClient> + Send + Sync;
type NoticeFn = dyn Fn(&str) + Send + Sync;

impl fmt::Debug for McpTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpTools").field("current", &self.current).finish_non_exhaustive()
    }
}

/// MCP clients that no run uses any more and that are being closed.
#[derive(Debug, Default)]
struct ClosingMcpClients {
    clients: Vec<Arc<dyn McpClient>>,
    tasks: JoinSet<()>,
}

/// One version of `.mcp.json`, and the client for its servers.
#[derive(Debug)]
struct McpServerSet {
    file: McpFile,
    resolved: ResolvedMcpServers,
    client: Arc<dyn McpClient>,
    /// Claims of the runs that use this client. A claim is a worker's exclusive right to drive a
    /// run.
    claims: Mutex<BTreeSet<RunClaimId>>,
}

impl McpServerSet {
    fn new(file: McpFile, resolved: ResolvedMcpServers, client: Arc<dyn McpClient>) -> Arc<Self> {
        Arc::new(Self { file, resolved, client, claims: Mutex::default() })
    }

    fn lock_run_claims(&self) -> MutexGuard<'_, BTreeSet<RunClaimId>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Expands the variables of all MCP servers that are not disabled.
pub fn resolve_enabled_servers(config: &Config, file: &McpFile) -> ResolvedMcpServers {
    // Uses the `.env` values that were read together with the file.
    let env = config.env.with_dotenv_values_of(&file.dotenv_values);
    let enabled = file.servers.iter().filter(|server| !server.disabled);
    let resolved = enabled.map(|server| {
        let resolved = ResolvedMcpServer::resolve(server, &env, &config.root);
        (server.name.clone(), resolved)
    });
    resolved.collect()
}

impl McpTools {
    /// Creates the tools of the MCP servers in this file. They are called through this client.
    pub fn new(config: &Config, file: McpFile, client: Arc<dyn McpClient>) -> Self {
        let ready = resolve_enabled_servers(config, &file);
        Self {
            config: config.clone(),
            decisions: TrustDecisions::new(config),
            current: Mutex::new(McpServerSet::new(file, ready, client)),
            retired: Mutex::default(),
            closing: Mutex::default(),
            create_client: None,
            slow_callback: OnceLock::new(),
        }
    }

    /// Applies changes of `.mcp.json` to later runs, with clients that `create_client` creates.
    #[must_use]
    pub fn with_client_factory(
        self,
        create_client: impl Fn(&McpFile) -> Arc<dyn McpClient> + Send + Sync + 'static,
    ) -> Self {
        Self { create_client: Some(Box::new(create_client)), ..self }
    }

    /// Sets a callback that receives the name of an MCP server that is slow to respond. Only the
    /// first call has an effect.
    pub fn set_slow_mcp_server_callback(&self, callback: impl Fn(&str) + Send + Sync + 'static) {
        _ = self.slow_callback.set(Box::new(callback));
    }

    /// Returns the version of `.mcp.json` that is in use.
    pub fn current_mcp_file(&self) -> McpFile {
        self.current_server_set().file.clone()
    }

    fn current_server_set(&self) -> Arc<McpServerSet> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&current)
    }

    /// Returns the MCP client for the run that has this claim. The claim is registered while the
    /// lock is held, so that the client is not closed as unused when `.mcp.json` changes.
    fn client_for_run_claim(&self, claim_id: RunClaimId) -> Arc<dyn McpClient> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.lock_run_claims().insert(claim_id);
        Arc::clone(&current.client)
    }

    /// Checks that the server with this name is trusted and can be started.
    ///
    /// # Errors
    /// The server can't be used. The message has the reason and a command that helps.
    pub fn check_server_usable(&self, server_name: &str) -> Result<(), String> {
        let state = self.current_server_set();
        if state.file.find_server(server_name)?.disabled {
            return Err(format!(
                "The server `{server_name}` is disabled in `{FILE_NAME}`. \
                 Remove `disabled` there, and run `longhaul mcp ls`."
            ));
        }
        if let Some(Err(reason)) = state.resolved.get(server_name) {
            return Err(format!(
                "The server `{server_name}` of `{FILE_NAME}` can't be started: {reason}. \
                 Run `longhaul mcp ls`."
            ));
        }
        self.check_mcp_file_trusted(&state.file)
    }

    fn check_mcp_file_trusted(&self, file: &McpFile) -> Result<(), String> {
        let item = TrustItem::for_mcp_servers(file);
        item.map_or(Ok(()), |item| self.decisions.check_trusted(&item))
    }

    /// Switches to the current `.mcp.json` if it has changed and is trusted.
    ///
    /// # Errors
    /// The new version can't be used. The text is the reason.
    pub fn apply_changed_mcp_file(&self) -> Result<(), String> {
        let Some(create_client) = &self.create_client else {
            return Ok(());
        };
        let file = McpFile::load(&self.config);
        if file == self.current_server_set().file {
            return Ok(());
        }
        if let Some(problem) = file.problems.first() {
            return Err(problem.to_string());
        }
        self.check_mcp_file_trusted(&file)?;
        let (servers, client) = (file.servers.len() as u64, create_client(&file));
        self.replace_servers(file, client);
        tracing::info!(servers, "{FILE_NAME} was reloaded");
        Ok(())
    }

    /// Switches to this version of `.mcp.json` and this client. The previous client is closed when
    /// no run uses it any more.
    pub fn replace_servers(&self, file: McpFile, client: Arc<dyn McpClient>) {
        self.set_current_servers(file, client);
        // The clients close in the background.
        drop(self.close_unused_clients());
    }

    /// Makes this version of `.mcp.json` and this MCP client the current ones. The previous ones
    /// are kept in `retired`.
    fn set_current_servers(&self, file: McpFile, client: Arc<dyn McpClient>) {
        let ready = resolve_enabled_servers(&self.config, &file);
        let state = McpServerSet::new(file, ready, client);
        // Both locks are held, so that a concurrent release finds the set either in `retired` or in
        // `current`.
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        retired.push(std::mem::replace(&mut *current, state));
    }

    /// Starts to close the MCP clients that no run uses, and returns for each a receiver that
    /// completes when the client is closed. If a receiver is dropped, closing continues, and
    /// `close_mcp_clients` still waits for it.
    fn close_unused_clients(&self) -> Vec<oneshot::Receiver<()>> {
        let mut closing = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
        while closing.tasks.try_join_next().is_some() {}
        if closing.tasks.is_empty() {
            closing.clients.clear();
        }
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        let unused = retired.extract_if(.., |state| state.lock_run_claims().is_empty());
        let start_closing = |state: Arc<McpServerSet>| {
            let (sender, receiver) = oneshot::channel();
            closing.clients.push(Arc::clone(&state.client));
            closing.tasks.spawn(async move {
                state.client.close_all_connections().await;
                state.client.wait_for_token_refreshes().await;
                // The receiver may be gone.
                _ = sender.send(());
            });
            receiver
        };
        unused.map(start_closing).collect()
    }

    /// Returns the current and the earlier versions of `.mcp.json` whose MCP clients are not closed
    /// yet.
    fn open_server_sets(&self) -> Vec<Arc<McpServerSet>> {
        let retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        retired.iter().cloned().chain([self.current_server_set()]).collect()
    }

    /// Closes all MCP clients. A server that does not stop within `CLOSE_TIMEOUT` is abandoned.
    /// Token refreshes must not be interrupted and have their own time limit.
    pub async fn close_mcp_clients(&self) {
        let (closing, server_sets) = {
            // Holding the lock makes sure that a concurrently released client is found in one of
            // the two lists.
            let mut closing = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
            (std::mem::take(&mut *closing), self.open_server_sets())
        };
        close_all_clients(closing, &server_sets).await;
    }

    /// Closes the connections to all servers, even while runs use them. The returned future
    /// completes when they are closed. A server that is needed afterwards is started again.
    pub fn restart_servers(&self) -> impl Future<Output = ()> + use<> {
        let mut closing = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(create_client) = &self.create_client {
            let file = self.current_mcp_file();
            let client = create_client(&file);
            self.set_current_servers(file, client);
        }
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        let (closing, server_sets) = (std::mem::take(&mut *closing), std::mem::take(&mut *retired));
        async move { close_all_clients(closing, &server_sets).await }
    }

    async fn load_server_tools(
        &self,
        server: &str,
        tool: Option<&str>,
        claim_id: RunClaimId,
    ) -> Result<Vec<RegisteredTool>, String> {
        self.check_server_usable(server)?;
        let line = self.client_for_run_claim(claim_id);
        let listing = line.list_server_tools(server, tool, claim_id);
        let result = wait_and_notify_if_slow(listing, || match self.slow_callback.get() {
            Some(callback) => callback(server),
            None => tracing::info!(server, "waiting for MCP server"),
        });
        let tools = result.await.map_err(|reason| {
            let punctuation = match reason.ends_with(['.', '?', '!']) {
                true => "",
                false => ".",
            };
            format!(
                "The server `{server}` of `{FILE_NAME}` can't be used: {reason}{punctuation} \
                 Run `longhaul mcp check {server}`."
            )
        })?;
        let mut registered = Vec::new();
        for tool in tools {
            let name = tool.spec().name.clone();
            match RegisteredTool::from_tool(tool) {
                Ok(tool) => registered.push(tool),
                Err(error) => tracing::warn!(server, tool = %name, "MCP tool is left out: {error}"),
            }
        }
        match (registered.is_empty(), tool) {
            (true, Some(tool)) => Err(format!(
                "The tool `{tool}` of the server `{server}` can't be used: its input schema is \
                 invalid. Run `longhaul mcp check {server}`."
            )),
            (_, Some(_) | None) => Ok(registered),
        }
    }

    /// Returns the tools of all MCP servers that are not disabled.
    async fn load_all_tools(&self, claim_id: RunClaimId) -> Result<Vec<RegisteredTool>, String> {
        let state = self.current_server_set();
        // With an invalid file the list of servers is unknown.
        if let Some(reason) = state.file.unusable_reason() {
            return Err(format!("{reason}."));
        }
        // An entry that is no valid server is reported by `longhaul mcp ls` and `agents check`.
        let enabled = state.file.servers.iter();
        let enabled = enabled.filter(|server| !server.disabled && server.problems.is_empty());
        let results =
            join_all(enabled.map(|server| self.load_server_tools(&server.name, None, claim_id)))
                .await;
        let tools: Result<Vec<_>, String> = results.into_iter().collect();
        Ok(tools?.into_iter().flatten().collect())
    }
}

#[async_trait]
impl ExternalToolSource for McpTools {
    async fn load_tools(
        &self,
        name: &str,
        claim_id: RunClaimId,
    ) -> Option<Result<Vec<RegisteredTool>, String>> {
        let server_and_tool = split_mcp_server_and_tool(name)?;
        // An error means that the previous version stays in effect.
        _ = self.apply_changed_mcp_file();
        Some(match server_and_tool {
            (ALL_SERVERS, None) => self.load_all_tools(claim_id).await,
            (server, tool) => self.load_server_tools(server, tool, claim_id).await,
        })
    }

    async fn release_tools(&self, claim_id: RunClaimId) {
        let states = self.open_server_sets();
        join_all(states.iter().map(|state| state.client.close_connections_of_run_claim(claim_id)))
            .await;
        for state in &states {
            state.lock_run_claims().remove(&claim_id);
        }
        // An error means that `close_mcp_clients` has taken over the closing.
        join_all(self.close_unused_clients()).await;
    }
}

/// Waits for `work` without a time limit. Calls `notify` once if that takes longer than
/// `SLOW_NOTICE_DELAY`.
pub async fn wait_and_notify_if_slow<T>(work: impl Future<Output = T>, notify: impl FnOnce()) -> T {
    let mut work = pin!(work);
    tokio::select! {
        biased;
        done = &mut work => return done,
        () = tokio::time::sleep(SLOW_NOTICE_DELAY) => notify(),
    }
    work.await
}

/// Closes the connections to these MCP servers, and waits for the MCP clients that are already
/// being closed.
async fn close_all_clients(already_closing: ClosingMcpClients, server_sets: &[Arc<McpServerSet>]) {
    let ClosingMcpClients { mut clients, mut tasks } = already_closing;
    let close_clients = async {
        join_all(server_sets.iter().map(|state| state.client.close_all_connections())).await;
        while tasks.join_next().await.is_some() {}
    };
    if tokio::time::timeout(CLOSE_TIMEOUT, close_clients).await.is_err() {
        tracing::warn!("timeout: MCP servers did not stop and were abandoned");
    }
    clients.extend(server_sets.iter().map(|state| Arc::clone(&state.client)));
    join_all(clients.iter().map(|client| client.wait_for_token_refreshes())).await;
}

/// Client for MCP servers, which are identified by name. The default methods are those of a build
/// without the feature `mcp`: every use of a server is an error that names the feature.
#[async_trait]
pub trait McpClient: Send + Sync + std::fmt::Debug {
    /// Returns the tools of a server, or only the tool with this name. The error is a short reason.
    async fn list_server_tools(
        &self,
        _server: &str,
        _tool: Option<&str>,
        _claim: RunClaimId,
    ) -> Result<Vec<Arc<dyn Tool>>, String> {
        Err(NO_CLIENT.to_owned())
    }

    /// Connects to a server and returns its description.
    async fn check_server(&self, _server_name: &str) -> Result<McpServerReport, McpCheckError> {
        Err(McpCheckError { message: NO_CLIENT.to_owned(), needs_login: false })
    }

    /// Closes the connections that were opened only for this claim (a worker's exclusive right to
    /// drive a run).
    async fn close_connections_of_run_claim(&self, _claim: RunClaimId) {}

    /// Closes the connections to all servers.
    async fn close_all_connections(&self) {}

    /// Waits until operations that must not be interrupted, such as token refreshes, have ended.
    /// The wait has a time limit.
    async fn wait_for_token_refreshes(&self) {}
}

/// Description of an MCP server, as the server reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpServerReport {
    pub name: String,
    pub version: String,
    /// MCP protocol version that was negotiated with the server.
    pub protocol: String,
    /// Tools that the MCP server offers.
    pub tools: Vec<McpReportedTool>,
    /// Remarks about the MCP server that are not errors.
    pub notes: Vec<String>,
    /// Time it took to connect to the MCP server and list its tools.
    pub duration: Millis,
}

/// Reason why an MCP server could not be checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpCheckError {
    /// Short reason why the check failed.
    pub message: String,
    /// Whether a person must log in to the server first. Then a retry does not help.
    pub needs_login: bool,
}

/// A tool as its MCP server describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpReportedTool {
    /// Name of the tool as agent files write it.
    pub name: String,
    /// Effect class of the tool's calls: whether they may be repeated after a crash.
    pub class: EffectClass,
    /// Description of the tool for the model.
    pub description: String,
    /// JSON Schema of the tool's input.
    pub input_schema: Value,
}
