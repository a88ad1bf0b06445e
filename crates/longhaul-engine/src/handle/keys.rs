//! Keys: who may come in, and as whom.
//!
//! Never: shows a secret twice. It leaves this room once, when it is made.

use longhaul_core::access::{Principal, Role};
use longhaul_core::id::KeyName;
use longhaul_core::port::keyring::{Holder, KeyRow, NewKey};
use longhaul_core::time::Millis;
use longhaul_run::Refusal;

use crate::error::Error;
use crate::handle::Longhaul;
use crate::secret::{KEY_PREFIX, Secret};
use longhaul_api::key::KeyView;

/// A key to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyAsk {
    /// What it is called.
    pub name: KeyName,
    /// What it opens.
    pub role: Role,
    /// It ends by itself after this span; none: never.
    pub span: Option<Millis>,
    /// Who makes it.
    pub by: String,
}

/// A key that was made just now.
#[derive(Debug, Clone)]
pub struct MadeKey {
    /// What opens the door. It is stored nowhere.
    pub secret: Secret,
    /// What is stored.
    pub key: KeyView,
}

/// Somebody whose key or pass counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// Who.
    pub principal: Principal,
    /// Whose key it was in the end.
    pub holder: Holder,
}

impl Known {
    /// Whoever holds a key of the store.
    pub(super) fn by_key(row: &KeyRow) -> Self {
        Self {
            principal: Principal {
                name: format!("key:{}", row.name),
                role: row.role,
            },
            holder: Holder::Key(row.hash),
        }
    }

    /// Whoever may read the machine's own key.
    pub fn local() -> Self {
        Self {
            principal: Principal {
                name: "local".to_owned(),
                role: Role::Admin,
            },
            holder: Holder::Local,
        }
    }
}

impl Longhaul {
    /// A secret that nobody can guess.
    pub fn secret(&self, prefix: &str) -> Result<Secret, Error> {
        let bits = self.ports.mint.chance().ok_or(Error::NoChance)?;
        Ok(Secret::new(prefix, bits))
    }

    /// Makes a key.
    pub async fn make_key(&self, ask: KeyAsk) -> Result<MadeKey, Error> {
        let name = ask.name.to_string();
        // In a path these two lead elsewhere, and the key could not be revoked.
        if [".", ".."].contains(&name.as_str()) {
            return Err(Refusal::BadTask(format!("`{name}` is no name of a key")).into());
        }
        self.is_no_secret("the key's name", &name)?;
        let secret = self.secret(KEY_PREFIX)?;
        let key = NewKey {
            name: ask.name,
            role: ask.role,
            hash: secret.hash(),
            span: ask.span,
            by: self.clean(ask.by),
            request: self.request.clone(),
        };
        if !self.ports.keyring.add_key(key).await? {
            return Err(Error::KeyTaken(name));
        }
        let row = self.ports.keyring.key(secret.hash()).await?;
        let row = row.ok_or(Error::NoKey(name))?;
        let key = KeyView::new(&row, self.now().await?);
        Ok(MadeKey { secret, key })
    }

    /// All keys, the oldest first.
    pub async fn keys(&self) -> Result<Vec<KeyView>, Error> {
        let now = self.now().await?;
        let rows = self.ports.keyring.keys().await?;
        Ok(rows.iter().map(|row| KeyView::new(row, now)).collect())
    }

    /// Ends a key and everything that it gave out.
    pub async fn revoke_key(&self, name: &KeyName) -> Result<KeyView, Error> {
        let row = self.ports.keyring.revoke_key(name).await?;
        let row = row.ok_or_else(|| Error::NoKey(name.to_string()))?;
        Ok(KeyView::new(&row, self.now().await?))
    }

    /// Whose key this is, if it counts.
    pub async fn who(&self, secret: &Secret) -> Result<Option<Known>, Error> {
        let Some(row) = self.ports.keyring.key(secret.hash()).await? else {
            return Ok(None);
        };
        if !row.counts(self.now().await?) {
            return Ok(None);
        }
        self.ports.keyring.touch_key(row.hash).await?;
        Ok(Some(Known::by_key(&row)))
    }
}
