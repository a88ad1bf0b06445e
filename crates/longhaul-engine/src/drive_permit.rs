//! The permit to drive one run: one of the permits that limit the worker's concurrent runs.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Permit to drive a run, which can be released and acquired again. Cheap to clone; clones share
/// the permit. The default value has no semaphore and never waits.
#[derive(Debug, Clone, Default)]
pub struct DrivePermit {
    semaphore: Option<Arc<Semaphore>>,
    permit: Arc<Mutex<Option<OwnedSemaphorePermit>>>,
}

impl DrivePermit {
    /// Creates a drive permit that holds `permit`.
    pub(crate) fn new(permit: OwnedSemaphorePermit) -> Self {
        Self {
            semaphore: Some(Arc::clone(permit.semaphore())),
            permit: Arc::new(Mutex::new(Some(permit))),
        }
    }

    fn set_permit(&self, permit: Option<OwnedSemaphorePermit>) {
        *self.permit.lock().unwrap_or_else(PoisonError::into_inner) = permit;
    }

    /// Releases the permit, so that another run can be driven.
    pub(crate) fn release(&self) {
        self.set_permit(None);
    }

    /// Acquires the permit again, waiting until another run has released one.
    pub(crate) async fn acquire(&self) {
        if let Some(semaphore) = &self.semaphore {
            self.set_permit(Arc::clone(semaphore).acquire_owned().await.ok());
        }
    }
}
