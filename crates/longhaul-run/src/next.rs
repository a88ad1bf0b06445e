//! Derives the next step of a run from its state. The engine carries the step out and reports the
//! result as an input.

use std::sync::Arc;

use longhaul_core::event::turn::ModelCallPurpose;
use longhaul_core::id::{CallId, ToolName};
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::port::model::ModelRequest;
use longhaul_core::port::tool::ToolResumption;
use longhaul_core::raw::RawJson;
use longhaul_core::time::Timestamp;

use crate::advance::children::startable_children;
use crate::advance::conclude::has_ungraded_result;
use crate::advance::runtime_message::needs_perception_refresh;
use crate::advance::sandbox::{must_open_sandbox, must_save_workspace};
use crate::advance::start_wait;
use crate::decide::decide;
use crate::decision::DecisionContext;
use crate::input::RunInput;
use crate::state::Run;
use crate::state::call::{ToolCallState, TrackedCall};
use crate::state::control::StopReasons;
use crate::state::stage::{RunStage, RunningModelCall};

/// The next step that the engine must carry out for a run.
#[derive(Debug, Clone, PartialEq)]
pub enum EngineStep {
    /// Fetch the perception (the context provider's report on the outside world) and build the
    /// prompt.
    Prepare,
    /// Fetch the perception (the context provider's report on the outside world) again before the
    /// next turn.
    RefreshPerception,
    /// Call the model. The event that starts the turn is already recorded.
    AskModel(ModelRequest),
    /// Run, verify or cancel these tool calls. The events that start them are already recorded.
    UseTools(Vec<ToolCallTask>),
    /// Prepare the child runs that these calls ask for. Nothing is recorded about them yet.
    StartChildren(Vec<ChildRunRequest>),
    /// Open the sandbox of the run. Nothing is recorded yet about the calls that need it.
    OpenSandbox,
    /// Save the files of the open sandbox. Nothing is recorded about it yet.
    SaveWorkspace,
    /// Prepare the run that grades the result. Nothing is recorded about it yet.
    StartGrading,
    /// Let the model summarize the older part of this conversation. The event that starts the model
    /// call is already recorded.
    Compact(ModelRequest),
    /// Record the events that are due, with `RunInput::Advance`. They may park or end the run.
    Advance,
    /// Do nothing: the run is parked, paused or ended.
    Idle,
}

/// A tool call that the engine must run, verify or cancel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCallTask {
    pub call: CallId,
    pub tool: ToolName,
    /// Arguments of the tool call.
    pub input: RawJson,
    /// Effect class of the tool call, which says whether it may be repeated.
    pub class: EffectClass,
    /// Whether the tool call has an effect key (name of an effect that must happen at most once),
    /// so that an uncertain end must not count as a failure.
    pub has_effect_key: bool,
    /// Whether this start or continuation of the tool call may be repeated after a crash.
    pub may_repeat: bool,
    /// Number of times that the tool call has been started, including this start.
    pub attempt: u32,
    /// Whether the engine must run, cancel or verify the tool call.
    pub action: ToolCallAction,
    /// State and answer with which the tool continues the call. `None` means that the tool has not
    /// suspended the call.
    pub resumption: Option<ToolResumption>,
}

/// A call of `run_agent`, for which the engine prepares a child run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildRunRequest {
    /// Id of the tool call.
    pub call: CallId,
    /// Arguments of the tool call.
    pub input: RawJson,
}

/// What the engine does with a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolCallAction {
    /// Start the tool call, or continue a call that its tool has suspended.
    Run,
    /// Tell the tool that the run has given up the call, which the tool has suspended.
    Cancel,
    /// Check whether a call in doubt (outcome unknown) has taken effect.
    Verify,
}

