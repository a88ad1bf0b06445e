//! Errors in the settings, each with its location. All errors of all files, variables and flags are
//! reported together.

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{location}: {message}")]
pub struct SettingError {
    /// Place of the invalid setting: a position in a file, a variable or a flag.
    pub location: String,
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
