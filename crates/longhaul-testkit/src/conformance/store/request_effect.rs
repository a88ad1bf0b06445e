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

async fn end_attempt(world: &StoreFixture, end: AttemptEnd) {
    match end {
        AttemptEnd::Dropped => abort_request(world, "anna").await,
        AttemptEnd::Lost => world.advance(LEASE),
    }
}

/// Marks a batch as the effect of the request of `principal`.
fn with_request_mark(mut batch: JournalBatch, principal: &str) -> JournalBatch {
    batch.changes.push(RowChange::MarkRequestApplied(request_key(principal)));
    batch
}

/// Wherever an attempt ends, the next one learns whether the change is committed.
pub async fn an_attempt_may_crash_anywhere(world: StoreFixture) {
    let run = world.open(|_| {}).await;
    for how in [AttemptEnd::Dropped, AttemptEnd::Lost] {
        // Before the change: as if the request had never been sent.
        assert_eq!(
            begin_request(&world, "anna", "x").await,
            IdempotentRequestState::Acquired,
            "{how:?}"
        );
        end_attempt(&world, how).await;
        assert_eq!(
            begin_request(&world, "anna", "x").await,
            IdempotentRequestState::Acquired,
            "{how:?}"
        );
        let batch = with_request_mark(steer_batch(world.ids.steer(), "left"), "anna");
        let appended = world.append_outside(run, batch).await;
        let AppendResult::Committed { seq, .. } = appended else {
            panic!("{appended:?}");
        };
        // After the change and before the response, any number of times.
        for _ in 0..2 {
            assert_eq!(
                begin_request(&world, "anna", "x").await,
                IdempotentRequestState::InProgress
            );
            end_attempt(&world, how).await;
            assert_eq!(begin_request(&world, "anna", "y").await, IdempotentRequestState::Conflict);
            let applied =
                IdempotentRequestState::Applied(IdempotentRequestEffect::Events { run, seq });
            assert_eq!(begin_request(&world, "anna", "x").await, applied, "{how:?}");
        }
        // After the response.
        complete_request(&world, "anna", response(200)).await;
        end_attempt(&world, how).await;
        assert_eq!(
            begin_request(&world, "anna", "x").await,
            IdempotentRequestState::Completed(response(200))
        );
        world.advance(Millis(1_000));
    }
}

/// If an attempt outlives its lease and another one takes over, only the first append takes
/// effect.
pub async fn two_attempts_have_one_effect(world: StoreFixture) {
    let run = world.open(|_| {}).await;
    let batch = |text: &str| with_request_mark(steer_batch(world.ids.steer(), text), "anna");
    for ends in [None, Some(201)] {
        assert_eq!(begin_request(&world, "anna", "x").await, IdempotentRequestState::Acquired);
        end_attempt(&world, AttemptEnd::Lost).await;
        assert_eq!(begin_request(&world, "anna", "x").await, IdempotentRequestState::Acquired);
        let AppendResult::Committed { seq, .. } = world.append_outside(run, batch("first")).await
        else {
            panic!("the first append must succeed");
        };
        if let Some(status) = ends {
            complete_request(&world, "anna", response(status)).await;
        }
        let late = world.append_outside(run, batch("second")).await;
        assert_eq!(refused(late), AppendRefusalReason::RequestAlreadyApplied, "{ends:?}");
        end_attempt(&world, AttemptEnd::Dropped).await;
        match ends {
            None => {
                let applied =
                    IdempotentRequestState::Applied(IdempotentRequestEffect::Events { run, seq });
                assert_eq!(begin_request(&world, "anna", "x").await, applied);
                complete_request(&world, "anna", response(200)).await;
            }
            Some(status) => {
                let done = IdempotentRequestState::Completed(response(status));
                assert_eq!(begin_request(&world, "anna", "x").await, done);
            }
        }
        world.advance(RETENTION);
    }
}

/// A refused batch has no effect. A batch of a request that is not in progress is refused,
/// because the attempt that took over may have failed.
pub async fn a_refused_batch_has_no_effect(world: StoreFixture) {
    let mut held = world.open_and_claim(|_| {}).await;
    let gate = world.ids.gate();
    held.append_ok(raise_gate_batch(gate_spec(gate))).await;
    assert_appended(&world.append_outside(held.run, answer_batch(gate, "bert")).await);
    assert_eq!(begin_request(&world, "anna", "x").await, IdempotentRequestState::Acquired);
    let late =
        world.append_outside(held.run, with_request_mark(answer_batch(gate, "anna"), "anna")).await;
    assert!(matches!(refused(late), AppendRefusalReason::GateClosed(..)));
    let other = with_request_mark(steer_batch(world.ids.steer(), "left"), "bert");
    let other = world.append_outside(held.run, other).await;
    assert_eq!(refused(other), AppendRefusalReason::RequestAlreadyApplied);
    assert_eq!(begin_request(&world, "bert", "x").await, IdempotentRequestState::Acquired);
    abort_request(&world, "anna").await;
    assert_eq!(begin_request(&world, "anna", "y").await, IdempotentRequestState::Acquired);
}

/// A key whose secret was never shown is replaced by the next attempt. A key of another request
/// is not.
pub async fn a_repeated_request_replaces_its_own_key(world: StoreFixture) {
    let ring = &world.harness.auth;
    let key = |secret: &str, principal: &str| NewApiKey {
        hash: Hash::digest(secret.as_bytes()),
        request: Some(request_key(principal)),
        ..new_key("ci", None, Role::Viewer)
    };
    let add = async |secret: &str, principal: &str| {
        let added = ring.add_api_key(key(secret, principal)).await;
        added.expect("add key")
    };
    assert_eq!(begin_request(&world, "anna", "x").await, IdempotentRequestState::Acquired);
    assert!(add("first", "anna").await);
    abort_request(&world, "anna").await;
    let first = IdempotentRequestEffect::Key(Hash::digest(b"first"));
    assert_eq!(begin_request(&world, "anna", "x").await, IdempotentRequestState::Applied(first));
    assert!(add("second", "anna").await);
    let counts = async |secret: &str| {
        let row = ring.find_api_key(Hash::digest(secret.as_bytes())).await.expect("key");
        row.is_some_and(|row| row.revoked_at.is_none())
    };
    assert_eq!((counts("first").await, counts("second").await), (false, true));
    assert_eq!(begin_request(&world, "bert", "x").await, IdempotentRequestState::Acquired);
    assert!(!add("third", "bert").await, "the name is taken");
    // After a stored response the secret was shown: the same request creates no other key.
    complete_request(&world, "anna", response(201)).await;
    assert!(!add("fourth", "anna").await);
    assert!(counts("second").await);
}
