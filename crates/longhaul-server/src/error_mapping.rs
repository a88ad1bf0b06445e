//! Maps engine errors to HTTP error responses: a status, the engine's message and code, and a hint.
//!
//! Internal errors are logged by the outermost middleware; the response does not show their
//! details.

use std::sync::Arc;

use axum::http::StatusCode;
use longhaul_core::port::store::StoreError;
use longhaul_engine::Error;
use longhaul_engine::error::Rejection;

use crate::problem::Problem;

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let problem = problem_of_error(&error);
        Self { error: Some(Arc::new(error)), ..problem }
    }
}

fn problem_of_error(error: &Error) -> Problem {
    let (status, hint) = match error {
        Error::Store(store_error) => return store_problem(store_error, error.code()),
        Error::InvalidJournal(_) | Error::Internal { .. } | Error::EntropyUnavailable => {
            return Problem::internal_error();
        }
        Error::Rejected(refusal) => rejection_status(refusal),
        Error::RunNotFound(_) => not_found("GET /v1/runs lists all runs"),
        Error::BatchNotFound(_) => {
            not_found("POST /v1/runs/batch answers with the id of the batch")
        }
        Error::GateNotFound(_) => not_found("GET /v1/gates lists all gates"),
        Error::RuleNotFound(_) => not_found("GET /v1/rules lists them all"),
        Error::SandboxNotFound(_) => not_found("GET /v1/sandboxes lists them all"),
        Error::RunInUse { .. } => conflict("GET the run to see its status"),
        Error::SandboxUnusable { .. } => conflict("GET the sandbox to see its state"),
        Error::KeyNotInDoubt(_) => conflict("GET the run to see the outcomes of its calls"),
        Error::SteerNotFound(_) => not_found("GET /v1/runs/{id}/steer lists the run's messages"),
        Error::AgentNotFound { .. } => unprocessable("GET /v1/agents lists all agents"),
        Error::ChainNotFound { .. } => unprocessable("GET /v1/chains lists all chains"),
        Error::ScheduleNotFound(_) => not_found("GET /v1/schedules lists all schedules"),
        Error::ScheduleExists(_) => conflict("choose another name, or delete that schedule first"),
        Error::InvalidSchedule(_) => unprocessable("fix it and send it again"),
        Error::KeyNotFound(_) => not_found("GET /v1/keys lists all keys"),
        Error::KeyNameTaken(_) => conflict("choose another name, or revoke that key first"),
        Error::IdempotencyKeyReused => unprocessable("use a new Idempotency-Key for a new request"),
        Error::LaneFull(_) => too_many("wait until some have ended, or use another lane"),
        Error::LaneBusy { .. } => conflict("wait until the runs of this lane have ended"),
        Error::OverCap { .. } => too_many(
            "wait until the window of the cap ends, or raise it: POST /v1/spend/{name}/raise",
        ),
        Error::CapNotFound { .. } => not_found("GET /v1/spend lists all caps"),
        Error::InvalidRaise(_) => unprocessable("GET /v1/spend shows the caps and their limits"),
        Error::Contention(_) => conflict("try again"),
        Error::Template { .. } => unprocessable("check the agent's file: longhaul agents check"),
    };
    let mut problem = Problem::new(status, error.code(), error.to_string()).with_hint(hint);
    if status == StatusCode::TOO_MANY_REQUESTS {
        problem = problem.with_retry_after(1);
    }
    if let Error::OverCap { retry_after, .. } = error {
        let seconds = u32::try_from(retry_after.0.div_ceil(1_000)).unwrap_or(u32::MAX);
        problem = problem.with_retry_after(seconds);
    }
    if let Error::AgentNotFound { suggestion, .. }
    | Error::ChainNotFound { suggestion, .. }
    | Error::CapNotFound { suggestion, .. } = error
    {
        problem.suggestion.clone_from(suggestion);
    }
    problem
}

/// Returns the error response for a request whose change is committed but whose result can't be
/// read. A missing run or gate stays "not found", because a retry would not find it either.
pub(crate) fn result_read_problem_after_commit(error: Error) -> Problem {
    if matches!(error, Error::RunNotFound(_) | Error::GateNotFound(_)) {
        return error.into();
    }
    tracing::warn!(%error, "a change was committed, but its result could not be read");
    committed_but_unreadable_problem()
}

/// Returns the error response for a request whose change is committed but whose result can't be
/// read now. A later retry may succeed.
pub(crate) fn committed_but_unreadable_problem() -> Problem {
    let message = "the change was committed, but its result could not be read now";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "result_unavailable", message)
        .with_hint("GET the result, or send the request again with the same Idempotency-Key")
        .with_retry_after(1)
}

