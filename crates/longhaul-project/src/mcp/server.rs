//! One MCP server of `.mcp.json`, its description for people, and its settings with expanded
//! variables.
//!
//! Invariant: the description contains no values of variables or headers, and no query of a URL.
//! Settings with expanded variables are never shown, since values may be secrets.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use longhaul_core::oauth::OAuthConfig;
use longhaul_core::time::Millis;

use crate::config::env::Env;
use crate::mcp::expand::{expand_variables, referenced_variable_names};
use crate::spanned::Position;

/// Default timeout for a response of an MCP server.
pub const DEFAULT_TIMEOUT: Millis = Millis::from_secs(60);

/// Settings of one MCP server in `.mcp.json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpServerConfig {
    pub name: String,
    /// Position of the server's definition in the file.
    pub position: Position,
    /// How the server is reached. `None` means that the settings are invalid; `problems` has the
    /// reasons.
    pub transport: Option<Transport>,
    /// Whether each run gets its own instance of the server.
    pub per_run: bool,
    /// Timeout for a response of the server.
    pub timeout: Millis,
    /// Whether the file disables the server.
    pub disabled: bool,
    /// Reasons why the server can't be used.
    pub problems: Vec<McpFileRemark>,
}

/// A problem or a note about `.mcp.json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpFileRemark {
    /// Position in the file. `None` means that the remark is about the whole file.
    pub position: Option<Position>,
    /// Text of the remark, with a hint.
    pub message: String,
}

impl fmt::Display for McpFileRemark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = crate::mcp::name::FILE_NAME;
        match self.position {
            Some(position) => write!(f, "{file}:{position}: {}", self.message),
            None => write!(f, "{file}: {}", self.message),
        }
    }
}

/// How an MCP server is reached, as written in the file: variables are not expanded.
#[derive(Clone, PartialEq, Eq)]
pub enum Transport {
    /// A program that is started and accessed over stdin and stdout.
    Stdio {
        /// Program to start.
        command: String,
        /// Arguments of the program.
        args: Vec<String>,
        /// Environment variables of the program.
        env: BTreeMap<String, String>,
        /// Working directory of the program. `None` means the project's folder.
        cwd: Option<String>,
    },
    /// A server that is reached over HTTP.
    Http {
        url: String,
        /// HTTP headers that are added to every request.
        headers: BTreeMap<String, String>,
        /// OAuth login settings of the server.
        oauth: OAuthConfig,
    },
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe_transport())
    }
}

impl Transport {
    /// Returns the name of the transport: `stdio` or `http`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Stdio { .. } => "stdio",
            Self::Http { .. } => "http",
        }
    }

    /// Describes the transport in one line: the command with its arguments, or the URL without
    /// secrets.
    pub fn describe_transport(&self) -> String {
        match self {
            Self::Stdio { command, args, .. } => format_argv(std::iter::once(command).chain(args)),
            Self::Http { url, .. } => redact_url(url),
        }
    }

    /// Returns the names of the program's environment variables, or of the HTTP headers.
    pub fn env_or_header_names(&self) -> impl Iterator<Item = &str> {
        let values = match self {
            Self::Stdio { env, .. } => env,
            Self::Http { headers, .. } => headers,
        };
        values.keys().map(String::as_str)
    }

    /// Returns the names of the environment variables that the texts of the transport refer to.
    pub fn all_referenced_variables(&self) -> BTreeSet<String> {
        let mut transport = self.clone();
        let texts = transport.expandable_texts().into_iter();
        texts.flat_map(|text| referenced_variable_names(text).map(str::to_owned)).collect()
    }

    /// Returns all texts of the transport that may contain variables.
    fn expandable_texts(&mut self) -> Vec<&mut String> {
        match self {
            Self::Stdio { command, args, env, cwd } => {
                [command].into_iter().chain(args).chain(cwd).chain(env.values_mut()).collect()
            }
            Self::Http { url, headers, oauth } => {
                let OAuthConfig { client_id, client_secret, client_metadata_url, scopes, .. } =
                    oauth;
                let texts = [client_id, client_secret, client_metadata_url].into_iter().flatten();
                [url].into_iter().chain(headers.values_mut()).chain(texts).chain(scopes).collect()
            }
        }
    }
}

