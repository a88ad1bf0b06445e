//! API keys, tokens and idempotent requests in a file shared by several processes.

use std::sync::Arc;
use std::time::Duration;

use longhaul_core::access::Role as May;
use longhaul_core::id::ApiKeyName;
use longhaul_core::port::auth::{
    ApiKeyRef, AuthStore, IdempotencyKey, IdempotencyRequest, IdempotentRequestState,
    LoginTokenKind, NewApiKey, NewLoginToken, StoredHttpResponse,
};
use longhaul_core::raw::Hash;
use longhaul_core::time::Millis;
use longhaul_store::{OpenMode, SqliteStore};
use longhaul_testkit::conformance::store::fixture::StoreFixture;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::harness::{StoreDir, connect, in_memory};

const ROUNDS: usize = 50;

/// Returns a driver and an outsider of the same file.
fn driver_and_outsider(folder: &StoreDir) -> [Arc<SqliteStore>; 2] {
    let driver = folder.drive();
    let outsider = folder.open(OpenMode::Outsider).unwrap();
    [Arc::new(driver), Arc::new(outsider)]
}

pub(crate) fn new_key(name: &str) -> NewApiKey {
    NewApiKey {
        name: ApiKeyName::new(name).unwrap(),
        role: May::Admin,
        hash: Hash::digest(name.as_bytes()),
        ttl: None,
        by: "cli:root".to_owned(),
        request: None,
    }
}

fn ticket(name: &str) -> NewLoginToken {
    NewLoginToken {
        kind: LoginTokenKind::Ticket,
        hash: Hash::digest(name.as_bytes()),
        api_key: ApiKeyRef::Local,
        ttl: Millis(50),
    }
}

/// Runs the same operation four times concurrently and returns how many succeed.
async fn race<R>(stores: &[Arc<SqliteStore>; 2], attempt: impl Fn(Arc<SqliteStore>) -> R) -> usize
where
    R: Future<Output = bool> + Send + 'static,
{
    let mut attempts = JoinSet::new();
    for store in stores.iter().chain(stores) {
        attempts.spawn(attempt(Arc::clone(store)));
    }
    let results = attempts.join_all().await;
    results.into_iter().filter(|succeeded| *succeeded).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_processes_consumes_a_token() {
    let folder = StoreDir::new();
    let stores = driver_and_outsider(&folder);
    for round in 0..ROUNDS {
        let token = ticket(&format!("t{round}"));
        stores[round % 2].add_login_token(token.clone()).await.unwrap();
        let consume = |store: Arc<SqliteStore>| async move {
            let token_row = store.consume_login_token(LoginTokenKind::Ticket, token.hash).await;
            token_row.unwrap().is_some()
        };
        assert_eq!(race(&stores, consume).await, 1, "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_processes_begins_a_request() {
    let folder = StoreDir::new();
    let stores = driver_and_outsider(&folder);
    for round in 0..ROUNDS {
        let key = IdempotencyKey { principal: "key:ops".to_owned(), key: format!("k{round}") };
        let request = IdempotencyRequest {
            key: key.clone(),
            body_hash: Hash::digest(b"body"),
            ttl: Millis(1_000),
            lease: Millis(100),
        };
        let begin = |store: Arc<SqliteStore>| {
            let request = request.clone();
            async move {
                store.begin_idempotent_request(request).await.unwrap()
                    == IdempotentRequestState::Acquired
            }
        };
        assert_eq!(race(&stores, begin).await, 1, "round {round}");
        let reply = StoredHttpResponse { status: 201, location: None, body: b"done".to_vec() };
        stores[0].complete_idempotent_request(key, reply.clone()).await.unwrap();
        let state = stores[1].begin_idempotent_request(request).await.unwrap();
        assert_eq!(state, IdempotentRequestState::Completed(reply));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_processes_creates_a_key_of_a_name() {
    let folder = StoreDir::new();
    let stores = driver_and_outsider(&folder);
    for round in 0..ROUNDS {
        let secrets = std::sync::atomic::AtomicUsize::new(0);
        let add = |store: Arc<SqliteStore>| {
            let number = secrets.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let key = NewApiKey {
                hash: Hash::digest(format!("{round} {number}").as_bytes()),
                ..new_key(&format!("n{round}"))
            };
            async move { store.add_api_key(key).await.unwrap() }
        };
        assert_eq!(race(&stores, add).await, 1, "round {round}");
    }
    assert_eq!(stores[0].list_api_keys().await.unwrap().len(), ROUNDS);
}

#[tokio::test]
async fn expired_tokens_are_removed_when_new_ones_are_added() {
    let folder = StoreDir::new();
    let store = folder.drive();
    let conn = connect(&folder.file());
    let count = || -> i64 {
        let sql = "SELECT count(*) FROM token";
        conn.query_row(sql, (), |row| row.get(0)).unwrap()
    };
    for number in 0..150 {
        store.add_login_token(ticket(&format!("old {number}"))).await.unwrap();
    }
    assert_eq!(count(), 150);
    folder.clock.advance(Millis(50));
    for (name, remaining_count) in [("a", 51), ("b", 2), ("c", 3)] {
        store.add_login_token(ticket(name)).await.unwrap();
        assert_eq!(count(), remaining_count, "each new token deletes some expired ones");
    }
}

#[tokio::test]
async fn the_last_use_of_a_key_is_written_rarely() {
    let folder = StoreDir::new();
    let store = folder.drive();
    let key = new_key("ops");
    store.add_api_key(key.clone()).await.unwrap();
    let conn = connect(&folder.file());
    let version =
        || -> i64 { conn.pragma_query_value(None, "data_version", |row| row.get(0)).unwrap() };
    let writes_last_use = async |duration| {
        folder.clock.advance(duration);
        let before = version();
        store.record_api_key_use(key.hash).await.unwrap();
        version() != before
    };
    let minutes = |count: u64| Millis::from_secs(count * 60);
    for (duration, is_written) in [
        (Millis::ZERO, true),
        (Millis::ZERO, false),
        (minutes(5), false),
        (Millis(1), true),
        (minutes(4), false),
    ] {
        assert_eq!(writes_last_use(duration).await, is_written, "after {duration:?}");
    }
}

#[tokio::test]
async fn changes_of_keys_and_tokens_do_not_notify_workers() {
    // In memory there is no file whose changes are noticed too.
    let fixture = StoreFixture::new(in_memory().await);
    let mut changes = fixture.harness.store.watch_for_changes();
    let mut is_notified = async || timeout(Duration::ZERO, changes.wait_for_change()).await.is_ok();
    fixture.harness.auth.add_api_key(new_key("ops")).await.unwrap();
    fixture.harness.auth.add_login_token(ticket("t")).await.unwrap();
    assert!(!is_notified().await);
    fixture.open(|_| {}).await;
    assert!(is_notified().await);
}
