//! Browser login: one-time tickets that are exchanged for sessions.
//!
//! Invariant: a ticket or session is never valid longer than the API key for which it was issued.

use longhaul_core::port::auth::{ApiKeyRef, LoginTokenKind, NewLoginToken};
use longhaul_core::raw::Hash;
use longhaul_core::time::Millis;

use crate::error::Error;
use crate::handle::Longhaul;
use crate::handle::keys::CallerIdentity;
use crate::secret::Secret;

/// Lifetime of a one-time ticket for a browser login.
const TICKET_TTL: Millis = Millis::from_secs(10 * 60);

/// Lifetime of a browser session.
const SESSION_TTL: Millis = Millis::from_secs(12 * 60 * 60);

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

impl Longhaul {
    /// Creates a login ticket for the holder of a key. `local_key_hash` is the hash of the
    /// machine's own key.
    pub async fn create_login_ticket(
        &self,
        holder: ApiKeyRef,
        local_key_hash: Hash,
    ) -> Result<Secret, Error> {
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
    ) -> Result<Option<Secret>, Error> {
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
    ) -> Result<Option<CallerIdentity>, Error> {
        let auth = &self.services.auth;
        let token = auth.find_login_token(LoginTokenKind::Session, session.hash()).await?;
        if let Some(ApiKeyRef::Key(hash)) = token.map(|row| row.api_key) {
            let key = auth.find_api_key(hash).await?;
            let now = self.current_store_time().await?;
            let key = key.filter(|key| key.is_valid_at(now));
            return Ok(key.map(|key| CallerIdentity::from_api_key(&key)));
        }
        let hash = token_hash(session, &ApiKeyRef::Local, local_key_hash);
        let token = auth.find_login_token(LoginTokenKind::Session, hash).await?;
        Ok(token.map(|_| CallerIdentity::local_key_holder()))
    }
}
