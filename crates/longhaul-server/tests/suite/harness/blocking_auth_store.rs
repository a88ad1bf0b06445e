//! The keyring of a store in memory, with doors where a test wants to stand.
//!
//! Never: another answer than the store's.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use longhaul_core::id::KeyName;
use longhaul_core::port::auth::{
    AuthStore, IdempotencyKey, IdempotencyRequest, IdempotencyState, KeyRow, LinkRow, NewKey,
    NewToken, StoredResponse, TokenKind, TokenRow,
};
use longhaul_core::port::store::StoreError;
use longhaul_core::raw::Hash;
use longhaul_testkit::mem_store::MemStore;

use longhaul_testkit::latch::Latch;

/// Where somebody waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockPoint {
    /// Before all keys are read.
    Keys,
    /// After a request was begun, before whoever began it hears of it.
    AfterBegin,
    /// Before an answer is kept.
    BeforeComplete,
    /// Before a request that came to nothing is forgotten.
    BeforeAbort,
}

/// A keyring with doors.
#[derive(Debug)]
pub(crate) struct BlockingAuthStore {
    inner: MemStore,
    latches: Mutex<Vec<(BlockPoint, Latch)>>,
    failure: Mutex<Option<fn() -> StoreError>>,
    loses_responses: AtomicBool,
    link_reads: AtomicUsize,
}

impl BlockingAuthStore {
    pub(crate) fn new(behind: MemStore) -> Self {
        Self {
            inner: behind,
            latches: Mutex::default(),
            failure: Mutex::default(),
            loses_responses: AtomicBool::new(false),
            link_reads: AtomicUsize::new(0),
        }
    }

    /// How often a link was looked up.
    pub(crate) fn link_reads(&self) -> usize {
        self.link_reads.load(Ordering::SeqCst)
    }

    /// The store behind it.
    pub(crate) fn store(&self) -> &MemStore {
        &self.inner
    }

    /// From now on no answer can be kept, as if the server died before that.
    pub(crate) fn lose_responses(&self) {
        self.loses_responses.store(true, Ordering::SeqCst);
    }

    /// From now on there is a door at this spot.
    pub(crate) fn block(&self, spot: BlockPoint) -> Latch {
        let door = Latch::new();
        self.latches.lock().unwrap().push((spot, door.clone()));
        door
    }

    /// From now on the list of keys can't be read, for this reason; none: it can.
    pub(crate) fn set_failure(&self, why: Option<fn() -> StoreError>) {
        *self.failure.lock().unwrap() = why;
    }

    async fn wait_at(&self, spot: BlockPoint) {
        let doors = self.latches.lock().unwrap().clone();
        for (at, door) in doors {
            if at == spot {
                door.wait().await;
            }
        }
    }
}

#[async_trait]
impl AuthStore for BlockingAuthStore {
    async fn add_key(&self, key: NewKey) -> Result<bool, StoreError> {
        self.inner.add_key(key).await
    }

    async fn key(&self, hash: Hash) -> Result<Option<KeyRow>, StoreError> {
        self.inner.key(hash).await
    }

    async fn keys(&self) -> Result<Vec<KeyRow>, StoreError> {
        self.wait_at(BlockPoint::Keys).await;
        let fails = *self.failure.lock().unwrap();
        match fails {
            Some(why) => Err(why()),
            None => self.inner.keys().await,
        }
    }

    async fn revoke_key(&self, name: &KeyName) -> Result<Option<KeyRow>, StoreError> {
        self.inner.revoke_key(name).await
    }

    async fn touch_key(&self, hash: Hash) -> Result<(), StoreError> {
        self.inner.touch_key(hash).await
    }

    async fn add_token(&self, pass: NewToken) -> Result<(), StoreError> {
        self.inner.add_token(pass).await
    }

    async fn token(&self, kind: TokenKind, hash: Hash) -> Result<Option<TokenRow>, StoreError> {
        self.inner.token(kind, hash).await
    }

    async fn consume_token(
        &self,
        kind: TokenKind,
        hash: Hash,
    ) -> Result<Option<TokenRow>, StoreError> {
        self.inner.consume_token(kind, hash).await
    }

    async fn add_link(&self, link: LinkRow) -> Result<(), StoreError> {
        self.inner.add_link(link).await
    }

    async fn link(&self, hash: Hash) -> Result<Option<LinkRow>, StoreError> {
        self.link_reads.fetch_add(1, Ordering::SeqCst);
        self.inner.link(hash).await
    }

    async fn begin_request(&self, ask: IdempotencyRequest) -> Result<IdempotencyState, StoreError> {
        let begun = self.inner.begin_request(ask).await;
        self.wait_at(BlockPoint::AfterBegin).await;
        begun
    }

    async fn complete_request(
        &self,
        of: IdempotencyKey,
        reply: StoredResponse,
    ) -> Result<(), StoreError> {
        self.wait_at(BlockPoint::BeforeComplete).await;
        if self.loses_responses.load(Ordering::SeqCst) {
            return Err(StoreError::Busy { at: "here".into() });
        }
        self.inner.complete_request(of, reply).await
    }

    async fn abort_request(&self, of: IdempotencyKey) -> Result<(), StoreError> {
        self.wait_at(BlockPoint::BeforeAbort).await;
        self.inner.abort_request(of).await
    }
}
