//! Values of settings, with their origins. Passwords in URLs are never shown.

use std::fmt;
use std::path::PathBuf;
use std::slice;

use serde_json::Value as Json;

/// Value of a setting.
#[derive(Debug, Clone, PartialEq)]
pub enum SettingValue {
    /// A text (also of a duration), a number, a boolean, a list of texts, or a value that only the
    /// code that uses the setting interprets.
    Json(Json),
    /// A text that may be a secret.
    Secret(SecretText),
}

/// Text that is shown instead of a secret.
const MASK: &str = "***";

/// A text that may be a secret. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(String);

impl SecretText {
    /// Wraps a text that may be a secret.
    pub fn new(secret_text: &str) -> Self {
        Self(secret_text.to_owned())
    }

    /// Returns the wrapped text, which may be a secret.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl SettingValue {
    /// Returns the value as JSON. `None` means that it is a secret.
    pub const fn as_json(&self) -> Option<&Json> {
        match self {
            Self::Json(json) => Some(json),
            Self::Secret(_) => None,
        }
    }

    /// Returns the value if it is a text that is not a secret.
    pub fn as_str(&self) -> Option<&str> {
        self.as_json()?.as_str()
    }

    /// Returns the value if it is a text that may be a secret.
    pub const fn as_secret(&self) -> Option<&SecretText> {
        match self {
            Self::Secret(text) => Some(text),
            Self::Json(_) => None,
        }
    }

    /// Returns the text, or the texts of a list. Values of other types give an empty list.
    pub fn to_text_list(&self) -> Vec<String> {
        let list =
            self.as_json().map(|json| json.as_array().map_or(slice::from_ref(json), |list| list));
        let texts = list.unwrap_or_default().iter().filter_map(Json::as_str);
        texts.map(str::to_owned).collect()
    }

    /// Returns the value as JSON for display, with passwords and secrets masked.
    pub fn redacted_json(&self) -> Json {
        match self {
            Self::Json(json) => redact_json(json),
            Self::Secret(_) => Json::from(MASK),
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

/// Masks the password in a URL, and values after `password=`.
pub(crate) fn redact_password(text: &str) -> String {
    let mut redacted = text.to_owned();
    if let Some((scheme, rest)) = text.split_once("://") {
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path_and_query) = rest.split_at(end);
        let masked_authority = authority.rsplit_once('@').map(|(user_info, host)| {
            let user = user_info.split_once(':').map(|(user, _)| format!("{user}:***"));
            format!("{}@{host}", user.as_deref().unwrap_or(user_info))
        });
        let masked_authority = masked_authority.as_deref().unwrap_or(authority);
        redacted = format!("{scheme}://{masked_authority}{path_and_query}");
    }
    match redacted.find("password=") {
        None => redacted,
        Some(at) => {
            let (up_to_password, from_password) = redacted.split_at(at + "password=".len());
            let password_end = from_password.find('&').unwrap_or(from_password.len());
            format!("{up_to_password}***{}", &from_password[password_end..])
        }
    }
}

/// Where the value of a setting comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingOrigin {
    /// The built-in default.
    Default,
    /// The user's configuration file: its path, and the line number of the setting.
    UserFile(PathBuf, usize),
    /// The project's configuration file: its path, and the line number of the setting.
    ProjectFile(PathBuf, usize),
    /// The environment variable with this name.
    Environment(String),
    /// The variable with this name in the project's `.env`.
    Dotenv(String),
    /// The command-line flag with this name.
    Flag(String),
    /// Several origins whose lists were merged.
    Merged(Box<[Self; 2]>),
}

impl SettingOrigin {
    /// Whether the value, or a part of it, comes from a file of the project.
    pub fn is_from_project_file(&self) -> bool {
        match self {
            Self::ProjectFile(..) | Self::Dotenv(_) => true,
            Self::Default | Self::UserFile(..) | Self::Environment(_) | Self::Flag(_) => false,
            Self::Merged(both) => both.iter().any(Self::is_from_project_file),
        }
    }
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::UserFile(path, line) => write!(f, "user file {}:{line}", path.display()),
            Self::ProjectFile(path, line) => write!(f, "project file {}:{line}", path.display()),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Dotenv(name) => write!(f, ".env {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
            Self::Merged(both) => write!(f, "{} and {}", both[0], both[1]),
        }
    }
}

/// Value of a setting, with its origin.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    pub value: SettingValue,
    /// Where the value comes from.
    pub origin: SettingOrigin,
}

impl Setting {
    /// Merges the lists of two settings, without duplicates.
    pub(crate) fn merge_text_lists(self, other: Self) -> Self {
        let mut merged = self.value.to_text_list();
        for text in other.value.to_text_list() {
            if !merged.contains(&text) {
                merged.push(text);
            }
        }
        let origin = match self.origin == SettingOrigin::Default {
            true => other.origin,
            false => SettingOrigin::Merged(Box::new([self.origin, other.origin])),
        };
        Self { value: SettingValue::Json(Json::from(merged)), origin }
    }
}