/// Returns the next step that the engine must carry out for a run.
pub fn next_engine_step(run: &Run, now: Timestamp) -> EngineStep {
    let control = &run.control;
    if run.outcome().is_some() || control.driver.is_idle() {
        return EngineStep::Idle;
    }
    match &control.stage {
        RunStage::ModelRunning(running) if running.epoch == control.driver.epoch => {
            match running.purpose {
                ModelCallPurpose::Turn => EngineStep::AskModel(model_request(run, running)),
                ModelCallPurpose::Compact => EngineStep::Compact(model_request(run, running)),
            }
        }
        RunStage::ToolsRunning(tools) if control.has_running_call() => {
            children_or_tools_step(run, &tools.calls)
        }
        RunStage::New { .. } if can_be_prepared(run, now) => EngineStep::Prepare,
        _ if has_due_events(run, now) => EngineStep::Advance,
        // Child runs must be started, or a call in doubt must be verified, before the run waits.
        RunStage::ToolsRunning(tools) => children_or_tools_step(run, &tools.calls),
        _ if must_save_workspace(control) => EngineStep::SaveWorkspace,
        RunStage::ModelPending(pending) if needs_perception_refresh(control, pending) => {
            EngineStep::RefreshPerception
        }
        RunStage::Concluding(_) if has_ungraded_result(control) => EngineStep::StartGrading,
        RunStage::New { .. }
        | RunStage::ModelPending(_)
        | RunStage::ModelRunning(_)
        | RunStage::Concluding(_)
        | RunStage::Ended(_) => EngineStep::Idle,
    }
}

/// Returns whether nothing prevents a new run from being prepared.
fn can_be_prepared(run: &Run, now: Timestamp) -> bool {
    let StopReasons { cancel, pause, blocked, .. } = &run.control.stop;
    cancel.is_none()
        && pause.is_none()
        && blocked.is_none()
        && start_wait(run, &run.control, now).is_none()
}

/// Returns whether events must be recorded before anything else happens.
fn has_due_events(run: &Run, now: Timestamp) -> bool {
    decide(run, RunInput::Advance, DecisionContext::new(now))
        .is_ok_and(|due| !due.events.is_empty())
}

/// Returns the step that prepares child runs, or else the one that runs, cancels or verifies calls.
/// A run that has to stop starts no child runs.
fn children_or_tools_step(run: &Run, calls: &[TrackedCall]) -> EngineStep {
    let control = &run.control;
    let startable = startable_children(control).filter(|_| !control.must_stop());
    let requests: Vec<ChildRunRequest> = startable
        .map(|call| ChildRunRequest { call: call.id, input: call.arguments().clone() })
        .collect();
    match requests.is_empty() {
        true if must_open_sandbox(control) => EngineStep::OpenSandbox,
        true => match tool_call_tasks(run, calls) {
            tasks if tasks.is_empty() && must_save_workspace(control) => EngineStep::SaveWorkspace,
            tasks => EngineStep::UseTools(tasks),
        },
        false => EngineStep::StartChildren(requests),
    }
}

fn model_request(run: &Run, running: &RunningModelCall) -> ModelRequest {
    ModelRequest {
        run: run.id,
        turn: running.number,
        attempt: running.attempt,
        model: running.called_model(run.transcript.current_model()).to_owned(),
        system: run.transcript.system.clone(),
        tools: run.transcript.tools.clone(),
        messages: Arc::clone(run.transcript.messages()),
        max_tokens: running.max_tokens,
    }
}

fn tool_call_tasks(run: &Run, calls: &[TrackedCall]) -> Vec<ToolCallTask> {
    let new_task = |call: &TrackedCall, action| ToolCallTask {
        call: call.id,
        tool: call.classification.tool.clone(),
        input: call.arguments().clone(),
        class: call.classification.class,
        has_effect_key: call.classification.key.is_some(),
        may_repeat: call.may_repeat(),
        attempt: call.starts,
        action,
        resumption: call.resumption(),
    };
    let abandoned: Vec<CallId> = run.control.calls_to_give_up().map(|call| call.id).collect();
    let due = calls.iter().filter_map(|call| {
        let is_verified = matches!(call.state, ToolCallState::InDoubt { can_verify: true, .. });
        let action = match call.is_running_under_claim(run.control.driver.epoch) {
            true => ToolCallAction::Run,
            false if abandoned.contains(&call.id) => ToolCallAction::Cancel,
            false if is_verified => ToolCallAction::Verify,
            false => return None,
        };
        Some(new_task(call, action))
    });
    due.collect()
}
