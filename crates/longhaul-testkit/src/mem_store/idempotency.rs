//! Idempotent requests and their stored responses.
//!
//! Invariant: a stored response never changes. A server that counted as dead and finishes after
//! all does not overwrite the response of the server that took over.

use longhaul_core::port::auth::{
    IdempotencyKey, IdempotencyRequest, IdempotentRequestState, StoredHttpResponse,
};
use longhaul_core::port::store::AppendRefusalReason;
use longhaul_core::request::IdempotentRequestEffect;

use crate::mem_store::rows::IdempotentRequest;
use crate::mem_store::tx::{ChangeResult, Tx, refuse};

impl Tx<'_> {
    pub(crate) fn begin_request(
        &mut self,
        new_request: IdempotencyRequest,
    ) -> IdempotentRequestState {
        let now = self.now;
        let existing = self.tables.requests.get(&new_request.key);
        let existing = existing.filter(|existing| {
            let is_done = existing.response.is_some() || existing.effect.is_some();
            existing.until > now && (is_done || existing.lease_until > now)
        });
        match existing {
            None => {
                let request = IdempotentRequest {
                    body: new_request.body_hash,
                    until: now.plus(new_request.ttl),
                    lease_until: now.plus(new_request.lease),
                    response: None,
                    effect: None,
                };
                self.tables.requests.insert(new_request.key, request);
                IdempotentRequestState::Acquired
            }
            Some(existing) if existing.body != new_request.body_hash => {
                IdempotentRequestState::Conflict
            }
            Some(existing) => match (&existing.response, &existing.effect) {
                (Some(response), _) => IdempotentRequestState::Completed(response.clone()),
                (None, Some(effect)) if existing.lease_until <= now => {
                    let effect = effect.clone();
                    let requests = &mut self.tables.requests;
                    requests.update(&new_request.key, |request| {
                        request.lease_until = now.plus(new_request.lease);
                    });
                    IdempotentRequestState::Applied(effect)
                }
                (None, _) => IdempotentRequestState::InProgress,
            },
        }
    }

    /// Refuses a second effect of a request, and any effect of a request that is not in
    /// progress.
    pub(crate) fn check_not_applied(&self, key: &IdempotencyKey) -> ChangeResult {
        let existing = self.tables.requests.get(key);
        match existing
            .is_some_and(|existing| existing.response.is_none() && existing.effect.is_none())
        {
            true => Ok(()),
            false => refuse(AppendRefusalReason::RequestAlreadyApplied),
        }
    }

    /// Records the effect of a request in progress.
    pub(crate) fn mark_request(&mut self, key: &IdempotencyKey, effect: IdempotentRequestEffect) {
        self.tables.requests.update(key, |request| {
            if request.response.is_none() {
                request.effect = Some(effect);
            }
        });
    }

    /// Returns the effect of an earlier attempt at a request.
    pub(crate) fn request_effect(&self, key: &IdempotencyKey) -> Option<IdempotentRequestEffect> {
        let existing = self.tables.requests.get(key)?;
        existing.effect.clone().filter(|_| existing.response.is_none())
    }

    /// Stores the response of a request in progress that has none.
    pub(crate) fn complete_request(&mut self, key: &IdempotencyKey, response: StoredHttpResponse) {
        self.tables.requests.update(key, |request| {
            request.response.get_or_insert(response);
        });
    }

    /// Ends an attempt without a response, and deletes a request without an effect.
    pub(crate) fn abort_request(&mut self, key: &IdempotencyKey) {
        let now = self.now;
        let requests = &mut self.tables.requests;
        match requests.get(key) {
            Some(existing) if existing.response.is_none() && existing.effect.is_none() => {
                requests.remove(key);
            }
            Some(_) => requests.update(key, |request| request.lease_until = now),
            None => {}
        }
    }
}
