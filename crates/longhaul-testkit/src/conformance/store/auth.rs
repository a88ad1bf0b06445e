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
pub async fn a_key_is_found_by_its_hash(fixture: StoreFixture) {
    let auth = &fixture.harness.auth;
    let mut expected = Vec::new();
    for (name, role, ttl) in
        [("ops", Role::Operator, None), ("anna", Role::Approver, Some(Millis(50)))]
    {
        fixture.advance(Millis(7));
        let now = fixture.harness.clock.now();
        assert!(add_api_key(&fixture, name, ttl, role).await);
        expected.push(ApiKeyRow {
            name: key_name(name),
            role,
            hash: hash(name),
            by: "cli:root".to_owned(),
            created_at: now,
            expires_at: ttl.map(|ttl| now.plus(ttl)),
            revoked_at: None,
            last_used_at: None,
        });
        let found = auth.find_api_key(hash(name)).await.expect("key");
        assert_eq!(found.as_ref(), expected.last());
    }
    assert_eq!(auth.list_api_keys().await.expect("keys"), expected);
    assert_eq!(auth.find_api_key(hash("nobody")).await.expect("key"), None);
}

/// A name belongs to one key until that key is revoked, even after it has expired. The old key
/// stays known.
pub async fn a_name_is_free_when_its_key_is_revoked(fixture: StoreFixture) {
    let auth = &fixture.harness.auth;
    let name = key_name("ops");
    let revoke = async || auth.revoke_api_key(&name).await.expect("revoke");
    assert_eq!(revoke().await, None, "there is no such key");
    let add = async |secret: &str| {
        let key =
            NewApiKey { hash: hash(secret), ..new_key("ops", Some(Millis(50)), Role::Viewer) };
        auth.add_api_key(key).await.expect("add key")
    };
    assert!(add("one").await);
    assert!(!add("two").await);
    fixture.advance(Millis(50));
    assert!(!add("two").await, "the key has expired but is not revoked");
    let now = fixture.harness.clock.now();
    let revoked = revoke().await.expect("the key existed");
    assert_eq!((revoked.hash, revoked.revoked_at), (hash("one"), Some(now)));
    assert_eq!(revoke().await, None, "the key is revoked already");
    assert!(add("two").await);
    let found = auth.find_api_key(hash("one")).await.expect("key");
    assert_eq!(found, Some(revoked));
    let keys = auth.list_api_keys().await.expect("keys");
    let validity: Vec<_> = keys.iter().map(|key| key.is_valid_at(now)).collect();
    assert_eq!(validity, [false, true], "{keys:?}");
}

/// Each secret belongs to one key.
pub async fn a_key_hash_is_unique(fixture: StoreFixture) {
    assert!(add_api_key(&fixture, "ops", None, Role::Viewer).await);
    let duplicate = NewApiKey { name: key_name("other"), ..new_key("ops", None, Role::Admin) };
    assert!(fixture.harness.auth.add_api_key(duplicate).await.is_err());
    let keys = fixture.harness.auth.list_api_keys().await.expect("keys");
    assert_eq!(keys.len(), 1, "{keys:?}");
    // A retry after a lost response reports that the key exists.
    assert!(!add_api_key(&fixture, "ops", None, Role::Viewer).await);
}

/// The last use of a key is recorded, but not every use.
pub async fn the_last_use_of_a_key_is_recorded_within_minutes(fixture: StoreFixture) {
    let auth = &fixture.harness.auth;
    assert!(add_api_key(&fixture, "ops", None, Role::Viewer).await);
    let record_use = async |name| {
        auth.record_api_key_use(hash(name)).await.expect("touch");
        let found = auth.find_api_key(hash("ops")).await.expect("key");
        found.expect("the key exists").last_used_at
    };
    assert_eq!(record_use("nobody").await, None);
    let first = fixture.harness.clock.now();
    for interval in [Millis::ZERO, Millis(LAST_USED_PRECISION.0 - 1), Millis(1)] {
        fixture.advance(interval);
        assert_eq!(record_use("ops").await, Some(first));
    }
    fixture.advance(Millis(1));
    assert_eq!(record_use("ops").await, Some(fixture.harness.clock.now()));
}

