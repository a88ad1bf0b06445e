//! Keys: who may come in, and as whom.
//!
//! Never: shows a secret twice. It leaves this room once, when it is made.

use longhaul_core::access::{Principal, Role};
use longhaul_core::id::KeyName;
use longhaul_core::port::auth::{KeyRef, KeyRow, NewKey};
use longhaul_core::time::Millis;
use longhaul_run::Rejection;

use crate::error::Error;
use crate::handle::Longhaul;
use crate::secret::{KEY_PREFIX, Secret};
use longhaul_api::key::KeyView;

/// A key to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateKey {
    /// What it is called.
    pub name: KeyName,
    /// What it opens.
    pub role: Role,
    /// It ends by itself after this span; none: never.
    pub ttl: Option<Millis>,
    /// Who makes it.
    pub by: String,
}

/// A key that was made just now.
#[derive(Debug, Clone)]
pub struct IssuedKey {
    /// What opens the door. It is stored nowhere.
    pub secret: Secret,
    /// What is stored.
    pub key: KeyView,
}

/// Somebody whose key or pass counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Who.
    pub principal: Principal,
    /// Whose key it was in the end.
    pub key: KeyRef,
}

impl Identity {
    /// Whoever holds a key of the store.
    pub(super) fn from_key(row: &KeyRow) -> Self {
        Self {
            principal: Principal { name: format!("key:{}", row.name), role: row.role },
            key: KeyRef::Key(row.hash),
        }
    }

    /// Whoever may read the machine's own key.
    pub fn local() -> Self {
        Self {
            principal: Principal { name: "local".to_owned(), role: Role::Admin },
            key: KeyRef::Local,
        }
    }
}

impl Longhaul {
    /// A secret that nobody can guess.
    pub fn generate_secret(&self, prefix: &str) -> Result<Secret, Error> {
        let bits = self.services.ids.random_bytes().ok_or(Error::EntropyUnavailable)?;
        Ok(Secret::new(prefix, bits))
    }

    /// Makes a key.
    pub async fn create_key(&self, ask: CreateKey) -> Result<IssuedKey, Error> {
        let name = ask.name.to_string();
        // In a path these two lead elsewhere, and the key could not be revoked.
        if [".", ".."].contains(&name.as_str()) {
            return Err(Rejection::InvalidTask(format!("`{name}` is no name of a key")).into());
        }
        self.check_no_secret("the key's name", &name)?;
        let secret = self.generate_secret(KEY_PREFIX)?;
        let key = NewKey {
            name: ask.name,
            role: ask.role,
            hash: secret.hash(),
            ttl: ask.ttl,
            by: self.redact(ask.by),
            request: self.request.clone(),
        };
        if !self.services.auth.add_key(key).await? {
            return Err(Error::KeyNameTaken(name));
        }
        let row = self.services.auth.key(secret.hash()).await?;
        let row = row.ok_or(Error::KeyNotFound(name))?;
        let key = KeyView::new(&row, self.store_time().await?);
        Ok(IssuedKey { secret, key })
    }

    /// All keys, the oldest first.
    pub async fn keys(&self) -> Result<Vec<KeyView>, Error> {
        let now = self.store_time().await?;
        let rows = self.services.auth.keys().await?;
        Ok(rows.iter().map(|row| KeyView::new(row, now)).collect())
    }

    /// Ends a key and everything that it gave out.
    pub async fn revoke_key(&self, name: &KeyName) -> Result<KeyView, Error> {
        let row = self.services.auth.revoke_key(name).await?;
        let row = row.ok_or_else(|| Error::KeyNotFound(name.to_string()))?;
        Ok(KeyView::new(&row, self.store_time().await?))
    }

    /// Whose key this is, if it counts.
    pub async fn authenticate_key(&self, secret: &Secret) -> Result<Option<Identity>, Error> {
        let Some(row) = self.services.auth.key(secret.hash()).await? else {
            return Ok(None);
        };
        if !row.is_valid_at(self.store_time().await?) {
            return Ok(None);
        }
        self.services.auth.touch_key(row.hash).await?;
        Ok(Some(Identity::from_key(&row)))
    }
}
