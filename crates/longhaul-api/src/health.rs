//! Responses of the health endpoints.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The process answers.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Live {
    /// `ok`.
    pub status: Cow<'static, str>,
}

/// Whether the server can work.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Ready {
    /// `ready`, or why not: `stopping`, `store`, `worker`.
    pub status: Cow<'static, str>,
    /// Whether a worker drives the runs.
    pub driven: bool,
}

/// Which server this is.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Version {
    /// `longhaul`.
    pub name: Cow<'static, str>,
    /// The build.
    pub version: String,
    /// The API's version.
    pub api: Cow<'static, str>,
}
