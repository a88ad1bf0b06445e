//! What the engine's no means over HTTP: a status, the engine's own words and
//! code, and what helps.
//!
//! Never: what a fault was. That stands in the log, beside the request's id.

use axum::http::StatusCode;
use longhaul_core::port::store::StoreError;
use longhaul_engine::Error;
use longhaul_engine::error::Refusal;

use crate::problem::Problem;

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let (status, hint) = match &error {
            Error::Store(fault) => return store(fault, error.code()),
            Error::Misfit(_) | Error::Stuck { .. } | Error::NoChance => {
                tracing::error!(%error, "a request met a fault");
                return Self::internal();
            }
            Error::Refused(refusal) => refused(refusal),
            Error::NoRun(_) => (StatusCode::NOT_FOUND, "GET /v1/runs lists what there is"),
            Error::NoGate(_) => (StatusCode::NOT_FOUND, "GET /v1/gates lists what is open"),
            Error::NoSteer(_) => (StatusCode::NOT_FOUND, "GET /v1/runs/{id}/steer lists them"),
            Error::NoAgent { .. } => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "GET /v1/agents lists what there is",
            ),
            Error::NoKey(_) => (StatusCode::NOT_FOUND, "GET /v1/keys lists what there is"),
            Error::KeyTaken(_) => (
                StatusCode::CONFLICT,
                "choose another name, or revoke that key first",
            ),
            Error::KeyReused => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "use a new Idempotency-Key for a new request",
            ),
            Error::LaneFull(_) => (
                StatusCode::TOO_MANY_REQUESTS,
                "wait until runs of this lane have ended, or use another lane",
            ),
            Error::Crowded(_) => (StatusCode::CONFLICT, "try again"),
            Error::Template { .. } => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "look at the agent's file: longhaul agents check",
            ),
        };
        let mut problem = Self::new(status, error.code(), error.to_string()).hint(hint);
        if status == StatusCode::TOO_MANY_REQUESTS {
            problem = problem.retry_after(1);
        }
        if let Error::NoAgent { like, .. } = error {
            problem.like = like;
        }
        problem
    }
}

/// The problem of a request whose change is committed and whose result can't be read.
/// What is not there will not be there later either.
pub(crate) fn after_commit(error: Error) -> Problem {
    if matches!(error, Error::NoRun(_) | Error::NoGate(_)) {
        return error.into();
    }
    tracing::warn!(%error, "a change was committed, but its result could not be read");
    unread()
}

/// The problem of a request whose change is committed and whose result can't be read now.
pub(crate) fn unread() -> Problem {
    let words = "the change was committed, but its result could not be read now";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "committed_unread", words)
        .hint("GET it, or send the request again with the same Idempotency-Key")
        .retry_after(1)
}

fn store(fault: &StoreError, code: &'static str) -> Problem {
    match fault {
        StoreError::Full { .. } => {
            let words = "the disk that holds the runs is full: nothing new starts";
            Problem::new(StatusCode::INSUFFICIENT_STORAGE, code, words)
                .hint("make room on the server's disk")
        }
        StoreError::Busy { .. } | StoreError::Closed { .. } => {
            let words = "the store could not be reached in time";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, code, words)
                .hint("try again")
                .retry_after(1)
        }
        StoreError::ReadOnly { .. }
        | StoreError::Corrupt { .. }
        | StoreError::Newer { .. }
        | StoreError::Driven { .. }
        | StoreError::Outsider { .. }
        | StoreError::Url { .. }
        | StoreError::Event { .. }
        | StoreError::Database { .. } => {
            tracing::error!(error = %fault, "a request met a fault of the store");
            Problem::internal()
        }
    }
}

const fn refused(refusal: &Refusal) -> (StatusCode, &'static str) {
    match refusal {
        Refusal::Ended(_) => (StatusCode::CONFLICT, "GET the run to see how it ended"),
        Refusal::GateClosed { .. } => (StatusCode::CONFLICT, "GET the run to see it go on"),
        Refusal::GateExpired(_) => (StatusCode::GONE, "GET the run to see what followed"),
        Refusal::DigestChanged => (StatusCode::CONFLICT, "GET the gate and look again"),
        Refusal::DigestMissing => (
            StatusCode::UNPROCESSABLE_ENTITY,
            "send the `digest` of the gate that was shown",
        ),
        Refusal::WrongDecision { .. } => (
            StatusCode::UNPROCESSABLE_ENTITY,
            "the gate's `decisions` lists what it takes",
        ),
        Refusal::ScopeNotOffered => (
            StatusCode::UNPROCESSABLE_ENTITY,
            "send `scope: once`; a gate without `pattern` offers no more",
        ),
        Refusal::OwnRun => (StatusCode::FORBIDDEN, "somebody else must decide"),
        Refusal::VotedBefore(_) => (StatusCode::CONFLICT, "others must agree now"),
        Refusal::SteerSettled(_) => (StatusCode::CONFLICT, "send a new message"),
        Refusal::SteersFull(_) => (
            StatusCode::TOO_MANY_REQUESTS,
            "wait until the run has read some, or withdraw one",
        ),
        Refusal::Already(_) => (StatusCode::CONFLICT, "it stands as you want it"),
        Refusal::OutOfPlace { .. } | Refusal::NoSuchCall(_) => {
            (StatusCode::CONFLICT, "GET the run to see how it stands")
        }
        Refusal::TooLong { .. } | Refusal::Empty(_) | Refusal::BadTask(_) => (
            StatusCode::UNPROCESSABLE_ENTITY,
            "mend it and send it again",
        ),
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::id::{GateId, RunId};

    use super::*;

    #[test]
    fn only_what_can_be_read_later_is_worth_another_try() {
        let busy = StoreError::Busy { at: "here".into() };
        for (error, status) in [
            (Error::Store(busy), StatusCode::SERVICE_UNAVAILABLE),
            (Error::NoRun(RunId::from_bits(1)), StatusCode::NOT_FOUND),
            (Error::NoGate(GateId::from_bits(1)), StatusCode::NOT_FOUND),
        ] {
            let said = error.to_string();
            assert_eq!(after_commit(error).status, status, "{said}");
        }
    }
}
