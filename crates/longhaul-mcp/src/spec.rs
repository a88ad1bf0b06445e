//! The configuration of an MCP server.
//!
//! Invariant: the `Debug` output shows no header value, no environment value and no argument.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use longhaul_core::raw::Hash;
use longhaul_core::time::Millis;
use reqwest::Url;

use crate::auth::context::LoginContext;

/// The configuration of an MCP server.
#[derive(Debug, Clone)]
pub struct ServerSpec {
    /// Name of the server in the project: ASCII letters, digits, `_`, `-` and `.`, at most 64
    /// characters.
    pub name: String,
    /// How the server is reached.
    pub transport: ServerTransport,
    /// Whether each run has its own instance of the server, because the server keeps state between
    /// calls.
    pub per_run: bool,
    /// Timeout of one tool call.
    pub timeout: Millis,
}

impl ServerSpec {
    /// Default timeout of one tool call.
    pub const TIMEOUT: Millis = Millis::from_secs(60);

    /// Returns how long a call may wait for the connection and the login before its request is
    /// sent. It is much shorter than the call timeout: if the call timeout passes, it is unknown
    /// whether the request was sent.
    pub(super) fn setup_timeout(&self) -> Duration {
        Duration::from(self.timeout) / 4
    }
}

/// Decides whether a server may be started, and which version of its program that starts.
pub trait StartCheck: Send + Sync + fmt::Debug {
    /// Returns the digest of the program files of this server as they are now.
    ///
    /// # Errors
    /// The server must not be started. The text is a complete sentence with a hint.
    fn check_start(&self, server: &str) -> Result<Hash, String>;

    /// Returns whether the server may be started now, and would run a version other than this one.
    /// Called before each use of a running server, so an unchanged program must be cheap to detect.
    fn has_other_version(&self, server: &str, running: Hash) -> bool;
}

/// How a server is reached.
#[derive(Clone)]
pub enum ServerTransport {
    /// The server is started as a child process and used over stdin and stdout.
    Stdio {
        /// Program that runs the server. It is searched in `PATH` if it contains no slash.
        command: String,
        /// Arguments of the program.
        args: Vec<String>,
        /// All environment variables of the program besides our `PATH`.
        env: BTreeMap<String, String>,
        /// Working directory of the program. `None` means the current directory.
        cwd: Option<PathBuf>,
    },
    /// The server is reached over streamable HTTP.
    Http {
        /// URL of the server. Private addresses are allowed, because the URL comes from the
        /// project's configuration.
        url: String,
        /// HTTP headers sent with every request.
        headers: BTreeMap<String, String>,
        /// How to log in at the server. `None` means no login is used.
        login: Option<LoginContext>,
    },
}

impl fmt::Debug for ServerTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdio { command, args, env, .. } => f
                .debug_struct("Stdio")
                .field("command", command)
                .field("args", &args.len())
                .field("env", &env.keys())
                .finish_non_exhaustive(),
            Self::Http { url, headers, .. } => f
                .debug_struct("Http")
                .field("url", &redacted_url(url))
                .field("headers", &headers.keys())
                .finish(),
        }
    }
}

impl ServerTransport {
    /// Returns how to log in at the server. `None` if the project sends an Authorization header of
    /// its own.
    pub(super) fn login_context(&self) -> Option<&LoginContext> {
        match self {
            Self::Stdio { .. } => None,
            Self::Http { headers, login, .. } => {
                let mut names = headers.keys();
                let has_key = names.any(|name| name.eq_ignore_ascii_case("authorization"));
                login.as_ref().filter(|_| !has_key)
            }
        }
    }

    /// Sends requests without the stored login from now on.
    pub(super) fn forget_login(&mut self) {
        if let Self::Http { login: Some(login), .. } = self {
            login.is_anonymous = true;
        }
    }

