//! Drives one claimed run until it rests, ends, or is another's.
//!
//! Never: decides (that is `longhaul-run`), and never opens a database. It asks
//! what is next, lets one adapter act, and tells what came of it.

mod abort;
pub(crate) mod assignment;
mod calls;
mod compact;
mod context;
mod model_call;
mod perception;
mod progress;
mod tool_calls;
mod truncate;

use std::panic::{AssertUnwindSafe, resume_unwind};

use futures_util::FutureExt as _;
use longhaul_core::port::tool::ClaimId;
use longhaul_run::{Input, Step, next};

pub use crate::drive::assignment::{Assignment, DriveOutcome};

use crate::drive::compact::compact;
use crate::drive::context::{DriveContext, Setup};
use crate::drive::model_call::run_turn;
use crate::drive::perception::{prepare_run, refresh_perception};
use crate::drive::tool_calls::run_tool_calls;
use crate::error::Error;
use crate::redaction::Redaction;
use crate::run_session::CommitOutcome;
use crate::services::{EngineServices, release_external_tools};

/// Drives a run. Dropping the future is a crash: nothing is lost by it but what
/// no journal knows of.
pub async fn drive(ports: &EngineServices, charge: Assignment) -> Result<DriveOutcome, Error> {
    let stay = ClaimId { run: charge.claim.run, epoch: charge.claim.epoch };
    let parted = AssertUnwindSafe(drive_loop(ports, charge)).catch_unwind().await;
    // Whatever was opened for this run alone is not needed while it rests, also
    // when that rest is one that nobody wanted.
    release_external_tools(ports, stay).await;
    parted.unwrap_or_else(|panic| resume_unwind(panic))
}

async fn drive_loop(ports: &EngineServices, charge: Assignment) -> Result<DriveOutcome, Error> {
    let (mut desk, arrived) = DriveContext::open(ports, charge).await?;
    let mut input = match arrived {
        Setup::Ready => Some(Input::Advance),
        Setup::Blocked(lack) => Some(lack.into_input()),
        Setup::CrashLoop => Some(Input::CrashLoop),
        Setup::Lost => None,
    };
    while let Some(mut said) = input.take() {
        // Whoever could not bring a part says why in words of their own.
        if let Input::MissingDependency(sentence) | Input::Unrunnable(sentence) = &mut said {
            *sentence = Redaction(&*ports.redact).text(std::mem::take(sentence));
        }
        if desk.session.commit(said).await? == CommitOutcome::Lost {
            return Ok(DriveOutcome::Lost);
        }
        desk.end_trial();
        input = match next(desk.session.run(), desk.session.now()) {
            Step::Prepare => prepare_run(&mut desk).await?,
            Step::RefreshPerception => refresh_perception(&mut desk).await?,
            Step::AskModel(ask) => run_turn(&mut desk, ask).await?,
            Step::Compact(ask) => compact(&mut desk, ask).await?,
            Step::UseTools(todos) => run_tool_calls(&mut desk, todos).await?,
            Step::Park(_) | Step::Finish(_) | Step::Advance => Some(Input::Advance),
            Step::Idle => return Ok(DriveOutcome::Idle),
        };
    }
    Ok(desk.release().await)
}