/// A token is valid for one purpose until it expires, any number of times.
pub async fn a_token_is_valid_until_it_expires(fixture: StoreFixture) {
    let expires_at = fixture.harness.clock.now().plus(Millis(50));
    add_login_token(&fixture, LoginTokenKind::Session, "s", ApiKeyRef::Local).await;
    let expected = LoginTokenRow { api_key: ApiKeyRef::Local, expires_at };
    for _ in 0..2 {
        let found = find_login_token(&fixture, LoginTokenKind::Session, "s").await;
        assert_eq!(found.as_ref(), Some(&expected));
        assert_eq!(find_login_token(&fixture, LoginTokenKind::Ticket, "s").await, None);
        assert_eq!(find_login_token(&fixture, LoginTokenKind::Session, "t").await, None);
        fixture.advance(Millis(24));
    }
    fixture.advance(Millis(2));
    assert_eq!(find_login_token(&fixture, LoginTokenKind::Session, "s").await, None);
    assert_eq!(consume_login_token(&fixture, LoginTokenKind::Session, "s").await, None);
    // Adding tokens deletes the expired ones, and no others.
    for name in ["a", "b"] {
        add_login_token(&fixture, LoginTokenKind::Session, name, ApiKeyRef::Local).await;
    }
    for (name, exists) in [("a", true), ("b", true), ("s", false)] {
        let found = find_login_token(&fixture, LoginTokenKind::Session, name).await;
        assert_eq!(found.is_some(), exists, "{name}");
    }
}

/// A consumed token is deleted; a token of another kind is not affected.
pub async fn a_token_is_consumed_once(fixture: StoreFixture) {
    for kind in [LoginTokenKind::Ticket, LoginTokenKind::Session] {
        add_login_token(&fixture, kind, "t", ApiKeyRef::Local).await;
    }
    let token = find_login_token(&fixture, LoginTokenKind::Ticket, "t").await;
    assert!(token.is_some());
    assert_eq!(consume_login_token(&fixture, LoginTokenKind::Ticket, "t").await, token);
    assert_eq!(consume_login_token(&fixture, LoginTokenKind::Ticket, "t").await, None);
    assert_eq!(find_login_token(&fixture, LoginTokenKind::Ticket, "t").await, None);
    assert_eq!(find_login_token(&fixture, LoginTokenKind::Session, "t").await, token);
}

/// A token ends with its key, whether the key expires or is revoked.
pub async fn tokens_end_with_their_key(fixture: StoreFixture) {
    assert!(add_api_key(&fixture, "revoked", None, Role::Admin).await);
    assert!(add_api_key(&fixture, "expiring", Some(Millis(20)), Role::Admin).await);
    assert!(add_api_key(&fixture, "good", None, Role::Admin).await);
    let names = ["revoked", "expiring", "good", "unknown"];
    let add_tokens = async || {
        for name in names {
            let api_key = ApiKeyRef::Key(hash(name));
            add_login_token(&fixture, LoginTokenKind::Session, name, api_key.clone()).await;
            add_login_token(&fixture, LoginTokenKind::Ticket, name, api_key).await;
        }
    };
    let valid_names = async || {
        let mut valid_names = Vec::new();
        for name in names {
            if let Some(row) = find_login_token(&fixture, LoginTokenKind::Session, name).await {
                assert_eq!(row.api_key, ApiKeyRef::Key(hash(name)));
                valid_names.push(name);
            }
        }
        valid_names
    };
    add_tokens().await;
    assert_eq!(valid_names().await, ["revoked", "expiring", "good"]);
    let name = key_name("revoked");
    let revoked = fixture.harness.auth.revoke_api_key(&name).await.expect("revoke");
    assert!(revoked.is_some());
    assert_eq!(valid_names().await, ["expiring", "good"]);
    fixture.advance(Millis(20));
    assert_eq!(valid_names().await, ["good"]);
    // A request that began before its key ended, and a new key with the same name.
    add_tokens().await;
    let replacement =
        NewApiKey { hash: hash("another secret"), ..new_key("revoked", None, Role::Admin) };
    assert!(fixture.harness.auth.add_api_key(replacement).await.expect("add key"));
    assert_eq!(valid_names().await, ["good"]);
    for name in names {
        let consumed = consume_login_token(&fixture, LoginTokenKind::Ticket, name).await;
        assert_eq!(consumed.is_some(), name == "good", "{name}");
    }
}

/// A link exists as long as its gate.
pub async fn a_link_is_pruned_with_its_run(fixture: StoreFixture) {
    let mut pruned = fixture.open_and_claim(|_| {}).await;
    let mut kept = fixture.open_and_claim(|_| {}).await;
    let [first, second, unknown] = [(); 3].map(|()| fixture.ids.gate());
    pruned.append_ok(raise_gate_batch(gate_spec(first))).await;
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
            let added = fixture.harness.auth.add_gate_link(link.clone()).await;
            added.expect("add link");
        }
    }
    let find_links = async || {
        let mut found = Vec::new();
        for link in &links {
            found.extend(fixture.harness.auth.find_gate_link(link.hash).await.expect("link"));
        }
        found
    };
    assert_eq!(find_links().await, links[..3], "the last link has no gate");
    pruned.append_ok(end_batch().with_change(close_gate(first, GateTransition::Withdrawn))).await;
    kept.append_ok(end_batch().with_change(close_gate(second, GateTransition::Withdrawn))).await;
    fixture.advance(Millis(1));
    assert_eq!(prune(&fixture).await.0, 1, "the other run has the newest event");
    assert_eq!(find_links().await, links[2..3]);
}

