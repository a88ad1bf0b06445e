//! Prepares the run that grades the result of a run. The state machine records its start and creates
//! it in the same append.

use longhaul_run::RunInput;
use longhaul_run::input::NewChildRun;

use crate::drive::context::DriveContext;
use crate::error::Error;
use crate::grading::{grader_agent, grader_input};
use crate::handle::Longhaul;

/// Prepares the run that grades the result of this run. If it can't start, the returned input
/// contains the reason. `None` if the agent, models and tools of this run are not loaded.
pub(super) fn prepare_grading_run(ctx: &DriveContext) -> Result<Option<RunInput>, Error> {
    let Some(env) = &ctx.env else {
        return Ok(None);
    };
    let run = ctx.session.run();
    let models = run.transcript().models_by_preference();
    let agent_and_input =
        env.agent.outcome.as_ref().and_then(|outcome| {
            Some((grader_agent(outcome, models)?, grader_input(outcome, run)?))
        });
    let Some((agent, input)) = agent_and_input else {
        let reason = "this version of the agent has no rubric".to_owned();
        return Ok(Some(RunInput::GradingPrepared(Err(reason))));
    };
    let longhaul = Longhaul::handle_from_services(&ctx.services);
    let prepared = match longhaul.build_grading_run(run, agent, input) {
        Ok((run, definition)) => Ok(Box::new(NewChildRun { run, definition, background: false })),
        Err(error) => Err(format!("the grading run can't start: {error}")),
    };
    Ok(Some(RunInput::GradingPrepared(prepared)))
}
