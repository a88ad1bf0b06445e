//! Requests to the fake and its responses.

use bytes::Bytes;
use serde_json::{Value, json};

/// A request with its body.
#[derive(Debug)]
pub(super) struct FakeRequest {
    pub(super) method: String,
    pub(super) segments: Vec<String>,
    pub(super) query: Vec<(String, String)>,
    pub(super) body: Bytes,
}

impl FakeRequest {
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub(super) fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// A response of the fake.
#[derive(Debug)]
pub(super) struct FakeResponse {
    pub(super) status: u16,
    pub(super) body: Bytes,
    pub(super) retry_after_secs: Option<u64>,
}

impl FakeResponse {
    pub(super) fn json(status: u16, body: &Value) -> Self {
        Self::bytes(status, body.to_string())
    }

    pub(super) fn empty(status: u16) -> Self {
        Self::bytes(status, Bytes::new())
    }

    pub(super) fn bytes(status: u16, body: impl Into<Bytes>) -> Self {
        Self { status, body: body.into(), retry_after_secs: None }
    }

    /// Returns an error with the fields of the control plane and of the toolbox.
    pub(super) fn error(status: u16, message: &str) -> Self {
        let body = json!({
            "path": "/", "timestamp": "2026-01-01T00:00:00Z", "statusCode": status,
            "error": "Error", "message": message,
        });
        Self::json(status, &body)
    }
}
