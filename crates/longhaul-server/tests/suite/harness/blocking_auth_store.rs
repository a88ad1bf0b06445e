//! The auth store of an in-memory store, with latches at chosen operations.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use longhaul_core::id::ApiKeyName;
use longhaul_core::port::auth::{
    ApiKeyRow, AuthStore, GateLinkRow, IdempotencyKey, IdempotencyRequest, IdempotentRequestState,
    LoginTokenKind, LoginTokenRow, NewApiKey, NewLoginToken, StoredHttpResponse,
};
use longhaul_core::port::store::StoreError;
use longhaul_core::raw::Hash;
use longhaul_testkit::mem_store::MemStore;

use longhaul_testkit::latch::Latch;

/// Operations with a latch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockPoint {
    /// Before all keys are read.
    Keys,
    /// After a request was begun, before the result is returned.
    AfterBegin,
    /// Before a response is stored.
    BeforeComplete,
    /// Before a failed request is aborted.
    BeforeAbort,
}

/// An auth store with latches.
#[derive(Debug)]
pub(crate) struct BlockingAuthStore {
    inner: MemStore,
    latches: Mutex<Vec<(BlockPoint, Latch)>>,
    failure: Mutex<Option<fn() -> StoreError>>,
    loses_responses: AtomicBool,
    link_reads: AtomicUsize,
}

impl BlockingAuthStore {
    pub(crate) fn new(inner: MemStore) -> Self {
        Self {
            inner,
            latches: Mutex::default(),
            failure: Mutex::default(),
            loses_responses: AtomicBool::new(false),
            link_reads: AtomicUsize::new(0),
        }
    }

    /// Returns how often a link was looked up.
    pub(crate) fn link_reads(&self) -> usize {
        self.link_reads.load(Ordering::SeqCst)
    }

    /// Returns the underlying store.
    pub(crate) fn store(&self) -> &MemStore {
        &self.inner
    }

    /// Makes storing responses fail, as if the server had crashed before.
    pub(crate) fn lose_responses(&self) {
        self.loses_responses.store(true, Ordering::SeqCst);
    }

    /// Adds a closed latch at this operation.
    pub(crate) fn block(&self, point: BlockPoint) -> Latch {
        let latch = Latch::closed();
        self.latches.lock().unwrap().push((point, latch.clone()));
        latch
    }

    /// Makes reading the list of keys fail with this error. `None` means that it succeeds.
    pub(crate) fn set_failure(&self, failure: Option<fn() -> StoreError>) {
        *self.failure.lock().unwrap() = failure;
    }

    async fn wait_at(&self, point: BlockPoint) {
        let latches = self.latches.lock().unwrap().clone();
        for (at, latch) in latches {
            if at == point {
                latch.wait().await;
            }
        }
    }
}

#[async_trait]
impl AuthStore for BlockingAuthStore {
    async fn add_api_key(&self, key: NewApiKey) -> Result<bool, StoreError> {
        self.inner.add_api_key(key).await
    }

    async fn find_api_key(&self, hash: Hash) -> Result<Option<ApiKeyRow>, StoreError> {
        self.inner.find_api_key(hash).await
    }

    async fn list_api_keys(&self) -> Result<Vec<ApiKeyRow>, StoreError> {
        self.wait_at(BlockPoint::Keys).await;
        let failure = *self.failure.lock().unwrap();
        match failure {
            Some(error) => Err(error()),
            None => self.inner.list_api_keys().await,
        }
    }

    async fn revoke_api_key(&self, name: &ApiKeyName) -> Result<Option<ApiKeyRow>, StoreError> {
        self.inner.revoke_api_key(name).await
    }

    async fn record_api_key_use(&self, hash: Hash) -> Result<(), StoreError> {
        self.inner.record_api_key_use(hash).await
    }

    async fn add_login_token(&self, token: NewLoginToken) -> Result<(), StoreError> {
        self.inner.add_login_token(token).await
    }

    async fn find_login_token(
        &self,
        kind: LoginTokenKind,
        hash: Hash,
    ) -> Result<Option<LoginTokenRow>, StoreError> {
        self.inner.find_login_token(kind, hash).await
    }

    async fn consume_login_token(
        &self,
        kind: LoginTokenKind,
        hash: Hash,
    ) -> Result<Option<LoginTokenRow>, StoreError> {
        self.inner.consume_login_token(kind, hash).await
    }

    async fn add_gate_link(&self, link: GateLinkRow) -> Result<(), StoreError> {
        self.inner.add_gate_link(link).await
    }

    async fn find_gate_link(&self, hash: Hash) -> Result<Option<GateLinkRow>, StoreError> {
        self.link_reads.fetch_add(1, Ordering::SeqCst);
        self.inner.find_gate_link(hash).await
    }

    async fn begin_idempotent_request(
        &self,
        request: IdempotencyRequest,
    ) -> Result<IdempotentRequestState, StoreError> {
        let state = self.inner.begin_idempotent_request(request).await;
        self.wait_at(BlockPoint::AfterBegin).await;
        state
    }

    async fn complete_idempotent_request(
        &self,
        key: IdempotencyKey,
        reply: StoredHttpResponse,
    ) -> Result<(), StoreError> {
        self.wait_at(BlockPoint::BeforeComplete).await;
        if self.loses_responses.load(Ordering::SeqCst) {
            return Err(StoreError::Busy { location: "here".into() });
        }
        self.inner.complete_idempotent_request(key, reply).await
    }

    async fn abort_idempotent_request(&self, key: IdempotencyKey) -> Result<(), StoreError> {
        self.wait_at(BlockPoint::BeforeAbort).await;
        self.inner.abort_idempotent_request(key).await
    }
}
