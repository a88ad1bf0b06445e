//! Requests that must count once, and the answers that are kept for them.
//!
//! Never: an answer that changes. Whoever was taken for dead and speaks after all
//! takes nothing back from who took its place.

use longhaul_core::port::keyring::{Begun, Reply, ReplyAsk, ReplyKey};
use longhaul_core::port::store::Refused;
use longhaul_core::request::Effect;

use crate::mem_store::rows::Request;
use crate::mem_store::tx::{Changed, Tx, refuse};

impl Tx<'_> {
    /// Begins a request.
    pub(crate) fn begin_reply(&mut self, ask: ReplyAsk) -> Begun {
        let now = self.now;
        let known = self.tables.replies.get(&ask.of);
        let known = known.filter(|known| {
            let stands = known.reply.is_some() || known.effect.is_some();
            known.until > now && (stands || known.lease_until > now)
        });
        match known {
            None => {
                let request = Request {
                    body: ask.body,
                    until: now.plus(ask.keep),
                    lease_until: now.plus(ask.lease),
                    reply: None,
                    effect: None,
                };
                self.tables.replies.put(ask.of, request);
                Begun::Mine
            }
            Some(known) if known.body != ask.body => Begun::Other,
            Some(known) => match (&known.reply, &known.effect) {
                (Some(reply), _) => Begun::Done(reply.clone()),
                (None, Some(effect)) if known.lease_until <= now => {
                    let effect = effect.clone();
                    let requests = &mut self.tables.replies;
                    requests.change(&ask.of, |request| {
                        request.lease_until = now.plus(ask.lease);
                    });
                    Begun::Applied(effect)
                }
                (None, _) => Begun::Running,
            },
        }
    }

    /// Refuses a second effect of a request, and any of one that is not in progress.
    pub(crate) fn may_apply(&self, of: &ReplyKey) -> Changed {
        let known = self.tables.replies.get(of);
        match known.is_some_and(|known| known.reply.is_none() && known.effect.is_none()) {
            true => Ok(()),
            false => refuse(Refused::RequestApplied),
        }
    }

    /// Stores what a request in progress has changed.
    pub(crate) fn mark_reply(&mut self, of: &ReplyKey, effect: Effect) {
        self.tables.replies.change(of, |request| {
            if request.reply.is_none() {
                request.effect = Some(effect);
            }
        });
    }

    /// What an earlier attempt at a request has changed.
    pub(crate) fn effect(&self, of: &ReplyKey) -> Option<Effect> {
        let known = self.tables.replies.get(of)?;
        known.effect.clone().filter(|_| known.reply.is_none())
    }

    /// Keeps the answer of a request that was begun and has none.
    pub(crate) fn keep_reply(&mut self, of: &ReplyKey, reply: Reply) {
        self.tables.replies.change(of, |request| {
            request.reply.get_or_insert(reply);
        });
    }

    /// Ends an attempt without an answer, and forgets a request without an effect.
    pub(crate) fn drop_reply(&mut self, of: &ReplyKey) {
        let now = self.now;
        let requests = &mut self.tables.replies;
        match requests.get(of) {
            Some(known) if known.reply.is_none() && known.effect.is_none() => {
                requests.take(of);
            }
            Some(_) => requests.change(of, |request| request.lease_until = now),
            None => {}
        }
    }
}
