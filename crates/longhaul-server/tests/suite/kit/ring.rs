//! The keyring of a store in memory, with doors where a test wants to stand.
//!
//! Never: another answer than the store's.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use longhaul_core::id::KeyName;
use longhaul_core::port::keyring::{
    Begun, KeyRow, Keyring, LinkRow, NewKey, NewPass, PassKind, PassRow, Reply, ReplyAsk, ReplyKey,
};
use longhaul_core::port::store::StoreError;
use longhaul_core::raw::Hash;
use longhaul_testkit::mem_store::MemStore;

use longhaul_testkit::door::Door;

/// Where somebody waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spot {
    /// Before all keys are read.
    Keys,
    /// After a request was begun, before whoever began it hears of it.
    Begun,
    /// Before an answer is kept.
    Keep,
    /// Before a request that came to nothing is forgotten.
    Drop,
}

/// A keyring with doors.
#[derive(Debug)]
pub(crate) struct Ring {
    behind: MemStore,
    doors: Mutex<Vec<(Spot, Door)>>,
    fails: Mutex<Option<fn() -> StoreError>>,
    loses_replies: AtomicBool,
    link_reads: AtomicUsize,
}

impl Ring {
    pub(crate) fn new(behind: MemStore) -> Self {
        Self {
            behind,
            doors: Mutex::default(),
            fails: Mutex::default(),
            loses_replies: AtomicBool::new(false),
            link_reads: AtomicUsize::new(0),
        }
    }

    /// How often a link was looked up.
    pub(crate) fn link_reads(&self) -> usize {
        self.link_reads.load(Ordering::SeqCst)
    }

    /// The store behind it.
    pub(crate) fn store(&self) -> &MemStore {
        &self.behind
    }

    /// From now on no answer can be kept, as if the server died before that.
    pub(crate) fn lose_replies(&self) {
        self.loses_replies.store(true, Ordering::SeqCst);
    }

    /// From now on there is a door at this spot.
    pub(crate) fn shut(&self, spot: Spot) -> Door {
        let door = Door::shut();
        self.doors.lock().unwrap().push((spot, door.clone()));
        door
    }

    /// From now on the list of keys can't be read, for this reason; none: it can.
    pub(crate) fn fail(&self, why: Option<fn() -> StoreError>) {
        *self.fails.lock().unwrap() = why;
    }

    async fn pass_at(&self, spot: Spot) {
        let doors = self.doors.lock().unwrap().clone();
        for (at, door) in doors {
            if at == spot {
                door.pass().await;
            }
        }
    }
}

#[async_trait]
impl Keyring for Ring {
    async fn add_key(&self, key: NewKey) -> Result<bool, StoreError> {
        self.behind.add_key(key).await
    }

    async fn key(&self, hash: Hash) -> Result<Option<KeyRow>, StoreError> {
        self.behind.key(hash).await
    }

    async fn keys(&self) -> Result<Vec<KeyRow>, StoreError> {
        self.pass_at(Spot::Keys).await;
        let fails = *self.fails.lock().unwrap();
        match fails {
            Some(why) => Err(why()),
            None => self.behind.keys().await,
        }
    }

    async fn revoke_key(&self, name: &KeyName) -> Result<Option<KeyRow>, StoreError> {
        self.behind.revoke_key(name).await
    }

    async fn touch_key(&self, hash: Hash) -> Result<(), StoreError> {
        self.behind.touch_key(hash).await
    }

    async fn add_pass(&self, pass: NewPass) -> Result<(), StoreError> {
        self.behind.add_pass(pass).await
    }

    async fn pass(&self, kind: PassKind, hash: Hash) -> Result<Option<PassRow>, StoreError> {
        self.behind.pass(kind, hash).await
    }

    async fn spend_pass(&self, kind: PassKind, hash: Hash) -> Result<Option<PassRow>, StoreError> {
        self.behind.spend_pass(kind, hash).await
    }

    async fn add_link(&self, link: LinkRow) -> Result<(), StoreError> {
        self.behind.add_link(link).await
    }

    async fn link(&self, hash: Hash) -> Result<Option<LinkRow>, StoreError> {
        self.link_reads.fetch_add(1, Ordering::SeqCst);
        self.behind.link(hash).await
    }

    async fn begin_reply(&self, ask: ReplyAsk) -> Result<Begun, StoreError> {
        let begun = self.behind.begin_reply(ask).await;
        self.pass_at(Spot::Begun).await;
        begun
    }

    async fn keep_reply(&self, of: ReplyKey, reply: Reply) -> Result<(), StoreError> {
        self.pass_at(Spot::Keep).await;
        if self.loses_replies.load(Ordering::SeqCst) {
            return Err(StoreError::Busy { at: "here".into() });
        }
        self.behind.keep_reply(of, reply).await
    }

    async fn drop_reply(&self, of: ReplyKey) -> Result<(), StoreError> {
        self.pass_at(Spot::Drop).await;
        self.behind.drop_reply(of).await
    }
}
