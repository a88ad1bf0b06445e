//! How a server is reached, as a project says it.
//!
//! Never: shows a value of a header, of the environment, or of an argument.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use longhaul_core::time::Millis;
use reqwest::Url;

use crate::auth::config::LoginContext;

/// A server that a project names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSpec {
    /// How the project calls it: letters, digits, `_`, `-` and `.`, at most 64.
    pub name: String,
    /// How it is reached.
    pub transport: ServerTransport,
    /// Each run has one of its own: it remembers what it was told before.
    pub per_run: bool,
    /// How long one call may take.
    pub timeout: Millis,
}

impl ServerSpec {
    /// How long one call may take where nothing else is said.
    pub const TIMEOUT: Millis = Millis::from_secs(60);

    /// So long a call waits for what comes before its question. That is much less than
    /// its own time: when that is over, nobody knows whether it was asked.
    pub(super) fn setup_timeout(&self) -> Duration {
        Duration::from(self.timeout) / 4
    }
}

/// How a server is reached.
#[derive(Clone, PartialEq, Eq)]
pub enum ServerTransport {
    /// Started here, and spoken to over its input and output.
    Stdio {
        /// The program; looked for in `PATH` where it has no slash.
        command: String,
        /// What it is started with.
        args: Vec<String>,
        /// All that it sees of an environment, besides our `PATH`.
        env: BTreeMap<String, String>,
        /// Where it is started; none: where we are.
        cwd: Option<PathBuf>,
    },
    /// Asked over streamable HTTP.
    Http {
        /// Its address. Private ones are fine: it is the project's own word.
        url: String,
        /// Headers of every request.
        headers: BTreeMap<String, String>,
        /// How one logs in there; none: it is not meant to be.
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
    /// How one logs in there. Where the project sends a key of its own, nobody does.
    pub(super) fn login(&self) -> Option<&LoginContext> {
        match self {
            Self::Stdio { .. } => None,
            Self::Http { headers, login, .. } => {
                let mut names = headers.keys();
                let has_key = names.any(|name| name.eq_ignore_ascii_case("authorization"));
                login.as_ref().filter(|_| !has_key)
            }
        }
    }

    /// The same way for somebody who has not logged in.
    pub(super) fn as_anonymous(&self) -> Self {
        let mut way = self.clone();
        if let Self::Http { login, .. } = &mut way {
            *login = login.as_ref().map(LoginContext::as_anonymous);
        }
        way
    }

    /// What must not be seen in a message: values that somebody may have meant to
    /// keep. Short ones are words such as `1` and `true`, and stay.
    pub(super) fn secrets(&self) -> Vec<String> {
        let values = match self {
            Self::Stdio { env, .. } => env,
            Self::Http { headers, .. } => headers,
        };
        let bare = |value: &String| value.rsplit(' ').next().unwrap_or_default().to_owned();
        let mut all: Vec<String> = values.values().cloned().collect();
        all.extend(self.login().and_then(|login| login.oauth.client_secret.clone()));
        all.extend(values.values().map(bare));
        all.retain(|value| value.len() >= SECRET_BYTES_MIN);
        all.sort_by_key(|value| std::cmp::Reverse(value.len()));
        all.dedup();
        all
    }
}

/// A value shorter than this is not hidden.
const SECRET_BYTES_MIN: usize = 6;

/// An address without what may be a secret in it.
pub(super) fn redacted_url(url: &str) -> String {
    match url.parse::<Url>() {
        Ok(mut url) => {
            url.set_query(None);
            url.set_fragment(None);
            // An error says that there is no place for them, so there is none.
            _ = url.set_username("");
            _ = url.set_password(None);
            url.to_string()
        }
        Err(_) => "(no address)".to_owned(),
    }
}

/// Our name of a server's tool.
pub(super) fn tool_name(server: &str, tool: &str) -> String {
    format!("mcp:{server}/{tool}")
}

/// Whether a server may be called so.
pub(super) fn is_server_name(name: &str) -> bool {
    let fits = |letter: u8| letter.is_ascii_alphanumeric() || matches!(letter, b'_' | b'-' | b'.');
    !name.is_empty() && name.len() <= 64 && name.bytes().all(fits)
}

/// Whether a tool may be called so: what the protocol tells servers to keep to.
pub(super) fn is_tool_name(name: &str) -> bool {
    let fits =
        |letter: u8| letter.is_ascii_alphanumeric() || matches!(letter, b'_' | b'-' | b'.' | b'/');
    !name.is_empty() && name.len() <= 128 && name.bytes().all(fits)
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
        for way in [&http, &stdio] {
            let seen = format!("{way:?}");
            assert!(!seen.contains("hunter2hunter"), "{seen}");
            assert!(way.secrets().contains(&"hunter2hunter".to_owned()));
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
            assert_eq!(is_server_name(name), server, "{name:?}");
            assert_eq!(is_tool_name(name), tool, "{name:?}");
        }
        assert!(!is_tool_name(&"a".repeat(129)));
    }
}