/// A request is executed once. Checks the responses to retries before and after it completes.
pub async fn a_request_counts_once(fixture: StoreFixture) {
    let begin = async |principal: &str, body: &str| begin_request(&fixture, principal, body).await;
    assert_eq!(begin("anna", "x").await, IdempotentRequestState::Acquired);
    for (principal, body, expected) in [
        ("anna", "x", IdempotentRequestState::InProgress),
        ("anna", "y", IdempotentRequestState::Conflict),
        ("bert", "y", IdempotentRequestState::Acquired),
    ] {
        assert_eq!(begin(principal, body).await, expected, "{principal} {body}");
    }
    complete_request(&fixture, "anna", response(201)).await;
    for (principal, body, expected) in [
        ("anna", "x", IdempotentRequestState::Completed(response(201))),
        ("anna", "y", IdempotentRequestState::Conflict),
        ("bert", "y", IdempotentRequestState::InProgress),
    ] {
        assert_eq!(begin(principal, body).await, expected, "{principal} {body}");
    }
    // A failed request may be sent again, also with another body.
    abort_request(&fixture, "bert").await;
    assert_eq!(begin("bert", "z").await, IdempotentRequestState::Acquired);
    let no_content = StoredHttpResponse { location: None, body: Vec::new(), ..response(204) };
    complete_request(&fixture, "bert", no_content.clone()).await;
    assert_eq!(begin("bert", "z").await, IdempotentRequestState::Completed(no_content));
}

/// A request whose lease has expired is taken over by the next attempt.
pub async fn a_request_of_a_dead_server_is_taken_over(fixture: StoreFixture) {
    for body in ["x", "x", "y"] {
        assert_eq!(begin_request(&fixture, "anna", body).await, IdempotentRequestState::Acquired);
        fixture.advance(Millis(LEASE.0 - 1));
        assert_eq!(begin_request(&fixture, "anna", body).await, IdempotentRequestState::InProgress);
        fixture.advance(Millis(1));
    }
    assert_eq!(begin_request(&fixture, "anna", "y").await, IdempotentRequestState::Acquired);
    complete_request(&fixture, "anna", response(200)).await;
    fixture.advance(LEASE);
    let completed = IdempotentRequestState::Completed(response(200));
    assert_eq!(
        begin_request(&fixture, "anna", "y").await,
        completed,
        "a completed request is not taken over"
    );
}

pub async fn a_stored_response_is_final(fixture: StoreFixture) {
    // Without a begun request nothing is stored.
    complete_request(&fixture, "anna", response(500)).await;
    abort_request(&fixture, "anna").await;
    assert_eq!(begin_request(&fixture, "anna", "x").await, IdempotentRequestState::Acquired);
    complete_request(&fixture, "anna", response(201)).await;
    // A server that counted as dead finishes after all.
    complete_request(&fixture, "anna", response(409)).await;
    abort_request(&fixture, "anna").await;
    let completed = IdempotentRequestState::Completed(response(201));
    assert_eq!(begin_request(&fixture, "anna", "x").await, completed);
}

/// After its retention a request has no effect any more, whether it is pruned or not.
pub async fn stored_responses_expire(fixture: StoreFixture) {
    for principal in ["anna", "bert"] {
        assert_eq!(begin_request(&fixture, principal, "x").await, IdempotentRequestState::Acquired);
        complete_request(&fixture, principal, response(201)).await;
    }
    fixture.advance(Millis(RETENTION.0 - 1));
    assert_eq!(prune(&fixture).await, (0, 0));
    let completed = IdempotentRequestState::Completed(response(201));
    assert_eq!(begin_request(&fixture, "anna", "x").await, completed);
    fixture.advance(Millis(1));
    assert_eq!(begin_request(&fixture, "anna", "y").await, IdempotentRequestState::Acquired);
    assert_eq!(prune(&fixture).await, (0, 1), "the other request");
    assert_eq!(begin_request(&fixture, "anna", "y").await, IdempotentRequestState::InProgress);
    assert_eq!(begin_request(&fixture, "bert", "y").await, IdempotentRequestState::Acquired);
}

