//! Effects of idempotent requests. They are stored in the commit of the change, so that an
//! attempt can be repeated wherever it was interrupted.

use longhaul_core::access::Role;
use longhaul_core::change::{JournalBatch, RowChange};
use longhaul_core::port::auth::{IdempotentRequestState, NewApiKey};
use longhaul_core::port::store::{AppendRefusalReason, AppendResult};
use longhaul_core::raw::Hash;
use longhaul_core::request::IdempotentRequestEffect;
use longhaul_core::time::Millis;

use crate::conformance::store::auth::{
    LEASE, RETENTION, abort_request, begin_request, complete_request, new_key, request_key,
    response,
};
use crate::conformance::store::batches::{answer_batch, gate_spec, raise_gate_batch, steer_batch};
use crate::conformance::store::fixture::{StoreFixture, assert_appended, refused};

/// How an attempt at a request ends without a response.
#[derive(Debug, Clone, Copy)]
enum AttemptEnd {
    /// The server reports a failure.
    Dropped,
    /// The server has crashed and the lease expires.
    Lost,
}

async fn end_attempt(fixture: &StoreFixture, end: AttemptEnd) {
    match end {
        AttemptEnd::Dropped => abort_request(fixture, "anna").await,
        AttemptEnd::Lost => fixture.advance(LEASE),
    }
}

/// Marks a batch as the effect of the request of `principal`.
fn with_request_mark(mut batch: JournalBatch, principal: &str) -> JournalBatch {
    batch.changes.push(RowChange::MarkRequestApplied(request_key(principal)));
    batch
}

/// Wherever an attempt ends, the next one learns whether the change is committed.
pub async fn an_attempt_may_crash_anywhere(fixture: StoreFixture) {
    let run = fixture.open(|_| {}).await;
    for end in [AttemptEnd::Dropped, AttemptEnd::Lost] {
        // Before the change: as if the request had never been sent.
        assert_eq!(
            begin_request(&fixture, "anna", "x").await,
            IdempotentRequestState::Acquired,
            "{end:?}"
        );
        end_attempt(&fixture, end).await;
        assert_eq!(
            begin_request(&fixture, "anna", "x").await,
            IdempotentRequestState::Acquired,
            "{end:?}"
        );
        let batch = with_request_mark(steer_batch(fixture.ids.steer(), "left"), "anna");
        let appended = fixture.append_outside(run, batch).await;
        let AppendResult::Committed { seq, .. } = appended else {
            panic!("{appended:?}");
        };
        // After the change and before the response, any number of times.
        for _ in 0..2 {
            assert_eq!(
                begin_request(&fixture, "anna", "x").await,
                IdempotentRequestState::InProgress
            );
            end_attempt(&fixture, end).await;
            assert_eq!(
                begin_request(&fixture, "anna", "y").await,
                IdempotentRequestState::Conflict
            );
            let applied =
                IdempotentRequestState::Applied(IdempotentRequestEffect::Events { run, seq });
            assert_eq!(begin_request(&fixture, "anna", "x").await, applied, "{end:?}");
        }
        // After the response.
        complete_request(&fixture, "anna", response(200)).await;
        end_attempt(&fixture, end).await;
        assert_eq!(
            begin_request(&fixture, "anna", "x").await,
            IdempotentRequestState::Completed(response(200))
        );
        fixture.advance(Millis(1_000));
    }
}

