//! Passes: a ticket that is traded once for a session, and the session.
//!
//! Never: a pass that outlives the key that gave it out.

use longhaul_core::port::keyring::{Holder, NewPass, PassKind};
use longhaul_core::raw::Hash;
use longhaul_core::time::Millis;

use crate::error::Error;
use crate::handle::Longhaul;
use crate::handle::keys::Known;
use crate::secret::Secret;

/// A ticket is good for so long.
const TICKET_SPAN: Millis = Millis::from_secs(10 * 60);

/// A session ends after this.
const SESSION_SPAN: Millis = Millis::from_secs(12 * 60 * 60);

/// The hash under which a pass is kept. One of the machine's own key is bound to
/// that key, which stands in no row: with another key it is none.
fn kept(secret: &Secret, holder: &Holder, own: Hash) -> Hash {
    match holder {
        Holder::Key(_) => secret.hash(),
        Holder::Local => Hash::of(format!("{} of {own}", secret.reveal()).as_bytes()),
    }
}

impl Longhaul {
    /// A ticket of whoever holds a key; `own` is the hash of the machine's own.
    pub async fn give_ticket(&self, holder: Holder, own: Hash) -> Result<Secret, Error> {
        let secret = self.secret("")?;
        let hash = kept(&secret, &holder, own);
        let ticket = NewPass {
            kind: PassKind::Ticket,
            hash,
            holder,
            span: TICKET_SPAN,
        };
        self.ports.keyring.add_pass(ticket).await?;
        Ok(secret)
    }

    /// Trades a ticket for a session; none: it was used, or is none.
    pub async fn trade_ticket(&self, ticket: &Secret, own: Hash) -> Result<Option<Secret>, Error> {
        let keyring = &self.ports.keyring;
        let plain = keyring.spend_pass(PassKind::Ticket, ticket.hash()).await?;
        let spent = match plain {
            Some(row) => Some(row),
            None => {
                let hash = kept(ticket, &Holder::Local, own);
                keyring.spend_pass(PassKind::Ticket, hash).await?
            }
        };
        let Some(row) = spent else { return Ok(None) };
        let secret = self.secret("")?;
        let session = NewPass {
            kind: PassKind::Session,
            hash: kept(&secret, &row.holder, own),
            holder: row.holder,
            span: SESSION_SPAN,
        };
        keyring.add_pass(session).await?;
        Ok(Some(secret))
    }

    /// Whose session this is, if it counts.
    pub async fn session(&self, session: &Secret, own: Hash) -> Result<Option<Known>, Error> {
        let keyring = &self.ports.keyring;
        let plain = keyring.pass(PassKind::Session, session.hash()).await?;
        if let Some(Holder::Key(hash)) = plain.map(|row| row.holder) {
            let key = keyring.key(hash).await?;
            let now = self.now().await?;
            let key = key.filter(|key| key.counts(now));
            return Ok(key.map(|key| Known::by_key(&key)));
        }
        let hash = kept(session, &Holder::Local, own);
        let bound = keyring.pass(PassKind::Session, hash).await?;
        Ok(bound.map(|_| Known::local()))
    }
}
