//! A place among the runs that a worker drives at once.
//!
//! Never: counts. The semaphore that its permit is of does.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A permit that can be given back for a while. Clones are the same. The default has no
/// permit and needs none.
#[derive(Debug, Clone, Default)]
pub struct DrivePermit {
    semaphore: Option<Arc<Semaphore>>,
    permit: Arc<Mutex<Option<OwnedSemaphorePermit>>>,
}

impl DrivePermit {
    /// A slot with this permit.
    pub(crate) fn new(permit: OwnedSemaphorePermit) -> Self {
        Self {
            semaphore: Some(Arc::clone(permit.semaphore())),
            permit: Arc::new(Mutex::new(Some(permit))),
        }
    }

    fn set(&self, permit: Option<OwnedSemaphorePermit>) {
        *self.permit.lock().unwrap_or_else(PoisonError::into_inner) = permit;
    }

    /// Gives the permit back, so that another run can have it.
    pub(crate) fn release(&self) {
        self.set(None);
    }

    /// Waits for a permit.
    pub(crate) async fn acquire(&self) {
        if let Some(semaphore) = &self.semaphore {
            self.set(Arc::clone(semaphore).acquire_owned().await.ok());
        }
    }
}
