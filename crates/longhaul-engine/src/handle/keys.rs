//! API keys: creating, listing, revoking and authenticating. Browser login: one-time tickets that
//! are exchanged for sessions.
//!
//! Invariants: the secret of a key is returned once, when the key is created, and never stored. A
//! ticket or session is never valid longer than the key for which it was issued.

use longhaul_core::access::{Principal, Role, principal_of_key};
use longhaul_core::id::ApiKeyName;
use longhaul_core::port::auth::{ApiKeyRef, ApiKeyRow, LoginTokenKind, NewApiKey, NewLoginToken};
use longhaul_core::raw::Hash;
use longhaul_core::time::Millis;
use longhaul_run::Rejection;

use crate::error::{Error, Result};
use crate::handle::Longhaul;
use crate::secret::{KEY_PREFIX, Secret};
use longhaul_api::key::KeyView;

/// Lifetime of a one-time ticket for a browser login.
const TICKET_TTL: Millis = Millis::from_secs(10 * 60);

/// Lifetime of a browser session.
const SESSION_TTL: Millis = Millis::from_secs(12 * 60 * 60);

/// Request to create an API key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewKeyRequest {
    pub name: ApiKeyName,
    /// Role of the callers who use the key.
    pub role: Role,
    /// Lifetime of the key. `None` means that the key does not expire.
    pub ttl: Option<Millis>,
    /// Name of the person or program that creates the key.
    pub by: String,
}

/// A newly created API key with its secret.
#[derive(Debug, Clone)]
pub struct IssuedApiKey {
    /// Secret that callers send to authenticate. It is not stored.
    pub secret: Secret,
    /// The key without its secret, as it is stored.
    pub key: KeyView,
}

/// An authenticated caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallerIdentity {
    /// Name and role of the caller.
    pub principal: Principal,
    /// Key with which the caller authenticated, directly or through a token issued for that key.
    pub key: ApiKeyRef,
}

impl CallerIdentity {
    /// Returns the identity of the holder of a stored key.
    pub(super) fn from_api_key(row: &ApiKeyRow) -> Self {
        Self {
            principal: Principal { name: principal_of_key(&row.name), role: row.role },
            key: ApiKeyRef::Key(row.hash),
        }
    }

    /// Returns the identity of a caller who can read the machine's own key file.
    pub fn local_key_holder() -> Self {
        Self {
            principal: Principal { name: "local".to_owned(), role: Role::Admin },
            key: ApiKeyRef::Local,
        }
    }
}

impl Longhaul {
    /// Generates a random secret that starts with `prefix`.
    pub fn generate_secret(&self, prefix: &str) -> Result<Secret> {
        let random_bytes = self.services.ids.random_bytes().ok_or(Error::EntropyUnavailable)?;
        Ok(Secret::new(prefix, random_bytes))
    }

    /// Creates an API key and returns it with its secret.
    pub async fn create_key(&self, request: NewKeyRequest) -> Result<IssuedApiKey> {
        let name = request.name.to_string();
        // In a URL path these two names mean other directories, so the key could not be revoked.
        if [".", ".."].contains(&name.as_str()) {
            return Err(Rejection::InvalidTask(format!("`{name}` is not a valid key name")).into());
        }
        self.check_no_secret_in_name("the key's name", &name)?;
        let secret = self.generate_secret(KEY_PREFIX)?;
        let key = NewApiKey {
            name: request.name,
            role: request.role,
            hash: secret.hash(),
            ttl: request.ttl,
            by: self.redact(request.by),
            request: self.request.clone(),
        };
        if !self.services.auth.add_api_key(key).await? {
            return Err(Error::KeyNameTaken(name));
        }
        let row = self.services.auth.find_api_key(secret.hash()).await?;
        let row = row.ok_or(Error::KeyNotFound(name))?;
        let key = KeyView::new(&row, self.store_time().await?);
        Ok(IssuedApiKey { secret, key })
    }

    /// Lists all API keys, oldest first.
    pub async fn list_api_keys(&self) -> Result<Vec<KeyView>> {
        let now = self.store_time().await?;
        let rows = self.services.auth.list_api_keys().await?;
        Ok(rows.iter().map(|row| KeyView::new(row, now)).collect())
    }

