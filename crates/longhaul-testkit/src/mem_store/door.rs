//! Keys, the passes that they gave out, and links to single gates.
//!
//! Never: a pass that outlives its time or its key, or a link its gate.

use longhaul_core::id::KeyName;
use longhaul_core::port::keyring::{Holder, KeyRow, LinkRow, NewKey, NewPass, PassKind, PassRow};
use longhaul_core::port::store::StoreError;
use longhaul_core::raw::Hash;
use longhaul_core::request::Effect;
use longhaul_core::time::Millis;

use crate::mem_store::rows::Tables;
use crate::mem_store::tx::Tx;

/// So old may the note of a key's last use be.
const USED_WITHIN: Millis = Millis::from_secs(5 * 60);

impl Tables {
    /// The key with this hash, and its place.
    pub(crate) fn key(&self, hash: Hash) -> Option<(&u64, &KeyRow)> {
        self.doors.iter().find(|(_, row)| row.hash == hash)
    }

    /// The key of this name that is not revoked.
    fn unrevoked(&self, name: &KeyName) -> Option<(&u64, &KeyRow)> {
        let mut rows = self.doors.iter();
        rows.find(|(_, row)| row.name == *name && row.revoked_at.is_none())
    }
}

impl Tx<'_> {
    /// Takes a key in; false: its name is taken.
    pub(crate) fn add_key(&mut self, key: NewKey) -> Result<bool, StoreError> {
        let earlier = key.request.as_ref().and_then(|of| self.effect(of));
        if let Some(Effect::Key(unseen)) = earlier
            && let Some((place, _)) = self.tables.key(unseen)
        {
            let (place, now) = (*place, self.now);
            let doors = &mut self.tables.doors;
            doors.change(&place, |row| row.revoked_at = row.revoked_at.or(Some(now)));
        }
        if self.tables.unrevoked(&key.name).is_some() {
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
            expires_at: key.span.map(|span| self.now.plus(span)),
            revoked_at: None,
            used_at: None,
        };
        let place = self.tables.count();
        self.tables.doors.put(place, row);
        if let Some(of) = &key.request {
            self.mark_reply(of, Effect::Key(key.hash));
        }
        Ok(true)
    }

    /// Ends a key and every pass that it gave out.
    pub(crate) fn revoke_key(&mut self, name: &KeyName) -> Option<KeyRow> {
        let (place, row) = self.tables.unrevoked(name)?;
        let (place, mut row) = (*place, row.clone());
        row.revoked_at = Some(self.now);
        self.tables.doors.put(place, row.clone());
        let held = Holder::Key(row.hash);
        let passes = &mut self.tables.passes;
        passes.take_where(|_, pass| pass.holder == held);
        Some(row)
    }

    /// Notes that a key was used now, unless that is known well enough.
    pub(crate) fn touch_key(&mut self, hash: Hash) {
        let now = self.now;
        let known = self.tables.key(hash);
        let due = known.filter(|(_, row)| {
            let used = row.used_at;
            used.is_none_or(|used| used.plus(USED_WITHIN) < now)
        });
        if let Some((place, _)) = due {
            let place = *place;
            let doors = &mut self.tables.doors;
            doors.change(&place, |row| row.used_at = Some(now));
        }
    }

    /// Takes a pass in, and those away that are over.
    pub(crate) fn add_pass(&mut self, pass: NewPass) {
        let now = self.now;
        self.tables.passes.take_where(|_, row| row.until <= now);
        let row = PassRow {
            holder: pass.holder,
            until: now.plus(pass.span),
        };
        self.tables.passes.put((pass.kind, pass.hash), row);
    }

    /// The pass, if it still counts.
    pub(crate) fn pass(&self, kind: PassKind, hash: Hash) -> Option<PassRow> {
        let row = self.tables.passes.get(&(kind, hash))?;
        let counts = match &row.holder {
            Holder::Local => true,
            Holder::Key(key) => {
                let key = self.tables.key(*key);
                key.is_some_and(|(_, key)| key.counts(self.now))
            }
        };
        (counts && row.until > self.now).then(|| row.clone())
    }

    /// The pass, if it still counts, and it is gone.
    pub(crate) fn spend_pass(&mut self, kind: PassKind, hash: Hash) -> Option<PassRow> {
        let pass = self.pass(kind, hash)?;
        self.tables.passes.take(&(kind, hash));
        Some(pass)
    }

    /// Takes a link in, unless its gate is forgotten already: then so is the link.
    pub(crate) fn add_link(&mut self, link: LinkRow) {
        if self.tables.gates.has(&link.gate) {
            self.tables.links.put(link.hash, link);
        }
    }
}
