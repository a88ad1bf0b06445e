//! Clients for the MCP servers in `.mcp.json`. A server is started on its first use, after a check
//! that `.mcp.json` and the server's program are trusted.

pub(crate) use longhaul_mcp::{partial_token_suffix_len, redact_tokens};

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use longhaul_core::oauth::OAuthConfig;
use longhaul_core::port::tool::{RunClaimId, Tool};
use longhaul_core::raw::Hash;
use longhaul_core::time::Clock;
use longhaul_mcp::{
    LoginContext, McpError, McpServers, ServerCheckReport, ServerSpec, ServerTransport, StartCheck,
};

use crate::assemble::mcp_tools::{
    McpCheckError, McpClient, McpReportedTool, McpServerReport, resolve_enabled_servers,
};
use crate::config::settings::Config;
use crate::mcp::file::McpFile;
use crate::mcp::server::{self, McpServerConfig, ResolvedMcpServer};
use crate::trust::decisions::TrustDecisions;
use crate::trust::item::{CommandFileCollector, TrustItem, digest_texts};
use crate::trust::servers::files_run_by_servers;

/// Folder of the saved OAuth logins of MCP servers, inside the user's state folder.
const LOGINS_FOLDER: &str = "logins";

/// Hint that is added to messages about a missing login.
const RESUME_HINT: &str = "Continue blocked runs with `longhaul resume`.";

/// Creates a client for all usable MCP servers of this `.mcp.json`.
pub fn new_client(config: &Config, file: &McpFile, clock: &Arc<dyn Clock>) -> Arc<dyn McpClient> {
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
                // A path is relative to the server's working directory.
                command: match command.contains('/') {
                    true => resolved.cwd.join(&command).to_string_lossy().into_owned(),
                    false => command,
                },
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
        description: tool.spec.description,
        input_schema: tool.spec.schema,
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

/// Checks the servers of one version of `.mcp.json`.
#[derive(Debug)]
pub(crate) struct TrustedStartCheck {
    decisions: TrustDecisions,
    file: McpFile,
    /// The last checked version of each server's program.
    checked: Mutex<BTreeMap<String, CheckedProgram>>,
}

/// A version of a server's program, and the state of its files when it was computed.
#[derive(Debug)]
struct CheckedProgram {
    stamps: Vec<FileStamp>,
    version: Hash,
}

/// Path, inode, size, and times of modification and status change of a file. A file with the same
/// stamp is not read again.
type FileStamp = (PathBuf, [i128; 6]);

impl TrustedStartCheck {
    pub(crate) fn new(config: &Config, file: &McpFile) -> Self {
        Self {
            decisions: TrustDecisions::new(config),
            file: file.clone(),
            checked: Mutex::default(),
        }
    }

    /// Finds the project files that are run when this server is started.
    fn program_files(&self, server: &str) -> Result<CommandFileCollector, String> {
        let servers = self.file.servers.iter().filter(|one| one.name == server);
        files_run_by_servers(&self.file, servers)
    }
}

impl StartCheck for TrustedStartCheck {
    fn check_start(&self, server: &str) -> Result<Hash, String> {
        let files = self.program_files(server)?;
        // Taken before the files are read, so that a later change is noticed.
        let stamps = file_stamps(&files);
        if let Some(item) = TrustItem::for_mcp_servers(&self.file) {
            self.decisions.check_trusted(&item)?;
        }
        let digests = files.file_digests()?;
        let texts = digests.iter().flat_map(|(name, hash)| [name.as_bytes(), &hash.bytes()[..]]);
        let version = digest_texts(texts);
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        checked.insert(server.to_owned(), CheckedProgram { stamps, version });
        Ok(version)
    }

    fn has_other_version(&self, server: &str, running: Hash) -> bool {
        let Ok(files) = self.program_files(server) else {
            return false;
        };
        let stamps = file_stamps(&files);
        let known = {
            let checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
            let program = checked.get(server).filter(|program| program.stamps == stamps);
            program.map(|program| program.version)
        };
        let version = known.map_or_else(|| self.check_start(server), Ok);
        version.is_ok_and(|version| version != running)
    }
}

fn file_stamps(files: &CommandFileCollector) -> Vec<FileStamp> {
    let stamps = files.paths().filter_map(|path| {
        let data = fs::metadata(path).ok()?;
        let times = [data.mtime(), data.mtime_nsec(), data.ctime(), data.ctime_nsec()];
        let [mtime, mtime_nsec, ctime, ctime_nsec] = times.map(i128::from);
        let (ino, size) = (i128::from(data.ino()), i128::from(data.size()));
        Some((path.to_owned(), [ino, size, mtime, mtime_nsec, ctime, ctime_nsec]))
    });
    stamps.collect()
}
