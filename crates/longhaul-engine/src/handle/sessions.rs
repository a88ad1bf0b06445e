//! Passes: a ticket that is traded once for a session, and the session.
//!
//! Never: a pass that outlives the key that gave it out.

use longhaul_core::port::auth::{KeyRef, NewToken, TokenKind};
use longhaul_core::raw::Hash;
use longhaul_core::time::Millis;

use crate::error::Error;
use crate::handle::Longhaul;
use crate::handle::keys::Identity;
use crate::secret::Secret;

/// A ticket is good for so long.
const TICKET_TTL: Millis = Millis::from_secs(10 * 60);

/// A session ends after this.
const SESSION_TTL: Millis = Millis::from_secs(12 * 60 * 60);

/// The hash under which a pass is kept. One of the machine's own key is bound to
/// that key, which stands in no row: with another key it is none.
fn token_hash(secret: &Secret, holder: &KeyRef, own: Hash) -> Hash {
    match holder {
        KeyRef::Key(_) => secret.hash(),
        KeyRef::Local => Hash::digest(format!("{} of {own}", secret.reveal()).as_bytes()),
    }
}

impl Longhaul {
    /// A ticket of whoever holds a key; `own` is the hash of the machine's own.
    pub async fn create_ticket(&self, holder: KeyRef, own: Hash) -> Result<Secret, Error> {
        let secret = self.generate_secret("")?;
        let hash = token_hash(&secret, &holder, own);
        let ticket = NewToken { kind: TokenKind::Ticket, hash, issuer: holder, ttl: TICKET_TTL };
        self.services.auth.add_token(ticket).await?;
        Ok(secret)
    }

    /// Trades a ticket for a session; none: it was used, or is none.
    pub async fn exchange_ticket(
        &self,
        ticket: &Secret,
        own: Hash,
    ) -> Result<Option<Secret>, Error> {
        let keyring = &self.services.auth;
        let plain = keyring.consume_token(TokenKind::Ticket, ticket.hash()).await?;
        let spent = match plain {
            Some(row) => Some(row),
            None => {
                let hash = token_hash(ticket, &KeyRef::Local, own);
                keyring.consume_token(TokenKind::Ticket, hash).await?
            }
        };
        let Some(row) = spent else { return Ok(None) };
        let secret = self.generate_secret("")?;
        let session = NewToken {
            kind: TokenKind::Session,
            hash: token_hash(&secret, &row.issuer, own),
            issuer: row.issuer,
            ttl: SESSION_TTL,
        };
        keyring.add_token(session).await?;
        Ok(Some(secret))
    }

    /// Whose session this is, if it counts.
    pub async fn authenticate_session(
        &self,
        session: &Secret,
        own: Hash,
    ) -> Result<Option<Identity>, Error> {
        let keyring = &self.services.auth;
        let plain = keyring.token(TokenKind::Session, session.hash()).await?;
        if let Some(KeyRef::Key(hash)) = plain.map(|row| row.issuer) {
            let key = keyring.key(hash).await?;
            let now = self.store_time().await?;
            let key = key.filter(|key| key.is_valid_at(now));
            return Ok(key.map(|key| Identity::from_key(&key)));
        }
        let hash = token_hash(session, &KeyRef::Local, own);
        let bound = keyring.token(TokenKind::Session, hash).await?;
        Ok(bound.map(|_| Identity::local()))
    }
}