fn store_problem(store_error: &StoreError, code: &'static str) -> Problem {
    match store_error {
        StoreError::DiskFull { .. } => {
            let message = "the disk of the store is full: no new runs can start";
            Problem::new(StatusCode::INSUFFICIENT_STORAGE, code, message)
                .with_hint("free space on the server's disk")
        }
        StoreError::Busy { .. } | StoreError::Closed { .. } => {
            let message = "the store is busy or closed";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, code, message)
                .with_hint("try again")
                .with_retry_after(1)
        }
        StoreError::Corrupt { .. } => {
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the store is damaged")
                .with_hint(
                    "on the server's machine: `longhaul db check`, `longhaul db restore FILE`",
                )
        }
        StoreError::ReadOnly { .. }
        | StoreError::NewerSchema { .. }
        | StoreError::AlreadyDriven { .. }
        | StoreError::NotDriver { .. }
        | StoreError::InvalidUrl { .. }
        | StoreError::InvalidEvent { .. }
        | StoreError::Database { .. } => Problem::internal_error(),
    }
}

/// HTTP status of an error response, and its hint.
type StatusAndHint = (StatusCode, &'static str);

const fn conflict(hint: &'static str) -> StatusAndHint {
    (StatusCode::CONFLICT, hint)
}

const fn not_found(hint: &'static str) -> StatusAndHint {
    (StatusCode::NOT_FOUND, hint)
}

const fn unprocessable(hint: &'static str) -> StatusAndHint {
    (StatusCode::UNPROCESSABLE_ENTITY, hint)
}

const fn too_many(hint: &'static str) -> StatusAndHint {
    (StatusCode::TOO_MANY_REQUESTS, hint)
}

const fn rejection_status(refusal: &Rejection) -> StatusAndHint {
    match refusal {
        Rejection::Ended(_) => conflict("GET the run to see how it ended"),
        Rejection::GateClosed { .. } => conflict("GET the run to see its current status"),
        Rejection::GateExpired(_) => (StatusCode::GONE, "GET the run to see what followed"),
        Rejection::DigestChanged => conflict("GET the gate and review it again"),
        Rejection::DigestMissing => unprocessable("send the `digest` of the gate that was shown"),
        Rejection::InvalidDecision { .. } => {
            unprocessable("the gate's `decisions` lists the allowed decisions")
        }
        Rejection::InvalidAnswer(_) => {
            unprocessable("GET the gate: `options` or `schema` says which answers are valid")
        }
        Rejection::ScopeNotOffered { .. } => {
            unprocessable("the gate's `scopes` lists the offered scopes")
        }
        Rejection::RulesFull(_) => conflict("revoke some of them: GET /v1/rules lists them"),
        Rejection::SelfApproval => (StatusCode::FORBIDDEN, "another person must decide"),
        Rejection::AlreadyVoted(_) => conflict("other approvers must answer now"),
        Rejection::SteerSettled(_) => conflict("send a new message"),
        Rejection::SteersFull(_) => too_many("wait until the run has read some, or withdraw one"),
        Rejection::BudgetNotRaised { .. } => conflict("send a higher cap"),
        Rejection::NoCapToRaise(_) => conflict("GET the run to see its budget"),
        Rejection::TreeBudgetExhausted(_) => conflict("resume that run with a budget"),
        Rejection::NotOpen(_) => conflict("POST .../cancel ends any run"),
        Rejection::OpenGate(_) => {
            conflict("answer the gate first; POST .../cancel ends the run anyway")
        }
        Rejection::AlreadyInState(_) | Rejection::NotPaused(_) | Rejection::RuleRevoked { .. } => {
            conflict("nothing to do")
        }
        Rejection::EventNotFound { .. } => unprocessable("GET .../events lists the events"),
        Rejection::FilesNotKept(_) => conflict("send `fresh_files`"),
        Rejection::InvalidState { .. } | Rejection::CallNotRunning(_) | Rejection::NotFailed(_) => {
            conflict("GET the run to see its status")
        }
        Rejection::TooLong { .. } | Rejection::Empty(_) | Rejection::InvalidTask(_) => {
            unprocessable("fix it and send it again")
        }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::id::{GateId, RunId};

    use super::*;

    #[test]
    fn only_a_busy_store_is_retryable_after_a_commit() {
        let busy = StoreError::Busy { location: "here".into() };
        for (error, status) in [
            (Error::Store(busy), StatusCode::SERVICE_UNAVAILABLE),
            (Error::RunNotFound(RunId::from_bits(1)), StatusCode::NOT_FOUND),
            (Error::GateNotFound(GateId::from_bits(1)), StatusCode::NOT_FOUND),
        ] {
            let text = error.to_string();
            assert_eq!(result_read_problem_after_commit(error).status, status, "{text}");
        }
    }
}
