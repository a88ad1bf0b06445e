//! How far the calls of a run are: the newest word of each, told now and then, and
//! what must be read about afterwards, told as it is.
//!
//! Never: keeps what nobody will hear. A call that has ended says nothing more, and
//! a tool that talks all the time is heard once a second.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::event::tool::ToolProgress;
use longhaul_core::id::CallId;
use longhaul_core::port::redact::Redact;
use longhaul_core::port::tool::Progress;
use longhaul_core::time::{Clock, Millis};
use longhaul_run::Input;
use tokio::sync::Notify;

/// So much time passes between two words of a run's calls.
const MIN_INTERVAL: Millis = Millis::from_secs(1);

/// So many words of one call are passed on at that pace, and those after them at
/// another: a journal is read as a whole.
const FAST_UPDATES_MAX: u32 = 200;
const SLOW_INTERVAL: Millis = Millis::from_secs(60);

/// The longest word.
const MESSAGE_BYTES_MAX: usize = 1_000;

/// So many lasting words of one call are passed on, each so long.
const DURABLE_MAX: u32 = 16;
const DURABLE_CHARS_MAX: usize = 500;

/// What is said in the place of those after them.
const TRUNCATED_NOTICE: &str = "there is more of this kind, which is not written down";

/// How far the calls of a run are. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct ProgressThrottle(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    changed: Notify,
    /// Rung for lasting words, which wait for no pace.
    urgent: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The calls under way.
    calls: Vec<CallProgress>,
    /// When somebody was told, by the clock that never goes back.
    last_sent: Option<u64>,
    /// Lasting words that nobody heard. They stay when their call ends.
    durable: VecDeque<Input>,
}

/// A word of a call.
#[derive(Debug)]
pub(super) enum ProgressUpdate {
    /// It may as well be lost.
    Droppable(Input),
    /// It must be read about afterwards.
    Durable(Input),
}

/// What is heard of a call.
#[derive(Debug)]
struct CallProgress {
    call: CallId,
    /// What it said last and nobody heard.
    latest: Option<Report>,
    /// How many of its words were passed on, and when the last of them was.
    sent_count: u32,
    last_sent: Option<u64>,
    /// How many lasting words it has said.
    durable_count: u32,
}

impl CallProgress {
    /// How long its next word waits for its own sake.
    fn delay(&self, nanos: u64) -> Millis {
        match self.sent_count < FAST_UPDATES_MAX {
            true => Millis::ZERO,
            false => remaining_delay(SLOW_INTERVAL, self.last_sent, nanos),
        }
    }
}

/// What is left of a pause that began then.
fn remaining_delay(pause: Millis, since: Option<u64>, nanos: u64) -> Millis {
    let passed = since.map(|since| nanos.saturating_sub(since) / 1_000_000);
    Millis(passed.map_or(0, |passed| pause.0.saturating_sub(passed)))
}

#[derive(Debug)]
struct Report {
    percent: Option<u8>,
    message: String,
}

