//! What is wrong with a configuration, and where.
//!
//! Never: stops at the first. Every fault of every layer is told at once.

use std::path::PathBuf;

use crate::spanned::Position;

/// Where a fault is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrorLocation {
    /// In a file.
    File(PathBuf, Option<Position>),
    /// In this variable of the environment.
    Environment(String),
    /// In this flag.
    Flag(String),
    /// In what is built in.
    Default,
}

impl std::fmt::Display for ErrorLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path, Some(place)) => write!(f, "{}:{place}", path.display()),
            Self::File(path, None) => write!(f, "{}", path.display()),
            Self::Environment(name) | Self::Flag(name) => f.write_str(name),
            Self::Default => f.write_str("the defaults"),
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{location}: {message}")]
pub struct SettingError {
    /// Where.
    pub location: ErrorLocation,
    /// What, and what would be right.
    pub message: String,
}

/// A configuration that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct ConfigError {
    /// All that is wrong, at least one.
    pub errors: Vec<SettingError>,
}
