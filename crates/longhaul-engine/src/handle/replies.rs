//! Answers that are kept, so that a request which is sent twice counts once.
//!
//! Never: one caller's answer to another. A key belongs to whoever sent it.

use longhaul_core::port::keyring::{Begun, Reply, ReplyAsk, ReplyKey};
use longhaul_core::raw::Hash;
use longhaul_core::time::Millis;

use crate::error::Error;
use crate::handle::Longhaul;

/// How long an answer is kept.
const KEEP: Millis = Millis::from_secs(24 * 60 * 60);

/// A request that is not answered after this span has lost its server.
const LEASE: Millis = Millis::from_secs(60);

impl Longhaul {
    /// Begins a request that must count once.
    pub async fn begin_reply(&self, of: ReplyKey, body: Hash) -> Result<Begun, Error> {
        let ask = ReplyAsk {
            of,
            body,
            keep: KEEP,
            lease: LEASE,
        };
        Ok(self.ports.keyring.begin_reply(ask).await?)
    }

    /// Keeps the answer of a request that was begun.
    pub async fn keep_reply(&self, of: ReplyKey, reply: Reply) -> Result<(), Error> {
        Ok(self.ports.keyring.keep_reply(of, reply).await?)
    }

    /// Forgets a request that came to nothing.
    pub async fn drop_reply(&self, of: ReplyKey) -> Result<(), Error> {
        Ok(self.ports.keyring.drop_reply(of).await?)
    }
}
