//! Limits the rate at which progress reports of running calls are journaled.
//!
//! Ordinary progress may be dropped: only the newest report of each call is kept, and it is passed
//! on at a limited rate. Durable reports are all passed on, up to a maximum number. An ended call
//! reports nothing more.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use longhaul_core::event::tool::ToolProgress;
use longhaul_core::id::CallId;
use longhaul_core::port::redact::Redact;
use longhaul_core::port::tool::Progress;
use longhaul_core::time::{Clock, Millis};
use longhaul_run::RunInput;
use tokio::sync::Notify;

use crate::panics::with_lock;

/// Minimum interval between two ordinary progress updates of a run.
const MIN_INTERVAL: Millis = Millis::from_secs(1);

/// Number of progress updates per call that are journaled at the normal rate. Later updates are
/// journaled at a slower rate, because a journal is always read as a whole.
const FAST_UPDATES_MAX: u32 = 200;
/// Minimum interval between two progress updates of a call after its first `FAST_UPDATES_MAX`.
const SLOW_INTERVAL: Millis = Millis::from_secs(60);

/// Maximum length of a progress message in bytes.
const MESSAGE_BYTES_MAX: usize = 1_000;

/// Maximum number of durable progress reports (which later reports don't replace) per call. Further
/// ones are not recorded.
const DURABLE_REPORTS_MAX: u32 = 16;
/// Maximum number of characters of a durable progress report (which must not be dropped).
const DURABLE_CHARS_MAX: usize = 500;

/// Message that is recorded once per call, instead of the durable progress reports above the
/// maximum number.
const TRUNCATED_NOTICE: &str = "further messages of this kind were not recorded";

/// Collects the progress reports of running calls and limits their rate. Cheap to clone; clones
/// share state.
#[derive(Debug, Clone, Default)]
pub(super) struct ProgressThrottle(Arc<ThrottleInner>);

#[derive(Debug, Default)]
struct ThrottleInner {
    state: Mutex<ThrottleState>,
    changed: Notify,
    /// Signal that a durable progress report has arrived, which is journaled at once.
    urgent: Notify,
}

#[derive(Debug, Default)]
struct ThrottleState {
    /// Progress of each running call.
    calls: Vec<CallProgress>,
    /// Time at which the last progress update of any call was sent to the journal, in nanoseconds of
    /// the monotonic clock.
    last_sent: Option<u64>,
    /// Durable progress reports (which must not be dropped) that are not journaled yet. They are
    /// kept when their call ends.
    durable: VecDeque<RunInput>,
}

/// A progress update of a running call, as an input for the state machine.
#[derive(Debug)]
pub(super) enum ProgressUpdate {
    /// Ordinary progress, which may be lost if the store is busy.
    Droppable(RunInput),
    /// Durable progress, which must be written to the journal.
    Durable(RunInput),
}

/// Progress of one running call.
#[derive(Debug)]
struct CallProgress {
    call: CallId,
    /// Newest progress report of the call that is not journaled yet.
    latest: Option<ProgressReport>,
    /// Number of updates of this call that were journaled; `last_sent` is the time of the last one.
    sent_count: u32,
    last_sent: Option<u64>,
    /// Number of durable progress reports (which must not be dropped) of this call so far.
    durable_count: u32,
}

impl CallProgress {
    /// Returns how long the next progress update of this call has to wait, due to the rate limit
    /// per call.
    fn delay_until_next_update(&self, now_nanos: u64) -> Millis {
        match self.sent_count < FAST_UPDATES_MAX {
            true => Millis::ZERO,
            false => remaining_delay(SLOW_INTERVAL, self.last_sent, now_nanos),
        }
    }
}

/// Returns the rest of the delay `pause` that began at `since_nanos`, or zero if `since_nanos` is
/// `None`. Times are in nanoseconds of the monotonic clock.
fn remaining_delay(pause: Millis, since_nanos: Option<u64>, now_nanos: u64) -> Millis {
    let elapsed = since_nanos.map(|since_nanos| now_nanos.saturating_sub(since_nanos) / 1_000_000);
    Millis(elapsed.map_or(0, |elapsed| pause.0.saturating_sub(elapsed)))
}

#[derive(Debug)]
struct ProgressReport {
    percent: Option<u8>,
    message: String,
}

impl ProgressThrottle {
    /// Starts to collect progress reports of a call, until the returned guard is dropped.
    pub(super) fn track_call(&self, call: CallId) -> ProgressGuard {
        let entry =
            CallProgress { call, latest: None, sent_count: 0, last_sent: None, durable_count: 0 };
        with_lock(&self.0.state, |state| state.calls.push(entry));
        ProgressGuard { throttle: self.clone(), call }
    }

    /// Returns the object through which a tool reports the progress of its call.
    pub(super) fn reporter(&self, call: CallId, redact: &Arc<dyn Redact>) -> Arc<dyn Progress> {
        Arc::new(ProgressReporter { throttle: self.clone(), redact: Arc::clone(redact), call })
    }

    /// Waits until a progress update is due and returns it. Cancel safe.
    pub(super) async fn next_update(&self, clock: &dyn Clock) -> ProgressUpdate {
        loop {
            let (changed, urgent) = (self.0.changed.notified(), self.0.urgent.notified());
            let nanos = clock.monotonic_nanos();
            if let Some(update) = with_lock(&self.0.state, |state| state.durable.pop_front()) {
                return ProgressUpdate::Durable(update);
            }
            match with_lock(&self.0.state, |state| state.take_due_update(nanos)) {
                DueUpdate::Now(input) => return ProgressUpdate::Droppable(input),
                DueUpdate::In(delay) => tokio::select! {
                    () = clock.sleep(delay) => {}
                    () = urgent => {}
                },
                DueUpdate::Never => tokio::select! {
                    () = changed => {}
                    () = urgent => {}
                },
            }
        }
    }

