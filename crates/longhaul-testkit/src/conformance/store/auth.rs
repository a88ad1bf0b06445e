//! API keys, tokens, links, and stored responses of idempotent requests.

use tokio::task::JoinSet;

use longhaul_core::access::Role;
use longhaul_core::change::GateTransition;
use longhaul_core::id::ApiKeyName;
use longhaul_core::port::auth::{
    ApiKeyRef, ApiKeyRow, GateLinkRow, IdempotencyKey, IdempotencyRequest, IdempotentRequestState,
    LoginTokenKind, LoginTokenRow, NewApiKey, NewLoginToken, StoredHttpResponse,
};
use longhaul_core::port::store::PruneRequest;
use longhaul_core::raw::Hash;
use longhaul_core::time::{Clock as _, Millis};

use crate::conformance::store::batches::{
    BatchExt as _, close_gate, end_batch, gate_spec, raise_gate_batch,
};
use crate::conformance::store::fixture::StoreFixture;

/// Retention and lease of every request in the checks.
pub(super) const RETENTION: Millis = Millis(1_000);
pub(super) const LEASE: Millis = Millis(100);
/// Interval within which further uses of a key are not recorded.
const LAST_USED_PRECISION: Millis = Millis::from_secs(5 * 60);

/// A key is returned as it was added, with the store's times.
pub async fn a_key_is_found_by_its_hash(world: StoreFixture) {
    let ring = &world.harness.auth;
    let mut expected = Vec::new();
    for (name, role, span) in
        [("ops", Role::Operator, None), ("anna", Role::Approver, Some(Millis(50)))]
    {
        world.advance(Millis(7));
        let now = world.harness.clock.now();
        assert!(add_api_key(&world, name, span, role).await);
        expected.push(ApiKeyRow {
            name: key_name(name),
            role,
            hash: hash(name),
            by: "cli:root".to_owned(),
            created_at: now,
            expires_at: span.map(|span| now.plus(span)),
            revoked_at: None,
            last_used_at: None,
        });
        let found = ring.find_api_key(hash(name)).await.expect("key");
        assert_eq!(found.as_ref(), expected.last());
    }
    assert_eq!(ring.list_api_keys().await.expect("keys"), expected);
    assert_eq!(ring.find_api_key(hash("nobody")).await.expect("key"), None);
}

/// A name belongs to one key until that key is revoked, even after it has expired. The old key
/// stays known.
pub async fn a_name_is_free_when_its_key_is_revoked(world: StoreFixture) {
    let ring = &world.harness.auth;
    let name = key_name("ops");
    let revoke = async || ring.revoke_api_key(&name).await.expect("revoke");
    assert_eq!(revoke().await, None, "there is no such key");
    let add = async |secret: &str| {
        let key =
            NewApiKey { hash: hash(secret), ..new_key("ops", Some(Millis(50)), Role::Viewer) };
        ring.add_api_key(key).await.expect("add key")
    };
    assert!(add("one").await);
    assert!(!add("two").await);
    world.advance(Millis(50));
    assert!(!add("two").await, "the key has expired but is not revoked");
    let now = world.harness.clock.now();
    let revoked = revoke().await.expect("the key existed");
    assert_eq!((revoked.hash, revoked.revoked_at), (hash("one"), Some(now)));
    assert_eq!(revoke().await, None, "the key is revoked already");
    assert!(add("two").await);
    let found = ring.find_api_key(hash("one")).await.expect("key");
    assert_eq!(found, Some(revoked));
    let keys = ring.list_api_keys().await.expect("keys");
    let counting: Vec<_> = keys.iter().map(|key| key.is_valid_at(now)).collect();
    assert_eq!(counting, [false, true], "{keys:?}");
}

