//! Validates a task and creates its run with the first event, `run.created`.

use longhaul_core::chain::CHAIN_STEPS_MAX;
use longhaul_core::change::{LANE_DEPTH_MAX, LaneEntryPolicy, NewRun};
use longhaul_core::event::Event;
use longhaul_core::event::run::RunCreated;
use longhaul_core::id::{LaneKey, RunId};
use longhaul_core::policy::LaneBusyPolicy;
use longhaul_core::raw::RawJson;
use longhaul_core::task::TaskSpec;
use longhaul_core::time::Millis;

use crate::rejection::Rejection;

/// Maximum size of a task's input in bytes. A text is measured without quotes and escapes.
pub const INPUT_BYTES_MAX: usize = 1024 * 1024;

/// Maximum number of tags per task.
pub const TAGS_MAX: usize = 32;

/// Validates a task and creates its run with this id.
pub fn new_run_from_task(id: RunId, mut task: TaskSpec) -> Result<NewRun, Rejection> {
    if input_size_in_bytes(&task.input) > INPUT_BYTES_MAX {
        return Err(Rejection::TooLong { text_name: "a task's input", max: INPUT_BYTES_MAX });
    }
    if task.tags.len() > TAGS_MAX {
        return Err(Rejection::InvalidTask(format!("a task can have at most {TAGS_MAX} tags")));
    }
    let is_step = task.chain.is_some();
    if task.chain.as_ref().is_some_and(|position| position.chain.steps.len() > CHAIN_STEPS_MAX) {
        return Err(Rejection::InvalidTask(format!(
            "a chain can have at most {CHAIN_STEPS_MAX} steps"
        )));
    }
    let is_root = task.root == id;
    // Runs of one thread share a memory, so they run one after another in a lane.
    if let (true, None, Some(thread)) = (is_root, &task.lane, &task.thread) {
        let lane = LaneKey::new(format!("thread:{thread}"));
        task.lane = Some(lane.map_err(|error| Rejection::InvalidTask(error.to_string()))?);
    }
    // A child run uses the lane of its root run, whatever its own agent file says. A step of a chain
    // has it in its task, too.
    if !is_root && !is_step {
        task.lane = None;
    }
    let created = RunCreated { task: task.clone() };
    let events = vec![Event::RunCreated(Box::new(created))];
    Ok(NewRun {
        id,
        task,
        events,
        copied_journal: None,
        steers: Vec::new(),
        lane_depth_max: LANE_DEPTH_MAX,
        lane_entry: LaneEntryPolicy::default(),
        caps: Vec::new(),
    })
}

/// Returns the size of a task's input in bytes. The quotes and escapes of a long JSON string are
/// not counted; other JSON counts as it is written.
fn input_size_in_bytes(input: &RawJson) -> usize {
    let input_text = input.as_str();
    let is_long_text = input_text.len() > INPUT_BYTES_MAX && input_text.starts_with('"');
    let text = is_long_text.then(|| serde_json::from_str::<String>(input_text).ok()).flatten();
    text.map_or(input_text.len(), |text| text.len())
}

/// Returns the condition under which the run of a task enters its lane (a queue whose runs are
/// executed one at a time). `collect_window` is how long a run that collects messages waits after
/// the last one.
pub const fn lane_entry(policy: LaneBusyPolicy, collect_window: Millis) -> LaneEntryPolicy {
    match policy {
        LaneBusyPolicy::Enqueue => LaneEntryPolicy::Enqueue,
        LaneBusyPolicy::Steer | LaneBusyPolicy::Reject => LaneEntryPolicy::IfEmpty,
        LaneBusyPolicy::Collect => LaneEntryPolicy::IfNoneWaits { window: collect_window },
        LaneBusyPolicy::Interrupt => LaneEntryPolicy::Interrupt,
    }
}
