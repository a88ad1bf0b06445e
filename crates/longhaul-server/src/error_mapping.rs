//! What the engine's no means over HTTP: a status, the engine's own words and
//! code, and what helps.
//!
//! Never: what a fault was. That stands in the log, beside the request's id.

use axum::http::StatusCode;
use longhaul_core::port::store::StoreError;
use longhaul_engine::Error;
use longhaul_engine::error::Rejection;

use crate::problem::Problem;

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let (status, hint) = match &error {
            Error::Store(fault) => return store_problem(fault, error.code()),
            Error::InvalidJournal(_) | Error::Internal { .. } | Error::EntropyUnavailable => {
                tracing::error!(%error, "a request met a fault");
                return Self::internal();
            }
            Error::Rejected(refusal) => rejection_status(refusal),
            Error::RunNotFound(_) => (StatusCode::NOT_FOUND, "GET /v1/runs lists what there is"),
            Error::GateNotFound(_) => (StatusCode::NOT_FOUND, "GET /v1/gates lists what is open"),
            Error::SteerNotFound(_) => {
                (StatusCode::NOT_FOUND, "GET /v1/runs/{id}/steer lists them")
            }
            Error::AgentNotFound { .. } => {
                (StatusCode::UNPROCESSABLE_ENTITY, "GET /v1/agents lists what there is")
            }
            Error::KeyNotFound(_) => (StatusCode::NOT_FOUND, "GET /v1/keys lists what there is"),
            Error::KeyNameTaken(_) => {
                (StatusCode::CONFLICT, "choose another name, or revoke that key first")
            }
            Error::IdempotencyKeyReused => {
                (StatusCode::UNPROCESSABLE_ENTITY, "use a new Idempotency-Key for a new request")
            }
            Error::LaneFull(_) => (
                StatusCode::TOO_MANY_REQUESTS,
                "wait until runs of this lane have ended, or use another lane",
            ),
            Error::Contention(_) => (StatusCode::CONFLICT, "try again"),
            Error::Template { .. } => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "look at the agent's file: longhaul agents check",
            ),
        };
        let mut problem = Self::new(status, error.code(), error.to_string()).hint(hint);
        if status == StatusCode::TOO_MANY_REQUESTS {
            problem = problem.retry_after(1);
        }
        if let Error::AgentNotFound { suggestion: like, .. } = error {
            problem.suggestion = like;
        }
        problem
    }
}

/// The problem of a request whose change is committed and whose result can't be read.
/// What is not there will not be there later either.
pub(crate) fn after_commit(error: Error) -> Problem {
    if matches!(error, Error::RunNotFound(_) | Error::GateNotFound(_)) {
        return error.into();
    }
    tracing::warn!(%error, "a change was committed, but its result could not be read");
    committed_unread()
}

/// The problem of a request whose change is committed and whose result can't be read now.
pub(crate) fn committed_unread() -> Problem {
    let words = "the change was committed, but its result could not be read now";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "committed_unread", words)
        .hint("GET it, or send the request again with the same Idempotency-Key")
        .retry_after(1)
}

fn store_problem(fault: &StoreError, code: &'static str) -> Problem {
    match fault {
        StoreError::DiskFull { .. } => {
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
        | StoreError::NewerSchema { .. }
        | StoreError::AlreadyDriven { .. }
        | StoreError::NotDriver { .. }
        | StoreError::InvalidUrl { .. }
        | StoreError::InvalidEvent { .. }
        | StoreError::Database { .. } => {
            tracing::error!(error = %fault, "a request met a fault of the store");
            Problem::internal()
        }
    }
}

const fn rejection_status(refusal: &Rejection) -> (StatusCode, &'static str) {
    match refusal {
        Rejection::Ended(_) => (StatusCode::CONFLICT, "GET the run to see how it ended"),
        Rejection::GateClosed { .. } => (StatusCode::CONFLICT, "GET the run to see it go on"),
        Rejection::GateExpired(_) => (StatusCode::GONE, "GET the run to see what followed"),
        Rejection::DigestChanged => (StatusCode::CONFLICT, "GET the gate and look again"),
        Rejection::DigestMissing => {
            (StatusCode::UNPROCESSABLE_ENTITY, "send the `digest` of the gate that was shown")
        }
        Rejection::InvalidDecision { .. } => {
            (StatusCode::UNPROCESSABLE_ENTITY, "the gate's `decisions` lists what it takes")
        }
        Rejection::ScopeNotOffered => (
            StatusCode::UNPROCESSABLE_ENTITY,
            "send `scope: once`; a gate without `pattern` offers no more",
        ),
        Rejection::SelfApproval => (StatusCode::FORBIDDEN, "somebody else must decide"),
        Rejection::AlreadyVoted(_) => (StatusCode::CONFLICT, "others must agree now"),
        Rejection::SteerSettled(_) => (StatusCode::CONFLICT, "send a new message"),
        Rejection::SteersFull(_) => {
            (StatusCode::TOO_MANY_REQUESTS, "wait until the run has read some, or withdraw one")
        }
        Rejection::AlreadyInState(_) => (StatusCode::CONFLICT, "it stands as you want it"),
        Rejection::InvalidState { .. } | Rejection::CallNotRunning(_) => {
            (StatusCode::CONFLICT, "GET the run to see how it stands")
        }
        Rejection::TooLong { .. } | Rejection::Empty(_) | Rejection::InvalidTask(_) => {
            (StatusCode::UNPROCESSABLE_ENTITY, "mend it and send it again")
        }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::id::{GateId, RunId};

    use super::*;

    #[test]
    fn only_a_busy_store_is_retryable_after_a_commit() {
        let busy = StoreError::Busy { at: "here".into() };
        for (error, status) in [
            (Error::Store(busy), StatusCode::SERVICE_UNAVAILABLE),
            (Error::RunNotFound(RunId::from_bits(1)), StatusCode::NOT_FOUND),
            (Error::GateNotFound(GateId::from_bits(1)), StatusCode::NOT_FOUND),
        ] {
            let said = error.to_string();
            assert_eq!(after_commit(error).status, status, "{said}");
        }
    }
}
