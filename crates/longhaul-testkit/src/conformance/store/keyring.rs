//! Keys and what they gave out: passes, links, and answers that are kept.
//!
//! Never: what a role may do; the store does not know.

use tokio::task::JoinSet;

use longhaul_core::access::Role;
use longhaul_core::change::GateEnd;
use longhaul_core::id::KeyName;
use longhaul_core::port::keyring::{
    Begun, Holder, KeyRow, LinkRow, NewKey, NewPass, PassKind, PassRow, Reply, ReplyAsk, ReplyKey,
};
use longhaul_core::port::store::PruneAsk;
use longhaul_core::raw::Hash;
use longhaul_core::time::{Clock as _, Millis};

use crate::conformance::store::facts::{And as _, close_gate, ends, gate_spec, raises};
use crate::conformance::store::kit::World;

/// The spans of every request in the checks.
pub(super) const KEEP: Millis = Millis(1_000);
pub(super) const LEASE: Millis = Millis(100);
/// So long a noted use of a key is good enough.
const NOTED: Millis = Millis::from_secs(5 * 60);

/// A key comes back as it was taken in, with the store's times.
pub async fn a_key_is_found_by_its_hash(world: World) {
    let ring = &world.at.keyring;
    let mut expected = Vec::new();
    for (name, role, span) in [
        ("ops", Role::Operator, None),
        ("anna", Role::Approver, Some(Millis(50))),
    ] {
        world.pass(Millis(7));
        let now = world.at.clock.now();
        assert!(add(&world, name, span, role).await);
        expected.push(KeyRow {
            name: key_name(name),
            role,
            hash: hash(name),
            by: "cli:root".to_owned(),
            created_at: now,
            expires_at: span.map(|span| now.plus(span)),
            revoked_at: None,
            used_at: None,
        });
        let found = ring.key(hash(name)).await.expect("key");
        assert_eq!(found.as_ref(), expected.last());
    }
    assert_eq!(ring.keys().await.expect("keys"), expected);
    assert_eq!(ring.key(hash("nobody")).await.expect("key"), None);
}

/// A name belongs to one key until that is revoked, also when it has ended by
/// itself; the old key is still known.
pub async fn a_name_is_free_when_its_key_is_revoked(world: World) {
    let ring = &world.at.keyring;
    let name = key_name("ops");
    let revoke = async || ring.revoke_key(&name).await.expect("revoke");
    assert_eq!(revoke().await, None, "there is none");
    let add = async |secret: &str| {
        let key = NewKey {
            hash: hash(secret),
            ..new_key("ops", Some(Millis(50)), Role::Viewer)
        };
        ring.add_key(key).await.expect("add key")
    };
    assert!(add("one").await);
    assert!(!add("two").await);
    world.pass(Millis(50));
    assert!(!add("two").await, "it ended by itself and is not revoked");
    let now = world.at.clock.now();
    let revoked = revoke().await.expect("it was there");
    assert_eq!((revoked.hash, revoked.revoked_at), (hash("one"), Some(now)));
    assert_eq!(revoke().await, None, "it is revoked already");
    assert!(add("two").await);
    let found = ring.key(hash("one")).await.expect("key");
    assert_eq!(found, Some(revoked));
    let keys = ring.keys().await.expect("keys");
    let counting: Vec<_> = keys.iter().map(|key| key.counts(now)).collect();
    assert_eq!(counting, [false, true], "{keys:?}");
}

/// Whoever shows a secret is one key.
pub async fn a_hash_is_one_key_s(world: World) {
    assert!(add(&world, "ops", None, Role::Viewer).await);
    let again = NewKey {
        name: key_name("other"),
        ..new_key("ops", None, Role::Admin)
    };
    assert!(world.at.keyring.add_key(again).await.is_err());
    let keys = world.at.keyring.keys().await.expect("keys");
    assert_eq!(keys.len(), 1, "{keys:?}");
    // Whoever did not hear the answer and asks again is told that it is there.
    assert!(!add(&world, "ops", None, Role::Viewer).await);
}

