//! Prepares the child runs that calls of `run_agent` ask for, and the run that grades the result of a
//! run. The state machine records their starts and creates them in the same append.

use longhaul_core::raw::RawJson;
use longhaul_run::input::{NewChildRun, PreparedChildRun};
use longhaul_run::next::ChildRunRequest;
use longhaul_run::{Run, RunInput};
use serde::Deserialize;

use crate::agent::Agent;
use crate::drive::context::DriveContext;
use crate::error::Result;
use crate::handle::Longhaul;
use crate::prompt::grading::{grader_agent, grader_input};

/// Arguments of `run_agent`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunAgentToolInput {
    agent: String,
    input: RawJson,
    #[serde(default)]
    background: bool,
}

/// Prepares the child runs of these calls. For a call whose child can't start, the returned input
/// contains the reason.
pub(super) async fn prepare_child_runs(
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
pub(super) fn prepare_grading_run(ctx: &DriveContext) -> Result<Option<RunInput>> {
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
