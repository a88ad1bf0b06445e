//! The port of keys and what they gave out, verb by verb.
//!
//! Never: more than handing a verb to the writer or the readers. Nothing here is
//! news to whoever waits for runs.

use async_trait::async_trait;
use longhaul_core::id::KeyName;
use longhaul_core::port::keyring::{
    Begun, KeyRow, Keyring, LinkRow, NewKey, NewPass, PassKind, PassRow, Reply, ReplyAsk, ReplyKey,
};
use longhaul_core::port::store::StoreError;
use longhaul_core::raw::Hash;
use rusqlite::Result as Answer;

use crate::sqlite::handle::SqliteStore;
use crate::sqlite::tx::Tx;
use crate::sqlite::work::Done;
use crate::sqlite::{key, link, pass, reply};

impl SqliteStore {
    /// Looks at tables that an older build did not make.
    pub(crate) async fn look_new<T, F>(&self, look: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&Tx<'_>) -> Answer<T> + Send + 'static,
    {
        self.must_be_up_to_date()?;
        self.look(look).await
    }

    /// Writes what is no news to whoever waits for runs.
    pub(crate) async fn write_quiet<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&Tx<'_>) -> Answer<T> + Send + 'static,
    {
        self.write(move |tx| Ok(Done::Quiet(work(tx)?))).await
    }
}

#[async_trait]
impl Keyring for SqliteStore {
    async fn add_key(&self, key: NewKey) -> Result<bool, StoreError> {
        self.write_quiet(move |tx| key::add(tx, &key)).await
    }

    async fn key(&self, hash: Hash) -> Result<Option<KeyRow>, StoreError> {
        self.look_new(move |tx| key::key(tx, hash)).await
    }

    async fn keys(&self) -> Result<Vec<KeyRow>, StoreError> {
        self.look_new(key::keys).await
    }

    async fn revoke_key(&self, name: &KeyName) -> Result<Option<KeyRow>, StoreError> {
        let name = name.clone();
        self.write_quiet(move |tx| key::revoke(tx, &name)).await
    }

    async fn touch_key(&self, hash: Hash) -> Result<(), StoreError> {
        // Every request touches its key: a look costs no sync.
        if self.look_new(move |tx| key::is_touch_due(tx, hash)).await? {
            self.write_quiet(move |tx| key::touch(tx, hash)).await?;
        }
        Ok(())
    }

    async fn add_pass(&self, pass: NewPass) -> Result<(), StoreError> {
        self.write_quiet(move |tx| pass::add(tx, &pass)).await
    }

    async fn pass(&self, kind: PassKind, hash: Hash) -> Result<Option<PassRow>, StoreError> {
        self.look_new(move |tx| pass::pass(tx, kind, hash)).await
    }

    async fn spend_pass(&self, kind: PassKind, hash: Hash) -> Result<Option<PassRow>, StoreError> {
        self.write_quiet(move |tx| pass::spend(tx, kind, hash))
            .await
    }

    async fn add_link(&self, link: LinkRow) -> Result<(), StoreError> {
        self.write_quiet(move |tx| link::add(tx, &link)).await
    }

    async fn link(&self, hash: Hash) -> Result<Option<LinkRow>, StoreError> {
        self.look_new(move |tx| link::link(tx, hash)).await
    }

    async fn begin_reply(&self, ask: ReplyAsk) -> Result<Begun, StoreError> {
        self.write_quiet(move |tx| reply::begin(tx, &ask)).await
    }

    async fn keep_reply(&self, of: ReplyKey, reply: Reply) -> Result<(), StoreError> {
        self.write_quiet(move |tx| reply::keep(tx, &of, &reply))
            .await
    }

    async fn drop_reply(&self, of: ReplyKey) -> Result<(), StoreError> {
        self.write_quiet(move |tx| reply::forget(tx, &of)).await
    }
}