/// The last use of a key is known, but not each.
pub async fn the_use_of_a_key_is_noted_to_a_few_minutes(world: World) {
    let ring = &world.at.keyring;
    assert!(add(&world, "ops", None, Role::Viewer).await);
    let touch = async |name| {
        ring.touch_key(hash(name)).await.expect("touch");
        let found = ring.key(hash("ops")).await.expect("key");
        found.expect("the key is there").used_at
    };
    assert_eq!(touch("nobody").await, None);
    let first = world.at.clock.now();
    for span in [Millis::ZERO, Millis(NOTED.0 - 1), Millis(1)] {
        world.pass(span);
        assert_eq!(touch("ops").await, Some(first));
    }
    world.pass(Millis(1));
    assert_eq!(touch("ops").await, Some(world.at.clock.now()));
}

/// A pass is good for one thing, for a while, as often as it is shown.
pub async fn a_pass_counts_until_its_time_is_over(world: World) {
    let until = world.at.clock.now().plus(Millis(50));
    give(&world, PassKind::Session, "s", Holder::Local).await;
    let expected = PassRow {
        holder: Holder::Local,
        until,
    };
    for _ in 0..2 {
        let found = shown(&world, PassKind::Session, "s").await;
        assert_eq!(found.as_ref(), Some(&expected));
        assert_eq!(shown(&world, PassKind::Ticket, "s").await, None);
        assert_eq!(shown(&world, PassKind::Session, "t").await, None);
        world.pass(Millis(24));
    }
    world.pass(Millis(2));
    assert_eq!(shown(&world, PassKind::Session, "s").await, None);
    assert_eq!(spent(&world, PassKind::Session, "s").await, None);
    // Others that come take the one away that is over, and no other.
    for name in ["a", "b"] {
        give(&world, PassKind::Session, name, Holder::Local).await;
    }
    for (name, is_there) in [("a", true), ("b", true), ("s", false)] {
        let found = shown(&world, PassKind::Session, name).await;
        assert_eq!(found.is_some(), is_there, "{name}");
    }
}

/// A pass that is spent is gone; one of another kind is not touched.
pub async fn a_pass_is_spent_once(world: World) {
    for kind in [PassKind::Ticket, PassKind::Session] {
        give(&world, kind, "t", Holder::Local).await;
    }
    let whole = shown(&world, PassKind::Ticket, "t").await;
    assert!(whole.is_some());
    assert_eq!(spent(&world, PassKind::Ticket, "t").await, whole);
    assert_eq!(spent(&world, PassKind::Ticket, "t").await, None);
    assert_eq!(shown(&world, PassKind::Ticket, "t").await, None);
    assert_eq!(shown(&world, PassKind::Session, "t").await, whole);
}

/// A pass does not outlive the key that gave it out, however that ended.
pub async fn passes_end_with_their_key(world: World) {
    assert!(add(&world, "revoked", None, Role::Admin).await);
    assert!(add(&world, "expiring", Some(Millis(20)), Role::Admin).await);
    assert!(add(&world, "good", None, Role::Admin).await);
    let names = ["revoked", "expiring", "good", "unknown"];
    let give_all = async || {
        for name in names {
            let holder = Holder::Key(hash(name));
            give(&world, PassKind::Session, name, holder.clone()).await;
            give(&world, PassKind::Ticket, name, holder).await;
        }
    };
    let good = async || {
        let mut good = Vec::new();
        for name in names {
            if let Some(row) = shown(&world, PassKind::Session, name).await {
                assert_eq!(row.holder, Holder::Key(hash(name)));
                good.push(name);
            }
        }
        good
    };
    give_all().await;
    assert_eq!(good().await, ["revoked", "expiring", "good"]);
    let name = key_name("revoked");
    let revoked = world.at.keyring.revoke_key(&name).await.expect("revoke");
    assert!(revoked.is_some());
    assert_eq!(good().await, ["expiring", "good"]);
    world.pass(Millis(20));
    assert_eq!(good().await, ["good"]);
    // A request that began before its key ended, and a new key of the same name.
    give_all().await;
    let again = NewKey {
        hash: hash("another secret"),
        ..new_key("revoked", None, Role::Admin)
    };
    assert!(world.at.keyring.add_key(again).await.expect("add key"));
    assert_eq!(good().await, ["good"]);
    for name in names {
        let spent = spent(&world, PassKind::Ticket, name).await;
        assert_eq!(spent.is_some(), name == "good", "{name}");
    }
}

