//! Prepares the child runs that calls of `run_agent` ask for. The state machine records their starts
//! and creates them in the same append.

use longhaul_core::port::store::RunFilter;
use longhaul_core::raw::RawJson;
use longhaul_core::status::Status;
use longhaul_run::input::{NewChild, PreparedChild};
use longhaul_run::next::ChildRequest;
use longhaul_run::{CHILDREN_MAX, Run, RunInput, too_many_children};
use serde::Deserialize;

use crate::agent::Agent;
use crate::drive::context::DriveContext;
use crate::error::Error;
use crate::handle::Longhaul;
use crate::services::EngineServices;

/// Arguments of `run_agent`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunAgentInput {
    agent: String,
    input: RawJson,
    #[serde(default)]
    background: bool,
}

/// Prepares the child runs of these calls. A call whose child can't start gets the reason.
pub(super) async fn prepare_child_runs(
    ctx: &mut DriveContext,
    requests: Vec<ChildRequest>,
) -> Result<Option<RunInput>, Error> {
    let Some(env) = &ctx.env else {
        return Ok(None);
    };
    let longhaul = Longhaul::from_services(&ctx.services);
    let run = ctx.session.run();
    let mut free = free_children(&ctx.services, run).await?;
    let mut prepared = Vec::with_capacity(requests.len());
    for ChildRequest { call, input } in requests {
        let child = match free {
            0 => Err(too_many_children()),
            _ => prepare_child_run(&longhaul, run, (&env.agent, &input)),
        };
        free -= usize::from(child.is_ok());
        prepared.push(PreparedChild { call, child: child.map(Box::new) });
    }
    Ok(Some(RunInput::ChildrenPrepared(prepared)))
}

/// Returns how many further runs may be open below the root of this run.
async fn free_children(services: &EngineServices, run: &Run) -> Result<usize, Error> {
    let root = run.task().root;
    let statuses =
        vec![Status::Pending, Status::Running, Status::Waiting, Status::Blocked, Status::Paused];
    // Neither the root nor the step of its chain that is open counts.
    let limit = CHILDREN_MAX + 2;
    let filter = RunFilter { root: Some(root), statuses, limit, ..RunFilter::default() };
    let open = services.store.list_runs(filter).await?;
    let open = open.iter().filter(|row| row.id != root && row.chain.is_none()).count();
    Ok(CHILDREN_MAX.saturating_sub(open))
}

/// Prepares one child run. The error is a message for the model.
fn prepare_child_run(
    longhaul: &Longhaul,
    run: &Run,
    (agent, input): (&Agent, &RawJson),
) -> Result<NewChild, String> {
    let request: RunAgentInput = serde_json::from_str(input.as_str())
        .map_err(|why| format!("the input of run_agent is invalid: {why}"))?;
    let RunAgentInput { agent: name, input, background } = request;
    if !agent.may_start_agent(&name) {
        let allowed = agent.children.agents.join("`, `");
        return Err(format!("this agent may not start `{name}`, only `{allowed}`"));
    }
    let (run, definition) =
        longhaul.build_child_run(run, &name, input).map_err(|error| error.to_string())?;
    Ok(NewChild { run, definition, background })
}
