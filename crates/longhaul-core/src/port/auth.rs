//! What guards the doors: keys, passes that a key gave out, links to single
//! gates, and answers kept for requests that are sent twice.
//!
//! Never: a secret in the clear. Everything is found by the hash of what a
//! caller shows, and nothing here can be turned back into it.

use async_trait::async_trait;

use crate::access::Role;
use crate::id::{GateId, KeyName};
use crate::port::store::StoreError;
use crate::raw::Hash;
use crate::request::RequestEffect;
use crate::time::{Millis, Timestamp};

pub use crate::request::IdempotencyKey;

/// Keys, passes, links and kept answers.
#[async_trait]
pub trait AuthStore: Send + Sync + std::fmt::Debug {
    /// Takes a key in; false: a key that is not revoked has this name. A key that an
    /// earlier attempt at the same request has made is revoked first: its secret was
    /// never shown to anybody.
    async fn add_key(&self, key: NewKey) -> Result<bool, StoreError>;

    /// The key with this hash, whether it still counts or not.
    async fn key(&self, hash: Hash) -> Result<Option<KeyRow>, StoreError>;

    /// All keys, the oldest first.
    async fn keys(&self) -> Result<Vec<KeyRow>, StoreError>;

    /// Ends the key of this name, and every pass that it gave out, at once;
    /// none: there is no key of this name that is not revoked already. One that
    /// ended by itself is revoked too: only then its name is free again.
    async fn revoke_key(&self, name: &KeyName) -> Result<Option<KeyRow>, StoreError>;

    /// Notes that a key was used now.
    async fn touch_key(&self, hash: Hash) -> Result<(), StoreError>;

    /// Takes a pass in.
    async fn add_token(&self, pass: NewToken) -> Result<(), StoreError>;

    /// The pass of this kind with this hash, if its time is not over.
    async fn token(&self, kind: TokenKind, hash: Hash) -> Result<Option<TokenRow>, StoreError>;

    /// The same, and it is gone: of two who spend one pass only one gets it.
    async fn consume_token(
        &self,
        kind: TokenKind,
        hash: Hash,
    ) -> Result<Option<TokenRow>, StoreError>;

    /// Takes a link in. It is forgotten with its gate's run: if that is gone
    /// already, at once.
    async fn add_link(&self, link: LinkRow) -> Result<(), StoreError>;

    /// The link with this hash.
    async fn link(&self, hash: Hash) -> Result<Option<LinkRow>, StoreError>;

    /// Begins a request that must count once.
    async fn begin_request(&self, ask: IdempotencyRequest) -> Result<IdempotencyState, StoreError>;

    /// Keeps the answer of a request that was begun, if it has none yet.
    async fn complete_request(
        &self,
        of: IdempotencyKey,
        reply: StoredResponse,
    ) -> Result<(), StoreError>;

    /// Ends an attempt that gave no answer: the request may be sent again at once.
    /// What has its answer or its effect is not forgotten.
    async fn abort_request(&self, of: IdempotencyKey) -> Result<(), StoreError>;
}

/// A key to be taken in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewKey {
    /// Its name; one of them counts at a time.
    pub name: KeyName,
    /// What it opens.
    pub role: Role,
    /// The hash of the secret.
    pub hash: Hash,
    /// It ends by itself after this span; none: never.
    pub ttl: Option<Millis>,
    /// Who made it.
    pub by: String,
    /// The request that it is made for, if that has an idempotency key.
    pub request: Option<IdempotencyKey>,
}

/// A key as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRow {
    /// Its name.
    pub name: KeyName,
    /// What it opens.
    pub role: Role,
    /// The hash of the secret.
    pub hash: Hash,
    /// Who made it.
    pub by: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends by itself.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
    /// When it was last used, to a few minutes.
    pub last_used_at: Option<Timestamp>,
}

impl KeyRow {
    /// Whether it opens anything at this time.
    pub fn is_valid_at(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }
}

/// What a pass is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TokenKind {
    /// A browser's session.
    Session,
    /// A link that is traded once for a session.
    Ticket,
}

/// Whose key gave a pass out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyRef {
    /// The machine's own key, which stands in a file and not in the store.
    Local,
    /// The key with this hash. The pass ends with it.
    Key(Hash),
}

/// A pass to be taken in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    /// What it is for.
    pub kind: TokenKind,
    /// The hash of the secret.
    pub hash: Hash,
    /// Whose key gave it out.
    pub issuer: KeyRef,
    /// It ends after this span.
    pub ttl: Millis,
}

/// A pass as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRow {
    /// Whose key gave it out.
    pub issuer: KeyRef,
    /// Until when.
    pub expires_at: Timestamp,
}

/// A link to one gate, for one person, for what was shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkRow {
    /// The hash of the secret.
    pub hash: Hash,
    /// Which gate.
    pub gate: GateId,
    /// What stood frozen when it was made.
    pub digest: Option<Hash>,
    /// For whom.
    pub recipient: String,
    /// Who made it.
    pub by: String,
}

/// A request that must count once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyRequest {
    /// Its name.
    pub key: IdempotencyKey,
    /// The hash of the whole request.
    pub body_hash: Hash,
    /// How long its answer is kept.
    pub ttl: Millis,
    /// Whoever began it and has not answered after this span is taken for dead.
    pub lease: Millis,
}

/// An answer that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResponse {
    /// The status.
    pub status: u16,
    /// Where the thing that was made stands.
    pub location: Option<String>,
    /// What was said.
    pub body: Vec<u8>,
}

/// How a request stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdempotencyState {
    /// It is new, or whoever began it is dead: do it.
    Acquired,
    /// Somebody does it at this moment.
    InProgress,
    /// It was done, and this was the answer.
    Completed(StoredResponse),
    /// It took effect, but its answer was not kept: answer it from the effect.
    Applied(RequestEffect),
    /// Another request has this name.
    Conflict,
}
