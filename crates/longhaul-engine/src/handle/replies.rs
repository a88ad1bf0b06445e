//! Answers that are kept, so that a request which is sent twice counts once.
//!
//! Never: one caller's answer to another. A key belongs to whoever sent it.

use std::borrow::Cow;

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
        self.is_no_secret("the idempotency key", &of.key)?;
        let ask = ReplyAsk {
            of,
            body,
            keep: KEEP,
            lease: LEASE,
        };
        Ok(self.ports.keyring.begin_reply(ask).await?)
    }

    /// Keeps the answer of a request that was begun.
    pub async fn keep_reply(&self, of: ReplyKey, mut reply: Reply) -> Result<(), Error> {
        // An answer may repeat what was asked.
        if let Ok(body) = std::str::from_utf8(&reply.body)
            && let Cow::Owned(clean) = self.ports.redact.redact(body)
        {
            reply.body = clean.into_bytes();
        }
        Ok(self.ports.keyring.keep_reply(of, reply).await?)
    }

    /// Forgets a request that came to nothing.
    pub async fn drop_reply(&self, of: ReplyKey) -> Result<(), Error> {
        Ok(self.ports.keyring.drop_reply(of).await?)
    }
}
