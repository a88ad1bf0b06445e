//! The port of keys and what they gave out, verb by verb.
//!
//! Never: more than handing a verb to the writer or the readers. Nothing here is
//! news to whoever waits for runs.

use async_trait::async_trait;
use longhaul_core::id::KeyName;
use longhaul_core::port::auth::{
    AuthStore, IdempotencyKey, IdempotencyRequest, IdempotencyState, KeyRow, LinkRow, NewKey,
    NewToken, StoredResponse, TokenKind, TokenRow,
};
use longhaul_core::port::store::StoreError;
use longhaul_core::raw::Hash;
use rusqlite::Result as Answer;

use crate::sqlite::command::CommandOutcome;
use crate::sqlite::handle::SqliteStore;
use crate::sqlite::tx::Tx;
use crate::sqlite::{api_key, idempotency, link, token};

impl SqliteStore {
    /// Looks at tables that an older build did not make.
    pub(crate) async fn read_current_schema<T, F>(&self, look: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&Tx<'_>) -> Answer<T> + Send + 'static,
    {
        self.require_current_schema()?;
        self.read_with(look).await
    }

    /// Writes what is no news to whoever waits for runs.
    pub(crate) async fn write_silent<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&Tx<'_>) -> Answer<T> + Send + 'static,
    {
        self.write(move |tx| Ok(CommandOutcome::Silent(work(tx)?))).await
    }
}

#[async_trait]
impl AuthStore for SqliteStore {
    async fn add_key(&self, key: NewKey) -> Result<bool, StoreError> {
        self.write_silent(move |tx| api_key::add(tx, &key)).await
    }

    async fn key(&self, hash: Hash) -> Result<Option<KeyRow>, StoreError> {
        self.read_current_schema(move |tx| api_key::key(tx, hash)).await
    }

    async fn keys(&self) -> Result<Vec<KeyRow>, StoreError> {
        self.read_current_schema(api_key::keys).await
    }

    async fn revoke_key(&self, name: &KeyName) -> Result<Option<KeyRow>, StoreError> {
        let name = name.clone();
        self.write_silent(move |tx| api_key::revoke(tx, &name)).await
    }

    async fn touch_key(&self, hash: Hash) -> Result<(), StoreError> {
        // Every request touches its key: a look costs no sync.
        if self.read_current_schema(move |tx| api_key::is_touch_due(tx, hash)).await? {
            self.write_silent(move |tx| api_key::touch(tx, hash)).await?;
        }
        Ok(())
    }

    async fn add_token(&self, pass: NewToken) -> Result<(), StoreError> {
        self.write_silent(move |tx| token::add(tx, &pass)).await
    }

    async fn token(&self, kind: TokenKind, hash: Hash) -> Result<Option<TokenRow>, StoreError> {
        self.read_current_schema(move |tx| token::token(tx, kind, hash)).await
    }

    async fn consume_token(
        &self,
        kind: TokenKind,
        hash: Hash,
    ) -> Result<Option<TokenRow>, StoreError> {
        self.write_silent(move |tx| token::consume(tx, kind, hash)).await
    }

    async fn add_link(&self, link: LinkRow) -> Result<(), StoreError> {
        self.write_silent(move |tx| link::add(tx, &link)).await
    }

    async fn link(&self, hash: Hash) -> Result<Option<LinkRow>, StoreError> {
        self.read_current_schema(move |tx| link::link(tx, hash)).await
    }

    async fn begin_request(&self, ask: IdempotencyRequest) -> Result<IdempotencyState, StoreError> {
        self.write_silent(move |tx| idempotency::begin(tx, &ask)).await
    }

    async fn complete_request(
        &self,
        of: IdempotencyKey,
        reply: StoredResponse,
    ) -> Result<(), StoreError> {
        self.write_silent(move |tx| idempotency::complete(tx, &of, &reply)).await
    }

    async fn abort_request(&self, of: IdempotencyKey) -> Result<(), StoreError> {
        self.write_silent(move |tx| idempotency::abort(tx, &of)).await
    }
}
