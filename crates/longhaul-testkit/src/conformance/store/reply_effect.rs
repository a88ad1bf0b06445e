//! Effects of requests under an idempotency key: stored in the commit of the change,
//! so that an attempt that ends anywhere can be repeated.

use longhaul_core::access::Role;
use longhaul_core::change::{Batch, Change};
use longhaul_core::port::keyring::{Begun, NewKey};
use longhaul_core::port::store::{Appended, Refused};
use longhaul_core::raw::Hash;
use longhaul_core::request::Effect;
use longhaul_core::time::Millis;

use crate::conformance::store::facts::{answers, gate_spec, raises, steers};
use crate::conformance::store::keyring::{
    KEEP, LEASE, begin, drop_reply, keep, new_key, of, reply,
};
use crate::conformance::store::kit::{World, refused, stands};

/// How an attempt at a request ends without an answer.
#[derive(Debug, Clone, Copy)]
enum End {
    /// Its server says that it has failed.
    Dropped,
    /// Its server is gone and its lease runs out.
    Lost,
}

async fn end(world: &World, end: End) {
    match end {
        End::Dropped => drop_reply(world, "anna").await,
        End::Lost => world.pass(LEASE),
    }
}

/// A batch that is appended for the request of `principal`.
fn marked(mut batch: Batch, principal: &str) -> Batch {
    batch.changes.push(Change::MarkReply(of(principal)));
    batch
}

/// Wherever an attempt ends, the next one learns whether the effect stands.
pub async fn an_attempt_may_end_anywhere(world: World) {
    let run = world.open(|_| {}).await;
    for how in [End::Dropped, End::Lost] {
        // Before the effect: as if it had never been sent.
        assert_eq!(begin(&world, "anna", "x").await, Begun::Mine, "{how:?}");
        end(&world, how).await;
        assert_eq!(begin(&world, "anna", "x").await, Begun::Mine, "{how:?}");
        let batch = marked(steers(world.ids.steer(), "left"), "anna");
        let appended = world.tell(run, batch).await;
        let Appended::At { seq, .. } = appended else {
            panic!("{appended:?}");
        };
        // After the effect and before the answer, as often as it happens.
        for _ in 0..2 {
            assert_eq!(begin(&world, "anna", "x").await, Begun::Running);
            end(&world, how).await;
            assert_eq!(begin(&world, "anna", "y").await, Begun::Other);
            let applied = Begun::Applied(Effect::Events { run, seq });
            assert_eq!(begin(&world, "anna", "x").await, applied, "{how:?}");
        }
        // After the answer.
        keep(&world, "anna", reply(200)).await;
        end(&world, how).await;
        assert_eq!(begin(&world, "anna", "x").await, Begun::Done(reply(200)));
        world.pass(Millis(1_000));
    }
}

/// An attempt that outlives its lease and the one that replaces it: whichever appends
/// first, only that one takes effect.
pub async fn two_attempts_have_one_effect(world: World) {
    let run = world.open(|_| {}).await;
    let batch = |text: &str| marked(steers(world.ids.steer(), text), "anna");
    for ends in [None, Some(201)] {
        assert_eq!(begin(&world, "anna", "x").await, Begun::Mine);
        end(&world, End::Lost).await;
        assert_eq!(begin(&world, "anna", "x").await, Begun::Mine);
        let Appended::At { seq, .. } = world.tell(run, batch("first")).await else {
            panic!("the first to append");
        };
        if let Some(status) = ends {
            keep(&world, "anna", reply(status)).await;
        }
        let late = world.tell(run, batch("second")).await;
        assert_eq!(refused(late), Refused::RequestApplied, "{ends:?}");
        end(&world, End::Dropped).await;
        match ends {
            None => {
                let applied = Begun::Applied(Effect::Events { run, seq });
                assert_eq!(begin(&world, "anna", "x").await, applied);
                keep(&world, "anna", reply(200)).await;
            }
            Some(status) => {
                let done = Begun::Done(reply(status));
                assert_eq!(begin(&world, "anna", "x").await, done);
            }
        }
        world.pass(KEEP);
    }
}

/// A batch that is refused leaves no effect, and one of a request that is not in
/// progress is refused: an attempt that replaced it may have failed.
pub async fn a_refused_batch_has_no_effect(world: World) {
    let mut held = world.held(|_| {}).await;
    let gate = world.ids.gate();
    held.write(raises(gate_spec(gate))).await;
    stands(&world.tell(held.run, answers(gate, "bert")).await);
    assert_eq!(begin(&world, "anna", "x").await, Begun::Mine);
    let late = world
        .tell(held.run, marked(answers(gate, "anna"), "anna"))
        .await;
    assert!(matches!(refused(late), Refused::GateClosed(..)));
    let other = marked(steers(world.ids.steer(), "left"), "bert");
    let other = world.tell(held.run, other).await;
    assert_eq!(refused(other), Refused::RequestApplied);
    assert_eq!(begin(&world, "bert", "x").await, Begun::Mine);
    drop_reply(&world, "anna").await;
    assert_eq!(begin(&world, "anna", "y").await, Begun::Mine);
}

/// A key whose secret was never shown is replaced by the next attempt; a key that
/// another request has made is not.
pub async fn a_repeated_request_replaces_its_own_key(world: World) {
    let ring = &world.at.keyring;
    let key = |secret: &str, principal: &str| NewKey {
        hash: Hash::of(secret.as_bytes()),
        request: Some(of(principal)),
        ..new_key("ci", None, Role::Viewer)
    };
    let add = async |secret: &str, principal: &str| {
        let added = ring.add_key(key(secret, principal)).await;
        added.expect("add key")
    };
    assert_eq!(begin(&world, "anna", "x").await, Begun::Mine);
    assert!(add("first", "anna").await);
    drop_reply(&world, "anna").await;
    let first = Effect::Key(Hash::of(b"first"));
    assert_eq!(begin(&world, "anna", "x").await, Begun::Applied(first));
    assert!(add("second", "anna").await);
    let counts = async |secret: &str| {
        let row = ring.key(Hash::of(secret.as_bytes())).await.expect("key");
        row.is_some_and(|row| row.revoked_at.is_none())
    };
    assert_eq!(
        (counts("first").await, counts("second").await),
        (false, true)
    );
    assert_eq!(begin(&world, "bert", "x").await, Begun::Mine);
    assert!(!add("third", "bert").await, "the name is taken");
    // What was answered was shown: the same request makes no other key.
    keep(&world, "anna", reply(201)).await;
    assert!(!add("fourth", "anna").await);
    assert!(counts("second").await);
}
