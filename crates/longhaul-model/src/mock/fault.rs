//! Injected faults of the mock provider: recurring faults for all requests, and single faults
//! requested by a header.
//!
//! Invariant: faults are deterministic. The same requests in the same order get the same faults.

use std::num::NonZeroU64;

use bytes::Bytes;
use longhaul_core::time::Millis;

use crate::mock::response::{MockBody, MockResponse, ResponseTermination};

/// Invalid data for a response: neither valid JSON nor a valid event.
const GARBAGE: &str = "data: {\"type\": <html><body>502 Bad Gateway</body></html>\n\n";

/// Faults and delays that the mock provider applies to all requests.
#[derive(Debug, Clone, Copy, Default)]
pub struct FaultSettings {
    /// Delay before the first byte of a response.
    pub latency: Millis,
    /// Delay between the events of a stream.
    pub token_delay: Millis,
    /// Failure of every n-th request. `None` means that no requests fail.
    pub failure: Option<RecurringFailure>,
    /// Number n: every n-th stream is cut off in the middle. `None` means that no streams are cut
    /// off.
    pub cut_every: Option<NonZeroU64>,
}

/// A failure that recurs at every n-th request.
#[derive(Debug, Clone, Copy)]
pub struct RecurringFailure {
    /// HTTP status of the failed requests.
    pub status: u16,
    /// Number n: every n-th request fails.
    pub every: NonZeroU64,
}

/// A fault that the header of a request asks for, injected into the response to that request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The request fails with this HTTP status.
    Status(u16),
    /// The connection is closed in the middle of the response.
    Cut,
    /// The response stops in the middle, and the connection stays open.
    Stall,
    /// The response contains invalid data in the middle.
    Garbage,
    /// The provider reports an error in the middle of the response.
    Error,
}

impl Fault {
    /// Parses the value of the header that requests a fault.
    pub(crate) fn parse_header_value(header_value: &str) -> Result<Self, &'static str> {
        let header_value = header_value.trim();
        if let Some(status) = header_value.strip_prefix("status=") {
            let status = status.parse().ok();
            let status = status.filter(|status| (400..600).contains(status));
            return status
                .map(Self::Status)
                .ok_or("x-longhaul-fault: the status must be from 400 to 599, such as status=503");
        }
        match header_value {
            "cut" => Ok(Self::Cut),
            "stall" => Ok(Self::Stall),
            "garbage" => Ok(Self::Garbage),
            "error" => Ok(Self::Error),
            _ => Err(
                "x-longhaul-fault: must be cut, stall, garbage, error or a status such as status=503",
            ),
        }
    }
}

/// Injects a fault into a response. `error_event` returns the event with which the provider reports
/// an error in a stream.
pub(crate) fn inject_fault(
    mut response: MockResponse,
    fault: Option<Fault>,
    error_event: impl FnOnce() -> Bytes,
) -> MockResponse {
    let (termination, last) = match fault {
        None | Some(Fault::Status(_)) => return response,
        Some(Fault::Cut) => (ResponseTermination::Truncated, None),
        Some(Fault::Stall) => (ResponseTermination::Stalled, None),
        Some(Fault::Garbage) => {
            (ResponseTermination::Clean, Some(Bytes::from_static(GARBAGE.as_bytes())))
        }
        Some(Fault::Error) => (ResponseTermination::Clean, Some(error_event())),
    };
    response.termination = termination;
    match &mut response.body {
        // The content length is that of the full body, but only half of it is sent.
        MockBody::Full(body) => match last {
            None => *body = body.slice(..body.len() / 2),
            Some(last) => *body = last,
        },
        MockBody::Stream(events) => {
            events.truncate(events.len() / 2);
            events.extend(last);
        }
    }
    response
}
