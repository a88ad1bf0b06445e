//! Validates a task and creates its run with the first event, `run.created`.
//!
//! Also creates the run that retries a failed run. Nothing follows the end of a run in its journal,
//! so a retry is a run of its own. If the failed run has completed a turn, its events are copied
//! without its end, and the retry continues from there.

use longhaul_core::chain::CHAIN_STEPS_MAX;
use longhaul_core::change::{JournalPrefixCopy, LANE_DEPTH_MAX, LaneEntryPolicy, NewRun, SteerRow};
use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::event::run::{ForkKind, RunCreated, RunForked};
use longhaul_core::event::steer::SteerMessage;
use longhaul_core::id::{LaneKey, RunId, Seq, SteerId};
use longhaul_core::message::HANDLER_API;
use longhaul_core::policy::{LaneBusyPolicy, RunPolicy};
use longhaul_core::raw::RawJson;
use longhaul_core::status::Status;
use longhaul_core::task::{EarliestStart, RetriedRun, TaskSpec};
use longhaul_core::time::Millis;

use crate::rejection::Rejection;
use crate::state::Run;

/// Maximum size of a task's input in bytes. A text is measured without quotes and escapes.
pub const INPUT_BYTES_MAX: usize = 1024 * 1024;

/// Maximum number of tags per task.
pub const TAGS_MAX: usize = 32;

/// Point of a failed run's journal from which a retry continues, and the messages that are
/// delivered to the retry. Collected from all entries of the journal.
#[derive(Debug, Clone, Default)]
pub struct RetryPoint {
    /// Sequence number of the last event before the end of the run.
    last_before_end: Seq,
    has_completed_turn: bool,
    is_handler: bool,
    /// Messages to the failed run that nobody has withdrawn, in the order of arrival.
    messages: Vec<QueuedMessage>,
}

#[derive(Debug, Clone)]
struct QueuedMessage {
    message: SteerMessage,
    is_delivered: bool,
}

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
    // Runs of one thread share a memory, so they run one after another, in a lane (a queue that
    // executes one run at a time).
    if let (true, None, Some(thread)) = (is_root, &task.lane, task.thread_to_write()) {
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
    Ok(NewRun { id, task, events, lane_depth_max: LANE_DEPTH_MAX, ..NewRun::default() })
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

impl RetryPoint {
    /// Updates the retry point from the next entry of the failed run's journal.
    pub fn update_from_entry(&mut self, entry: &JournalEntry) {
        // The end of a run withdraws its gates and drops its messages. In the retry, its open calls
        // raise new gates, and its messages are queued again.
        let is_end = matches!(
            entry.event,
            Event::GateWithdrawn(_) | Event::SteerDropped(_) | Event::RunFailed(_)
        );
        if !is_end {
            self.last_before_end = entry.seq;
        }
        #[expect(clippy::wildcard_enum_match_arm, reason = "only turns and messages matter")]
        match &entry.event {
            Event::TurnCompleted(done) => {
                self.has_completed_turn = true;
                self.is_handler |= done.reply.api == HANDLER_API;
            }
            Event::SteerQueued(message) => {
                let message = message.clone();
                self.messages.push(QueuedMessage { message, is_delivered: false });
            }
            Event::SteerChanged(edited) => {
                if let Some(queued) = self.find_message(edited.steer) {
                    queued.message.text.clone_from(&edited.text);
                    queued.message.delivery = edited.delivery;
                    queued.message.by.clone_from(&edited.by);
                }
            }
            Event::SteerWithdrawn(data) => {
                self.messages.retain(|queued| queued.message.steer != data.steer);
            }
            Event::SteerDelivered(data) => {
                if let Some(queued) = self.find_message(data.steer) {
                    queued.is_delivered = true;
                }
            }
            // A message that the failed run had not read belongs to this run from here on.
            Event::RunForked(_) => self.messages.retain(|queued| queued.is_delivered),
            _ => {}
        }
    }

    fn find_message(&mut self, steer: SteerId) -> Option<&mut QueuedMessage> {
        self.messages.iter_mut().find(|queued| queued.message.steer == steer)
    }

    /// Returns which events of the failed run `from` the retry copies to its journal. `None` means
    /// that the retry starts from the beginning: no turn was completed, or the agent is a handler
    /// (a function that replaces the model), which is always called again as a whole.
    fn journal_part_to_copy(&self, from: RunId) -> Option<JournalPrefixCopy> {
        let keeps_work = self.has_completed_turn && !self.is_handler;
        keeps_work.then_some(JournalPrefixCopy { from, through: self.last_before_end })
    }
}

/// Creates a run with this id that retries a failed run, with the same agent definition and policy,
/// queued last in the same lane. The retry continues from the last good event, so
/// completed calls are not repeated. Messages that the failed run has not read are queued for the
/// retry. The retry of a chain's step continues the chain.
pub fn retry_failed_run(
    id: RunId,
    failed: &Run,
    point: &RetryPoint,
    submitter: String,
) -> Result<NewRun, Rejection> {
    if failed.status() != Status::Failed {
        return Err(Rejection::NotFailed(failed.status()));
    }
    let task = failed.task();
    if task.root != failed.id() && task.chain.is_none() {
        return Err(Rejection::InvalidTask(format!(
            "a child run can't be retried on its own: retry its root run {}",
            task.root
        )));
    }
    let retried = RetriedRun {
        run: failed.id(),
        attempts: failed.attempt_number(),
        first: (task.retry_of.map(|earlier| earlier.first_run_of_task()))
            .or_else(|| task.chain.as_ref().map(|position| position.first_run)),
    };
    let earlier_submitters = failed.submitters().names_except(Some(&submitter));
    let task = TaskSpec {
        root: id,
        parent: None,
        start: EarliestStart::Now,
        batch: None,
        submitter: Some(submitter),
        charged_to: None,
        retry_of: Some(retried),
        // A retry starts with a new sandbox, because the runtime may stop and delete the old one.
        sandbox: None,
        earlier_submitters,
        // The caps may have been raised since the failed run was submitted.
        policy: RunPolicy { budget: failed.control().budget.caps, ..task.policy.clone() },
        ..task.clone()
    };
    let mut new = new_run_from_task(id, task)?;
    new.copied_journal = point.journal_part_to_copy(failed.id());
    if let Some(JournalPrefixCopy { from, through }) = new.copied_journal {
        let kind = ForkKind::Retry;
        let forked = RunForked {
            from,
            through,
            kind,
            drops_approvals: true,
            resets_files: !failed.control.workspace.is_saved(),
            ..RunForked::default()
        };
        new.events.push(Event::RunForked(forked));
    }
    let copies_journal = new.copied_journal.is_some();
    let unread = point.messages.iter().filter(|queued| !(copies_journal && queued.is_delivered));
    for QueuedMessage { message, .. } in unread {
        new.events.push(Event::SteerQueued(message.clone()));
        new.steers.push(SteerRow::queued(message));
    }
    Ok(new)
}
