//! An MCP server whose settings have expanded variables, ready to be started. Invariant: the
//! settings are never shown, since values may be secrets.

use std::fmt;
use std::path::{Path, PathBuf};

use longhaul_core::oauth::OAuthConfig;

use crate::config::env::Env;
use crate::mcp::expand::expand_variables;
use crate::mcp::server::{McpServerConfig, Transport, expandable_oauth_texts};

/// Maximum size of all texts of a server together in bytes: the operating system's limit for the
/// arguments of a program.
const BYTES_MAX: usize = 2 << 20;

/// Transport settings of an MCP server with expanded variables.
#[derive(Clone, PartialEq, Eq)]
pub struct ResolvedMcpServer {
    /// How the server is reached: by starting a program, or over HTTP.
    pub transport: Transport,
    /// Working directory of the server's program.
    pub cwd: PathBuf,
}

impl fmt::Debug for ResolvedMcpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResolvedMcpServer(hidden)")
    }
}

impl ResolvedMcpServer {
    /// Expands the variables in the settings of a server.
    ///
    /// # Errors
    /// A variable is missing or a value is invalid. The message contains no values.
    pub fn resolve(server: &McpServerConfig, env: &Env, root: &Path) -> Result<Self, String> {
        if let Some(problem) = server.problems.first() {
            return Err(problem.to_string());
        }
        let Some(transport) = &server.transport else {
            return Err("the server has no transport".to_owned());
        };
        let transport = transport.try_map_expandable_texts(|text| expand_variables(text, env));
        let transport = transport.map_err(|error| error.to_string())?;
        if let Some(reason) = invalid_transport_reason(&transport) {
            return Err(reason.to_owned());
        }
        let cwd = match &transport {
            Transport::Stdio { cwd: Some(cwd), .. } => root.join(cwd),
            Transport::Stdio { cwd: None, .. } | Transport::Http { .. } => root.to_owned(),
        };
        Ok(Self { transport, cwd })
    }
}

/// Returns the reason why transport settings are invalid after expansion. `None` means that they
/// are valid.
fn invalid_transport_reason(transport: &Transport) -> Option<&'static str> {
    let texts = transport.expandable_texts();
    let bytes = texts.iter().map(|text| text.len());
    let bytes: usize = bytes.chain(transport.env_or_header_names().map(str::len)).sum();
    if bytes > BYTES_MAX {
        return Some("the settings of the server are longer than 2 MiB after variable expansion");
    }
    match transport {
        Transport::Stdio { command, .. } if command.trim().is_empty() => {
            Some("the `command` of the server is empty after variable expansion")
        }
        Transport::Stdio { .. } if texts.iter().any(|text| text.contains('\0')) => {
            Some("the command of the server or one of its variables contains a zero byte")
        }
        Transport::Stdio { .. } => None,
        Transport::Http { url, headers, oauth } => {
            let scheme = ["http://", "https://"];
            if !scheme.iter().any(|scheme| url.starts_with(scheme))
                || url.contains(|c: char| c.is_whitespace() || c.is_control())
            {
                Some(
                    "the `url` of the server is not an http:// or https:// URL after variable expansion",
                )
            } else if headers.values().any(|value| value.contains(char::is_control)) {
                Some("a header of the server contains a line break after variable expansion")
            } else {
                invalid_oauth_reason(oauth)
            }
        }
    }
}

/// Returns the reason why OAuth settings are invalid after expansion. `None` means that they are
/// valid.
fn invalid_oauth_reason(oauth: &OAuthConfig) -> Option<&'static str> {
    let document = oauth.client_metadata_url.as_deref();
    if expandable_oauth_texts(oauth).any(|text| text.contains(char::is_control)) {
        Some("a value of the server's `oauth` contains a line break after variable expansion")
    } else if document.is_some_and(|document| !document.starts_with("https://")) {
        Some("the server's `oauth.clientMetadataUrl` is not an https:// URL")
    } else {
        None
    }
}
