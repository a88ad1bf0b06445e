//! Responses of the health and version endpoints.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Response of the liveness probe: the server process is running.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Live)]
pub struct LivenessResponse {
    /// Status of the server: always `ok`.
    pub status: Cow<'static, str>,
}

/// Response of the readiness probe: whether the server can accept and drive runs.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Ready)]
pub struct ReadinessResponse {
    /// Status of the server: `ready`, or the reason for not being ready: `stopping`, `store` or
    /// `worker`.
    pub status: Cow<'static, str>,
    /// Whether a worker drives the runs of the server.
    pub driven: bool,
}

/// Response of the version endpoint.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Version)]
pub struct VersionResponse {
    /// Name of the program: always `longhaul`.
    pub name: Cow<'static, str>,
    /// Version of the server's build.
    pub version: String,
    /// Version of the HTTP API, such as `v1`.
    pub api: Cow<'static, str>,
}