/// Each secret belongs to one key.
pub async fn a_key_hash_is_unique(world: StoreFixture) {
    assert!(add_api_key(&world, "ops", None, Role::Viewer).await);
    let again = NewApiKey { name: key_name("other"), ..new_key("ops", None, Role::Admin) };
    assert!(world.harness.auth.add_api_key(again).await.is_err());
    let keys = world.harness.auth.list_api_keys().await.expect("keys");
    assert_eq!(keys.len(), 1, "{keys:?}");
    // A retry after a lost response reports that the key exists.
    assert!(!add_api_key(&world, "ops", None, Role::Viewer).await);
}

/// The last use of a key is recorded, but not every use.
pub async fn the_last_use_of_a_key_is_recorded_within_minutes(world: StoreFixture) {
    let ring = &world.harness.auth;
    assert!(add_api_key(&world, "ops", None, Role::Viewer).await);
    let touch = async |name| {
        ring.record_api_key_use(hash(name)).await.expect("touch");
        let found = ring.find_api_key(hash("ops")).await.expect("key");
        found.expect("the key exists").last_used_at
    };
    assert_eq!(touch("nobody").await, None);
    let first = world.harness.clock.now();
    for span in [Millis::ZERO, Millis(LAST_USED_PRECISION.0 - 1), Millis(1)] {
        world.advance(span);
        assert_eq!(touch("ops").await, Some(first));
    }
    world.advance(Millis(1));
    assert_eq!(touch("ops").await, Some(world.harness.clock.now()));
}

/// A token is valid for one purpose until it expires, any number of times.
pub async fn a_token_is_valid_until_it_expires(world: StoreFixture) {
    let until = world.harness.clock.now().plus(Millis(50));
    add_login_token(&world, LoginTokenKind::Session, "s", ApiKeyRef::Local).await;
    let expected = LoginTokenRow { issuer: ApiKeyRef::Local, expires_at: until };
    for _ in 0..2 {
        let found = find_login_token(&world, LoginTokenKind::Session, "s").await;
        assert_eq!(found.as_ref(), Some(&expected));
        assert_eq!(find_login_token(&world, LoginTokenKind::Ticket, "s").await, None);
        assert_eq!(find_login_token(&world, LoginTokenKind::Session, "t").await, None);
        world.advance(Millis(24));
    }
    world.advance(Millis(2));
    assert_eq!(find_login_token(&world, LoginTokenKind::Session, "s").await, None);
    assert_eq!(consume_login_token(&world, LoginTokenKind::Session, "s").await, None);
    // Adding tokens deletes the expired ones, and no others.
    for name in ["a", "b"] {
        add_login_token(&world, LoginTokenKind::Session, name, ApiKeyRef::Local).await;
    }
    for (name, is_there) in [("a", true), ("b", true), ("s", false)] {
        let found = find_login_token(&world, LoginTokenKind::Session, name).await;
        assert_eq!(found.is_some(), is_there, "{name}");
    }
}

/// A consumed token is deleted; a token of another kind is not affected.
pub async fn a_token_is_consumed_once(world: StoreFixture) {
    for kind in [LoginTokenKind::Ticket, LoginTokenKind::Session] {
        add_login_token(&world, kind, "t", ApiKeyRef::Local).await;
    }
    let whole = find_login_token(&world, LoginTokenKind::Ticket, "t").await;
    assert!(whole.is_some());
    assert_eq!(consume_login_token(&world, LoginTokenKind::Ticket, "t").await, whole);
    assert_eq!(consume_login_token(&world, LoginTokenKind::Ticket, "t").await, None);
    assert_eq!(find_login_token(&world, LoginTokenKind::Ticket, "t").await, None);
    assert_eq!(find_login_token(&world, LoginTokenKind::Session, "t").await, whole);
}

