//! A key as answers show it.
//!
//! Never: the secret, nor its hash. The secret is shown once, when it is made.

use std::fmt;

use longhaul_core::access::Role;
use longhaul_core::port::auth::KeyRow;
use longhaul_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::schema;

/// A key, and whether it still opens anything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Key)]
pub struct KeyView {
    /// Its name.
    pub name: String,
    /// What it opens.
    #[schema(schema_with = schema::role)]
    pub role: Role,
    /// Whether it still counts.
    pub status: KeyState,
    /// Who made it.
    pub by: String,
    /// When it was made.
    #[schema(schema_with = schema::time)]
    pub created_at: Timestamp,
    /// When it ends by itself.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub revoked_at: Option<Timestamp>,
    /// When it was last used, to a few minutes.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_used_at: Option<Timestamp>,
}

/// Whether a key counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyState {
    /// It opens what its role says.
    Active,
    /// Its time is over.
    Expired,
    /// Somebody has ended it.
    Revoked,
}

impl KeyView {
    /// The key behind a row, at this time.
    pub fn new(row: &KeyRow, now: Timestamp) -> Self {
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

/// A key to be made.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewKey)]
pub struct KeyBody {
    /// What it is called, without control characters.
    #[schema(min_length = 1, max_length = 256)]
    pub name: String,
    /// What it opens.
    #[schema(schema_with = schema::role)]
    pub role: Role,
    /// It ends by itself after so many milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 3_155_760_000_000_u64)]
    pub expires_in_ms: Option<u64>,
}

/// A key that was made just now.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(as = CreatedKey)]
pub struct CreatedKey {
    /// What to send as `Authorization: Bearer`. It is shown this once.
    pub secret: String,
    /// The key.
    pub key: KeyView,
}

impl fmt::Debug for CreatedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreatedKey").field("key", &self.key).finish_non_exhaustive()
    }
}

/// A link that opens the pages in a browser, once.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(as = Ticket)]
pub struct TicketView {
    /// Open it in a browser within ten minutes; it works once.
    pub url: String,
}

impl fmt::Debug for TicketView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketView").finish_non_exhaustive()
    }
}
