//! The tools that the servers of `.mcp.json` bring, under names such as
//! `mcp:github` and `mcp:github/search`.
//!
//! Never: a server that nobody trusts, and never a reason without what helps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use longhaul_core::port::tool::ClaimId;
use longhaul_engine::services::ExternalToolSource;
use longhaul_engine::tool_registry::RegisteredTool;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::assemble::mcp_client::McpClient;
use crate::assemble::slow_notice::SlowNotice;
use crate::config::settings::Config;
use crate::mcp::file::McpFile;
use crate::mcp::name::{ALL_SERVERS, FILE_NAME, parse_tool_name};
use crate::mcp::resolved::ResolvedServer;
use crate::trust::decisions::Decisions;
use crate::trust::item::TrustItem;

/// So long is waited for servers to close when everything ends.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// A server of the file, and how it is started; the error says why it can't be.
pub type ResolvedServers = BTreeMap<String, Result<ResolvedServer, String>>;

/// The servers of a project.
#[derive(Debug)]
pub struct McpTools {
    config: Config,
    decisions: Decisions,
    current: Mutex<Arc<ServerSet>>,
    /// Those of before: runs that began with them go on with them.
    retired: Mutex<Vec<Arc<ServerSet>>>,
    closing: Mutex<ClosingClients>,
    slow_notice: SlowNotice,
}

/// Lines that nobody needs any more, on their way to an end.
#[derive(Debug, Default)]
struct ClosingClients {
    clients: Vec<Arc<dyn McpClient>>,
    tasks: JoinSet<()>,
}

/// The file as it was read, and the line to its servers.
#[derive(Debug)]
struct ServerSet {
    file: McpFile,
    resolved: ResolvedServers,
    client: Arc<dyn McpClient>,
    /// Who asked for tools on this line and has not let go.
    claims: Mutex<BTreeSet<ClaimId>>,
}

impl ServerSet {
    fn new(file: McpFile, ready: ResolvedServers, line: Arc<dyn McpClient>) -> Arc<Self> {
        Arc::new(Self { file, resolved: ready, client: line, claims: Mutex::default() })
    }

    fn claims(&self) -> MutexGuard<'_, BTreeSet<ClaimId>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Every server that is not switched off, with its variables filled in.
pub fn resolve_servers(config: &Config, file: &McpFile) -> ResolvedServers {
    // What `.env` says counts as it was when the file was looked at.
    let env = config.env.with_dotenv_of(&file.dotenv_values);
    let used = file.servers.iter().filter(|server| !server.disabled);
    let filled = used.map(|server| {
        let filled = ResolvedServer::resolve(server, &env, &config.root);
        (server.name.clone(), filled)
    });
    filled.collect()
}

impl McpTools {
    /// The servers of this file, asked over this line.
    pub fn new(config: &Config, file: McpFile, line: Arc<dyn McpClient>) -> Self {
        let ready = resolve_servers(config, &file);
        Self {
            config: config.clone(),
            decisions: Decisions::new(config),
            current: Mutex::new(ServerSet::new(file, ready, line)),
            retired: Mutex::default(),
            closing: Mutex::default(),
            slow_notice: SlowNotice::default(),
        }
    }

    /// Whoever waits for a server that does not answer soon is told by this.
    pub fn on_slow(&self, tell: impl Fn(&str) + Send + Sync + 'static) {
        self.slow_notice.set_callback(tell);
    }

    /// The file that counts now.
    pub fn file(&self) -> McpFile {
        self.current().file.clone()
    }

    fn current(&self) -> Arc<ServerSet> {
        let now = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&now)
    }

    /// The line for this stay. Noted before anybody can put another in its place, so
    /// that it is not closed meanwhile.
    fn client_for(&self, stay: ClaimId) -> Arc<dyn McpClient> {
        let now = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        now.claims().insert(stay);
        Arc::clone(&now.client)
    }

    /// Whether the server of this name may be started and can be.
    ///
    /// # Errors
    /// Why not, in a sentence that says what to do.
    pub fn check_usable(&self, name: &str) -> Result<(), String> {
        let state = self.current();
        if state.file.find(name)?.disabled {
            return Err(format!(
                "The server `{name}` is switched off in `{FILE_NAME}`. \
                 Take `disabled` out there, and look with `longhaul mcp ls`."
            ));
        }
        if let Some(Err(why)) = state.resolved.get(name) {
            return Err(format!(
                "The server `{name}` of `{FILE_NAME}` can't be started: {why}. \
                 Look with `longhaul mcp ls`."
            ));
        }
        self.check_trust(&state.file)
    }

    fn check_trust(&self, file: &McpFile) -> Result<(), String> {
        let item = TrustItem::mcp(file);
        item.map_or(Ok(()), |item| self.decisions.check(&item))
    }

    /// The file as it stands now, where it is another than the one in use; the
    /// error says why it can't take its place.
    pub fn changed_file(&self) -> Option<Result<McpFile, String>> {
        let file = McpFile::load(&self.config);
        if file == self.current().file {
            return None;
        }
        if let Some(problem) = file.problems.first() {
            return Some(Err(problem.to_string()));
        }
        Some(self.check_trust(&file).map(|()| file))
    }

    /// From now on this file counts, and this line. The one of before is closed when
    /// nobody needs it any more.
    pub fn replace(&self, file: McpFile, line: Arc<dyn McpClient>) {
        self.install(file, line);
        // Nobody waits here: they end on their own.
        drop(self.close_unused());
    }

