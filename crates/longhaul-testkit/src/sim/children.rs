//! Child runs in the simulation, prepared like the engine does it.

use std::collections::BTreeSet;

use longhaul_core::change::Blob;
use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::id::RunId;
use longhaul_core::raw::RawJson;
use longhaul_core::task::TaskSpec;
use longhaul_run::input::{NewChildRun, PreparedChildRun};
use longhaul_run::next::ChildRunRequest;
use longhaul_run::submit::new_run_from_task;
use longhaul_run::{Run, RunInput};
use serde::Deserialize;

use crate::sim::SimError;
use crate::sim::external_world::ExternalWorld;

/// Input of a simulated call of `run_agent`.
#[derive(Deserialize)]
struct RunAgentInput {
    input: RawJson,
    #[serde(default)]
    background: bool,
}

/// Prepares the child runs that these calls ask for.
pub fn prepare_children(
    run: &Run,
    requests: &[ChildRunRequest],
    world: &ExternalWorld,
) -> Result<RunInput, SimError> {
    let prepared = requests.iter().map(|request| {
        let RunAgentInput { input, background } = serde_json::from_str(request.input.as_str())?;
        let child = new_child(run, input, world)?;
        let child = NewChildRun { background, ..child };
        Ok(PreparedChildRun { call: request.call, child: Ok(Box::new(child)) })
    });
    Ok(RunInput::ChildrenPrepared(prepared.collect::<Result<_, SimError>>()?))
}

pub fn prepare_grading(run: &Run, world: &ExternalWorld) -> Result<RunInput, SimError> {
    let child = new_child(run, RawJson::parse(r#"{"rubric": "Good."}"#)?, world)?;
    Ok(RunInput::GradingPrepared(Ok(Box::new(child))))
}

fn new_child(run: &Run, input: RawJson, world: &ExternalWorld) -> Result<NewChildRun, SimError> {
    let id = world.next_child_id();
    let parent_task = run.task();
    let task = TaskSpec {
        parent: Some(run.id()),
        root: parent_task.root,
        depth: parent_task.depth + 1,
        submitter: parent_task.submitter.clone(),
        priority: parent_task.priority,
        ..TaskSpec::new(id, parent_task.agent.clone(), input, parent_task.inbox.clone())
    };
    let run = new_run_from_task(id, task)?;
    Ok(NewChildRun { run, definition: Blob::new(b"{}".to_vec()), background: false })
}

/// Returns the runs that this journal has started: child runs, and the next step of a chain.
pub fn started_runs(entries: &[JournalEntry]) -> BTreeSet<RunId> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "only these events start runs")]
    let started = entries.iter().filter_map(|entry| match &entry.event {
        Event::ChildStarted(started) => Some(started.child),
        Event::ChainStepStarted(started) => Some(started.run),
        _ => None,
    });
    started.collect()
}