/// Only one of many concurrent attempts consumes a token.
pub async fn one_of_many_consumes_a_token(fixture: StoreFixture) {
    for round in 0..fixture.harness.rounds / 20 {
        let name = format!("t{round}");
        add_login_token(&fixture, LoginTokenKind::Ticket, &name, ApiKeyRef::Local).await;
        let consume = |fixture: StoreFixture| {
            let name = name.clone();
            async move { consume_login_token(&fixture, LoginTokenKind::Ticket, &name).await.is_some() }
        };
        assert_eq!(count_concurrent(&fixture, consume).await, 1, "round {round}");
    }
}

/// Only one of many concurrent attempts begins a request.
pub async fn one_of_many_begins_a_request(fixture: StoreFixture) {
    for round in 0..fixture.harness.rounds / 20 {
        let begin = |fixture: StoreFixture| async move {
            match begin_request(&fixture, &format!("p{round}"), "x").await {
                IdempotentRequestState::Acquired => true,
                IdempotentRequestState::InProgress => false,
                other @ (IdempotentRequestState::Completed(_)
                | IdempotentRequestState::Applied(_)
                | IdempotentRequestState::Conflict) => panic!("{other:?}"),
            }
        };
        assert_eq!(count_concurrent(&fixture, begin).await, 1, "round {round}");
    }
}

/// Returns how many of four concurrent attempts succeed.
async fn count_concurrent<F, R>(fixture: &StoreFixture, attempt: F) -> usize
where
    F: Fn(StoreFixture) -> R,
    R: Future<Output = bool> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        tasks.spawn(attempt(fixture.clone()));
    }
    let results = tasks.join_all().await;
    results.into_iter().filter(|succeeded| *succeeded).count()
}

pub(super) async fn add_api_key(
    fixture: &StoreFixture,
    name: &str,
    ttl: Option<Millis>,
    role: Role,
) -> bool {
    let added = fixture.harness.auth.add_api_key(new_key(name, ttl, role)).await;
    added.expect("add key")
}

pub(super) fn new_key(name: &str, ttl: Option<Millis>, role: Role) -> NewApiKey {
    NewApiKey {
        name: key_name(name),
        role,
        hash: hash(name),
        ttl,
        by: "cli:root".to_owned(),
        request: None,
    }
}

async fn add_login_token(
    fixture: &StoreFixture,
    kind: LoginTokenKind,
    name: &str,
    api_key: ApiKeyRef,
) {
    let token = NewLoginToken { kind, hash: hash(name), api_key, ttl: Millis(50) };
    fixture.harness.auth.add_login_token(token).await.expect("add token");
}

async fn find_login_token(
    fixture: &StoreFixture,
    kind: LoginTokenKind,
    name: &str,
) -> Option<LoginTokenRow> {
    let found = fixture.harness.auth.find_login_token(kind, hash(name)).await;
    found.expect("pass")
}

async fn consume_login_token(
    fixture: &StoreFixture,
    kind: LoginTokenKind,
    name: &str,
) -> Option<LoginTokenRow> {
    let consumed = fixture.harness.auth.consume_login_token(kind, hash(name)).await;
    consumed.expect("consume token")
}

pub(super) async fn begin_request(
    fixture: &StoreFixture,
    principal: &str,
    body: &str,
) -> IdempotentRequestState {
    let request = IdempotencyRequest {
        key: request_key(principal),
        body_hash: hash(body),
        ttl: RETENTION,
        lease: LEASE,
    };
    fixture.harness.auth.begin_idempotent_request(request).await.expect("begin")
}

pub(super) async fn complete_request(
    fixture: &StoreFixture,
    principal: &str,
    response: StoredHttpResponse,
) {
    let completed =
        fixture.harness.auth.complete_idempotent_request(request_key(principal), response).await;
    completed.expect("keep");
}

pub(super) async fn abort_request(fixture: &StoreFixture, principal: &str) {
    let aborted = fixture.harness.auth.abort_idempotent_request(request_key(principal)).await;
    aborted.expect("drop");
}

pub(super) fn request_key(principal: &str) -> IdempotencyKey {
    IdempotencyKey { principal: principal.to_owned(), key: "k".to_owned() }
}

pub(super) fn response(status: u16) -> StoredHttpResponse {
    StoredHttpResponse { status, location: Some("/v1/runs/1".to_owned()), body: vec![0, 255, 10] }
}

/// Prunes everything that can be pruned and returns the numbers of runs and keys.
async fn prune(fixture: &StoreFixture) -> (usize, usize) {
    let request =
        PruneRequest { runs_older_than: Millis::ZERO, blobs_older_than: Millis::ZERO, limit: 99 };
    let pruned = fixture.harness.store.prune_old_data(request).await.expect("prune");
    (pruned.runs, pruned.idempotency_keys)
}

fn key_name(name: &str) -> ApiKeyName {
    ApiKeyName::new(name).expect("a valid name")
}

fn hash(secret: &str) -> Hash {
    Hash::digest(secret.as_bytes())
}
