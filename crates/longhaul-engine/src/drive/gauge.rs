//! How far the calls of a run are: the newest word of each, told now and then.
//!
//! Never: keeps what nobody will hear. A call that has ended says nothing more, and
//! a tool that talks all the time is heard once a second.

use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::id::CallId;
use longhaul_core::port::redact::Redact;
use longhaul_core::port::tool::Progress;
use longhaul_core::time::{Clock, Millis};
use longhaul_run::Input;
use tokio::sync::Notify;

/// So much time passes between two words of a run's calls.
const PACE: Millis = Millis::from_secs(1);

/// The longest word.
const MESSAGE_BYTES_MAX: usize = 1_000;

/// How far the calls of a run are. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Gauge(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    bell: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The calls under way, with what each said last and nobody heard.
    calls: Vec<(CallId, Option<Word>)>,
    /// When somebody was told, by the clock that never goes back.
    told: Option<u64>,
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
        self.with(|state| state.calls.push((call, None)));
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
    pub(super) async fn next(&self, clock: &dyn Clock) -> Input {
        loop {
            let rung = self.0.bell.notified();
            let nanos = clock.nanos();
            match self.with(|state| state.take(nanos)) {
                Due::Now(input) => return input,
                Due::In(span) => clock.sleep_until(clock.now().plus(span)).await,
                Due::Never => rung.await,
            }
        }
    }
}

enum Due {
    Now(Input),
    In(Millis),
    Never,
}

impl State {
    fn take(&mut self, nanos: u64) -> Due {
        let Some((call, word)) = self.calls.iter_mut().find(|(_, word)| word.is_some()) else {
            return Due::Never;
        };
        let since = self.told.map(|told| nanos.saturating_sub(told) / 1_000_000);
        if let Some(left) = since.and_then(|since| PACE.0.checked_sub(since))
            && left > 0
        {
            return Due::In(Millis(left));
        }
        let (call, Some(word)) = (*call, word.take()) else {
            return Due::Never;
        };
        self.told = Some(nanos);
        Due::Now(Input::Progress {
            call,
            percent: word.percent,
            message: word.message,
        })
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
            .with(|state| state.calls.retain(|(call, _)| *call != self.call));
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
            if let Some((_, last)) = calls.find(|(call, _)| *call == self.call) {
                *last = Some(word);
            }
        });
        self.gauge.0.bell.notify_one();
    }
}