/// A link stands as long as its gate is known.
pub async fn a_link_is_forgotten_with_its_run(world: World) {
    let mut gone = world.held(|_| {}).await;
    let mut kept = world.held(|_| {}).await;
    let [first, second, unknown] = [(); 3].map(|()| world.ids.gate());
    gone.write(raises(gate_spec(first))).await;
    kept.write(raises(gate_spec(second))).await;
    let links = [
        ("a", first, Some(hash("frozen"))),
        ("b", first, None),
        ("c", second, None),
        ("d", unknown, None),
    ];
    let links = links.map(|(name, gate, digest)| LinkRow {
        hash: hash(name),
        gate,
        digest,
        recipient: format!("{name}@example.org"),
        by: "key:ops".to_owned(),
    });
    for link in &links {
        // Whoever did not hear the answer says it again.
        for _ in 0..2 {
            let added = world.at.keyring.add_link(link.clone()).await;
            added.expect("add link");
        }
    }
    let found = async || {
        let mut found = Vec::new();
        for link in &links {
            found.extend(world.at.keyring.link(link.hash).await.expect("link"));
        }
        found
    };
    assert_eq!(found().await, links[..3], "the last one has no gate");
    gone.write(ends().and(close_gate(first, GateEnd::Withdrawn)))
        .await;
    kept.write(ends().and(close_gate(second, GateEnd::Withdrawn)))
        .await;
    world.pass(Millis(1));
    assert_eq!(prune(&world).await.0, 1, "the other was written to last");
    assert_eq!(found().await, links[2..3]);
}

/// The same request is done by one, once; what they hear meanwhile and after it.
pub async fn a_request_counts_once(world: World) {
    let begun = async |principal: &str, body: &str| begin(&world, principal, body).await;
    assert_eq!(begun("anna", "x").await, Begun::Mine);
    for (principal, body, expected) in [
        ("anna", "x", Begun::Running),
        ("anna", "y", Begun::Other),
        ("bert", "y", Begun::Mine),
    ] {
        assert_eq!(begun(principal, body).await, expected, "{principal} {body}");
    }
    keep(&world, "anna", reply(201)).await;
    for (principal, body, expected) in [
        ("anna", "x", Begun::Done(reply(201))),
        ("anna", "y", Begun::Other),
        ("bert", "y", Begun::Running),
    ] {
        assert_eq!(begun(principal, body).await, expected, "{principal} {body}");
    }
    // What came to nothing may be sent again, also with another body.
    drop_reply(&world, "bert").await;
    assert_eq!(begun("bert", "z").await, Begun::Mine);
    let bare = Reply {
        location: None,
        body: Vec::new(),
        ..reply(204)
    };
    keep(&world, "bert", bare.clone()).await;
    assert_eq!(begun("bert", "z").await, Begun::Done(bare));
}

/// Whoever has not answered in time is taken for dead: the next one does it.
pub async fn a_request_of_the_dead_is_taken_over(world: World) {
    for body in ["x", "x", "y"] {
        assert_eq!(begin(&world, "anna", body).await, Begun::Mine);
        world.pass(Millis(LEASE.0 - 1));
        assert_eq!(begin(&world, "anna", body).await, Begun::Running);
        world.pass(Millis(1));
    }
    assert_eq!(begin(&world, "anna", "y").await, Begun::Mine);
    keep(&world, "anna", reply(200)).await;
    world.pass(LEASE);
    let done = Begun::Done(reply(200));
    assert_eq!(
        begin(&world, "anna", "y").await,
        done,
        "who is done is not dead"
    );
}

/// An answer that was kept is the one that everybody hears.
pub async fn an_answer_that_is_kept_stands(world: World) {
    // Nothing was begun: there is nothing to keep.
    keep(&world, "anna", reply(500)).await;
    drop_reply(&world, "anna").await;
    assert_eq!(begin(&world, "anna", "x").await, Begun::Mine);
    keep(&world, "anna", reply(201)).await;
    // Somebody who was taken for dead comes to an end after all.
    keep(&world, "anna", reply(409)).await;
    drop_reply(&world, "anna").await;
    let done = Begun::Done(reply(201));
    assert_eq!(begin(&world, "anna", "x").await, done);
}

/// After its keep a request is as if it had never been, pruned or not.
pub async fn kept_answers_are_forgotten_in_time(world: World) {
    for principal in ["anna", "bert"] {
        assert_eq!(begin(&world, principal, "x").await, Begun::Mine);
        keep(&world, principal, reply(201)).await;
    }
    world.pass(Millis(KEEP.0 - 1));
    assert_eq!(prune(&world).await, (0, 0));
    let done = Begun::Done(reply(201));
    assert_eq!(begin(&world, "anna", "x").await, done);
    world.pass(Millis(1));
    assert_eq!(begin(&world, "anna", "y").await, Begun::Mine);
    assert_eq!(prune(&world).await, (0, 1), "the other one");
    assert_eq!(begin(&world, "anna", "y").await, Begun::Running);
    assert_eq!(begin(&world, "bert", "y").await, Begun::Mine);
}

