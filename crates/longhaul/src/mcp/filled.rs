//! A server with its variables filled in, ready to be started.
//!
//! Never: shown. What was filled in may be a secret.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use longhaul_core::oauth::OAuth;

use crate::config::env::Env;
use crate::mcp::expand::{Unfilled, expand};
use crate::mcp::server::{Server, Way, oauth_texts};

/// So much all texts of one server may be together: no program can be handed more.
const BYTES_MAX: usize = 2 << 20;

/// How a server is started or reached.
#[derive(Clone, PartialEq, Eq)]
pub enum Filled {
    /// A program.
    Stdio {
        /// Which.
        command: String,
        /// What stands behind it.
        args: Vec<String>,
        /// The variables that it is given.
        env: BTreeMap<String, String>,
        /// Where it is started.
        cwd: PathBuf,
    },
    /// An address.
    Http {
        /// Which.
        url: String,
        /// Further headers of every request.
        headers: BTreeMap<String, String>,
        /// How one logs in there.
        oauth: OAuth,
    },
}

impl fmt::Debug for Filled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Filled(hidden)")
    }
}

impl Filled {
    /// The server with what its variables hold.
    ///
    /// # Errors
    /// What is missing or does not fit, without any value.
    pub fn of(server: &Server, env: &Env, root: &Path) -> Result<Self, String> {
        if let Some(problem) = server.problems.first() {
            return Err(problem.to_string());
        }
        let Some(way) = &server.way else {
            return Err("it is not said how it is reached".to_owned());
        };
        let filled = fill(way, env, root).map_err(|unfilled| unfilled.to_string())?;
        match filled.fault() {
            Some(fault) => Err(fault.to_owned()),
            None => Ok(filled),
        }
    }

    /// How long all its texts are.
    fn bytes(&self) -> usize {
        let (texts, named): (Vec<&String>, _) = match self {
            Self::Stdio {
                command, args, env, ..
            } => (args.iter().chain([command]).collect(), env),
            Self::Http {
                url,
                headers,
                oauth,
            } => (oauth_texts(oauth).chain([url]).collect(), headers),
        };
        let named = named.iter().map(|(name, value)| name.len() + value.len());
        let texts = texts.iter().map(|text| text.len());
        texts.chain(named).sum()
    }

    /// What no program, address or header can be.
    fn fault(&self) -> Option<&'static str> {
        if self.bytes() > BYTES_MAX {
            return Some("it is longer than 2 MiB once its variables are filled in");
        }
        match self {
            Self::Stdio {
                command, args, env, ..
            } => {
                let mut texts = args.iter().chain(env.values()).chain([command]);
                if command.trim().is_empty() {
                    Some("its `command` is empty once its variables are filled in")
                } else if texts.any(|text| text.contains('\0')) {
                    Some("its command or a variable of it holds a zero byte")
                } else {
                    None
                }
            }
            Self::Http {
                url,
                headers,
                oauth,
            } => {
                let scheme = ["http://", "https://"];
                if !scheme.iter().any(|scheme| url.starts_with(scheme))
                    || url.contains(|letter: char| letter.is_whitespace() || letter.is_control())
                {
                    Some(
                        "its `url` is no http:// or https:// address once its variables are filled in",
                    )
                } else if headers
                    .values()
                    .any(|value| value.contains(char::is_control))
                {
                    Some("a header of it holds a line break once its variables are filled in")
                } else {
                    oauth_fault(oauth)
                }
            }
        }
    }
}

fn fill(way: &Way, env: &Env, root: &Path) -> Result<Filled, Unfilled> {
    let map = |texts: &BTreeMap<String, String>| {
        let filled = texts.iter().map(|(name, text)| {
            let value = expand(text, env)?;
            Ok((name.clone(), value))
        });
        filled.collect::<Result<BTreeMap<_, _>, _>>()
    };
    Ok(match way {
        Way::Stdio {
            command,
            args,
            env: given,
            cwd,
        } => Filled::Stdio {
            command: expand(command, env)?,
            args: args
                .iter()
                .map(|arg| expand(arg, env))
                .collect::<Result<_, _>>()?,
            env: map(given)?,
            cwd: match cwd {
                Some(cwd) => root.join(expand(cwd, env)?),
                None => root.to_owned(),
            },
        },
        Way::Http {
            url,
            headers,
            oauth,
        } => Filled::Http {
            url: expand(url, env)?,
            headers: map(headers)?,
            oauth: fill_oauth(oauth, env)?,
        },
    })
}

fn fill_oauth(oauth: &OAuth, env: &Env) -> Result<OAuth, Unfilled> {
    let word = |word: &Option<String>| word.as_ref().map(|word| expand(word, env)).transpose();
    let scopes = oauth.scopes.iter().map(|scope| expand(scope, env));
    Ok(OAuth {
        client_id: word(&oauth.client_id)?,
        client_secret: word(&oauth.client_secret)?,
        client_metadata_url: word(&oauth.client_metadata_url)?,
        scopes: scopes.collect::<Result<_, _>>()?,
        callback_port: oauth.callback_port,
    })
}

/// What can't be so once its variables are filled in.
fn oauth_fault(oauth: &OAuth) -> Option<&'static str> {
    let document = oauth.client_metadata_url.as_deref();
    if oauth_texts(oauth).any(|text| text.contains(char::is_control)) {
        Some("a text of its `oauth` holds a line break once its variables are filled in")
    } else if document.is_some_and(|document| !document.starts_with("https://")) {
        Some("its `oauth.clientMetadataUrl` is no https:// address")
    } else {
        None
    }
}
