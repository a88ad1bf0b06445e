//! A task becomes a run: checked, bounded, and with its first fact.
//!
//! Never: makes an id up, or fills in what the caller did not say.

use longhaul_core::chain::CHAIN_STEPS_MAX;
use longhaul_core::change::{LANE_DEPTH_MAX, NewRun};
use longhaul_core::event::Event;
use longhaul_core::event::run::RunCreated;
use longhaul_core::id::{LaneKey, RunId};
use longhaul_core::task::TaskSpec;

use crate::rejection::Rejection;

/// The longest input of a task.
pub const INPUT_BYTES_MAX: usize = 1024 * 1024;

/// The most labels of a task.
pub const TAGS_MAX: usize = 32;

/// The run that a task becomes.
pub fn submit(id: RunId, mut task: TaskSpec) -> Result<NewRun, Rejection> {
    if task.input.as_str().len() > INPUT_BYTES_MAX {
        return Err(Rejection::TooLong { what: "a task's input", max: INPUT_BYTES_MAX });
    }
    if task.tags.len() > TAGS_MAX {
        return Err(Rejection::InvalidTask(format!("a task has {TAGS_MAX} tags at most")));
    }
    if task.chain.as_ref().is_some_and(|place| place.chain.steps.len() > CHAIN_STEPS_MAX) {
        return Err(Rejection::InvalidTask(format!("a chain has {CHAIN_STEPS_MAX} steps at most")));
    }
    let is_root = task.root == id;
    // Runs of one thread share a memory, so they go one after another.
    if let (true, None, Some(thread)) = (is_root, &task.lane, &task.thread) {
        let lane = LaneKey::new(format!("thread:{thread}"));
        task.lane = Some(lane.map_err(|bad| Rejection::InvalidTask(bad.to_string()))?);
    }
    // A child lives inside its root's hold, whatever its own file says.
    if !is_root {
        task.lane = None;
    }
    let created = RunCreated { task: task.clone() };
    let events = vec![Event::RunCreated(Box::new(created))];
    Ok(NewRun { id, task, events, lane_depth_max: LANE_DEPTH_MAX })
}
