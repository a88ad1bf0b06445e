//! Drives one claimed run until the run is idle, has ended, or is lost to another driver.
//!
//! The loop commits an input, asks the state machine (`longhaul-run`) for the next step, and
//! performs that step with the adapters. The loop decides nothing itself.

mod abort;
pub(crate) mod assignment;
mod calls;
mod children;
mod compact;
mod context;
mod grading;
mod model_call;
mod perception;
mod progress;
mod suspended_calls;
mod tool_calls;
pub(crate) mod truncate;

use std::panic::{AssertUnwindSafe, resume_unwind};

use futures_util::FutureExt as _;
use longhaul_core::port::tool::RunClaimId;
use longhaul_run::{EngineStep, RunInput, next_engine_step};

pub use crate::drive::assignment::{DriveRunOutcome, RunAssignment};

use crate::drive::children::prepare_child_runs;
use crate::drive::compact::compact_conversation;
use crate::drive::context::{DriveContext, DriverSetupOutcome};
use crate::drive::grading::prepare_grading_run;
use crate::drive::model_call::run_model_turn;
use crate::drive::perception::{prepare_run_prompt, refetch_context_before_turn};
use crate::drive::tool_calls::run_tool_calls;
use crate::error::Error;
use crate::redaction::Redaction;
use crate::run_session::CommitOutcome;
use crate::services::{EngineServices, release_external_tools};

/// Drives a claimed run until it is idle or ends. Dropping the future is equivalent to a crash:
/// only what is not in the journal yet is lost.
pub async fn drive_run(
    services: &EngineServices,
    assignment: RunAssignment,
) -> Result<DriveRunOutcome, Error> {
    let claim = RunClaimId { run: assignment.claim.run, epoch: assignment.claim.epoch };
    let result = AssertUnwindSafe(run_drive_loop(services, assignment)).catch_unwind().await;
    // External tools of this claim are not needed while the run is idle, even if it is idle because
    // of an error or a panic.
    release_external_tools(services, claim).await;
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

async fn run_drive_loop(
    services: &EngineServices,
    assignment: RunAssignment,
) -> Result<DriveRunOutcome, Error> {
    let (mut ctx, setup_outcome) = DriveContext::open_claimed_run(services, assignment).await?;
    let mut input = match setup_outcome {
        DriverSetupOutcome::Ready => Some(RunInput::Advance),
        DriverSetupOutcome::Blocked(blocker) => Some(blocker.into_state_machine_input()),
        DriverSetupOutcome::CrashLoop => Some(RunInput::CrashLoop),
        DriverSetupOutcome::Lost => None,
    };
    while let Some(mut current_input) = input.take() {
        // These messages come from code outside the engine, such as external tool sources, so they
        // are redacted.
        if let RunInput::MissingDependency(message) | RunInput::Unrunnable(message) =
            &mut current_input
        {
            *message = Redaction(&*services.redact).redact_text(std::mem::take(message));
        }
        let starts_children =
            matches!(current_input, RunInput::ChildrenPrepared(_) | RunInput::GradingPrepared(_));
        if ctx.session.commit_input(current_input).await? == CommitOutcome::Lost {
            return Ok(DriveRunOutcome::Lost);
        }
        if starts_children {
            services.notifier.notify_runs_ready();
        }
        ctx.release_crash_limiter_permits();
        input = match next_engine_step(ctx.session.run(), ctx.session.now()) {
            EngineStep::Prepare => prepare_run_prompt(&mut ctx).await?,
            EngineStep::RefreshPerception => refetch_context_before_turn(&mut ctx).await?,
            EngineStep::AskModel(request) => run_model_turn(&mut ctx, request).await?,
            EngineStep::Compact(request) => compact_conversation(&mut ctx, request).await?,
            EngineStep::StartChildren(requests) => prepare_child_runs(&mut ctx, requests).await?,
            EngineStep::StartGrading => prepare_grading_run(&ctx)?,
            EngineStep::UseTools(tasks) => run_tool_calls(&mut ctx, tasks).await?,
            EngineStep::Park(_) | EngineStep::Finish(_) | EngineStep::Advance => {
                Some(RunInput::Advance)
            }
            EngineStep::Idle => return Ok(DriveRunOutcome::Idle),
        };
    }
    Ok(ctx.stop_driving_run().await)
}
