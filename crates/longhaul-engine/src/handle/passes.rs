//! Passes: a ticket that is traded once for a session, and the session.
//!
//! Never: a pass that outlives the key that gave it out.

use longhaul_core::port::keyring::{Holder, NewPass, PassKind};
use longhaul_core::time::Millis;

use crate::error::Error;
use crate::handle::Longhaul;
use crate::handle::keys::Known;
use crate::secret::Secret;

/// A ticket is good for so long.
const TICKET_SPAN: Millis = Millis::from_secs(10 * 60);

/// A session ends after this.
const SESSION_SPAN: Millis = Millis::from_secs(12 * 60 * 60);

impl Longhaul {
    /// A ticket of whoever holds a key.
    pub async fn give_ticket(&self, holder: Holder) -> Result<Secret, Error> {
        self.give(PassKind::Ticket, holder, TICKET_SPAN).await
    }

    /// Trades a ticket for a session; none: it was used, or is none.
    pub async fn trade_ticket(&self, ticket: &Secret) -> Result<Option<Secret>, Error> {
        let keyring = &self.ports.keyring;
        let spent = keyring.spend_pass(PassKind::Ticket, ticket.hash()).await?;
        match spent {
            Some(row) => {
                let session = self.give(PassKind::Session, row.holder, SESSION_SPAN);
                Ok(Some(session.await?))
            }
            None => Ok(None),
        }
    }

    /// Ends a session.
    pub async fn end_session(&self, session: &Secret) -> Result<(), Error> {
        let keyring = &self.ports.keyring;
        keyring
            .spend_pass(PassKind::Session, session.hash())
            .await?;
        Ok(())
    }

    /// Whose session this is, if it counts.
    pub async fn session(&self, session: &Secret) -> Result<Option<Known>, Error> {
        let keyring = &self.ports.keyring;
        let Some(row) = keyring.pass(PassKind::Session, session.hash()).await? else {
            return Ok(None);
        };
        match row.holder {
            Holder::Local => Ok(Some(Known::local())),
            Holder::Key(hash) => {
                let key = keyring.key(hash).await?;
                let now = self.now().await?;
                Ok(key
                    .filter(|key| key.counts(now))
                    .map(|key| Known::by_key(&key)))
            }
        }
    }

    async fn give(&self, kind: PassKind, holder: Holder, span: Millis) -> Result<Secret, Error> {
        let secret = self.secret("")?;
        let pass = NewPass {
            kind,
            hash: secret.hash(),
            holder,
            span,
        };
        self.ports.keyring.add_pass(pass).await?;
        Ok(secret)
    }
}
