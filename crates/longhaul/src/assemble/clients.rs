//! The clients that speak with the servers of `.mcp.json`.
//!
//! Never: starts one before it is asked for.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use longhaul_core::oauth::OAuth;
use longhaul_core::port::tool::{Stay, Tool};
use longhaul_core::time::Clock;
use longhaul_mcp::{Checked, Login, McpError, ServerSpec, Servers, Way};
pub(crate) use longhaul_mcp::{unfinished, without_tokens};

use crate::assemble::line::{Line, Report, Told, Unheard};
use crate::assemble::supplies::ready;
use crate::config::settings::Config;
use crate::mcp::file::McpFile;
use crate::mcp::filled::Filled;
use crate::mcp::server::{self, Server};

/// Where logins are kept, in the folder for what the user's programs remember.
const LOGINS: &str = "logins";

/// What becomes of those who were stopped for want of a login.
const GO_ON: &str = "Runs that wait for it go on with `longhaul answer`.";

/// A line to every server of this file that can be started.
pub fn line(config: &Config, file: &McpFile, clock: &Arc<dyn Clock>) -> Arc<dyn Line> {
    Arc::new(Wired(servers(config, file, clock)))
}

/// Every server of this file that can be started, with who logs in there.
pub fn servers(config: &Config, file: &McpFile, clock: &Arc<dyn Clock>) -> Servers {
    let mut ready = ready(config, file);
    let specs = file.servers.iter().filter_map(|server| {
        let filled = ready.remove(&server.name)?.ok()?;
        let login = |oauth| {
            let state = config.state.as_ref()?;
            let folder = state.join(LOGINS);
            Some(Login::new(folder, oauth, Arc::clone(clock)))
        };
        Some(spec(server, filled, login))
    });
    Servers::new(specs.collect(), Arc::clone(clock))
}

fn spec(server: &Server, filled: Filled, login: impl FnOnce(OAuth) -> Option<Login>) -> ServerSpec {
    ServerSpec {
        name: server.name.clone(),
        way: match filled.way {
            server::Way::Stdio {
                command, args, env, ..
            } => Way::Stdio {
                command: located(command, &filled.cwd),
                args,
                env,
                cwd: Some(filled.cwd),
            },
            server::Way::Http {
                url,
                headers,
                oauth,
            } => Way::Http {
                url,
                headers,
                login: login(oauth),
            },
        },
        per_run: server.per_run,
        timeout: server.timeout,
    }
}

/// A program that is named by a path is looked for from where it is started.
fn located(command: String, cwd: &Path) -> String {
    match command.contains('/') {
        true => cwd.join(&command).to_string_lossy().into_owned(),
        false => command,
    }
}

#[derive(Debug)]
struct Wired(Servers);

#[async_trait]
impl Line for Wired {
    async fn tools(
        &self,
        server: &str,
        tool: Option<&str>,
        stay: Stay,
    ) -> Result<Vec<Arc<dyn Tool>>, String> {
        let asked = self.0.tools(server, tool, stay).await;
        asked.map_err(|why| match matches!(why, McpError::Login { .. }) {
            true => format!("{why} {GO_ON}"),
            false => why.to_string(),
        })
    }

    async fn check(&self, server: &str) -> Result<Report, Unheard> {
        let asked = self.0.check(server).await;
        asked.map(report).map_err(|error| Unheard {
            why: error.to_string(),
            needs_login: matches!(error, McpError::Login { passes: false, .. }),
        })
    }

    async fn let_go(&self, stay: Stay) {
        self.0.let_go(stay).await;
    }

    async fn close(&self) {
        self.0.close().await;
    }

    async fn settle(&self) {
        self.0.settle().await;
    }
}

fn report(checked: Checked) -> Report {
    let tools = checked.tools.into_iter().map(|offered| Told {
        name: offered.card.name.as_str().to_owned(),
        class: offered.class,
    });
    Report {
        name: checked.name,
        version: checked.version,
        protocol: checked.protocol,
        tools: tools.collect(),
        notes: checked.notes,
        took: checked.took,
    }
}