    /// Returns the configured values that must not appear in messages. Short values such as `1` and
    /// `true` are not treated as secrets.
    pub(super) fn secret_values(&self) -> Vec<String> {
        let (Self::Stdio { env: values, .. } | Self::Http { headers: values, .. }) = self;
        let mut secrets: Vec<String> = values.values().cloned().collect();
        secrets.extend(self.login_context().and_then(|login| login.oauth.client_secret.clone()));
        // The value of a header without its scheme, such as `Bearer`.
        secrets
            .extend(values.values().filter_map(|value| Some(value.rsplit_once(' ')?.1.to_owned())));
        secrets.retain(|value| value.len() >= SECRET_BYTES_MIN);
        secrets
    }
}

/// Minimum length of a configured value that is redacted. A shorter value is not treated as a
/// secret.
const SECRET_BYTES_MIN: usize = 6;

/// Returns a URL without user name, password, query and fragment, which may hold a secret.
pub(super) fn redacted_url(url: &str) -> String {
    let Ok(mut url) = url.parse::<Url>() else {
        return "(invalid URL)".to_owned();
    };
    url.set_query(None);
    url.set_fragment(None);
    // An error means that a URL of this kind has no user name or password.
    _ = url.set_username("").and_then(|()| url.set_password(None));
    url.to_string()
}

/// Returns the name under which Longhaul offers a server's tool: `mcp:SERVER/TOOL`.
pub(super) fn prefixed_tool_name(server: &str, tool: &str) -> String {
    format!("mcp:{server}/{tool}")
}

/// Returns the name of a tool at its server, without the prefix `mcp:SERVER/`.
pub(super) fn local_tool_name<'a>(server: &str, prefixed: &'a str) -> &'a str {
    prefixed.strip_prefix(&prefixed_tool_name(server, "")).unwrap_or(prefixed)
}

/// Returns whether a name is valid for a configured server.
pub(super) fn is_valid_server_name(name: &str) -> bool {
    is_valid_name(name, 64, b"_-.")
}

/// Returns whether the MCP protocol allows this tool name.
pub(super) fn is_valid_tool_name(name: &str) -> bool {
    is_valid_name(name, 128, b"_-./")
}

fn is_valid_name(name: &str, max_bytes: usize, allowed_signs: &[u8]) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || allowed_signs.contains(&byte);
    (1..=max_bytes).contains(&name.len()) && name.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_of_a_server_spec_hides_secrets() {
        let pairs = |pairs: &[(&str, &str)]| {
            let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            pairs.iter().map(owned).collect::<BTreeMap<_, _>>()
        };
        let http = ServerTransport::Http {
            url: "https://me:hunter2hunter@a.example/mcp?key=hunter2hunter#x".into(),
            headers: pairs(&[("Authorization", "Bearer hunter2hunter")]),
            login: None,
        };
        let stdio = ServerTransport::Stdio {
            command: "srv".into(),
            args: vec!["--key=hunter2hunter".into()],
            env: pairs(&[("KEY", "hunter2hunter")]),
            cwd: None,
        };
        for transport in [&http, &stdio] {
            let debug_text = format!("{transport:?}");
            assert!(!debug_text.contains("hunter2hunter"), "{debug_text}");
            assert!(transport.secret_values().contains(&"hunter2hunter".to_owned()));
        }
        assert!(format!("{http:?}").contains("https://a.example/mcp"));
    }

    #[test]
    fn ambiguous_server_and_tool_names_are_invalid() {
        for (name, server, tool) in [
            ("github", true, true),
            ("a.b-c_D9", true, true),
            ("a/b", false, true),
            ("", false, false),
            ("a b", false, false),
            ("a\nb", false, false),
            ("a:b", false, false),
            ("é", false, false),
        ] {
            assert_eq!(is_valid_server_name(name), server, "{name:?}");
            assert_eq!(is_valid_tool_name(name), tool, "{name:?}");
        }
        assert!(!is_valid_tool_name(&"a".repeat(129)));
    }
}
