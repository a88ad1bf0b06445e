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
const PACE: Millis = Millis::from_secs(1);

/// So many words of one call are passed on at that pace, and those after them at
/// another: a journal is read as a whole.
const WORDS_MAX: u32 = 200;
const SLOW_PACE: Millis = Millis::from_secs(60);

/// The longest word.
const MESSAGE_BYTES_MAX: usize = 1_000;

/// So many lasting words of one call are passed on, each so long.
const LASTING_MAX: u32 = 16;
const LASTING_CHARS_MAX: usize = 500;

/// What is said in the place of those after them.
const NO_MORE: &str = "there is more of this kind, which is not written down";

/// How far the calls of a run are. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Gauge(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    bell: Notify,
    /// Rung for lasting words, which wait for no pace.
    urgent: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The calls under way.
    calls: Vec<Heard>,
    /// When somebody was told, by the clock that never goes back.
    told: Option<u64>,
    /// Lasting words that nobody heard. They stay when their call ends.
    lasting: VecDeque<Input>,
}

/// A word of a call.
#[derive(Debug)]
pub(super) enum Spoken {
    /// It may as well be lost.
    Passing(Input),
    /// It must be read about afterwards.
    Lasting(Input),
}

/// What is heard of a call.
#[derive(Debug)]
struct Heard {
    call: CallId,
    /// What it said last and nobody heard.
    word: Option<Word>,
    /// How many of its words were passed on, and when the last of them was.
    count: u32,
    told: Option<u64>,
    /// How many lasting words it has said.
    lasted: u32,
}

impl Heard {
    /// How long its next word waits for its own sake.
    fn waits(&self, nanos: u64) -> Millis {
        match self.count < WORDS_MAX {
            true => Millis::ZERO,
            false => left(SLOW_PACE, self.told, nanos),
        }
    }
}

/// What is left of a pause that began then.
fn left(pause: Millis, since: Option<u64>, nanos: u64) -> Millis {
    let passed = since.map(|since| nanos.saturating_sub(since) / 1_000_000);
    Millis(passed.map_or(0, |passed| pause.0.saturating_sub(passed)))
}

#[derive(Debug)]
struct Word {
    percent: Option<u8>,
    message: String,
}

