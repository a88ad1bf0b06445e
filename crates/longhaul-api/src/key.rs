//! API keys in requests and responses. The secret of a key is only in the response that creates it.

use std::fmt;

use longhaul_core::access::Role;
use longhaul_core::port::auth::ApiKeyRow;
use longhaul_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An API key with its status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Key)]
pub struct KeyView {
    /// Name of the key.
    pub name: String,
    /// Role that the key grants to callers.
    pub role: Role,
    /// Status of the key: active, expired or revoked.
    pub status: KeyState,
    /// Name of the person who created the key.
    pub by: String,
    /// Time at which the key was created.
    pub created_at: Timestamp,
    /// Time at which the key expires. `None` means that the key does not expire.
    pub expires_at: Option<Timestamp>,
    /// Time at which the key was revoked. `None` means that it was not revoked.
    pub revoked_at: Option<Timestamp>,
    /// Time at which the key was last used, accurate to a few minutes. `None` means never.
    pub last_used_at: Option<Timestamp>,
}

/// Status of an API key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyState {
    /// The key is valid and can be used.
    Active,
    /// The key has expired.
    Expired,
    /// The key was revoked.
    Revoked,
}

impl KeyView {
    /// Builds the view of an API key from its row in the store; `now` decides whether the key has
    /// expired.
    pub fn new(row: &ApiKeyRow, now: Timestamp) -> Self {
        let status = match (row.revoked_at, row.is_valid_at(now)) {
            (Some(_), _) => KeyState::Revoked,
            (None, true) => KeyState::Active,
            (None, false) => KeyState::Expired,
        };
        Self {
            name: row.name.to_string(),
            role: row.role,
            status,
            by: row.by.clone(),
            created_at: row.created_at,
            expires_at: row.expires_at,
            revoked_at: row.revoked_at,
            last_used_at: row.last_used_at,
        }
    }
}

/// Body of a request to create an API key.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewApiKey)]
pub struct NewKeyBody {
    /// Name of the key, without control characters.
    #[schema(min_length = 1, max_length = 256)]
    pub name: String,
    /// Role that the key grants to callers.
    pub role: Role,
    /// Lifetime of the key in milliseconds. `None` means that the key does not expire.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 3_155_760_000_000_u64)]
    pub expires_in_ms: Option<u64>,
}

/// Response to the creation of an API key.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(as = CreatedKey)]
pub struct CreatedKey {
    /// Secret of the key for `Authorization: Bearer`. It is shown only once.
    pub secret: String,
    /// The new key without its secret.
    pub key: KeyView,
}

impl fmt::Debug for CreatedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreatedKey").field("key", &self.key).finish_non_exhaustive()
    }
}

/// A one-time link that opens a browser session.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(as = Ticket)]
pub struct LoginTicketView {
    /// URL to open in a browser within ten minutes. It works once.
    pub url: String,
}

impl fmt::Debug for LoginTicketView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketView").finish_non_exhaustive()
    }
}
