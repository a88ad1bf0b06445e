//! A refusal or a failure, as `application/problem+json` writes it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A problem: what is wrong, why, and what helps.
#[derive(
    Debug, Clone, Default, PartialEq, Eq, thiserror::Error, Serialize, Deserialize, ToSchema,
)]
#[error("{detail}")]
pub struct Problem {
    /// Which problem, as a URI that need not lead anywhere.
    #[serde(rename = "type", default)]
    #[schema(required = true)]
    pub kind: String,
    /// The status in words.
    #[serde(default)]
    #[schema(required = true)]
    pub title: String,
    /// The status.
    #[serde(default)]
    #[schema(required = true)]
    pub status: u16,
    /// What is wrong with this request.
    pub detail: String,
    /// A word for programs.
    pub code: String,
    /// What helps.
    #[serde(default)]
    #[schema(required = true)]
    pub hint: String,
    /// A name that may have been meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
    /// What to name when you ask somebody about it.
    #[serde(default)]
    #[schema(required = true)]
    pub request_id: String,
}

impl Problem {
    /// A problem that no server wrote: only its code and what is wrong.
    pub fn new(code: &str, detail: impl Into<String>) -> Self {
        Self { code: code.to_owned(), detail: detail.into(), ..Self::default() }
    }
}
