//! Prepares the child runs that calls of `run_agent` ask for. The state machine records their starts
//! and creates them in the same append.

use longhaul_core::raw::RawJson;
use longhaul_run::input::{NewChildRun, PreparedChildRun};
use longhaul_run::next::ChildRunRequest;
use longhaul_run::{Run, RunInput};
use serde::Deserialize;

use crate::agent::Agent;
use crate::drive::context::DriveContext;
use crate::error::Error;
use crate::handle::Longhaul;

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
) -> Result<Option<RunInput>, Error> {
    let Some(env) = &ctx.env else {
        return Ok(None);
    };
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
