//! The authentication port: API keys, session tokens and tickets issued for a key, links to
//! single gates, and stored responses of idempotent requests.
//!
//! Invariant: no secret is stored. Records are found by the hash of the secret that a caller
//! presents, and the hash can't be reversed.

use async_trait::async_trait;

use crate::access::Role;
use crate::id::{ApiKeyName, GateId};
use crate::port::store::StoreError;
use crate::raw::Hash;
use crate::request::IdempotentRequestEffect;
use crate::time::{Millis, Timestamp};

pub use crate::request::IdempotencyKey;

/// Store of API keys, tokens, gate links and responses of idempotent requests.
#[async_trait]
pub trait AuthStore: Send + Sync + std::fmt::Debug {
    /// Adds an API key. Returns `false` if an unrevoked key has the same name. A key that was
    /// created by an earlier attempt of the same request is revoked first, because its secret was
    /// never returned to anybody.
    async fn add_api_key(&self, key: NewApiKey) -> Result<bool, StoreError>;

    /// Returns the API key with this hash, even if it has expired or was revoked.
    async fn find_api_key(&self, hash: Hash) -> Result<Option<ApiKeyRow>, StoreError>;

    /// Lists all API keys, oldest first.
    async fn list_api_keys(&self) -> Result<Vec<ApiKeyRow>, StoreError>;

    /// Revokes the API key with this name, all tokens issued for it, the gate links that it created
    /// and the remembered approvals that it gave for an agent or the project. Returns `None` if no
    /// unrevoked key has this name. An expired key must be revoked too before its name can be used
    /// again.
    async fn revoke_api_key(&self, name: &ApiKeyName) -> Result<Option<ApiKeyRow>, StoreError>;

    /// Stores the current time as the time at which the API key with this hash was last used. May
    /// do nothing if the stored time is recent.
    async fn record_api_key_use(&self, hash: Hash) -> Result<(), StoreError>;

    /// Adds a token, i.e. a browser session or a one-time ticket.
    async fn add_login_token(&self, token: NewLoginToken) -> Result<(), StoreError>;

    /// Returns the token of this kind with this hash, unless it has expired.
    async fn find_login_token(
        &self,
        kind: LoginTokenKind,
        hash: Hash,
    ) -> Result<Option<LoginTokenRow>, StoreError>;

    /// Returns and deletes the token of this kind with this hash, unless it has expired. Of two
    /// concurrent callers only one gets the token.
    async fn consume_login_token(
        &self,
        kind: LoginTokenKind,
        hash: Hash,
    ) -> Result<Option<LoginTokenRow>, StoreError>;

    /// Adds a link to a gate. The link is deleted together with the run of its gate. If that run no
    /// longer exists, the link is not stored.
    async fn add_gate_link(&self, link: GateLinkRow) -> Result<(), StoreError>;

    /// Returns the link with this hash, which lets a person answer a gate. `None` if there is no
    /// such link.
    async fn find_gate_link(&self, hash: Hash) -> Result<Option<GateLinkRow>, StoreError>;

    /// Begins an attempt of an idempotent request and returns the state of the request.
    async fn begin_idempotent_request(
        &self,
        request: IdempotencyRequest,
    ) -> Result<IdempotentRequestState, StoreError>;

    /// Stores the response of an idempotent request in progress, unless the request already has a
    /// response.
    async fn complete_idempotent_request(
        &self,
        key: IdempotencyKey,
        response: StoredHttpResponse,
    ) -> Result<(), StoreError>;

    /// Ends an attempt that produced no response, so that the request may be retried at once. A
    /// stored response or effect of the request is kept.
    async fn abort_idempotent_request(&self, key: IdempotencyKey) -> Result<(), StoreError>;
}

/// An API key to be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewApiKey {
    /// Name of the key, unique among unrevoked keys.
    pub name: ApiKeyName,
    /// Role that the key grants.
    pub role: Role,
    /// Hash of the key's secret.
    pub hash: Hash,
    /// Lifetime of the key. `None` means that it never expires.
    pub ttl: Option<Millis>,
    /// Principal that creates the key.
    pub by: String,
    /// Idempotent request that creates the key. `None` if the request has no idempotency key.
    pub request: Option<IdempotencyKey>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKeyRow {
    pub name: ApiKeyName,
    /// Role that the key grants.
    pub role: Role,
    /// Hash of the key's secret.
    pub hash: Hash,
    /// Principal that created the key.
    pub by: String,
    pub created_at: Timestamp,
    /// Time at which the key expires. `None` means that the key never expires.
    pub expires_at: Option<Timestamp>,
    /// Time at which the key was revoked. `None` means that the key is not revoked.
    pub revoked_at: Option<Timestamp>,
    /// Time at which the key was last used, accurate to a few minutes. `None` if it was never used.
    pub last_used_at: Option<Timestamp>,
}

impl ApiKeyRow {
    /// Returns whether the key is neither revoked nor expired at this time.
    pub fn is_valid_at(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }
}

/// Kind of an authentication token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LoginTokenKind {
    /// Token of a browser session.
    Session,
    /// One-time ticket that is exchanged for a session.
    Ticket,
}

/// Reference to the API key that a token was issued for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApiKeyRef {
    /// Local API key of this machine, which is stored in a file instead of the database.
    Local,
    /// API key with this hash. The token becomes invalid when the key does.
    Key(Hash),
}

/// A token to be added, i.e. a browser session or a one-time ticket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewLoginToken {
    /// Kind of the token: session or ticket.
    pub kind: LoginTokenKind,
    /// Hash of the token's secret.
    pub hash: Hash,
    pub api_key: ApiKeyRef,
    /// Lifetime of the token, from when it is added.
    pub ttl: Millis,
}

/// Stored row of a token, i.e. a browser session or a one-time ticket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginTokenRow {
    pub api_key: ApiKeyRef,
    pub expires_at: Timestamp,
}

/// Stored row of a link that lets one person answer one gate. The link is only valid for the
/// content that the gate showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateLinkRow {
    /// Hash of the link's secret.
    pub hash: Hash,
    /// Gate that the link leads to.
    pub gate: GateId,
    /// Digest of the gate's content when the link was created. `None` if the gate has no digest.
    pub digest: Option<Hash>,
    /// Name of the person who receives the link.
    pub recipient: String,
    /// Principal that created the link.
    pub by: String,
}

/// An idempotent request, i.e. one that takes effect only once even if it is repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyRequest {
    /// Caller and idempotency key of the request.
    pub key: IdempotencyKey,
    /// Hash of the whole request. It distinguishes a repetition from another request with the same
    /// key.
    pub body_hash: Hash,
    /// How long the response of the request is kept.
    pub ttl: Millis,
    /// Time after which an attempt without a response counts as failed.
    pub lease: Millis,
}

/// Stored response of an idempotent request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredHttpResponse {
    /// HTTP status code of the response.
    pub status: u16,
    /// Value of the `Location` header: the URL of the created resource. `None` if there is no such
    /// header.
    pub location: Option<String>,
    pub body: Vec<u8>,
}

/// State of an idempotent request when another attempt begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdempotentRequestState {
    /// The request is new, or its last attempt failed without a response: execute the request.
    Acquired,
    /// Another attempt of the request is being executed.
    InProgress,
    Completed(StoredHttpResponse),
    /// The request took effect, but its response was not stored: rebuild the response from the
    /// effect.
    Applied(IdempotentRequestEffect),
    /// The idempotency key belongs to a different request.
    Conflict,
}
