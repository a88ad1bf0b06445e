//! Implements the trait `AuthStore` for API keys, tokens, links and idempotent requests. The writes
//! don't notify watchers, because they don't change runs.

use async_trait::async_trait;
use longhaul_core::id::ApiKeyName;
use longhaul_core::port::auth::{
    ApiKeyRow, AuthStore, GateLinkRow, IdempotencyKey, IdempotencyRequest, IdempotentRequestState,
    LoginTokenKind, LoginTokenRow, NewApiKey, NewLoginToken, StoredHttpResponse,
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
    pub(crate) async fn query_requiring_current_schema<T, F>(
        &self,
        query: F,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&Tx<'_>) -> Answer<T> + Send + 'static,
    {
        self.require_current_schema()?;
        self.run_query(query).await
    }

    /// Runs a command on the writer thread without notifying watchers.
    pub(crate) async fn run_command_without_notifying_watchers<T, F>(
        &self,
        command: F,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&Tx<'_>) -> Answer<T> + Send + 'static,
    {
        self.run_command(move |tx| Ok(CommandOutcome::Silent(command(tx)?))).await
    }
}

#[async_trait]
impl AuthStore for SqliteStore {
    async fn add_api_key(&self, key: NewApiKey) -> Result<bool, StoreError> {
        self.run_command_without_notifying_watchers(move |tx| {
            api_key::add_api_key_unless_name_taken(tx, &key)
        })
        .await
    }

    async fn find_api_key(&self, key_hash: Hash) -> Result<Option<ApiKeyRow>, StoreError> {
        self.query_requiring_current_schema(move |tx| api_key::find_api_key(tx, key_hash)).await
    }

    async fn list_api_keys(&self) -> Result<Vec<ApiKeyRow>, StoreError> {
        self.query_requiring_current_schema(api_key::list_api_keys).await
    }

    async fn revoke_api_key(&self, name: &ApiKeyName) -> Result<Option<ApiKeyRow>, StoreError> {
        let name = name.clone();
        self.run_command_without_notifying_watchers(move |tx| api_key::revoke_api_key(tx, &name))
            .await
    }

    async fn record_api_key_use(&self, key_hash: Hash) -> Result<(), StoreError> {
        // This is called for every request, and a read needs no sync.
        if self
            .query_requiring_current_schema(move |tx| {
                api_key::key_needs_last_use_update(tx, key_hash)
            })
            .await?
        {
            self.run_command_without_notifying_watchers(move |tx| {
                api_key::update_key_last_use(tx, key_hash)
            })
            .await?;
        }
        Ok(())
    }

    async fn add_login_token(&self, token: NewLoginToken) -> Result<(), StoreError> {
        self.run_command_without_notifying_watchers(move |tx| token::add_login_token(tx, &token))
            .await
    }

    async fn find_login_token(
        &self,
        kind: LoginTokenKind,
        hash: Hash,
    ) -> Result<Option<LoginTokenRow>, StoreError> {
        self.query_requiring_current_schema(move |tx| token::find_login_token(tx, kind, hash)).await
    }

    async fn consume_login_token(
        &self,
        kind: LoginTokenKind,
        hash: Hash,
    ) -> Result<Option<LoginTokenRow>, StoreError> {
        self.run_command_without_notifying_watchers(move |tx| {
            token::consume_login_token(tx, kind, hash)
        })
        .await
    }

    async fn add_gate_link(&self, link: GateLinkRow) -> Result<(), StoreError> {
        self.run_command_without_notifying_watchers(move |tx| link::add_gate_link(tx, &link)).await
    }

    async fn find_gate_link(&self, link_hash: Hash) -> Result<Option<GateLinkRow>, StoreError> {
        self.query_requiring_current_schema(move |tx| link::find_gate_link(tx, link_hash)).await
    }

    async fn begin_idempotent_request(
        &self,
        request: IdempotencyRequest,
    ) -> Result<IdempotentRequestState, StoreError> {
        self.run_command_without_notifying_watchers(move |tx| {
            idempotency::begin_idempotent_request(tx, &request)
        })
        .await
    }

    async fn complete_idempotent_request(
        &self,
        key: IdempotencyKey,
        reply: StoredHttpResponse,
    ) -> Result<(), StoreError> {
        self.run_command_without_notifying_watchers(move |tx| {
            idempotency::complete_idempotent_request(tx, &key, &reply)
        })
        .await
    }

    async fn abort_idempotent_request(&self, key: IdempotencyKey) -> Result<(), StoreError> {
        self.run_command_without_notifying_watchers(move |tx| {
            idempotency::abort_idempotent_request(tx, &key)
        })
        .await
    }
}
