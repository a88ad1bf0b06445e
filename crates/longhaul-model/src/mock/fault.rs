//! What goes wrong on purpose: by counting for every request, and by a header
//! for one.
//!
//! Never: by chance. The same requests in the same order meet the same faults.

use std::num::NonZeroU64;

use bytes::Bytes;
use longhaul_core::time::Millis;

use crate::mock::response::{MockBody, MockResponse, Termination};

/// What a body says that is no JSON and no event.
const GARBAGE: &str = "data: {\"type\": <html><body>502 Bad Gateway</body></html>\n\n";

/// What goes wrong with every request.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// How long to wait before the first byte.
    pub latency: Millis,
    /// How long to wait between the events of a stream.
    pub token_delay: Millis,
    /// Requests that fail.
    pub failure: Option<RecurringFailure>,
    /// Every so many streams one is cut off in the middle.
    pub cut_every: Option<NonZeroU64>,
}

/// A failure that comes back.
#[derive(Debug, Clone, Copy)]
pub struct RecurringFailure {
    /// With this status.
    pub status: u16,
    /// Every so many requests.
    pub every: NonZeroU64,
}

impl Faults {
    /// The status with which this request, from 1, fails.
    pub(crate) fn status_of(&self, request: u64) -> Option<u16> {
        let fail = self.failure.filter(|fail| request.is_multiple_of(fail.every.get()));
        fail.map(|fail| fail.status)
    }

    /// Whether this stream, from 1, is cut off.
    pub(crate) fn should_cut(&self, stream: u64) -> bool {
        let every = self.cut_every;
        every.is_some_and(|every| stream.is_multiple_of(every.get()))
    }
}

/// What goes wrong with one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It fails with this status.
    Status(u16),
    /// It breaks off in the middle.
    Cut,
    /// It stops in the middle and says no more.
    Stall,
    /// It says something in the middle that nobody can read.
    Garbage,
    /// It says in the middle that it can't go on.
    Error,
}

impl Fault {
    /// Reads a header.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let text = text.trim();
        if let Some(status) = text.strip_prefix("status=") {
            let status = status.parse().ok();
            let status = status.filter(|status| (400..600).contains(status));
            return status.map(Self::Status).ok_or(
                "x-longhaul-fault: a status that fails is one from 400 to 599, such as status=503",
            );
        }
        match text {
            "cut" => Ok(Self::Cut),
            "stall" => Ok(Self::Stall),
            "garbage" => Ok(Self::Garbage),
            "error" => Ok(Self::Error),
            _ => Err("x-longhaul-fault: write status=503, cut, stall, garbage or error"),
        }
    }
}

/// The answer with a fault in it. `trouble` is what a provider says in the middle
/// of a stream when it can't go on.
pub(crate) fn inject(
    mut answer: MockResponse,
    fault: Option<Fault>,
    trouble: impl FnOnce() -> Bytes,
) -> MockResponse {
    let (ending, last) = match fault {
        None | Some(Fault::Status(_)) => return answer,
        Some(Fault::Cut) => (Termination::Truncated, None),
        Some(Fault::Stall) => (Termination::Stalled, None),
        Some(Fault::Garbage) => (Termination::Clean, Some(Bytes::from_static(GARBAGE.as_bytes()))),
        Some(Fault::Error) => (Termination::Clean, Some(trouble())),
    };
    answer.termination = ending;
    match &mut answer.body {
        // A length was promised for the whole of it, and what comes is the half.
        MockBody::Full(body) => match last {
            None => *body = body.slice(..body.len() / 2),
            Some(last) => *body = last,
        },
        MockBody::Stream(events) => {
            events.truncate(events.len() / 2);
            events.extend(last);
        }
    }
    answer
}
