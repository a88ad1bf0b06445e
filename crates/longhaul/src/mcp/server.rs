//! One server as `.mcp.json` names it, and how it is said to people.
//!
//! Never: what a variable or a header holds, or what stands behind the `?` of
//! an address.

use std::collections::BTreeMap;
use std::fmt;

use longhaul_core::oauth::OAuthConfig;
use longhaul_core::time::Millis;

use crate::mcp::expand::variables;
use crate::spanned::Position;

/// So long a server may take for one answer where nothing is said.
pub const DEFAULT_TIMEOUT: Millis = Millis::from_secs(60);

/// A server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// Its name.
    pub name: String,
    /// Where it stands in the file.
    pub position: Position,
    /// How it is reached; none: its problems say why that is not known.
    pub transport: Option<Transport>,
    /// Each run has one of its own.
    pub per_run: bool,
    /// So long it may take for one answer.
    pub timeout: Millis,
    /// It is written down, and not to be used.
    pub disabled: bool,
    /// Why it can't be used.
    pub problems: Vec<Remark>,
}

/// Something about the file that a person should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// Where; none: it is about the whole file.
    pub position: Option<Position>,
    /// What, and what would be right.
    pub message: String,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = crate::mcp::name::FILE_NAME;
        match self.position {
            Some(place) => write!(f, "{file}:{place}: {}", self.message),
            None => write!(f, "{file}: {}", self.message),
        }
    }
}

/// How a server is reached, as it is written: variables stand by their names.
#[derive(Clone, PartialEq, Eq)]
pub enum Transport {
    /// A program that is started, and spoken with over its pipes.
    Stdio {
        /// The program.
        command: String,
        /// What stands behind it.
        args: Vec<String>,
        /// The variables that it is given.
        env: BTreeMap<String, String>,
        /// Where it is started; none: in the project's folder.
        cwd: Option<String>,
    },
    /// An address.
    Http {
        /// Which.
        url: String,
        /// Further headers of every request.
        headers: BTreeMap<String, String>,
        /// How one logs in there.
        oauth: OAuthConfig,
    },
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe())
    }
}

impl Transport {
    /// The name of its transport.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Stdio { .. } => "stdio",
            Self::Http { .. } => "http",
        }
    }

    /// In one line: the command with its arguments, or the address.
    pub fn describe(&self) -> String {
        match self {
            Self::Stdio { command, args, .. } => format_argv(std::iter::once(command).chain(args)),
            Self::Http { url, .. } => redact_url(url),
        }
    }

    /// The names of the variables that it is given, or of its headers.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let named = match self {
            Self::Stdio { env, .. } => env,
            Self::Http { headers, .. } => headers,
        };
        named.keys().map(String::as_str)
    }

    /// The variables of the environment that are filled in, by name.
    pub fn variables(&self) -> Vec<&str> {
        let texts = self.texts().into_iter();
        let mut names: Vec<&str> = texts.flat_map(|text| variables(text)).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Every text in which variables may stand.
    pub(crate) fn texts(&self) -> Vec<&String> {
        match self {
            Self::Stdio { command, args, env, cwd } => {
                let words = [command].into_iter().chain(args).chain(cwd);
                words.chain(env.values()).collect()
            }
            Self::Http { url, headers, oauth } => {
                let words = [url].into_iter().chain(headers.values());
                words.chain(oauth_texts(oauth)).collect()
            }
        }
    }

    /// The same with something else in the place of each of these texts.
    pub(crate) fn try_map<E>(
        &self,
        fill: impl Fn(&String) -> Result<String, E>,
    ) -> Result<Self, E> {
        let word = |word: &Option<String>| word.as_ref().map(&fill).transpose();
        let list = |texts: &[String]| texts.iter().map(&fill).collect::<Result<Vec<_>, E>>();
        let map = |texts: &BTreeMap<String, String>| {
            let filled = texts.iter();
            let filled = filled.map(|(name, text)| Ok((name.clone(), fill(text)?)));
            filled.collect::<Result<BTreeMap<_, _>, E>>()
        };
        Ok(match self {
            Self::Stdio { command, args, env, cwd } => Self::Stdio {
                command: fill(command)?,
                args: list(args)?,
                env: map(env)?,
                cwd: word(cwd)?,
            },
            Self::Http { url, headers, oauth } => Self::Http {
                url: fill(url)?,
                headers: map(headers)?,
                oauth: OAuthConfig {
                    client_id: word(&oauth.client_id)?,
                    client_secret: word(&oauth.client_secret)?,
                    client_metadata_url: word(&oauth.client_metadata_url)?,
                    scopes: list(&oauth.scopes)?,
                    callback_port: oauth.callback_port,
                },
            },
        })
    }
}

