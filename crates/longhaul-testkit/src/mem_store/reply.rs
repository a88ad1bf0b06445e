//! Requests that must count once, and the answers that are kept for them.
//!
//! Never: an answer that changes. Whoever was taken for dead and speaks after all
//! takes nothing back from who took its place.

use longhaul_core::port::keyring::{Begun, Reply, ReplyAsk, ReplyKey};

use crate::mem_store::rows::Request;
use crate::mem_store::tx::Tx;

impl Tx<'_> {
    /// Begins a request.
    pub(crate) fn begin_reply(&mut self, ask: ReplyAsk) -> Begun {
        let now = self.now;
        let known = self.tables.replies.get(&ask.of);
        let known = known.filter(|known| {
            known.until > now && (known.reply.is_some() || known.lease_until > now)
        });
        match known {
            None => {
                let request = Request {
                    body: ask.body,
                    until: now.plus(ask.keep),
                    lease_until: now.plus(ask.lease),
                    reply: None,
                };
                self.tables.replies.put(ask.of, request);
                Begun::Mine
            }
            Some(known) if known.body != ask.body => Begun::Other,
            Some(known) => match &known.reply {
                None => Begun::Running,
                Some(reply) => Begun::Done(reply.clone()),
            },
        }
    }

    /// Keeps the answer of a request that was begun and has none.
    pub(crate) fn keep_reply(&mut self, of: &ReplyKey, reply: Reply) {
        self.tables.replies.change(of, |request| {
            request.reply.get_or_insert(reply);
        });
    }

    /// Forgets a request that was begun and has no answer.
    pub(crate) fn drop_reply(&mut self, of: &ReplyKey) {
        let known = self.tables.replies.get(of);
        if known.is_some_and(|request| request.reply.is_none()) {
            self.tables.replies.take(of);
        }
    }
}