impl ProgressThrottle {
    fn with_state<T>(&self, use_it: impl FnOnce(&mut State) -> T) -> T {
        use_it(&mut self.0.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A call begins: what is given back is to be kept as long as it goes on.
    pub(super) fn track(&self, call: CallId) -> TrackedCall {
        let heard =
            CallProgress { call, latest: None, sent_count: 0, last_sent: None, durable_count: 0 };
        self.with_state(|state| state.calls.push(heard));
        TrackedCall { throttle: self.clone(), call }
    }

    /// Whoever reports for a call.
    pub(super) fn reporter(&self, call: CallId, redact: &Arc<dyn Redact>) -> Arc<dyn Progress> {
        Arc::new(Reporter { throttle: self.clone(), redact: Arc::clone(redact), call })
    }

    /// The next word, when there is one and it is time to pass it on. To stop
    /// waiting for it loses nothing.
    pub(super) async fn next_update(&self, clock: &dyn Clock) -> ProgressUpdate {
        loop {
            let (rung, urgent) = (self.0.changed.notified(), self.0.urgent.notified());
            let nanos = clock.monotonic_nanos();
            if let Some(word) = self.with_state(|state| state.durable.pop_front()) {
                return ProgressUpdate::Durable(word);
            }
            match self.with_state(|state| state.take_due(nanos)) {
                Due::Now(input) => return ProgressUpdate::Droppable(input),
                Due::In(span) => tokio::select! {
                    () = clock.sleep(span) => {}
                    () = urgent => {}
                },
                Due::Never => tokio::select! {
                    () = rung => {}
                    () = urgent => {}
                },
            }
        }
    }

    /// The lasting words that nobody has heard yet, of calls that have ended too.
    pub(super) fn take_durable(&self) -> VecDeque<Input> {
        self.with_state(|state| std::mem::take(&mut state.durable))
    }
}

enum Due {
    Now(Input),
    In(Millis),
    Never,
}

impl State {
    fn take_due(&mut self, nanos: u64) -> Due {
        let talking = self.calls.iter_mut().filter(|heard| heard.latest.is_some());
        let Some(heard) = talking.min_by_key(|heard| heard.delay(nanos)) else {
            return Due::Never;
        };
        let waits = heard.delay(nanos).max(remaining_delay(MIN_INTERVAL, self.last_sent, nanos));
        if waits > Millis::ZERO {
            // Another call may have a word meanwhile that need not wait so long.
            return Due::In(waits.min(MIN_INTERVAL));
        }
        let Some(word) = heard.latest.take() else {
            return Due::Never;
        };
        heard.sent_count = heard.sent_count.saturating_add(1);
        heard.last_sent = Some(nanos);
        self.last_sent = Some(nanos);
        Due::Now(Input::Progress(ToolProgress {
            call: heard.call,
            percent: word.percent,
            message: word.message,
        }))
    }
}

/// A call under way. When it is dropped nobody hears of the call any more.
#[derive(Debug)]
pub(super) struct TrackedCall {
    throttle: ProgressThrottle,
    call: CallId,
}

impl Drop for TrackedCall {
    fn drop(&mut self) {
        self.throttle.with_state(|state| state.calls.retain(|heard| heard.call != self.call));
    }
}

#[derive(Debug)]
struct Reporter {
    throttle: ProgressThrottle,
    redact: Arc<dyn Redact>,
    call: CallId,
}

impl Progress for Reporter {
    fn report(&self, percent: Option<u8>, message: &str) {
        let message = self.redact.redact(message);
        let until = message.floor_char_boundary(MESSAGE_BYTES_MAX);
        let word = Report {
            percent: percent.map(|percent| percent.min(100)),
            message: message[..until].to_owned(),
        };
        self.throttle.with_state(|state| {
            let mut calls = state.calls.iter_mut();
            if let Some(heard) = calls.find(|heard| heard.call == self.call) {
                heard.latest = Some(word);
            }
        });
        self.throttle.0.changed.notify_one();
    }

    fn report_durable(&self, message: &str) {
        let message = self.redact.redact(message);
        let message: String = message.chars().take(DURABLE_CHARS_MAX).collect();
        self.throttle.with_state(|state| {
            let mut calls = state.calls.iter_mut();
            let Some(heard) = calls.find(|heard| heard.call == self.call) else {
                return;
            };
            let message = match heard.durable_count {
                before if before < DURABLE_MAX => message,
                DURABLE_MAX => TRUNCATED_NOTICE.to_owned(),
                _ => return,
            };
            heard.durable_count += 1;
            state.durable.push_back(Input::Progress(ToolProgress {
                call: self.call,
                percent: None,
                message,
            }));
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
        let gauge = ProgressThrottle::default();
        let calls = [1, 2].map(|index| CallId { turn: 1, index });
        let _open = calls.map(|call| gauge.track(call));
        let redact: Arc<dyn Redact> = Arc::new(longhaul_core::port::redact::NoRedaction);
        let mut told = 0;
        for second in 0..3_600 {
            gauge.reporter(calls[0], &redact).report(None, "still there");
            let due = gauge.with_state(|state| state.take_due(second * SECOND));
            told += u32::from(matches!(due, Due::Now(_)));
        }
        assert!((250..=260).contains(&told), "{told}");
        // Its neighbour is heard at once.
        gauge.reporter(calls[1], &redact).report(None, "begun");
        let due = gauge.with_state(|state| state.take_due(3_600 * SECOND));
        assert!(matches!(due, Due::Now(Input::Progress(ref word)) if word.call == calls[1]));
    }

    #[test]
    fn durable_progress_is_limited_and_outlives_its_call() {
        let gauge = ProgressThrottle::default();
        let call = CallId { turn: 1, index: 1 };
        let open = gauge.track(call);
        let redact: Arc<dyn Redact> = Arc::new(longhaul_core::port::redact::NoRedaction);
        let reporter = gauge.reporter(call, &redact);
        for _ in 0..100 {
            reporter.report(None, "still there");
            reporter.report_durable(&"é".repeat(600));
        }
        drop(open);
        reporter.report_durable("too late");
        let words = gauge.take_durable().into_iter().filter_map(|word| {
            let Input::Progress(ToolProgress { message, .. }) = word else {
                return None;
            };
            Some(message)
        });
        let words: Vec<String> = words.collect();
        assert_eq!(words.len(), 17);
        assert!(words[..16].iter().all(|word| *word == "é".repeat(500)));
        assert_eq!(words[16], TRUNCATED_NOTICE);
        assert!(gauge.take_durable().is_empty());
    }
}
