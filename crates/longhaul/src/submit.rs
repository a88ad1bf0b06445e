//! Submits tasks and events of a program.

use std::sync::Arc;

use longhaul_engine::error::Rejection;
use longhaul_engine::handle::SubmitOutcome;

use crate::error::Error;
use crate::run::RunHandle;
use crate::runtime_state::RuntimeState;
use crate::task::Task;

/// Checks and submits a task. Returns the handle of its run.
pub(crate) async fn submit_task(state: &Arc<RuntimeState>, task: Task) -> Result<RunHandle, Error> {
    let task = check_and_convert_task(state, task)?;
    let submitted = state.runtime.longhaul.submit_task(task).await?;
    let was_added = matches!(submitted, SubmitOutcome::Added(_));
    let run = submitted.run_ids().first().copied().ok_or(Rejection::Empty("a submit"));
    let run = run.map_err(longhaul_engine::Error::from)?;
    Ok(RunHandle::new(Arc::clone(state), run).with_added_task(was_added))
}

/// Checks a task before it is submitted, and returns it in the engine's format.
pub(crate) fn check_and_convert_task(
    state: &RuntimeState,
    task: Task,
) -> Result<longhaul_engine::Task, Error> {
    let task = task.build()?;
    if let Some(failed) = state.worker_failure() {
        return Err(failed);
    }
    let chain = state.runtime.longhaul.resolve_task_chain(&task)?;
    let steps = chain.into_iter().flat_map(|chain| chain.steps).map(|step| step.agent);
    for agent in task.agent.iter().cloned().chain(steps) {
        check_agent_and_models_usable(state, &agent, task.model.as_deref())?;
    }
    Ok(task)
}

/// Checks that an agent and its models can be used. An agent that does not exist is reported by the
/// submission.
fn check_agent_and_models_usable(
    state: &RuntimeState,
    name: &str,
    model: Option<&str>,
) -> Result<(), Error> {
    let longhaul = &state.runtime.longhaul;
    match longhaul.get_agent(name) {
        // Checked before submitting: a run with a missing model would wait for a person.
        Ok(agent) => {
            let models = &longhaul.services().models;
            let result = match (model, agent.models.as_slice()) {
                (Some(model), _) => models.resolve_model_name(Some(model)).map(drop),
                (None, []) => models.resolve_model_name(None).map(drop),
                (None, models_of_agent) => models_of_agent
                    .iter()
                    .try_for_each(|name| models.resolve_model_name(Some(name)).map(drop)),
            };
            result
                .map_err(|error| Error::ModelUnavailable(error.message_for_agent(&agent.name)))?;
        }
        Err(_) => state.runtime.check_agent_file_valid(name)?,
    }
    Ok(())
}
