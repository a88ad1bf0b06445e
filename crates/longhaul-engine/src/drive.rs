//! Drives one claimed run until the run is idle, has ended, or is lost to another driver.
//!
//! The loop commits an input, asks the state machine (`longhaul-run`) for the next step, and
//! performs that step with the adapters. The loop decides nothing itself.
//!
//! This module also prepares the child runs that calls of `run_agent` ask for, and the run that
//! grades the result of a run. The state machine records their starts and creates them in the same
//! append.

mod abort;
pub mod assignment;
mod calls;
pub(crate) mod classify;
mod context;
pub mod crash_limiter;
pub mod deltas;
mod model_call;
mod perception;
mod progress;
pub mod provider_blocks;
pub(crate) mod run_env;
mod sandbox;
mod session;
mod tool_calls;
pub(crate) mod truncate;
mod workspace;

use std::panic::{AssertUnwindSafe, resume_unwind};

use futures_util::FutureExt as _;
use longhaul_core::port::tool::RunClaimId;
use longhaul_core::raw::RawJson;
use longhaul_run::input::{NewChildRun, PreparedChildRun};
use longhaul_run::next::ChildRunRequest;
use longhaul_run::{EngineStep, Run, RunInput, next_engine_step};
use serde::Deserialize;

use crate::agent::Agent;
use crate::drive::context::DriveContext;
use crate::drive::model_call::{compact_conversation, run_model_turn};
use crate::drive::perception::{prepare_run_prompt, refetch_context};
use crate::drive::sandbox::open_run_sandbox;
use crate::drive::session::CommitOutcome;
use crate::drive::tool_calls::run_tool_calls;
use crate::drive::workspace::save_workspace;
use crate::error::Result;
use crate::guard::redaction::Redaction;
use crate::handle::Longhaul;
use crate::prompt::grading::{grader_agent, grader_input};
use crate::services::{Services, release_external_tools};

pub use crate::drive::assignment::{DrivePermit, DriveRunOutcome, RunAssignment};

/// Arguments of `run_agent`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunAgentToolInput {
    agent: String,
    input: RawJson,
    #[serde(default)]
    background: bool,
}

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
    let (mut ctx, mut input) = DriveContext::open_claimed_run(services, assignment).await?;
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
            EngineStep::OpenSandbox => open_run_sandbox(&mut ctx).await?,
            EngineStep::SaveWorkspace => save_workspace(&mut ctx).await?,
            EngineStep::StartGrading => prepare_grading_run(&ctx)?,
            EngineStep::UseTools(tasks) => run_tool_calls(&mut ctx, tasks).await?,
            EngineStep::Advance => Some(RunInput::Advance),
            EngineStep::Idle => {
                if ctx.sandbox.is_some() {
                    services.sandboxes.changed.notify_one();
                }
                return Ok(DriveRunOutcome::Idle);
            }
        };
    }
    Ok(ctx.stop().await)
}

/// Prepares the child runs of these calls. For a call whose child can't start, the returned input
/// contains the reason.
async fn prepare_child_runs(
    ctx: &mut DriveContext,
    requests: Vec<ChildRunRequest>,
) -> Result<Option<RunInput>> {
    let Some(env) = &ctx.env else { return Ok(None) };
    let longhaul = Longhaul::handle_from_services(&ctx.services);
    let run = ctx.session.run();
    let prepare = |ChildRunRequest { call, input }: ChildRunRequest| {
        let child = prepare_child_run(&longhaul, run, (&env.agent, &input));
        PreparedChildRun { call, child: child.map(Box::new) }
    };
    let prepared = requests.into_iter().map(prepare).collect();
    Ok(Some(RunInput::ChildrenPrepared(prepared)))
}

/// Prepares one child run. The error is a message for the model.
fn prepare_child_run(
    longhaul: &Longhaul,
    run: &Run,
    (agent, input): (&Agent, &RawJson),
) -> Result<NewChildRun, String> {
    let request: RunAgentToolInput = serde_json::from_str(input.as_str())
        .map_err(|error| format!("the input of run_agent is invalid: {error}"))?;
    let RunAgentToolInput { agent: name, input, background } = request;
    if !agent.may_start_agent(&name) {
        let allowed = agent.children.agents.join("`, `");
        return Err(format!("this agent may not start `{name}`, only `{allowed}`"));
    }
    let (run, definition) =
        longhaul.build_child_run(run, &name, input).map_err(|error| error.to_string())?;
    Ok(NewChildRun { run, definition, background })
}

/// Prepares the run that grades the result of this run. If it can't start, the returned input
/// contains the reason. `None` if the agent, models and tools of this run are not loaded.
fn prepare_grading_run(ctx: &DriveContext) -> Result<Option<RunInput>> {
    let Some(env) = &ctx.env else { return Ok(None) };
    let run = ctx.session.run();
    let models = run.transcript().models_by_preference();
    let config = env.agent.outcome.as_ref();
    let config_and_input = config.and_then(|config| Some((config, grader_input(config, run)?)));
    let Some((config, input)) = config_and_input else {
        let reason = "this version of the agent has no rubric".to_owned();
        return Ok(Some(RunInput::GradingPrepared(Err(reason))));
    };
    let longhaul = Longhaul::handle_from_services(&ctx.services);
    let prepared = match longhaul.build_grading_run(run, grader_agent(config, models), input) {
        Ok((run, definition)) => Ok(Box::new(NewChildRun { run, definition, background: false })),
        Err(error) => Err(format!("the grading run can't start: {error}")),
    };
    Ok(Some(RunInput::GradingPrepared(prepared)))
}
