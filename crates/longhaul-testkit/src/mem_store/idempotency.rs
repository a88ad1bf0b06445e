//! Requests that must count once, and the answers that are kept for them.
//!
//! Never: an answer that changes. Whoever was taken for dead and speaks after all
//! takes nothing back from who took its place.

use longhaul_core::port::auth::{
    IdempotencyKey, IdempotencyRequest, IdempotencyState, StoredResponse,
};
use longhaul_core::port::store::Refused;
use longhaul_core::request::RequestEffect;

use crate::mem_store::rows::IdempotentRequest;
use crate::mem_store::tx::{ChangeResult, Tx, refuse};

impl Tx<'_> {
    /// Begins a request.
    pub(crate) fn begin_request(&mut self, ask: IdempotencyRequest) -> IdempotencyState {
        let now = self.now;
        let known = self.tables.requests.get(&ask.key);
        let known = known.filter(|known| {
            let stands = known.response.is_some() || known.effect.is_some();
            known.until > now && (stands || known.lease_until > now)
        });
        match known {
            None => {
                let request = IdempotentRequest {
                    body: ask.body_hash,
                    until: now.plus(ask.ttl),
                    lease_until: now.plus(ask.lease),
                    response: None,
                    effect: None,
                };
                self.tables.requests.insert(ask.key, request);
                IdempotencyState::Acquired
            }
            Some(known) if known.body != ask.body_hash => IdempotencyState::Conflict,
            Some(known) => match (&known.response, &known.effect) {
                (Some(reply), _) => IdempotencyState::Completed(reply.clone()),
                (None, Some(effect)) if known.lease_until <= now => {
                    let effect = effect.clone();
                    let requests = &mut self.tables.requests;
                    requests.update(&ask.key, |request| {
                        request.lease_until = now.plus(ask.lease);
                    });
                    IdempotencyState::Applied(effect)
                }
                (None, _) => IdempotencyState::InProgress,
            },
        }
    }

    /// Refuses a second effect of a request, and any of one that is not in progress.
    pub(crate) fn check_not_applied(&self, of: &IdempotencyKey) -> ChangeResult {
        let known = self.tables.requests.get(of);
        match known.is_some_and(|known| known.response.is_none() && known.effect.is_none()) {
            true => Ok(()),
            false => refuse(Refused::RequestAlreadyApplied),
        }
    }

    /// Stores what a request in progress has changed.
    pub(crate) fn mark_request(&mut self, of: &IdempotencyKey, effect: RequestEffect) {
        self.tables.requests.update(of, |request| {
            if request.response.is_none() {
                request.effect = Some(effect);
            }
        });
    }

    /// What an earlier attempt at a request has changed.
    pub(crate) fn request_effect(&self, of: &IdempotencyKey) -> Option<RequestEffect> {
        let known = self.tables.requests.get(of)?;
        known.effect.clone().filter(|_| known.response.is_none())
    }

    /// Keeps the answer of a request that was begun and has none.
    pub(crate) fn complete_request(&mut self, of: &IdempotencyKey, reply: StoredResponse) {
        self.tables.requests.update(of, |request| {
            request.response.get_or_insert(reply);
        });
    }

    /// Ends an attempt without an answer, and forgets a request without an effect.
    pub(crate) fn abort_request(&mut self, of: &IdempotencyKey) {
        let now = self.now;
        let requests = &mut self.tables.requests;
        match requests.get(of) {
            Some(known) if known.response.is_none() && known.effect.is_none() => {
                requests.remove(of);
            }
            Some(_) => requests.update(of, |request| request.lease_until = now),
            None => {}
        }
    }
}