    /// Takes all durable progress reports (which must not be dropped) that are not journaled yet,
    /// including those of ended calls.
    pub(super) fn take_unjournaled_reports(&self) -> VecDeque<RunInput> {
        with_lock(&self.0.state, |state| std::mem::take(&mut state.durable))
    }
}

enum DueUpdate {
    Now(RunInput),
    In(Millis),
    Never,
}

impl ThrottleState {
    fn take_due_update(&mut self, now_nanos: u64) -> DueUpdate {
        let reporting = self.calls.iter_mut().filter(|entry| entry.latest.is_some());
        let Some(entry) = reporting.min_by_key(|entry| entry.delay_until_next_update(now_nanos))
        else {
            return DueUpdate::Never;
        };
        let delay = entry.delay_until_next_update(now_nanos).max(remaining_delay(
            MIN_INTERVAL,
            self.last_sent,
            now_nanos,
        ));
        if delay > Millis::ZERO {
            // Another call may report meanwhile without having to wait so long.
            return DueUpdate::In(delay.min(MIN_INTERVAL));
        }
        let Some(report) = entry.latest.take() else { return DueUpdate::Never };
        entry.sent_count = entry.sent_count.saturating_add(1);
        entry.last_sent = Some(now_nanos);
        self.last_sent = Some(now_nanos);
        DueUpdate::Now(RunInput::Progress(ToolProgress {
            call: entry.call,
            percent: report.percent,
            message: report.message,
        }))
    }
}

/// Guard of a running call whose progress is collected. Dropping the guard ends the collection.
#[derive(Debug)]
pub(super) struct ProgressGuard {
    throttle: ProgressThrottle,
    call: CallId,
}

impl Drop for ProgressGuard {
    fn drop(&mut self) {
        with_lock(&self.throttle.0.state, |state| {
            state.calls.retain(|entry| entry.call != self.call)
        });
    }
}

#[derive(Debug)]
struct ProgressReporter {
    throttle: ProgressThrottle,
    redact: Arc<dyn Redact>,
    call: CallId,
}

impl Progress for ProgressReporter {
    fn report(&self, percent: Option<u8>, message: &str) {
        let message = self.redact.redact(message);
        let until = message.floor_char_boundary(MESSAGE_BYTES_MAX);
        let report = ProgressReport {
            percent: percent.map(|percent| percent.min(100)),
            message: message[..until].to_owned(),
        };
        with_lock(&self.throttle.0.state, |state| {
            let mut calls = state.calls.iter_mut();
            if let Some(entry) = calls.find(|entry| entry.call == self.call) {
                entry.latest = Some(report);
            }
        });
        self.throttle.0.changed.notify_one();
    }

    fn report_to_journal(&self, message: &str) {
        let message = self.redact.redact(message);
        let message: String = message.chars().take(DURABLE_CHARS_MAX).collect();
        with_lock(&self.throttle.0.state, |state| {
            let mut calls = state.calls.iter_mut();
            let Some(entry) = calls.find(|entry| entry.call == self.call) else { return };
            let message = match entry.durable_count {
                before if before < DURABLE_REPORTS_MAX => message,
                DURABLE_REPORTS_MAX => TRUNCATED_NOTICE.to_owned(),
                _ => return,
            };
            entry.durable_count += 1;
            let progress = ToolProgress { call: self.call, percent: None, message };
            state.durable.push_back(RunInput::Progress(progress));
        });
        self.throttle.0.urgent.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn progress_of_a_long_call_is_throttled_to_once_a_minute() {
        let throttle = ProgressThrottle::default();
        let calls = [1, 2].map(|index| CallId { turn: 1, index });
        let _open = calls.map(|call| throttle.track_call(call));
        let redact: Arc<dyn Redact> = Arc::new(longhaul_core::port::redact::NoRedaction);
        let mut updates = 0;
        for second in 0..3_600 {
            throttle.reporter(calls[0], &redact).report(None, "still there");
            let due = with_lock(&throttle.0.state, |state| state.take_due_update(second * SECOND));
            updates += u32::from(matches!(due, DueUpdate::Now(_)));
        }
        assert!((250..=260).contains(&updates), "{updates}");
        // The other call is reported at once.
        throttle.reporter(calls[1], &redact).report(None, "begun");
        let due = with_lock(&throttle.0.state, |state| state.take_due_update(3_600 * SECOND));
        assert!(
            matches!(due, DueUpdate::Now(RunInput::Progress(progress)) if progress.call == calls[1])
        );
    }

    #[test]
    fn progress_for_the_journal_is_limited_and_outlives_its_call() {
        let throttle = ProgressThrottle::default();
        let call = CallId { turn: 1, index: 1 };
        let open = throttle.track_call(call);
        let redact: Arc<dyn Redact> = Arc::new(longhaul_core::port::redact::NoRedaction);
        let reporter = throttle.reporter(call, &redact);
        for _ in 0..100 {
            reporter.report(None, "still there");
            reporter.report_to_journal(&"é".repeat(600));
        }
        drop(open);
        reporter.report_to_journal("too late");
        let messages = throttle.take_unjournaled_reports().into_iter().filter_map(|item| {
            let RunInput::Progress(ToolProgress { message, .. }) = item else { return None };
            Some(message)
        });
        let messages: Vec<String> = messages.collect();
        assert_eq!(messages.len(), 17);
        assert!(messages[..16].iter().all(|item| *item == "é".repeat(500)));
        assert_eq!(messages[16], TRUNCATED_NOTICE);
        assert!(throttle.take_unjournaled_reports().is_empty());
    }
}
