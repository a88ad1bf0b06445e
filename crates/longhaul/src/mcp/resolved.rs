//! A server with its variables filled in, ready to be started.
//!
//! Never: shown. What was filled in may be a secret.

use std::fmt;
use std::path::{Path, PathBuf};

use longhaul_core::oauth::OAuthConfig;

use crate::config::env::Env;
use crate::mcp::expand::expand;
use crate::mcp::server::{ServerConfig, Transport, oauth_texts};

/// So much all texts of one server may be together: no program can be handed more.
const BYTES_MAX: usize = 2 << 20;

/// How a server is started or reached, with what its variables hold.
#[derive(Clone, PartialEq, Eq)]
pub struct ResolvedServer {
    /// How.
    pub transport: Transport,
    /// Where a program is started.
    pub cwd: PathBuf,
}

impl fmt::Debug for ResolvedServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResolvedServer(hidden)")
    }
}

impl ResolvedServer {
    /// The server with what its variables hold.
    ///
    /// # Errors
    /// What is missing or does not fit, without any value.
    pub fn resolve(server: &ServerConfig, env: &Env, root: &Path) -> Result<Self, String> {
        if let Some(problem) = server.problems.first() {
            return Err(problem.to_string());
        }
        let Some(way) = &server.transport else {
            return Err("it is not said how it is reached".to_owned());
        };
        let way = way.try_map(|text| expand(text, env));
        let way = way.map_err(|unfilled| unfilled.to_string())?;
        if let Some(fault) = invalid_reason(&way) {
            return Err(fault.to_owned());
        }
        let cwd = match &way {
            Transport::Stdio { cwd: Some(cwd), .. } => root.join(cwd),
            Transport::Stdio { cwd: None, .. } | Transport::Http { .. } => root.to_owned(),
        };
        Ok(Self { transport: way, cwd })
    }
}

/// What no program, address or header can be.
fn invalid_reason(filled: &Transport) -> Option<&'static str> {
    let texts = filled.texts();
    let bytes = texts.iter().map(|text| text.len());
    let bytes: usize = bytes.chain(filled.names().map(str::len)).sum();
    if bytes > BYTES_MAX {
        return Some("it is longer than 2 MiB once its variables are filled in");
    }
    match filled {
        Transport::Stdio { command, .. } if command.trim().is_empty() => {
            Some("its `command` is empty once its variables are filled in")
        }
        Transport::Stdio { .. } if texts.iter().any(|text| text.contains('\0')) => {
            Some("its command or a variable of it holds a zero byte")
        }
        Transport::Stdio { .. } => None,
        Transport::Http { url, headers, oauth } => {
            let scheme = ["http://", "https://"];
            if !scheme.iter().any(|scheme| url.starts_with(scheme))
                || url.contains(|letter: char| letter.is_whitespace() || letter.is_control())
            {
                Some("its `url` is no http:// or https:// address once its variables are filled in")
            } else if headers.values().any(|value| value.contains(char::is_control)) {
                Some("a header of it holds a line break once its variables are filled in")
            } else {
                invalid_oauth_reason(oauth)
            }
        }
    }
}

/// What can't be so once its variables are filled in.
fn invalid_oauth_reason(oauth: &OAuthConfig) -> Option<&'static str> {
    let document = oauth.client_metadata_url.as_deref();
    if oauth_texts(oauth).any(|text| text.contains(char::is_control)) {
        Some("a text of its `oauth` holds a line break once its variables are filled in")
    } else if document.is_some_and(|document| !document.starts_with("https://")) {
        Some("its `oauth.clientMetadataUrl` is no https:// address")
    } else {
        None
    }
}
