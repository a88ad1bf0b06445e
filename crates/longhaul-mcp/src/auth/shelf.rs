//! What the SDK keeps of a login, until it is written down.
//!
//! Never: on a disk, and never shown.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use rmcp::transport::auth::{AuthError, CredentialStore, StoredCredentials};

/// Where the SDK puts what it is given. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct Shelf(Arc<Mutex<Option<StoredCredentials>>>);

impl Shelf {
    /// One on which this lies.
    pub(super) fn with(credentials: StoredCredentials) -> Self {
        Self(Arc::new(Mutex::new(Some(credentials))))
    }

    pub(super) fn take(&self) -> Option<StoredCredentials> {
        self.on_it().take()
    }

    fn on_it(&self) -> MutexGuard<'_, Option<StoredCredentials>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl CredentialStore for Shelf {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        Ok(self.on_it().clone())
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        *self.on_it() = Some(credentials);
        Ok(())
    }

    async fn clear(&self) -> Result<(), AuthError> {
        *self.on_it() = None;
        Ok(())
    }
}