impl Gauge {
    fn with<T>(&self, use_it: impl FnOnce(&mut State) -> T) -> T {
        use_it(&mut self.0.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A call begins: what is given back is to be kept as long as it goes on.
    pub(super) fn begin(&self, call: CallId) -> Open {
        let heard = Heard {
            call,
            word: None,
            count: 0,
            told: None,
            lasted: 0,
        };
        self.with(|state| state.calls.push(heard));
        Open {
            gauge: self.clone(),
            call,
        }
    }

    /// Whoever reports for a call.
    pub(super) fn reporter(&self, call: CallId, redact: &Arc<dyn Redact>) -> Arc<dyn Progress> {
        Arc::new(Reporter {
            gauge: self.clone(),
            redact: Arc::clone(redact),
            call,
        })
    }

    /// The next word, when there is one and it is time to pass it on. To stop
    /// waiting for it loses nothing.
    pub(super) async fn next(&self, clock: &dyn Clock) -> Spoken {
        loop {
            let (rung, urgent) = (self.0.bell.notified(), self.0.urgent.notified());
            let nanos = clock.nanos();
            if let Some(word) = self.with(|state| state.lasting.pop_front()) {
                return Spoken::Lasting(word);
            }
            match self.with(|state| state.take(nanos)) {
                Due::Now(input) => return Spoken::Passing(input),
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
    pub(super) fn lasting(&self) -> VecDeque<Input> {
        self.with(|state| std::mem::take(&mut state.lasting))
    }
}

enum Due {
    Now(Input),
    In(Millis),
    Never,
}

impl State {
    fn take(&mut self, nanos: u64) -> Due {
        let talking = self.calls.iter_mut().filter(|heard| heard.word.is_some());
        let Some(heard) = talking.min_by_key(|heard| heard.waits(nanos)) else {
            return Due::Never;
        };
        let waits = heard.waits(nanos).max(left(PACE, self.told, nanos));
        if waits > Millis::ZERO {
            // Another call may have a word meanwhile that need not wait so long.
            return Due::In(waits.min(PACE));
        }
        let Some(word) = heard.word.take() else {
            return Due::Never;
        };
        heard.count = heard.count.saturating_add(1);
        heard.told = Some(nanos);
        self.told = Some(nanos);
        Due::Now(Input::Progress(ToolProgress {
            call: heard.call,
            percent: word.percent,
            message: word.message,
        }))
    }
}

/// A call under way. When it is dropped nobody hears of the call any more.
#[derive(Debug)]
pub(super) struct Open {
    gauge: Gauge,
    call: CallId,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.gauge
            .with(|state| state.calls.retain(|heard| heard.call != self.call));
    }
}

#[derive(Debug)]
struct Reporter {
    gauge: Gauge,
    redact: Arc<dyn Redact>,
    call: CallId,
}

impl Progress for Reporter {
    fn report(&self, percent: Option<u8>, message: &str) {
        let message = self.redact.redact(message);
        let until = message.floor_char_boundary(MESSAGE_BYTES_MAX);
        let word = Word {
            percent: percent.map(|percent| percent.min(100)),
            message: message[..until].to_owned(),
        };
        self.gauge.with(|state| {
            let mut calls = state.calls.iter_mut();
            if let Some(heard) = calls.find(|heard| heard.call == self.call) {
                heard.word = Some(word);
            }
        });
        self.gauge.0.bell.notify_one();
    }

    fn record(&self, message: &str) {
        let message = self.redact.redact(message);
        let message: String = message.chars().take(LASTING_CHARS_MAX).collect();
        self.gauge.with(|state| {
            let mut calls = state.calls.iter_mut();
            let Some(heard) = calls.find(|heard| heard.call == self.call) else {
                return;
            };
            let message = match heard.lasted {
                before if before < LASTING_MAX => message,
                LASTING_MAX => NO_MORE.to_owned(),
                _ => return,
            };
            heard.lasted += 1;
            state.lasting.push_back(Input::Progress(ToolProgress {
                call: self.call,
                percent: None,
                message,
            }));
        });
        self.gauge.0.urgent.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_call_that_talks_for_hours_is_heard_once_a_minute() {
        let gauge = Gauge::default();
        let calls = [1, 2].map(|index| CallId { turn: 1, index });
        let _open = calls.map(|call| gauge.begin(call));
        let redact: Arc<dyn Redact> = Arc::new(longhaul_core::port::redact::NoSecrets);
        let mut told = 0;
        for second in 0..3_600 {
            gauge
                .reporter(calls[0], &redact)
                .report(None, "still there");
            let due = gauge.with(|state| state.take(second * SECOND));
            told += u32::from(matches!(due, Due::Now(_)));
        }
        assert!((250..=260).contains(&told), "{told}");
        // Its neighbour is heard at once.
        gauge.reporter(calls[1], &redact).report(None, "begun");
        let due = gauge.with(|state| state.take(3_600 * SECOND));
        assert!(matches!(due, Due::Now(Input::Progress(ref word)) if word.call == calls[1]));
    }

    #[test]
    fn what_lasts_is_bounded_and_outlives_its_call() {
        let gauge = Gauge::default();
        let call = CallId { turn: 1, index: 1 };
        let open = gauge.begin(call);
        let redact: Arc<dyn Redact> = Arc::new(longhaul_core::port::redact::NoSecrets);
        let reporter = gauge.reporter(call, &redact);
        for _ in 0..100 {
            reporter.report(None, "still there");
            reporter.record(&"é".repeat(600));
        }
        drop(open);
        reporter.record("too late");
        let words = gauge.lasting().into_iter().filter_map(|word| {
            let Input::Progress(ToolProgress { message, .. }) = word else {
                return None;
            };
            Some(message)
        });
        let words: Vec<String> = words.collect();
        assert_eq!(words.len(), 17);
        assert!(words[..16].iter().all(|word| *word == "é".repeat(500)));
        assert_eq!(words[16], NO_MORE);
        assert!(gauge.lasting().is_empty());
    }
}