    /// Revokes an API key with everything that it gave: all tokens issued for it, its links to gates
    /// and its remembered approvals. Its votes no longer count at gates that are still open.
    pub async fn revoke_api_key(&self, name: &ApiKeyName) -> Result<KeyView> {
        let row = self.services.auth.revoke_api_key(name).await?;
        // Also of a key that is revoked already: an earlier attempt may have been cut off here.
        self.revoke_rules_of_principal(&principal_of_key(name)).await?;
        let row = row.ok_or_else(|| Error::KeyNotFound(name.to_string()))?;
        Ok(KeyView::new(&row, self.store_time().await?))
    }

    /// Returns the identity of the caller who presents this key. `None` if the key is unknown,
    /// expired or revoked.
    pub async fn authenticate_api_key(&self, secret: &Secret) -> Result<Option<CallerIdentity>> {
        let Some(row) = self.services.auth.find_api_key(secret.hash()).await? else {
            return Ok(None);
        };
        if !row.is_valid_at(self.store_time().await?) {
            return Ok(None);
        }
        self.services.auth.record_api_key_use(row.hash).await?;
        Ok(Some(CallerIdentity::from_api_key(&row)))
    }

    /// Creates a login ticket for the holder of a key. `local_key_hash` is the hash of the
    /// machine's own key.
    pub async fn create_login_ticket(
        &self,
        holder: ApiKeyRef,
        local_key_hash: Hash,
    ) -> Result<Secret> {
        let secret = self.generate_secret("")?;
        let hash = token_hash(&secret, &holder, local_key_hash);
        let ticket =
            NewLoginToken { kind: LoginTokenKind::Ticket, hash, api_key: holder, ttl: TICKET_TTL };
        self.services.auth.add_login_token(ticket).await?;
        Ok(secret)
    }

    /// Exchanges a login ticket for a session. `None` if the ticket is unknown, expired or already
    /// used.
    pub async fn exchange_ticket_for_session(
        &self,
        ticket: &Secret,
        local_key_hash: Hash,
    ) -> Result<Option<Secret>> {
        let auth = &self.services.auth;
        let token = auth.consume_login_token(LoginTokenKind::Ticket, ticket.hash()).await?;
        let token = match token {
            Some(row) => Some(row),
            None => {
                let hash = token_hash(ticket, &ApiKeyRef::Local, local_key_hash);
                auth.consume_login_token(LoginTokenKind::Ticket, hash).await?
            }
        };
        let Some(row) = token else { return Ok(None) };
        let secret = self.generate_secret("")?;
        let session = NewLoginToken {
            kind: LoginTokenKind::Session,
            hash: token_hash(&secret, &row.api_key, local_key_hash),
            api_key: row.api_key,
            ttl: SESSION_TTL,
        };
        auth.add_login_token(session).await?;
        Ok(Some(secret))
    }

    /// Returns the identity of the caller who presents this session token. `None` if the session is
    /// invalid or expired.
    pub async fn authenticate_session(
        &self,
        session: &Secret,
        local_key_hash: Hash,
    ) -> Result<Option<CallerIdentity>> {
        let auth = &self.services.auth;
        let token = auth.find_login_token(LoginTokenKind::Session, session.hash()).await?;
        if let Some(ApiKeyRef::Key(hash)) = token.map(|row| row.api_key) {
            let key = auth.find_api_key(hash).await?;
            let now = self.store_time().await?;
            let key = key.filter(|key| key.is_valid_at(now));
            return Ok(key.map(|key| CallerIdentity::from_api_key(&key)));
        }
        let hash = token_hash(session, &ApiKeyRef::Local, local_key_hash);
        let token = auth.find_login_token(LoginTokenKind::Session, hash).await?;
        Ok(token.map(|_| CallerIdentity::local_key_holder()))
    }
}

/// Returns the hash under which a ticket or session token is stored. For a holder of the machine's
/// own key, which is not in the store, the hash includes the key: with another key the token is
/// invalid.
fn token_hash(secret: &Secret, holder: &ApiKeyRef, local_key_hash: Hash) -> Hash {
    match holder {
        ApiKeyRef::Key(_) => secret.hash(),
        ApiKeyRef::Local => {
            Hash::digest(format!("{} of {local_key_hash}", secret.reveal()).as_bytes())
        }
    }
}
