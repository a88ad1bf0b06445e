//! A value as it was set, and who set it.
//!
//! Never: shows a password. An address with one is shown without it.

use std::fmt;
use std::path::PathBuf;

use longhaul_core::time::Millis;
use serde_json::Value as Json;

use crate::span;

/// A value that a key may have.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Text.
    Text(String),
    /// A whole number.
    Whole(u64),
    /// A number.
    Real(f64),
    /// Yes or no.
    Flag(bool),
    /// A span of time.
    Span(Millis),
    /// Texts.
    Texts(Vec<String>),
    /// Text that may be a secret.
    Hidden(Hidden),
    /// What only its reader understands.
    Any(Json),
}

/// What stands where a secret stood.
const MASK: &str = "***";

/// A text that nobody is shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Hidden(String);

impl Hidden {
    /// This text, hidden from here on.
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The text, for the one who needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl Value {
    /// The texts in it, one or several.
    pub fn words(&self) -> Vec<String> {
        match self {
            Self::Text(text) => vec![text.clone()],
            Self::Texts(texts) => texts.clone(),
            Self::Whole(_) | Self::Real(_) | Self::Flag(_) => Vec::new(),
            Self::Span(_) | Self::Hidden(_) | Self::Any(_) => Vec::new(),
        }
    }

    /// The value as JSON, for people: without passwords.
    pub fn shown(&self) -> Json {
        match self {
            Self::Text(text) => Json::from(without_password(text)),
            Self::Whole(whole) => Json::from(*whole),
            Self::Real(real) => Json::from(*real),
            Self::Flag(flag) => Json::from(*flag),
            Self::Span(span) => Json::from(span::write(*span)),
            Self::Texts(texts) => texts.iter().map(|text| without_password(text)).collect(),
            Self::Hidden(_) => Json::from(MASK),
            Self::Any(json) => hidden(json),
        }
    }
}

fn hidden(json: &Json) -> Json {
    match json {
        Json::String(text) => Json::from(without_password(text)),
        Json::Array(list) => list.iter().map(hidden).collect(),
        Json::Object(map) => {
            let pairs = map.iter().map(|(key, value)| (key.clone(), hidden(value)));
            Json::Object(pairs.collect())
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => json.clone(),
    }
}

/// An address with what stands between `user:` and `@host` taken out; the
/// values of keys like `password=` too.
pub(crate) fn without_password(text: &str) -> String {
    let mut shown = text.to_owned();
    if let Some((scheme, rest)) = text.split_once("://") {
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at(end);
        let masked = authority.rsplit_once('@').map(|(who, host)| {
            let user = who.split_once(':').map(|(user, _)| format!("{user}:***"));
            format!("{}@{host}", user.as_deref().unwrap_or(who))
        });
        let masked = masked.as_deref().unwrap_or(authority);
        shown = format!("{scheme}://{masked}{tail}");
    }
    match shown.find("password=") {
        None => shown,
        Some(at) => {
            let (before, after) = shown.split_at(at + "password=".len());
            let end = after.find('&').unwrap_or(after.len());
            format!("{before}***{}", &after[end..])
        }
    }
}

/// Who said so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody: it is built in.
    Default,
    /// The user's own file, at this line.
    UserFile(PathBuf, usize),
    /// The project's file, at this line.
    ProjectFile(PathBuf, usize),
    /// This variable of the environment.
    Environment(String),
    /// This variable of the project's `.env`.
    EnvFile(String),
    /// This flag.
    Flag(String),
    /// Several, each a part of it.
    Together(Vec<Self>),
}

impl Origin {
    /// Whether a file of the project says so, or a part of it.
    pub fn is_project(&self) -> bool {
        match self {
            Self::ProjectFile(..) | Self::EnvFile(_) => true,
            Self::Default | Self::UserFile(..) | Self::Environment(_) | Self::Flag(_) => false,
            Self::Together(all) => all.iter().any(Self::is_project),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::UserFile(path, line) => write!(f, "user file {}:{line}", path.display()),
            Self::ProjectFile(path, line) => write!(f, "project file {}:{line}", path.display()),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::EnvFile(name) => write!(f, ".env {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
            Self::Together(all) => {
                let all: Vec<String> = all.iter().map(ToString::to_string).collect();
                f.write_str(&all.join(" and "))
            }
        }
    }
}

/// A value with its origin.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// What.
    pub value: Value,
    /// By whom.
    pub origin: Origin,
}

impl Setting {
    /// A list with what another adds to it.
    pub(crate) fn and(self, more: Self) -> Self {
        let mut words = self.value.words();
        for word in more.value.words() {
            if !words.contains(&word) {
                words.push(word);
            }
        }
        let origin = match self.origin {
            Origin::Default => more.origin,
            Origin::Together(mut all) => {
                all.push(more.origin);
                Origin::Together(all)
            }
            one @ (Origin::UserFile(..)
            | Origin::ProjectFile(..)
            | Origin::Environment(_)
            | Origin::EnvFile(_)
            | Origin::Flag(_)) => Origin::Together(vec![one, more.origin]),
        };
        Self {
            value: Value::Texts(words),
            origin,
        }
    }
}
