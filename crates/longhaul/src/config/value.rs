//! A value as it was set, and who set it.
//!
//! Never: shows a password. An address with one is shown without it.

use std::fmt;
use std::path::PathBuf;

use longhaul_core::time::Millis;
use serde_json::Value as Json;

use crate::duration;

/// A value that a key may have.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Text.
    Text(String),
    /// A whole number.
    Integer(u64),
    /// A number.
    Float(f64),
    /// Yes or no.
    Boolean(bool),
    /// A span of time.
    Duration(Millis),
    /// Texts.
    TextList(Vec<String>),
    /// Text that may be a secret.
    Secret(SecretText),
    /// What only its reader understands.
    Any(Json),
}

/// What stands where a secret stood.
const MASK: &str = "***";

/// A text that nobody is shown.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(String);

impl SecretText {
    /// This text, hidden from here on.
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The text, for the one who needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl Value {
    /// The texts in it, one or several.
    pub fn texts(&self) -> Vec<String> {
        match self {
            Self::Text(text) => vec![text.clone()],
            Self::TextList(texts) => texts.clone(),
            Self::Integer(_) | Self::Float(_) | Self::Boolean(_) => Vec::new(),
            Self::Duration(_) | Self::Secret(_) | Self::Any(_) => Vec::new(),
        }
    }

    /// The value as JSON, for people: without passwords.
    pub fn redacted_json(&self) -> Json {
        match self {
            Self::Text(text) => Json::from(redact_password(text)),
            Self::Integer(whole) => Json::from(*whole),
            Self::Float(real) => Json::from(*real),
            Self::Boolean(flag) => Json::from(*flag),
            Self::Duration(span) => Json::from(duration::format(*span)),
            Self::TextList(texts) => texts.iter().map(|text| redact_password(text)).collect(),
            Self::Secret(_) => Json::from(MASK),
            Self::Any(json) => redact_json(json),
        }
    }
}

fn redact_json(json: &Json) -> Json {
    match json {
        Json::String(text) => Json::from(redact_password(text)),
        Json::Array(list) => list.iter().map(redact_json).collect(),
        Json::Object(map) => {
            let pairs = map.iter().map(|(key, value)| (key.clone(), redact_json(value)));
            Json::Object(pairs.collect())
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => json.clone(),
    }
}

/// An address with what stands between `user:` and `@host` taken out; the
/// values of keys like `password=` too.
pub(crate) fn redact_password(text: &str) -> String {
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
    Dotenv(String),
    /// This flag.
    Flag(String),
    /// Several, each a part of it.
    Merged(Vec<Self>),
}

impl Origin {
    /// Whether a file of the project says so, or a part of it.
    pub fn is_project(&self) -> bool {
        match self {
            Self::ProjectFile(..) | Self::Dotenv(_) => true,
            Self::Default | Self::UserFile(..) | Self::Environment(_) | Self::Flag(_) => false,
            Self::Merged(all) => all.iter().any(Self::is_project),
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
            Self::Dotenv(name) => write!(f, ".env {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
            Self::Merged(all) => {
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
    pub(crate) fn merge(self, more: Self) -> Self {
        let mut words = self.value.texts();
        for word in more.value.texts() {
            if !words.contains(&word) {
                words.push(word);
            }
        }
        let origin = match self.origin {
            Origin::Default => more.origin,
            Origin::Merged(mut all) => {
                all.push(more.origin);
                Origin::Merged(all)
            }
            one @ (Origin::UserFile(..)
            | Origin::ProjectFile(..)
            | Origin::Environment(_)
            | Origin::Dotenv(_)
            | Origin::Flag(_)) => Origin::Merged(vec![one, more.origin]),
        };
        Self { value: Value::TextList(words), origin }
    }
}
