//! What a worker shares with the external inboxes whose tasks it executes: its free permits, and
//! whether an inbox still has tasks for it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;

/// State that a worker shares with the external inboxes that it serves. Cheap to clone; clones
/// share state.
#[derive(Debug, Clone)]
pub struct WorkerIntake {
    permits: Arc<Semaphore>,
    /// Number of places for tasks that are being claimed from an inbox, or whose runs wait in the
    /// queue for a permit.
    reserved: Arc<Mutex<usize>>,
    /// Number of inboxes that have tasks, or have not been asked yet.
    busy_inboxes: Arc<AtomicUsize>,
}

impl WorkerIntake {
    pub(super) fn new(concurrency: usize) -> Self {
        let concurrency = concurrency.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            permits: Arc::new(Semaphore::new(concurrency)),
            reserved: Arc::default(),
            busy_inboxes: Arc::default(),
        }
    }

    /// Returns the permits to drive runs.
    pub(super) const fn permits(&self) -> &Arc<Semaphore> {
        &self.permits
    }

    /// Whether an external inbox has tasks that are no runs yet, or has not been asked yet.
    pub(super) fn has_busy_inbox(&self) -> bool {
        self.busy_inboxes.load(Ordering::Acquire) > 0
    }

    /// Reserves a place for each free permit that has none yet, up to a maximum, and returns how
    /// many were reserved.
    pub fn reserve_free_places(&self, max: usize) -> usize {
        let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        let places = self.permits.available_permits().saturating_sub(*reserved).min(max);
        *reserved += places;
        places
    }

    /// Adds reserved places without regard to the free permits.
    pub fn add_places(&self, count: usize) {
        *self.reserved.lock().unwrap_or_else(PoisonError::into_inner) += count;
    }

    /// Gives reserved places back.
    pub fn release_places(&self, count: usize) {
        let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        *reserved = reserved.saturating_sub(count);
    }

    /// Registers an external inbox, which is busy until it says otherwise.
    pub fn register_inbox(&self) -> InboxActivity {
        self.busy_inboxes.fetch_add(1, Ordering::AcqRel);
        InboxActivity { busy_inboxes: Arc::clone(&self.busy_inboxes), is_busy: true }
    }
}

/// Whether an external inbox has tasks for a worker. Dropping it means that the inbox has none.
#[derive(Debug)]
pub struct InboxActivity {
    busy_inboxes: Arc<AtomicUsize>,
    is_busy: bool,
}

impl InboxActivity {
    /// Records whether the inbox has tasks. Returns whether this is a change.
    pub fn set_busy(&mut self, is_busy: bool) -> bool {
        match (self.is_busy, is_busy) {
            (true, false) => self.busy_inboxes.fetch_sub(1, Ordering::AcqRel),
            (false, true) => self.busy_inboxes.fetch_add(1, Ordering::AcqRel),
            (true, true) | (false, false) => return false,
        };
        self.is_busy = is_busy;
        true
    }
}

impl Drop for InboxActivity {
    fn drop(&mut self) {
        self.set_busy(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_places_are_reserved_than_permits_are_free() {
        let intake = WorkerIntake::new(3);
        assert_eq!(intake.reserve_free_places(2), 2);
        assert_eq!(intake.reserve_free_places(2), 1);
        assert_eq!(intake.reserve_free_places(2), 0);
        intake.release_places(2);
        let _permit = intake.permits().try_acquire().unwrap();
        assert_eq!(intake.reserve_free_places(9), 1);
        intake.add_places(4);
        intake.release_places(5);
        assert_eq!(intake.reserve_free_places(9), 1);
    }

    #[test]
    fn an_inbox_is_busy_until_it_reports_no_tasks_or_is_dropped() {
        let intake = WorkerIntake::new(1);
        let (mut first, second) = (intake.register_inbox(), intake.register_inbox());
        assert!(first.set_busy(false) && !first.set_busy(false));
        assert!(intake.has_busy_inbox());
        drop(second);
        assert!(!intake.has_busy_inbox());
        assert!(first.set_busy(true) && intake.has_busy_inbox());
        drop(first);
        assert!(!intake.has_busy_inbox());
    }
}
