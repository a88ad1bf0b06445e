//! The tools that the servers of `.mcp.json` bring, under names such as
//! `mcp:github` and `mcp:github/search`.
//!
//! Never: a server that nobody trusts, and never a reason without what helps.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use longhaul_core::port::tool::Stay;
use longhaul_engine::ports::Supplies;
use longhaul_engine::toolbox::Equipped;

use crate::assemble::line::Line;
use crate::config::settings::Config;
use crate::mcp::file::McpFile;
use crate::mcp::filled::Filled;
use crate::mcp::name::{EVERY, FILE_NAME, named};
use crate::trust::thing::Thing;
use crate::trust::warden::Warden;

/// So long is waited for servers when everything ends.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// A server of the file, and how it is started; the error says why it can't be.
pub type Ready = BTreeMap<String, Result<Filled, String>>;

/// The servers of a project.
#[derive(Debug)]
pub struct Served {
    config: Config,
    warden: Warden,
    now: Mutex<Arc<State>>,
    /// Lines of before: runs that began with them go on with them.
    before: Mutex<Vec<Arc<dyn Line>>>,
}

/// The file as it was read, and the line to its servers.
#[derive(Debug)]
struct State {
    file: McpFile,
    ready: Ready,
    line: Arc<dyn Line>,
}

/// Every server that is not switched off, with its variables filled in.
pub fn ready(config: &Config, file: &McpFile) -> Ready {
    let used = file.servers.iter().filter(|server| !server.disabled);
    let filled = used.map(|server| {
        let filled = Filled::of(server, &config.env, &config.root);
        (server.name.clone(), filled)
    });
    filled.collect()
}

impl Served {
    /// The servers of this file, asked over this line.
    pub fn new(config: &Config, file: McpFile, line: Arc<dyn Line>) -> Self {
        let ready = ready(config, &file);
        Self {
            config: config.clone(),
            warden: Warden::of(config),
            now: Mutex::new(Arc::new(State { file, ready, line })),
            before: Mutex::default(),
        }
    }

    fn now(&self) -> Arc<State> {
        let now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&now)
    }

    /// Whether the server of this name may be started and can be. The error is a
    /// sentence that says what to do.
    pub fn may(&self, name: &str) -> Result<(), String> {
        let state = self.now();
        if state.file.find(name)?.disabled {
            return Err(format!(
                "The server `{name}` is switched off in `{FILE_NAME}`. \
                 Take `disabled` out there, and look with `longhaul mcp ls`."
            ));
        }
        if let Some(Err(why)) = state.ready.get(name) {
            return Err(format!(
                "The server `{name}` of `{FILE_NAME}` can't be started: {why}. \
                 Look with `longhaul mcp ls`."
            ));
        }
        self.trusted(&state.file)
    }

    fn trusted(&self, file: &McpFile) -> Result<(), String> {
        let Some(thing) = Thing::mcp(file) else {
            return Ok(());
        };
        let verdict = self.warden.may(&thing);
        match verdict.allows() {
            true => Ok(()),
            false => Err(verdict.sentence(&thing)),
        }
    }

    /// The file as it stands now, where it is another than the one in use; the
    /// error says why it can't take its place.
    pub fn news(&self) -> Option<Result<McpFile, String>> {
        let file = McpFile::of(&self.config);
        if file == self.now().file {
            return None;
        }
        if let Some(problem) = file.problems.first() {
            return Some(Err(problem.to_string()));
        }
        Some(self.trusted(&file).map(|()| file))
    }

    /// From now on this file counts, and this line.
    pub fn take(&self, file: McpFile, line: Arc<dyn Line>) {
        let ready = ready(&self.config, &file);
        let state = Arc::new(State { file, ready, line });
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *now, state);
        drop(now);
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        before.push(Arc::clone(&old.line));
    }

    /// Every line that is open.
    fn lines(&self) -> Vec<Arc<dyn Line>> {
        let before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Arc::clone(&self.now().line);
        before.iter().cloned().chain([now]).collect()
    }

    /// Closes everything, and waits no longer than it must.
    pub async fn close(&self) {
        let lines = self.lines();
        let closing = join_all(lines.iter().map(|line| line.close()));
        if tokio::time::timeout(CLOSE_MAX, closing).await.is_err() {
            tracing::warn!("some servers of tools did not end in time, and are left to the system");
        }
    }

    async fn tools(
        &self,
        server: &str,
        tool: Option<&str>,
        stay: Stay,
    ) -> Result<Vec<Equipped>, String> {
        self.may(server)?;
        let line = Arc::clone(&self.now().line);
        let asked = line.tools(server, tool, stay).await;
        let tools = asked.map_err(|why| {
            let why = why.trim_end_matches('.');
            format!(
                "The server `{server}` of `{FILE_NAME}` can't be used: {why}. \
                 Look with `longhaul mcp check {server}`."
            )
        })?;
        let mut equipped = Vec::new();
        for tool in tools {
            let name = tool.card().name.clone();
            match Equipped::new(tool) {
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
    async fn all(&self, stay: Stay) -> Result<Vec<Equipped>, String> {
        let state = self.now();
        let used = state.file.servers.iter().filter(|server| !server.disabled);
        let asked = join_all(used.map(|server| self.tools(&server.name, None, stay))).await;
        let tools: Result<Vec<_>, String> = asked.into_iter().collect();
        Ok(tools?.into_iter().flatten().collect())
    }
}

#[async_trait]
impl Supplies for Served {
    async fn find(&self, name: &str, stay: Stay) -> Option<Result<Vec<Equipped>, String>> {
        Some(match named(name)? {
            (EVERY, None) => self.all(stay).await,
            (server, tool) => self.tools(server, tool, stay).await,
        })
    }

    async fn let_go(&self, stay: Stay) {
        let lines = self.lines();
        join_all(lines.iter().map(|line| line.let_go(stay))).await;
    }
}