/// The texts of a login in which variables may stand.
pub(crate) fn oauth_texts(oauth: &OAuthConfig) -> impl Iterator<Item = &String> {
    let words = [&oauth.client_id, &oauth.client_secret, &oauth.client_metadata_url];
    words.into_iter().flatten().chain(&oauth.scopes)
}

/// A command as it could be typed: what is not plain is quoted, so that two
/// arguments never read as one, nor one as two.
pub fn format_argv<'a>(words: impl IntoIterator<Item = &'a String>) -> String {
    let said = words.into_iter().map(|word| {
        let plain =
            |letter: char| letter.is_ascii_alphanumeric() || "@%+=:,./_-${}".contains(letter);
        match !word.is_empty() && word.chars().all(plain) {
            true => word.clone(),
            false => format!("{word:?}"),
        }
    });
    said.collect::<Vec<_>>().join(" ")
}

/// An address without who asks and without what stands behind the `?`.
pub fn redact_url(url: &str) -> String {
    let end = url.find(['?', '#']);
    let (shown, more) = match end {
        Some(end) => (&url[..end], "?..."),
        None => (url, ""),
    };
    let shown = match shown.split_once("://") {
        Some((scheme, rest)) => {
            // Whoever asks takes both for the end of the host.
            let end = rest.find(['/', '\\']).unwrap_or(rest.len());
            let (authority, path) = rest.split_at(end);
            let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
            format!("{scheme}://{host}{path}")
        }
        None => shown.to_owned(),
    };
    format!("{shown}{more}")
}

/// Who is asked at an address.
pub(crate) fn url_origin(url: &str) -> String {
    let bare = redact_url(url);
    match bare.split_once("://") {
        Some((scheme, rest)) => {
            let host = rest.split(['/', '\\', '?']).next().unwrap_or_default();
            format!("{scheme}://{host}")
        }
        None => bare,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transport_description_is_quoted_and_holds_no_secret() {
        let words =
            |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        for (words, said) in [
            (words(&["npx", "-y", "@scope/server"]), "npx -y @scope/server"),
            (words(&["sh", "-c", "a b"]), "sh -c \"a b\""),
            (words(&["x", "", "two\nlines", "\u{202e}"]), "x \"\" \"two\\nlines\" \"\\u{202e}\""),
            (words(&["x", "${TOKEN}"]), "x ${TOKEN}"),
        ] {
            assert_eq!(format_argv(&words), said);
        }
        for (url, said) in [
            ("https://a.example/mcp", "https://a.example/mcp"),
            ("https://u:p@a.example/mcp?key=s3", "https://a.example/mcp?..."),
            ("https://a.example?key=@s3", "https://a.example?..."),
            ("${BASE}/mcp", "${BASE}/mcp"),
            ("https://evil.example\\@a.example/", "https://evil.example\\@a.example/"),
        ] {
            assert_eq!(redact_url(url), said);
        }
        for (url, said) in [
            ("https://u:p@a.example:8/mcp/s3?key=s3", "https://a.example:8"),
            ("https://a.example?key=s3", "https://a.example"),
            ("https://evil.example\\@a.example/", "https://evil.example"),
            ("${BASE}/mcp", "${BASE}/mcp"),
        ] {
            assert_eq!(url_origin(url), said);
        }
        let way = Transport::Http {
            url: "https://a.example/${PLACE}".to_owned(),
            headers: [("Authorization".to_owned(), "Bearer s3cret ${TOKEN}".to_owned())].into(),
            oauth: OAuthConfig {
                client_id: Some("${CLIENT}".to_owned()),
                client_secret: Some("s3cret".to_owned()),
                ..OAuthConfig::default()
            },
        };
        assert_eq!(way.variables(), ["CLIENT", "PLACE", "TOKEN"]);
        assert!(!format!("{way:?}").contains("s3cret"));
    }
}
