//! Keys, the passes that they gave out, and links to single gates.
//!
//! Never: a pass that outlives its time or its key, or a link its gate.

use longhaul_core::id::KeyName;
use longhaul_core::port::auth::{KeyRef, KeyRow, LinkRow, NewKey, NewToken, TokenKind, TokenRow};
use longhaul_core::port::store::StoreError;
use longhaul_core::raw::Hash;
use longhaul_core::request::RequestEffect;
use longhaul_core::time::Millis;

use crate::mem_store::rows::Tables;
use crate::mem_store::tx::Tx;

/// So old may the note of a key's last use be.
const LAST_USED_PRECISION: Millis = Millis::from_secs(5 * 60);

impl Tables {
    /// The key with this hash, and its place.
    pub(crate) fn key(&self, hash: Hash) -> Option<(&u64, &KeyRow)> {
        self.api_keys.iter().find(|(_, row)| row.hash == hash)
    }

    /// The key of this name that is not revoked.
    fn active_key(&self, name: &KeyName) -> Option<(&u64, &KeyRow)> {
        let mut rows = self.api_keys.iter();
        rows.find(|(_, row)| row.name == *name && row.revoked_at.is_none())
    }
}

impl Tx<'_> {
    /// Takes a key in; false: its name is taken.
    pub(crate) fn add_key(&mut self, key: NewKey) -> Result<bool, StoreError> {
        let earlier = key.request.as_ref().and_then(|of| self.request_effect(of));
        if let Some(RequestEffect::Key(unseen)) = earlier
            && let Some((place, _)) = self.tables.key(unseen)
        {
            let (place, now) = (*place, self.now);
            let doors = &mut self.tables.api_keys;
            doors.update(&place, |row| row.revoked_at = row.revoked_at.or(Some(now)));
        }
        if self.tables.active_key(&key.name).is_some() {
            return Ok(false);
        }
        if self.tables.key(key.hash).is_some() {
            return Err(StoreError::Database {
                at: "memory".to_owned(),
                source: "a key with this hash exists already".into(),
            });
        }
        let row = KeyRow {
            name: key.name,
            role: key.role,
            hash: key.hash,
            by: key.by,
            created_at: self.now,
            expires_at: key.ttl.map(|span| self.now.plus(span)),
            revoked_at: None,
            last_used_at: None,
        };
        let place = self.tables.next_row_id();
        self.tables.api_keys.insert(place, row);
        if let Some(of) = &key.request {
            self.mark_request(of, RequestEffect::Key(key.hash));
        }
        Ok(true)
    }

    /// Ends a key and every pass that it gave out.
    pub(crate) fn revoke_key(&mut self, name: &KeyName) -> Option<KeyRow> {
        let (place, row) = self.tables.active_key(name)?;
        let (place, mut row) = (*place, row.clone());
        row.revoked_at = Some(self.now);
        self.tables.api_keys.insert(place, row.clone());
        let held = KeyRef::Key(row.hash);
        let passes = &mut self.tables.tokens;
        passes.remove_where(|_, pass| pass.issuer == held);
        Some(row)
    }

    /// Notes that a key was used now, unless that is known well enough.
    pub(crate) fn touch_key(&mut self, hash: Hash) {
        let now = self.now;
        let known = self.tables.key(hash);
        let due = known.filter(|(_, row)| {
            let used = row.last_used_at;
            used.is_none_or(|used| used.plus(LAST_USED_PRECISION) < now)
        });
        if let Some((place, _)) = due {
            let place = *place;
            let doors = &mut self.tables.api_keys;
            doors.update(&place, |row| row.last_used_at = Some(now));
        }
    }

    /// Takes a pass in, and those away that are over.
    pub(crate) fn add_token(&mut self, pass: NewToken) {
        let now = self.now;
        self.tables.tokens.remove_where(|_, row| row.expires_at <= now);
        let row = TokenRow { issuer: pass.issuer, expires_at: now.plus(pass.ttl) };
        self.tables.tokens.insert((pass.kind, pass.hash), row);
    }

    /// The pass, if it still counts.
    pub(crate) fn token(&self, kind: TokenKind, hash: Hash) -> Option<TokenRow> {
        let row = self.tables.tokens.get(&(kind, hash))?;
        let counts = match &row.issuer {
            KeyRef::Local => true,
            KeyRef::Key(key) => {
                let key = self.tables.key(*key);
                key.is_some_and(|(_, key)| key.is_valid_at(self.now))
            }
        };
        (counts && row.expires_at > self.now).then(|| row.clone())
    }

    /// The pass, if it still counts, and it is gone.
    pub(crate) fn consume_token(&mut self, kind: TokenKind, hash: Hash) -> Option<TokenRow> {
        let pass = self.token(kind, hash)?;
        self.tables.tokens.remove(&(kind, hash));
        Some(pass)
    }

    /// Takes a link in, unless its gate is forgotten already: then so is the link.
    pub(crate) fn add_link(&mut self, link: LinkRow) {
        if self.tables.gates.contains(&link.gate) {
            self.tables.links.insert(link.hash, link);
        }
    }
}