/// Formats a command as it could be typed in a shell. Arguments with special characters are quoted,
/// so that the boundaries of arguments are clear.
pub fn format_argv<'a>(args: impl IntoIterator<Item = &'a String>) -> String {
    let quoted = args.into_iter().map(|arg| {
        let is_plain_char = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./_-${}".contains(c);
        match !arg.is_empty() && arg.chars().all(is_plain_char) {
            true => arg.clone(),
            false => format!("{arg:?}"),
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Returns a URL without user name, password and query.
pub fn redact_url(url: &str) -> String {
    let end = url.find(['?', '#']);
    let (shown_url, omission_mark) = match end {
        Some(end) => (&url[..end], "?..."),
        None => (url, ""),
    };
    let shown_url = match shown_url.split_once("://") {
        Some((scheme, rest)) => {
            // HTTP clients treat both characters as the end of the host.
            let end = rest.find(['/', '\\']).unwrap_or(rest.len());
            let (authority, path) = rest.split_at(end);
            let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
            format!("{scheme}://{host}{path}")
        }
        None => shown_url.to_owned(),
    };
    format!("{shown_url}{omission_mark}")
}

/// Returns the scheme and the host of a URL, such as `https://example.com`.
pub(crate) fn url_origin(url: &str) -> String {
    let redacted_url = redact_url(url);
    match redacted_url.split_once("://") {
        Some((scheme, rest)) => {
            let host = rest.split(['/', '\\', '?']).next().unwrap_or_default();
            format!("{scheme}://{host}")
        }
        None => redacted_url,
    }
}

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
        let transport = server.transport.clone();
        let mut transport = transport.ok_or("the server has no transport")?;
        for text in transport.expandable_texts() {
            *text = expand_variables(text, env).map_err(|error| error.to_string())?;
        }
        if let Some(reason) = invalid_transport_reason(&mut transport) {
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
fn invalid_transport_reason(transport: &mut Transport) -> Option<&'static str> {
    let name_bytes: usize = transport.env_or_header_names().map(str::len).sum();
    let texts = transport.expandable_texts();
    if name_bytes + texts.iter().map(|text| text.len()).sum::<usize>() > BYTES_MAX {
        return Some("the settings of the server are longer than 2 MiB after variable expansion");
    }
    let has_zero_byte = texts.iter().any(|text| text.contains('\0'));
    match transport {
        Transport::Stdio { command, .. } if command.trim().is_empty() => {
            Some("the `command` of the server is empty after variable expansion")
        }
        Transport::Stdio { .. } if has_zero_byte => {
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
    let texts = [&oauth.client_id, &oauth.client_secret, &oauth.client_metadata_url];
    let mut texts = texts.into_iter().flatten().chain(&oauth.scopes);
    if texts.any(|text| text.contains(char::is_control)) {
        Some("a value of the server's `oauth` contains a line break after variable expansion")
    } else if document.is_some_and(|document| !document.starts_with("https://")) {
        Some("the server's `oauth.clientMetadataUrl` is not an https:// URL")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transport_description_is_quoted_and_holds_no_secret() {
        let args = |args: &[&str]| args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>();
        for (args, expected) in [
            (args(&["npx", "-y", "@scope/server"]), "npx -y @scope/server"),
            (args(&["sh", "-c", "a b"]), "sh -c \"a b\""),
            (args(&["x", "", "two\nlines", "\u{202e}"]), "x \"\" \"two\\nlines\" \"\\u{202e}\""),
            (args(&["x", "${TOKEN}"]), "x ${TOKEN}"),
        ] {
            assert_eq!(format_argv(&args), expected);
        }
        for (url, expected) in [
            ("https://a.example/mcp", "https://a.example/mcp"),
            ("https://u:p@a.example/mcp?key=s3", "https://a.example/mcp?..."),
            ("https://a.example?key=@s3", "https://a.example?..."),
            ("${BASE}/mcp", "${BASE}/mcp"),
            ("https://evil.example\\@a.example/", "https://evil.example\\@a.example/"),
        ] {
            assert_eq!(redact_url(url), expected);
        }
        for (url, expected) in [
            ("https://u:p@a.example:8/mcp/s3?key=s3", "https://a.example:8"),
            ("https://a.example?key=s3", "https://a.example"),
            ("https://evil.example\\@a.example/", "https://evil.example"),
            ("${BASE}/mcp", "${BASE}/mcp"),
        ] {
            assert_eq!(url_origin(url), expected);
        }
        let transport = Transport::Http {
            url: "https://a.example/${PLACE}".to_owned(),
            headers: [("Authorization".to_owned(), "Bearer s3cret ${TOKEN}".to_owned())].into(),
            oauth: OAuthConfig {
                client_id: Some("${CLIENT}".to_owned()),
                client_secret: Some("s3cret".to_owned()),
                ..OAuthConfig::default()
            },
        };
        let names = transport.all_referenced_variables();
        assert!(names.iter().eq(["CLIENT", "PLACE", "TOKEN"]), "{names:?}");
        assert!(!format!("{transport:?}").contains("s3cret"));
    }
}
