//! Errors in the settings, each with its location. All errors of all files, variables and flags are
//! reported together.

use std::path::PathBuf;

use crate::spanned::Position;

/// Place of a setting that has an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrorLocation {
    /// A configuration file, with the position in the file if known.
    File(PathBuf, Option<Position>),
    /// The environment variable with this name.
    Environment(String),
    /// The command-line flag with this name.
    Flag(String),
    /// A built-in default value.
    Default,
}

impl std::fmt::Display for ErrorLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path, Some(position)) => write!(f, "{}:{position}", path.display()),
            Self::File(path, None) => write!(f, "{}", path.display()),
            Self::Environment(name) | Self::Flag(name) => f.write_str(name),
            Self::Default => f.write_str("the defaults"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{location}: {message}")]
pub struct SettingError {
    /// Place of the invalid setting.
    pub location: ErrorLocation,
    /// Description of the error, with a hint how to fix it.
    pub message: String,
}

/// The configuration can't be used because some settings are invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct ConfigError {
    /// All errors in the settings, at least one.
    pub errors: Vec<SettingError>,
}
