//! The tools that the servers of `.mcp.json` bring, under names such as
//! `mcp:github` and `mcp:github/search`.
//!
//! Never: a server that nobody trusts, and never a reason without what helps.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use longhaul_core::id::RunId;
use longhaul_engine::ports::Supplies;
use longhaul_engine::toolbox::Equipped;

use crate::assemble::line::Line;
use crate::config::settings::Config;
use crate::mcp::file::McpFile;
use crate::mcp::filled::Filled;
use crate::mcp::name::{FILE_NAME, named};
use crate::mcp::server::Server;
use crate::trust::thing::Thing;
use crate::trust::warden::Warden;

/// So long is waited for servers when everything ends.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// A server of the file, and how it is started; the error says why it can't be.
pub type Ready = BTreeMap<String, Result<Filled, String>>;

/// The servers of a project.
#[derive(Debug)]
pub struct Served {
    file: McpFile,
    ready: Ready,
    warden: Warden,
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
        Self {
            ready: ready(config, &file),
            warden: Warden::of(config),
            file,
            line,
        }
    }

    /// The server of this name, if it may be started and can be. The error is a
    /// sentence that says what to do.
    pub fn find(&self, name: &str) -> Result<&Server, String> {
        let server = self.file.find(name)?;
        if server.disabled {
            return Err(format!(
                "The server `{name}` is switched off in `{FILE_NAME}`. \
                 Take `disabled` out there, and look with `longhaul mcp ls`."
            ));
        }
        if let Some(Err(why)) = self.ready.get(name) {
            return Err(format!(
                "The server `{name}` of `{FILE_NAME}` can't be started: {why}. \
                 Look with `longhaul mcp ls`."
            ));
        }
        let Some(thing) = Thing::mcp(&self.file) else {
            return Err(format!("`{FILE_NAME}` is not there any more."));
        };
        let verdict = self.warden.may(&thing);
        match verdict.allows() {
            true => Ok(server),
            false => Err(verdict.sentence(&thing)),
        }
    }

    /// Closes everything, and waits no longer than it must.
    pub async fn close(&self) {
        if tokio::time::timeout(CLOSE_MAX, self.line.close())
            .await
            .is_err()
        {
            tracing::warn!("some servers of tools did not end in time, and are left to the system");
        }
    }

    async fn tools(
        &self,
        server: &str,
        tool: Option<&str>,
        run: RunId,
    ) -> Result<Vec<Equipped>, String> {
        self.find(server)?;
        let asked = self.line.tools(server, tool, run).await;
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
}

#[async_trait]
impl Supplies for Served {
    async fn find(&self, name: &str, run: RunId) -> Option<Result<Vec<Equipped>, String>> {
        let (server, tool) = named(name)?;
        Some(self.tools(server, tool, run).await)
    }

    async fn let_go(&self, run: RunId) {
        self.line.let_go(run).await;
    }
}
