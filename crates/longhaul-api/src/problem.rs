//! Error responses in the format `application/problem+json`.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An error response with a code, a message and a hint.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Type of the problem as a URI. The URI does not have to be resolvable.
    #[serde(rename = "type", default)]
    #[schema(required = true)]
    pub kind: String,
    /// Standard text of the HTTP status code.
    #[serde(default)]
    #[schema(required = true)]
    pub title: String,
    /// HTTP status code of the response.
    #[serde(default)]
    #[schema(required = true)]
    pub status: u16,
    /// Description of the error for people.
    pub detail: String,
    /// Stable error code for programs.
    pub code: String,
    /// Hint: what the caller can do about the error.
    #[serde(default)]
    #[schema(required = true)]
    pub hint: String,
    /// Existing name that is similar to an unknown name in the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
    /// Id of the request, which the server log contains, too.
    #[serde(default)]
    #[schema(required = true)]
    pub request_id: String,
    /// Error behind the problem. `None` means that the problem comes from another process.
    #[serde(skip)]
    #[schema(ignore)]
    pub source: Option<Arc<dyn Error + Send + Sync>>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl Error for Problem {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|error| error as _)
    }
}

impl Problem {
    /// Creates a problem that the client itself detected, with only a code and a description.
    pub fn new(error_code: &str, detail: impl Into<String>) -> Self {
        Self { code: error_code.to_owned(), detail: detail.into(), ..Self::default() }
    }
}