/// If an attempt outlives its lease and another one takes over, only the first append takes
/// effect.
pub async fn two_attempts_have_one_effect(fixture: StoreFixture) {
    let run = fixture.open(|_| {}).await;
    let batch = |text: &str| with_request_mark(steer_batch(fixture.ids.steer(), text), "anna");
    for response_status in [None, Some(201)] {
        assert_eq!(begin_request(&fixture, "anna", "x").await, IdempotentRequestState::Acquired);
        end_attempt(&fixture, AttemptEnd::Lost).await;
        assert_eq!(begin_request(&fixture, "anna", "x").await, IdempotentRequestState::Acquired);
        let AppendResult::Committed { seq, .. } = fixture.append_outside(run, batch("first")).await
        else {
            panic!("the first append must succeed");
        };
        if let Some(status) = response_status {
            complete_request(&fixture, "anna", response(status)).await;
        }
        let result = fixture.append_outside(run, batch("second")).await;
        assert_eq!(
            refused(result),
            AppendRefusalReason::RequestAlreadyApplied,
            "{response_status:?}"
        );
        end_attempt(&fixture, AttemptEnd::Dropped).await;
        match response_status {
            None => {
                let applied =
                    IdempotentRequestState::Applied(IdempotentRequestEffect::Events { run, seq });
                assert_eq!(begin_request(&fixture, "anna", "x").await, applied);
                complete_request(&fixture, "anna", response(200)).await;
            }
            Some(status) => {
                let completed = IdempotentRequestState::Completed(response(status));
                assert_eq!(begin_request(&fixture, "anna", "x").await, completed);
            }
        }
        fixture.advance(RETENTION);
    }
}

/// A refused batch has no effect. A batch of a request that is not in progress is refused,
/// because the attempt that took over may have failed.
pub async fn a_refused_batch_has_no_effect(fixture: StoreFixture) {
    let mut claimed_run = fixture.open_and_claim(|_| {}).await;
    let gate = fixture.ids.gate();
    claimed_run.append_ok(raise_gate_batch(gate_spec(gate))).await;
    assert_appended(&fixture.append_outside(claimed_run.run, answer_batch(gate, "bert")).await);
    assert_eq!(begin_request(&fixture, "anna", "x").await, IdempotentRequestState::Acquired);
    let result = fixture
        .append_outside(claimed_run.run, with_request_mark(answer_batch(gate, "anna"), "anna"))
        .await;
    assert!(matches!(refused(result), AppendRefusalReason::GateClosed(..)));
    let other = with_request_mark(steer_batch(fixture.ids.steer(), "left"), "bert");
    let other = fixture.append_outside(claimed_run.run, other).await;
    assert_eq!(refused(other), AppendRefusalReason::RequestAlreadyApplied);
    assert_eq!(begin_request(&fixture, "bert", "x").await, IdempotentRequestState::Acquired);
    abort_request(&fixture, "anna").await;
    assert_eq!(begin_request(&fixture, "anna", "y").await, IdempotentRequestState::Acquired);
}

/// A key whose secret was never shown is replaced by the next attempt. A key of another request
/// is not.
pub async fn a_repeated_request_replaces_its_own_key(fixture: StoreFixture) {
    let auth = &fixture.harness.auth;
    let key = |secret: &str, principal: &str| NewApiKey {
        hash: Hash::digest(secret.as_bytes()),
        request: Some(request_key(principal)),
        ..new_key("ci", None, Role::Viewer)
    };
    let add = async |secret: &str, principal: &str| {
        let added = auth.add_api_key(key(secret, principal)).await;
        added.expect("add key")
    };
    assert_eq!(begin_request(&fixture, "anna", "x").await, IdempotentRequestState::Acquired);
    assert!(add("first", "anna").await);
    abort_request(&fixture, "anna").await;
    let first = IdempotentRequestEffect::Key(Hash::digest(b"first"));
    assert_eq!(begin_request(&fixture, "anna", "x").await, IdempotentRequestState::Applied(first));
    assert!(add("second", "anna").await);
    let is_active = async |secret: &str| {
        let row = auth.find_api_key(Hash::digest(secret.as_bytes())).await.expect("key");
        row.is_some_and(|row| row.revoked_at.is_none())
    };
    assert_eq!((is_active("first").await, is_active("second").await), (false, true));
    assert_eq!(begin_request(&fixture, "bert", "x").await, IdempotentRequestState::Acquired);
    assert!(!add("third", "bert").await, "the name is taken");
    // After a stored response the secret was shown: the same request creates no other key.
    complete_request(&fixture, "anna", response(201)).await;
    assert!(!add("fourth", "anna").await);
    assert!(is_active("second").await);
}
