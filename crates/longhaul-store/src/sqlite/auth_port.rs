//! Implements the port for API keys, tokens, links and idempotent requests. The writes don't notify
//! watchers, because they don't change runs.

use async_trait::async_trait;
use longhaul_core::id::KeyName;
use longhaul_core::port::auth::{
    AuthStore, GateLinkRow, IdempotencyKey, IdempotencyRequest, IdempotentRequestState, KeyRow,
    NewKey, NewToken, StoredResponse, TokenKind, TokenRow,
};
use longhaul_core::port::store::StoreError;
use longhaul_core::raw::Hash;
use rusqlite::Result as Answer;

use crate::sqlite::command::CommandOutcome;
use crate::sqlite::handle::SqliteStore;
use crate::sqlite::tx::Tx;
use crate::sqlite::{api_key, idempotency, link, token};

impl SqliteStore {
    /// Runs a query on tables that may be missing in a file of an older build. Returns an error if
    /// the tables are missing.
    pub(crate) async fn query_with_current_schema<T, F>(&self, query: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&Tx<'_>) -> Answer<T> + Send + 'static,
    {
        self.require_current_schema()?;
        self.run_query(query).await
    }

    /// Runs a command on the writer thread without notifying watchers.
    pub(crate) async fn run_command_no_notify<T, F>(&self, command: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&Tx<'_>) -> Answer<T> + Send + 'static,
    {
        self.run_command(move |tx| Ok(CommandOutcome::Silent(command(tx)?))).await
    }
}

#[async_trait]
impl AuthStore for SqliteStore {
    async fn add_key(&self, key: NewKey) -> Result<bool, StoreError> {
        self.run_command_no_notify(move |tx| api_key::add_key(tx, &key)).await
    }

    async fn find_key(&self, hash: Hash) -> Result<Option<KeyRow>, StoreError> {
        self.query_with_current_schema(move |tx| api_key::find_key(tx, hash)).await
    }

    async fn list_keys(&self) -> Result<Vec<KeyRow>, StoreError> {
        self.query_with_current_schema(api_key::list_keys).await
    }

    async fn revoke_key(&self, name: &KeyName) -> Result<Option<KeyRow>, StoreError> {
        let name = name.clone();
        self.run_command_no_notify(move |tx| api_key::revoke_key(tx, &name)).await
    }

    async fn record_api_key_use(&self, hash: Hash) -> Result<(), StoreError> {
        // This is called for every request, and a read needs no sync.
        if self
            .query_with_current_schema(move |tx| api_key::key_needs_last_use_update(tx, hash))
            .await?
        {
            self.run_command_no_notify(move |tx| api_key::update_key_last_use(tx, hash)).await?;
        }
        Ok(())
    }

    async fn add_token(&self, token: NewToken) -> Result<(), StoreError> {
        self.run_command_no_notify(move |tx| token::add_token(tx, &token)).await
    }

    async fn find_token(
        &self,
        kind: TokenKind,
        hash: Hash,
    ) -> Result<Option<TokenRow>, StoreError> {
        self.query_with_current_schema(move |tx| token::find_token(tx, kind, hash)).await
    }

    async fn consume_token(
        &self,
        kind: TokenKind,
        hash: Hash,
    ) -> Result<Option<TokenRow>, StoreError> {
        self.run_command_no_notify(move |tx| token::consume_token(tx, kind, hash)).await
    }

    async fn add_gate_link(&self, link: GateLinkRow) -> Result<(), StoreError> {
        self.run_command_no_notify(move |tx| link::add_gate_link(tx, &link)).await
    }

    async fn find_gate_link(&self, hash: Hash) -> Result<Option<GateLinkRow>, StoreError> {
        self.query_with_current_schema(move |tx| link::find_gate_link(tx, hash)).await
    }

    async fn begin_idempotent_request(
        &self,
        request: IdempotencyRequest,
    ) -> Result<IdempotentRequestState, StoreError> {
        self.run_command_no_notify(move |tx| idempotency::begin_idempotent_request(tx, &request))
            .await
    }

    async fn complete_idempotent_request(
        &self,
        key: IdempotencyKey,
        reply: StoredResponse,
    ) -> Result<(), StoreError> {
        self.run_command_no_notify(move |tx| {
            idempotency::complete_idempotent_request(tx, &key, &reply)
        })
        .await
    }

    async fn abort_idempotent_request(&self, key: IdempotencyKey) -> Result<(), StoreError> {
        self.run_command_no_notify(move |tx| idempotency::abort_idempotent_request(tx, &key)).await
    }
}