/// Of many who spend one pass at once one gets it.
pub async fn one_of_many_spends_a_pass(world: World) {
    for round in 0..world.at.rounds / 20 {
        let name = format!("t{round}");
        give(&world, PassKind::Ticket, &name, Holder::Local).await;
        let spends = |world: World| {
            let name = name.clone();
            async move { spent(&world, PassKind::Ticket, &name).await.is_some() }
        };
        assert_eq!(many(&world, spends).await, 1, "round {round}");
    }
}

/// Of many who send one request at once one does it.
pub async fn one_of_many_begins_a_request(world: World) {
    for round in 0..world.at.rounds / 20 {
        let begins = |world: World| async move {
            match begin(&world, &format!("p{round}"), "x").await {
                Begun::Mine => true,
                Begun::Running => false,
                other @ (Begun::Done(_) | Begun::Applied(_) | Begun::Other) => panic!("{other:?}"),
            }
        };
        assert_eq!(many(&world, begins).await, 1, "round {round}");
    }
}

/// How many of four who do the same at once succeed.
async fn many<F, R>(world: &World, side: F) -> usize
where
    F: Fn(World) -> R,
    R: Future<Output = bool> + Send + 'static,
{
    let mut sides = JoinSet::new();
    for _ in 0..4 {
        sides.spawn(side(world.clone()));
    }
    let done = sides.join_all().await;
    done.into_iter().filter(|won| *won).count()
}

async fn add(world: &World, name: &str, span: Option<Millis>, role: Role) -> bool {
    let added = world.at.keyring.add_key(new_key(name, span, role)).await;
    added.expect("add key")
}

pub(super) fn new_key(name: &str, span: Option<Millis>, role: Role) -> NewKey {
    NewKey {
        name: key_name(name),
        role,
        hash: hash(name),
        span,
        by: "cli:root".to_owned(),
        request: None,
    }
}

async fn give(world: &World, kind: PassKind, name: &str, holder: Holder) {
    let pass = NewPass {
        kind,
        hash: hash(name),
        holder,
        span: Millis(50),
    };
    world.at.keyring.add_pass(pass).await.expect("add pass");
}

async fn shown(world: &World, kind: PassKind, name: &str) -> Option<PassRow> {
    let found = world.at.keyring.pass(kind, hash(name)).await;
    found.expect("pass")
}

async fn spent(world: &World, kind: PassKind, name: &str) -> Option<PassRow> {
    let spent = world.at.keyring.spend_pass(kind, hash(name)).await;
    spent.expect("spend pass")
}

pub(super) async fn begin(world: &World, principal: &str, body: &str) -> Begun {
    let ask = ReplyAsk {
        of: of(principal),
        body: hash(body),
        keep: KEEP,
        lease: LEASE,
    };
    world.at.keyring.begin_reply(ask).await.expect("begin")
}

pub(super) async fn keep(world: &World, principal: &str, reply: Reply) {
    let kept = world.at.keyring.keep_reply(of(principal), reply).await;
    kept.expect("keep");
}

pub(super) async fn drop_reply(world: &World, principal: &str) {
    let dropped = world.at.keyring.drop_reply(of(principal)).await;
    dropped.expect("drop");
}

pub(super) fn of(principal: &str) -> ReplyKey {
    ReplyKey {
        principal: principal.to_owned(),
        key: "k".to_owned(),
    }
}

pub(super) fn reply(status: u16) -> Reply {
    Reply {
        status,
        location: Some("/v1/runs/1".to_owned()),
        body: vec![0, 255, 10],
    }
}

/// Forgets whatever can be: how many runs and how many keys.
async fn prune(world: &World) -> (usize, usize) {
    let ask = PruneAsk {
        runs_older: Millis::ZERO,
        blobs_older: Millis::ZERO,
        limit: 99,
    };
    let pruned = world.at.store.prune(ask).await.expect("prune");
    (pruned.runs, pruned.keys)
}

fn key_name(name: &str) -> KeyName {
    KeyName::new(name).expect("a good name")
}

fn hash(secret: &str) -> Hash {
    Hash::of(secret.as_bytes())
}
