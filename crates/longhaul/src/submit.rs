//! Submits tasks and events of a program. An event is for example the action of a user, or
//! `idle_tick` (the agent has nothing else to do).

use std::sync::Arc;

use longhaul_engine::error::Rejection;
use longhaul_engine::handle::SubmitOutcome;
use serde::Serialize;

use crate::error::Error;
use crate::run::RunHandle;
use crate::runtime_state::RuntimeState;
use crate::task::Task;

/// Checks and submits a task. Returns the handle of its run.
pub(crate) async fn submit_task(state: &Arc<RuntimeState>, task: Task) -> Result<RunHandle, Error> {
    let task = check_task(state, task)?;
    let submitted = state.longhaul.submit_task(task).await?;
    let was_added = matches!(submitted, SubmitOutcome::Added(_));
    let run = submitted.run_ids().first().copied().ok_or(Rejection::Empty("a submit"));
    let run = run.map_err(longhaul_engine::Error::from)?;
    let mut handle = RunHandle::new(Arc::clone(state), run);
    handle.was_added = was_added;
    Ok(handle)
}

/// Checks that the agents of a task and their models can be used, and returns the task in the engine's
/// format. An agent that does not exist is reported by the submission.
pub(crate) fn check_task(state: &RuntimeState, task: Task) -> Result<longhaul_engine::Task, Error> {
    let task = task.0.build()?;
    if let Some(failed) = state.worker_failure() {
        return Err(failed);
    }
    let chain = state.longhaul.resolve_task_chain(&task)?;
    let steps = chain.into_iter().flat_map(|chain| chain.steps).map(|step| step.agent);
    for name in task.agent.iter().cloned().chain(steps) {
        let Ok(agent) = state.longhaul.get_agent(&name) else {
            state.check_agent_file_valid(&name)?;
            continue;
        };
        let models: Vec<Option<&str>> = match (&task.model, agent.models.is_empty()) {
            (None, false) => agent.models.iter().map(|model| Some(model.as_str())).collect(),
            (model, _) => vec![model.as_deref()],
        };
        // Checked before submitting: a run with a missing model would wait for a person.
        for model in models {
            let resolved = state.longhaul.services().models.resolve_model_name(model);
            resolved
                .map_err(|error| Error::ModelUnavailable(error.message_for_agent(&agent.name)))?;
        }
    }
    Ok(task)
}

/// An event that is addressed to an agent and not sent yet. Created by
/// [`Runtime::event`](crate::Runtime::event).
///
/// ```no_run
/// # async fn example(runtime: longhaul::Runtime) -> Result<(), longhaul::Error> {
/// use longhaul::serde_json::json;
///
/// let run = runtime
///     .event("smith", "player_action")
///     .actor(json!({ "name": "Ada" }))
///     .payload(json!({ "message": "A sword, please." }))
///     .lane("npc-smith")
///     .send()
///     .await?;
/// println!("{}", run.wait().await?.text()?);
/// # Ok(())
/// # }
/// ```
#[must_use = "an event is not sent until `send` is called"]
#[derive(Debug)]
pub struct EventBuilder<'a> {
    state: &'a Arc<RuntimeState>,
    task: Task,
}

impl<'a> EventBuilder<'a> {
    pub(crate) fn new(state: &'a Arc<RuntimeState>, agent: &str, kind: &str) -> Self {
        Self { state, task: Task::new(agent).event(kind) }
    }

    /// Sets the person or system that caused the event. The agent's template for this kind of event
    /// can use the fields of this value, such as `name`.
    pub fn actor(self, actor: impl Serialize) -> Self {
        Self { task: self.task.actor(actor), ..self }
    }

    /// Sets the data of the event: a text, or any value that serializes to JSON.
    pub fn payload(self, payload: impl Serialize) -> Self {
        Self { task: self.task.input(payload), ..self }
    }

    /// Sets the references to related objects in other systems. They are returned with the run.
    pub fn links(self, links: impl Serialize) -> Self {
        Self { task: self.task.links(links), ..self }
    }

    /// Sets the idempotency key. Within 24 hours, events with the same key start one run.
    pub fn idempotency_key(self, key: impl Into<String>) -> Self {
        Self { task: self.task.idempotency_key(key), ..self }
    }

    /// Sets the lane. Only one run of a lane is active at a time; the others wait in order.
    pub fn lane(self, lane: impl AsRef<str>) -> Self {
        Self { task: self.task.lane(lane), ..self }
    }

    /// Sets the conversation thread that the run belongs to.
    pub fn thread(self, conversation: impl AsRef<str>) -> Self {
        Self { task: self.task.thread(conversation), ..self }
    }

    /// Sets the resource: the person or thing that the conversation is about.
    pub fn resource(self, resource_key: impl AsRef<str>) -> Self {
        Self { task: self.task.resource(resource_key), ..self }
    }

    /// Sends the event. When this returns, the run of the event is on disk.
    ///
    /// # Errors
    /// Those of [`Runtime::submit`](crate::Runtime::submit).
    pub async fn send(self) -> Result<RunHandle, Error> {
        submit_task(self.state, self.task).await
    }
}