/// A token ends with its key, whether the key expires or is revoked.
pub async fn tokens_end_with_their_key(world: StoreFixture) {
    assert!(add_api_key(&world, "revoked", None, Role::Admin).await);
    assert!(add_api_key(&world, "expiring", Some(Millis(20)), Role::Admin).await);
    assert!(add_api_key(&world, "good", None, Role::Admin).await);
    let names = ["revoked", "expiring", "good", "unknown"];
    let give_all = async || {
        for name in names {
            let holder = ApiKeyRef::Key(hash(name));
            add_login_token(&world, LoginTokenKind::Session, name, holder.clone()).await;
            add_login_token(&world, LoginTokenKind::Ticket, name, holder).await;
        }
    };
    let good = async || {
        let mut good = Vec::new();
        for name in names {
            if let Some(row) = find_login_token(&world, LoginTokenKind::Session, name).await {
                assert_eq!(row.issuer, ApiKeyRef::Key(hash(name)));
                good.push(name);
            }
        }
        good
    };
    give_all().await;
    assert_eq!(good().await, ["revoked", "expiring", "good"]);
    let name = key_name("revoked");
    let revoked = world.harness.auth.revoke_api_key(&name).await.expect("revoke");
    assert!(revoked.is_some());
    assert_eq!(good().await, ["expiring", "good"]);
    world.advance(Millis(20));
    assert_eq!(good().await, ["good"]);
    // A request that began before its key ended, and a new key with the same name.
    give_all().await;
    let again = NewApiKey { hash: hash("another secret"), ..new_key("revoked", None, Role::Admin) };
    assert!(world.harness.auth.add_api_key(again).await.expect("add key"));
    assert_eq!(good().await, ["good"]);
    for name in names {
        let spent = consume_login_token(&world, LoginTokenKind::Ticket, name).await;
        assert_eq!(spent.is_some(), name == "good", "{name}");
    }
}

/// A link exists as long as its gate.
pub async fn a_link_is_pruned_with_its_run(world: StoreFixture) {
    let mut gone = world.open_and_claim(|_| {}).await;
    let mut kept = world.open_and_claim(|_| {}).await;
    let [first, second, unknown] = [(); 3].map(|()| world.ids.gate());
    gone.append_ok(raise_gate_batch(gate_spec(first))).await;
    kept.append_ok(raise_gate_batch(gate_spec(second))).await;
    let links = [
        ("a", first, Some(hash("frozen"))),
        ("b", first, None),
        ("c", second, None),
        ("d", unknown, None),
    ];
    let links = links.map(|(name, gate, digest)| GateLinkRow {
        hash: hash(name),
        gate,
        digest,
        recipient: format!("{name}@example.org"),
        by: "key:ops".to_owned(),
    });
    for link in &links {
        // The same link may be added again, as after a lost response.
        for _ in 0..2 {
            let added = world.harness.auth.add_gate_link(link.clone()).await;
            added.expect("add link");
        }
    }
    let found = async || {
        let mut found = Vec::new();
        for link in &links {
            found.extend(world.harness.auth.find_gate_link(link.hash).await.expect("link"));
        }
        found
    };
    assert_eq!(found().await, links[..3], "the last link has no gate");
    gone.append_ok(end_batch().with_change(close_gate(first, GateTransition::Withdrawn))).await;
    kept.append_ok(end_batch().with_change(close_gate(second, GateTransition::Withdrawn))).await;
    world.advance(Millis(1));
    assert_eq!(prune(&world).await.0, 1, "the other run has the newest event");
    assert_eq!(found().await, links[2..3]);
}

/// A request is executed once. Checks the responses to retries before and after it completes.
pub async fn a_request_counts_once(world: StoreFixture) {
    let begun = async |principal: &str, body: &str| begin_request(&world, principal, body).await;
    assert_eq!(begun("anna", "x").await, IdempotentRequestState::Acquired);
    for (principal, body, expected) in [
        ("anna", "x", IdempotentRequestState::InProgress),
        ("anna", "y", IdempotentRequestState::Conflict),
        ("bert", "y", IdempotentRequestState::Acquired),
    ] {
        assert_eq!(begun(principal, body).await, expected, "{principal} {body}");
    }
    complete_request(&world, "anna", response(201)).await;
    for (principal, body, expected) in [
        ("anna", "x", IdempotentRequestState::Completed(response(201))),
        ("anna", "y", IdempotentRequestState::Conflict),
        ("bert", "y", IdempotentRequestState::InProgress),
    ] {
        assert_eq!(begun(principal, body).await, expected, "{principal} {body}");
    }
    // A failed request may be sent again, also with another body.
    abort_request(&world, "bert").await;
    assert_eq!(begun("bert", "z").await, IdempotentRequestState::Acquired);
    let bare = StoredHttpResponse { location: None, body: Vec::new(), ..response(204) };
    complete_request(&world, "bert", bare.clone()).await;
    assert_eq!(begun("bert", "z").await, IdempotentRequestState::Completed(bare));
}