    fn install(&self, file: McpFile, line: Arc<dyn McpClient>) {
        let ready = resolve_servers(&self.config, &file);
        let state = ServerSet::new(file, ready, line);
        // Whoever lets go meanwhile finds it in one place or the other.
        let mut before = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        let mut now = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        before.push(std::mem::replace(&mut *now, state));
    }

    /// Begins to end the lines that nobody needs any more, and says of each when it has
    /// ended. Whoever does not wait for that cuts nothing off, and a close of all still
    /// finds them.
    fn close_unused(&self) -> Vec<oneshot::Receiver<()>> {
        let mut closing = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
        while closing.tasks.try_join_next().is_some() {}
        if closing.tasks.is_empty() {
            closing.clients.clear();
        }
        let begin = |line: Arc<dyn McpClient>| {
            let (tell, told) = oneshot::channel();
            closing.clients.push(Arc::clone(&line));
            closing.tasks.spawn(async move {
                close_client(&*line).await;
                // Nobody may wait for it any more.
                _ = tell.send(());
            });
            told
        };
        self.take_unused().into_iter().map(begin).collect()
    }

    /// Takes out the lines of before that nobody needs any more.
    fn take_unused(&self) -> Vec<Arc<dyn McpClient>> {
        let mut before = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        let unneeded = before.extract_if(.., |state| state.claims().is_empty());
        unneeded.map(|state| Arc::clone(&state.client)).collect()
    }

    /// All whose lines are open.
    fn open_sets(&self) -> Vec<Arc<ServerSet>> {
        let before = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        before.iter().cloned().chain([self.current()]).collect()
    }

    /// Closes everything, and waits no longer than it must. A server that does not end
    /// is left alone; what must come to its end, on any line, has its own time for that.
    pub async fn close(&self) {
        let (closing, states) = {
            // Whoever lets go meanwhile finds a line in one place or the other, and so do we.
            let mut closing = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
            (std::mem::take(&mut *closing), self.open_sets())
        };
        close_all(closing, &states).await;
    }

    /// Replaces the connections at once; the returned future closes the old ones.
    pub fn restart(
        &self,
        file: McpFile,
        line: Arc<dyn McpClient>,
    ) -> impl Future<Output = ()> + use<> {
        let mut closing = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
        self.install(file, line);
        let mut before = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        let (closing, states) = (std::mem::take(&mut *closing), std::mem::take(&mut *before));
        async move { close_all(closing, &states).await }
    }

    async fn tools(
        &self,
        server: &str,
        tool: Option<&str>,
        stay: ClaimId,
    ) -> Result<Vec<RegisteredTool>, String> {
        self.check_usable(server)?;
        let line = self.client_for(stay);
        let asked = self.slow_notice.wait_for_server(server, line.tools(server, tool, stay)).await;
        let tools = asked.map_err(|why| {
            let stop = match why.ends_with(['.', '?', '!']) {
                true => "",
                false => ".",
            };
            format!(
                "The server `{server}` of `{FILE_NAME}` can't be used: {why}{stop} \
                 Look with `longhaul mcp check {server}`."
            )
        })?;
        let mut equipped = Vec::new();
        for tool in tools {
            let name = tool.spec().name.clone();
            match RegisteredTool::new(tool) {
                Ok(tool) => equipped.push(tool),
                Err(why) => tracing::warn!(server, tool = %name, "left out: {why}"),
            }
        }
        match (equipped.is_empty(), tool) {
            (true, Some(tool)) => Err(format!(
                "The tool `{tool}` of the server `{server}` can't be used: its input schema is \
                 broken. Look with `longhaul mcp check {server}`."
            )),
            (_, Some(_) | None) => Ok(equipped),
        }
    }

    /// The tools of every server that is not switched off.
    async fn all_tools(&self, stay: ClaimId) -> Result<Vec<RegisteredTool>, String> {
        let state = self.current();
        // Nobody knows who all are.
        if let Some(why) = state.file.unusable() {
            return Err(format!("{why}."));
        }
        let used = state.file.servers.iter().filter(|server| !server.disabled);
        let asked = join_all(used.map(|server| self.tools(&server.name, None, stay))).await;
        let tools: Result<Vec<_>, String> = asked.into_iter().collect();
        Ok(tools?.into_iter().flatten().collect())
    }
}

#[async_trait]
impl ExternalToolSource for McpTools {
    async fn load(&self, name: &str, stay: ClaimId) -> Option<Result<Vec<RegisteredTool>, String>> {
        Some(match parse_tool_name(name)? {
            (ALL_SERVERS, None) => self.all_tools(stay).await,
            (server, tool) => self.tools(server, tool, stay).await,
        })
    }

    async fn release(&self, stay: ClaimId) {
        let states = self.open_sets();
        join_all(states.iter().map(|state| state.client.release(stay))).await;
        for state in &states {
            state.claims().remove(&stay);
        }
        // An error says that a close of all has taken it over.
        join_all(self.close_unused()).await;
    }
}

async fn close_all(closing: ClosingClients, states: &[Arc<ServerSet>]) {
    let ClosingClients { clients: mut lines, mut tasks } = closing;
    let all = async {
        join_all(states.iter().map(|state| state.client.close())).await;
        while tasks.join_next().await.is_some() {}
    };
    if tokio::time::timeout(CLOSE_TIMEOUT, all).await.is_err() {
        tracing::warn!("some servers of tools did not end in time, and are left to the system");
    }
    lines.extend(states.iter().map(|state| Arc::clone(&state.client)));
    join_all(lines.iter().map(|line| line.finish_refreshes())).await;
}

/// Ends a line: when it is dropped after that, nothing is cut off.
async fn close_client(line: &dyn McpClient) {
    line.close().await;
    line.finish_refreshes().await;
}
