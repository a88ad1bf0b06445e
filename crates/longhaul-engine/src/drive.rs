//! Drives one claimed run until the run is idle, has ended, or is lost to another driver.
//!
//! The loop commits an input, asks the state machine (`longhaul-run`) for the next step, and
//! performs that step with the adapters. The loop decides nothing itself.

mod abort;
mod append_refusals;
pub(crate) mod assignment;
pub(crate) mod blocker;
mod calls;
mod children;
pub(crate) mod classify;
mod compact;
mod context;
pub mod crash_limiter;
pub mod deltas;
pub mod lease;
mod model_call;
mod perception;
mod progress;
pub mod provider_blocks;
pub(crate) mod run_env;
mod session;
mod suspended_calls;
mod tool_calls;
pub(crate) mod truncate;

use std::panic::{AssertUnwindSafe, resume_unwind};

use futures_util::FutureExt as _;
use longhaul_core::port::tool::RunClaimId;
use longhaul_run::{EngineStep, RunInput, next_engine_step};

pub use crate::drive::assignment::{DrivePermit, DriveRunOutcome, RunAssignment};

use crate::drive::children::{prepare_child_runs, prepare_grading_run};
use crate::drive::compact::compact_conversation;
use crate::drive::context::{DriveContext, DriverSetup};
use crate::drive::model_call::run_model_turn;
use crate::drive::perception::{prepare_run_prompt, refetch_context};
use crate::drive::session::CommitOutcome;
use crate::drive::tool_calls::run_tool_calls;
use crate::error::Result;
use crate::guard::redaction::Redaction;
use crate::services::{Services, release_external_tools};

/// Drives a claimed run until it is idle or ends. Dropping the future is equivalent to a crash:
/// only what is not in the journal yet is lost.
pub async fn drive_run(services: &Services, assignment: RunAssignment) -> Result<DriveRunOutcome> {
    let claim = RunClaimId { run: assignment.claim.run, epoch: assignment.claim.epoch };
    let result = AssertUnwindSafe(run_drive_loop(services, assignment)).catch_unwind().await;
    // External tools of this claim are not needed while the run is idle, even if it is idle because
    // of an error or a panic.
    release_external_tools(services, claim).await;
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

async fn run_drive_loop(services: &Services, assignment: RunAssignment) -> Result<DriveRunOutcome> {
    let (mut ctx, setup_outcome) = DriveContext::open_claimed_run(services, assignment).await?;
    let mut input = match setup_outcome {
        DriverSetup::Ready => Some(RunInput::Advance),
        DriverSetup::Blocked(blocker) => Some(blocker.into_input()),
        DriverSetup::CrashLoop => Some(RunInput::CrashLoop),
        DriverSetup::Lost => None,
    };
    while let Some(mut current_input) = input.take() {
        // These messages come from code outside the engine, such as external tool sources, so they
        // are redacted.
        if let RunInput::MissingDependency(message) | RunInput::Unrunnable(message) =
            &mut current_input
        {
            Redaction(&*services.redact).clean(message);
        }
        let starts_children =
            matches!(current_input, RunInput::ChildrenPrepared(_) | RunInput::GradingPrepared(_));
        if ctx.session.commit(current_input).await? == CommitOutcome::Lost {
            return Ok(DriveRunOutcome::Lost);
        }
        if starts_children {
            services.notifier.notify_runs_ready();
        }
        ctx.release_trial();
        input = match next_engine_step(ctx.session.run(), ctx.session.now()) {
            EngineStep::Prepare => prepare_run_prompt(&mut ctx).await?,
            EngineStep::RefreshPerception => refetch_context(&mut ctx).await?,
            EngineStep::AskModel(request) => run_model_turn(&mut ctx, request).await?,
            EngineStep::Compact(request) => compact_conversation(&mut ctx, request).await?,
            EngineStep::StartChildren(requests) => prepare_child_runs(&mut ctx, requests).await?,
            EngineStep::StartGrading => prepare_grading_run(&ctx)?,
            EngineStep::UseTools(tasks) => run_tool_calls(&mut ctx, tasks).await?,
            EngineStep::Advance => Some(RunInput::Advance),
            EngineStep::Idle => return Ok(DriveRunOutcome::Idle),
        };
    }
    Ok(ctx.stop().await)
}