/// A request whose lease has expired is taken over by the next attempt.
pub async fn a_request_of_a_dead_server_is_taken_over(world: StoreFixture) {
    for body in ["x", "x", "y"] {
        assert_eq!(begin_request(&world, "anna", body).await, IdempotentRequestState::Acquired);
        world.advance(Millis(LEASE.0 - 1));
        assert_eq!(begin_request(&world, "anna", body).await, IdempotentRequestState::InProgress);
        world.advance(Millis(1));
    }
    assert_eq!(begin_request(&world, "anna", "y").await, IdempotentRequestState::Acquired);
    complete_request(&world, "anna", response(200)).await;
    world.advance(LEASE);
    let done = IdempotentRequestState::Completed(response(200));
    assert_eq!(
        begin_request(&world, "anna", "y").await,
        done,
        "a completed request is not taken over"
    );
}

/// A stored response is final.
pub async fn a_stored_response_is_final(world: StoreFixture) {
    // Without a begun request nothing is stored.
    complete_request(&world, "anna", response(500)).await;
    abort_request(&world, "anna").await;
    assert_eq!(begin_request(&world, "anna", "x").await, IdempotentRequestState::Acquired);
    complete_request(&world, "anna", response(201)).await;
    // A server that counted as dead finishes after all.
    complete_request(&world, "anna", response(409)).await;
    abort_request(&world, "anna").await;
    let done = IdempotentRequestState::Completed(response(201));
    assert_eq!(begin_request(&world, "anna", "x").await, done);
}

/// After its retention a request has no effect any more, whether it is pruned or not.
pub async fn stored_responses_expire(world: StoreFixture) {
    for principal in ["anna", "bert"] {
        assert_eq!(begin_request(&world, principal, "x").await, IdempotentRequestState::Acquired);
        complete_request(&world, principal, response(201)).await;
    }
    world.advance(Millis(RETENTION.0 - 1));
    assert_eq!(prune(&world).await, (0, 0));
    let done = IdempotentRequestState::Completed(response(201));
    assert_eq!(begin_request(&world, "anna", "x").await, done);
    world.advance(Millis(1));
    assert_eq!(begin_request(&world, "anna", "y").await, IdempotentRequestState::Acquired);
    assert_eq!(prune(&world).await, (0, 1), "the other request");
    assert_eq!(begin_request(&world, "anna", "y").await, IdempotentRequestState::InProgress);
    assert_eq!(begin_request(&world, "bert", "y").await, IdempotentRequestState::Acquired);
}

/// Only one of many concurrent attempts consumes a token.
pub async fn one_of_many_consumes_a_token(world: StoreFixture) {
    for round in 0..world.harness.rounds / 20 {
        let name = format!("t{round}");
        add_login_token(&world, LoginTokenKind::Ticket, &name, ApiKeyRef::Local).await;
        let spends = |world: StoreFixture| {
            let name = name.clone();
            async move { consume_login_token(&world, LoginTokenKind::Ticket, &name).await.is_some() }
        };
        assert_eq!(count_concurrent(&world, spends).await, 1, "round {round}");
    }
}

