//! API keys, their session tokens and tickets, and links to gates.
//!
//! Invariant: a token is valid only until it expires and only as long as its key. A link exists
//! only as long as its gate.

use longhaul_core::access::principal_of_key;
use longhaul_core::id::ApiKeyName;
use longhaul_core::port::auth::{
    ApiKeyRef, ApiKeyRow, GateLinkRow, LoginTokenKind, LoginTokenRow, NewApiKey, NewLoginToken,
};
use longhaul_core::port::store::StoreError;
use longhaul_core::raw::Hash;
use longhaul_core::request::IdempotentRequestEffect;
use longhaul_core::time::Millis;

use crate::mem_store::rows::Tables;
use crate::mem_store::tx::Tx;

/// Interval at which the last use of a key is recorded.
const LAST_USED_PRECISION: Millis = Millis::from_secs(5 * 60);

impl Tables {
    /// Returns the key with this hash, and its row id.
    pub(crate) fn key(&self, hash: Hash) -> Option<(&u64, &ApiKeyRow)> {
        self.api_keys.iter().find(|(_, row)| row.hash == hash)
    }

    /// Returns the key with this name that is not revoked.
    fn active_key(&self, name: &ApiKeyName) -> Option<(&u64, &ApiKeyRow)> {
        let mut rows = self.api_keys.iter();
        rows.find(|(_, row)| row.name == *name && row.revoked_at.is_none())
    }
}

impl Tx<'_> {
    /// Adds a key. Returns `false` if the name is taken.
    pub(crate) fn add_api_key(&mut self, key: NewApiKey) -> Result<bool, StoreError> {
        let earlier = key.request.as_ref().and_then(|request_key| self.request_effect(request_key));
        if let Some(IdempotentRequestEffect::Key(hash)) = earlier
            && let Some((row_id, _)) = self.tables.key(hash)
        {
            let (row_id, now) = (*row_id, self.now);
            let keys = &mut self.tables.api_keys;
            keys.update(&row_id, |row| row.revoked_at = row.revoked_at.or(Some(now)));
        }
        if self.tables.active_key(&key.name).is_some() {
            return Ok(false);
        }
        if self.tables.key(key.hash).is_some() {
            return Err(StoreError::Database {
                location: "memory".to_owned(),
                source: "a key with this hash already exists".into(),
            });
        }
        let row = ApiKeyRow {
            name: key.name,
            role: key.role,
            hash: key.hash,
            by: key.by,
            created_at: self.now,
            expires_at: key.ttl.map(|ttl| self.now.plus(ttl)),
            revoked_at: None,
            last_used_at: None,
        };
        let row_id = self.tables.next_row_id();
        self.tables.api_keys.insert(row_id, row);
        if let Some(request_key) = &key.request {
            self.mark_request(request_key, IdempotentRequestEffect::Key(key.hash));
        }
        Ok(true)
    }

    /// Revokes a key and its remembered approvals beyond one run, and deletes its tokens and links.
    pub(crate) fn revoke_api_key(&mut self, name: &ApiKeyName) -> Option<ApiKeyRow> {
        let (row_id, row) = self.tables.active_key(name)?;
        let (row_id, mut row) = (*row_id, row.clone());
        row.revoked_at = Some(self.now);
        self.tables.api_keys.insert(row_id, row.clone());
        let api_key = ApiKeyRef::Key(row.hash);
        let tokens = &mut self.tables.tokens;
        tokens.remove_where(|_, token| token.api_key == api_key);
        let principal = principal_of_key(name);
        self.tables.links.remove_where(|_, link| link.by == principal);
        self.revoke_shared_rules_of(&principal);
        Some(row)
    }

    /// Records the use of a key, unless a recent use is recorded already.
    pub(crate) fn touch_key(&mut self, hash: Hash) {
        let now = self.now;
        let row = self.tables.key(hash);
        let due = row.filter(|(_, row)| {
            let last_used_at = row.last_used_at;
            last_used_at.is_none_or(|last_used_at| last_used_at.plus(LAST_USED_PRECISION) < now)
        });
        if let Some((row_id, _)) = due {
            let row_id = *row_id;
            let keys = &mut self.tables.api_keys;
            keys.update(&row_id, |row| row.last_used_at = Some(now));
        }
    }

    /// Adds a token and deletes expired ones.
    pub(crate) fn add_login_token(&mut self, token: NewLoginToken) {
        let now = self.now;
        self.tables.tokens.remove_where(|_, row| row.expires_at <= now);
        let row = LoginTokenRow { api_key: token.api_key, expires_at: now.plus(token.ttl) };
        self.tables.tokens.insert((token.kind, token.hash), row);
    }

    /// Returns a token if it is valid.
    pub(crate) fn token(&self, kind: LoginTokenKind, hash: Hash) -> Option<LoginTokenRow> {
        let row = self.tables.tokens.get(&(kind, hash))?;
        let is_key_valid = match &row.api_key {
            ApiKeyRef::Local => true,
            ApiKeyRef::Key(key) => {
                let key = self.tables.key(*key);
                key.is_some_and(|(_, key)| key.is_valid_at(self.now))
            }
        };
        (is_key_valid && row.expires_at > self.now).then(|| row.clone())
    }

    /// Returns a token if it is valid, and deletes it.
    pub(crate) fn consume_login_token(
        &mut self,
        kind: LoginTokenKind,
        hash: Hash,
    ) -> Option<LoginTokenRow> {
        let token = self.token(kind, hash)?;
        self.tables.tokens.remove(&(kind, hash));
        Some(token)
    }

    /// Adds a link, unless its gate has been pruned already.
    pub(crate) fn add_link(&mut self, link: GateLinkRow) {
        if self.tables.gates.contains(&link.gate) {
            self.tables.links.insert(link.hash, link);
        }
    }
}