/// Only one of many concurrent attempts begins a request.
pub async fn one_of_many_begins_a_request(world: StoreFixture) {
    for round in 0..world.harness.rounds / 20 {
        let begins = |world: StoreFixture| async move {
            match begin_request(&world, &format!("p{round}"), "x").await {
                IdempotentRequestState::Acquired => true,
                IdempotentRequestState::InProgress => false,
                other @ (IdempotentRequestState::Completed(_)
                | IdempotentRequestState::Applied(_)
                | IdempotentRequestState::Conflict) => panic!("{other:?}"),
            }
        };
        assert_eq!(count_concurrent(&world, begins).await, 1, "round {round}");
    }
}

/// Returns how many of four concurrent attempts succeed.
async fn count_concurrent<F, R>(world: &StoreFixture, side: F) -> usize
where
    F: Fn(StoreFixture) -> R,
    R: Future<Output = bool> + Send + 'static,
{
    let mut sides = JoinSet::new();
    for _ in 0..4 {
        sides.spawn(side(world.clone()));
    }
    let done = sides.join_all().await;
    done.into_iter().filter(|won| *won).count()
}

async fn add_api_key(world: &StoreFixture, name: &str, span: Option<Millis>, role: Role) -> bool {
    let added = world.harness.auth.add_api_key(new_key(name, span, role)).await;
    added.expect("add key")
}

pub(super) fn new_key(name: &str, span: Option<Millis>, role: Role) -> NewApiKey {
    NewApiKey {
        name: key_name(name),
        role,
        hash: hash(name),
        ttl: span,
        by: "cli:root".to_owned(),
        request: None,
    }
}

async fn add_login_token(
    world: &StoreFixture,
    kind: LoginTokenKind,
    name: &str,
    holder: ApiKeyRef,
) {
    let token = NewLoginToken { kind, hash: hash(name), issuer: holder, ttl: Millis(50) };
    world.harness.auth.add_login_token(token).await.expect("add token");
}

async fn find_login_token(
    world: &StoreFixture,
    kind: LoginTokenKind,
    name: &str,
) -> Option<LoginTokenRow> {
    let found = world.harness.auth.find_login_token(kind, hash(name)).await;
    found.expect("pass")
}

async fn consume_login_token(
    world: &StoreFixture,
    kind: LoginTokenKind,
    name: &str,
) -> Option<LoginTokenRow> {
    let spent = world.harness.auth.consume_login_token(kind, hash(name)).await;
    spent.expect("consume token")
}

pub(super) async fn begin_request(
    world: &StoreFixture,
    principal: &str,
    body: &str,
) -> IdempotentRequestState {
    let ask = IdempotencyRequest {
        key: request_key(principal),
        body_hash: hash(body),
        ttl: RETENTION,
        lease: LEASE,
    };
    world.harness.auth.begin_idempotent_request(ask).await.expect("begin")
}

pub(super) async fn complete_request(
    world: &StoreFixture,
    principal: &str,
    reply: StoredHttpResponse,
) {
    let kept = world.harness.auth.complete_idempotent_request(request_key(principal), reply).await;
    kept.expect("keep");
}

pub(super) async fn abort_request(world: &StoreFixture, principal: &str) {
    let dropped = world.harness.auth.abort_idempotent_request(request_key(principal)).await;
    dropped.expect("drop");
}

pub(super) fn request_key(principal: &str) -> IdempotencyKey {
    IdempotencyKey { principal: principal.to_owned(), key: "k".to_owned() }
}

pub(super) fn response(status: u16) -> StoredHttpResponse {
    StoredHttpResponse { status, location: Some("/v1/runs/1".to_owned()), body: vec![0, 255, 10] }
}

/// Prunes everything that can be pruned and returns the numbers of runs and keys.
async fn prune(world: &StoreFixture) -> (usize, usize) {
    let ask =
        PruneRequest { runs_older_than: Millis::ZERO, blobs_older_than: Millis::ZERO, limit: 99 };
    let pruned = world.harness.store.prune_old_data(ask).await.expect("prune");
    (pruned.runs, pruned.idempotency_keys)
}

fn key_name(name: &str) -> ApiKeyName {
    ApiKeyName::new(name).expect("a valid name")
}

fn hash(secret: &str) -> Hash {
    Hash::digest(secret.as_bytes())
}
