//! Creates a run that goes on from a turn of another run: a fork.
//!
//! The journal before the turn is copied, so that nothing of it is repeated or paid again. What
//! belongs to the other run alone is not copied: its open gates, its unread messages, its place in
//! the lane, its idempotency key and its sandbox.

use std::collections::BTreeSet;
use std::sync::Arc;

use longhaul_core::change::{JournalPrefixCopy, NewRun};
use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::event::run::{ForkEdit, ForkKind, RunForked};
use longhaul_core::id::{AgentName, CallId, RunId, Seq};
use longhaul_core::message::Message;
use longhaul_core::policy::RunPolicy;
use longhaul_core::raw::{Hash, RawJson};
use longhaul_core::task::{EarliestStart, ForkOrigin, TaskSpec};

use crate::rejection::Rejection;
use crate::state::Run;
use crate::state::transcript::result_of_call;
use crate::submit::{INPUT_BYTES_MAX, new_run_from_task};

/// Start of the turn of a journal from which a fork goes on. Collected from all entries of the
/// journal.
#[derive(Debug, Clone)]
pub struct ForkPoint {
    /// Event given by the caller. The fork goes on from the start of its turn.
    before: Seq,
    /// Number of the last turn that was started. 0 if no turn was started since the run was created
    /// or taken over from another run.
    turn: u32,
    /// State of the run before the turn.
    start: Option<Run>,
    /// Texts of the task and of people's messages that the model has read.
    texts: BTreeSet<String>,
}

/// What a fork changes.
#[derive(Debug, Clone, Default)]
pub struct ForkRequest {
    /// Principal that forks the run.
    pub by: String,
    /// Model of the fork. `None` keeps the model of the run, unless the agent changes.
    pub model: Option<String>,
    /// Agent of the fork. `None` keeps the agent version of the run.
    pub agent: Option<ForkAgent>,
    /// Change in the copied conversation. `None` changes nothing.
    pub edit: Option<RequestedEdit>,
    /// Whether the fork may go on without the files in the sandbox of the run.
    pub fresh_files: bool,
    /// Whether the fork adds its messages to the thread of the run.
    pub writes_thread: bool,
    /// Why the run is forked.
    pub note: String,
    /// Policy of the run with the current caps of its budget account.
    pub policy: RunPolicy,
    /// Root run of the budget account of the run.
    pub account: RunId,
}

/// Agent version that a fork uses instead of that of the run.
#[derive(Debug, Clone)]
pub struct ForkAgent {
    pub name: AgentName,
    pub definition: Hash,
    /// Whether the agent has tools.
    pub has_tools: bool,
}

/// Change that a caller asks for in the conversation of a fork.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestedEdit {
    /// New text of the last message of a person before the turn.
    Message(String),
    /// New result of a tool call.
    Result { call: CallId, text: String },
}

impl ForkPoint {
    /// Creates the point before the turn of this event.
    pub const fn before(before: Seq) -> Self {
        Self { before, turn: 0, start: None, texts: BTreeSet::new() }
    }

    /// Updates the point from the next entry of the journal. `run` is the state of the run, with its
    /// conversation, before the entry.
    pub fn update_from_entry(&mut self, run: &Run, entry: &JournalEntry) {
        if entry.seq > self.before {
            return;
        }
        #[expect(clippy::wildcard_enum_match_arm, reason = "only turns and messages matter")]
        match &entry.event {
            // The first model call of a turn may be the one that compacts the conversation.
            Event::TurnStarted(started) if started.turn != self.turn => {
                self.turn = started.turn;
                self.start = Some(run.clone());
            }
            Event::RunPrepared(prepared) => {
                self.texts.extend(prepared.initial_messages.last().map(Message::text));
            }
            Event::SteerDelivered(delivered) => {
                let mut steers = run.control().people.steers.iter();
                let steer = steers.find(|steer| steer.id == delivered.steer);
                self.texts.extend(steer.map(|steer| steer.text.to_string()));
            }
            Event::RunForked(forked) => {
                self.turn = 0;
                if let Some(ForkEdit::Message { text, .. }) = forked.edit.as_deref() {
                    self.texts.insert(text.clone());
                }
            }
            _ => {}
        }
    }

    fn find_edited_message(&self, start: &Run, text: String) -> Result<ForkEdit, Rejection> {
        let is_of_person = |message: &Arc<Message>| {
            matches!(**message, Message::User(_)) && self.texts.contains(&message.text())
        };
        let index = start.transcript().messages().iter().rposition(is_of_person);
        let index = index.ok_or_else(|| {
            Rejection::InvalidTask(format!(
                "no message can be edited: a compaction has replaced the messages of people before \
                 event {} by a summary. Fork from an earlier turn: `longhaul show {} --events`",
                self.before,
                start.id()
            ))
        })?;
        Ok(ForkEdit::Message { index, text })
    }

    fn find_edit(&self, start: &Run, edit: RequestedEdit) -> Result<ForkEdit, Rejection> {
        let (call, text) = match edit {
            RequestedEdit::Message(text) => return self.find_edited_message(start, text),
            RequestedEdit::Result { call, text } => (call, text),
        };
        let mut messages = start.transcript().messages().iter();
        match messages.any(|message| result_of_call(message, call).is_some()) {
            true => Ok(ForkEdit::Result { call, text }),
            false => Err(self.missing_result_error(start.id(), call)),
        }
    }

    fn missing_result_error(&self, run: RunId, call: CallId) -> Rejection {
        Rejection::InvalidTask(format!(
            "the call {call} has no result in the conversation before the turn of event {}. To list \
             the calls: `longhaul show {run} --events`",
            self.before
        ))
    }
}

/// Creates a run with this id that goes on from a turn of `origin`, whose whole journal was applied.
/// Without such a turn, the new run starts from the beginning.
pub fn fork_run(
    id: RunId,
    origin: &Run,
    point: ForkPoint,
    request: ForkRequest,
) -> Result<NewRun, Rejection> {
    let from = origin.id();
    if point.before == Seq::START || point.before > origin.seq() {
        let (seq, last) = (point.before, origin.seq());
        return Err(Rejection::EventNotFound { run: from, seq, last });
    }
    check_edit_size(request.edit.as_ref())?;
    let start = point.start.as_ref();
    let resets_files = match start {
        Some(start) => !start.control.workspace.is_saved(),
        None => origin.task().sandbox.is_some(),
    };
    if resets_files && !request.fresh_files {
        return Err(Rejection::FilesNotKept(from));
    }
    let has_calls = start.is_some_and(|start| !start.tools_called().is_empty());
    if let Some(agent) = request.agent.as_ref().filter(|agent| has_calls && !agent.has_tools) {
        return Err(Rejection::InvalidTask(format!(
            "the agent `{}` has no tools, but the conversation before event {} contains tool calls, \
             which models accept only together with tools: choose an agent with tools, or an event \
             of the first turn",
            agent.name, point.before
        )));
    }
    let through = start.map_or(Seq(1), Run::seq);
    let mut task = fork_task(id, origin, &request, through);
    let Some(start) = start else {
        task.input = match request.edit {
            None => task.input,
            Some(RequestedEdit::Message(text)) => RawJson::from_serialize(&text),
            Some(RequestedEdit::Result { call, .. }) => {
                return Err(point.missing_result_error(from, call));
            }
        };
        return new_run_from_task(id, task);
    };
    let edit = request.edit.map(|edit| point.find_edit(start, edit)).transpose()?;
    let forked = RunForked {
        from,
        through,
        kind: ForkKind::Fork,
        drops_approvals: true,
        by: request.by,
        edit: edit.map(Box::new),
        prepares_again: request.agent.is_some() || request.model.is_some(),
        resets_files,
    };
    let mut new = new_run_from_task(id, task)?;
    new.copied_journal = Some(JournalPrefixCopy { from, through });
    new.events.push(Event::RunForked(forked));
    Ok(new)
}

fn check_edit_size(edit: Option<&RequestedEdit>) -> Result<(), Rejection> {
    let (text_name, text) = match edit {
        None => return Ok(()),
        Some(RequestedEdit::Message(text)) if text.is_empty() => {
            return Err(Rejection::Empty("an edited message"));
        }
        Some(RequestedEdit::Message(text)) => ("an edited message", text),
        Some(RequestedEdit::Result { text, .. }) => ("an edited result", text),
    };
    match text.len() > INPUT_BYTES_MAX {
        true => Err(Rejection::TooLong { text_name, max: INPUT_BYTES_MAX }),
        false => Ok(()),
    }
}

/// Returns the task of a fork: a root run in no chain and no batch, with the budget of its origin.
fn fork_task(id: RunId, origin: &Run, request: &ForkRequest, through: Seq) -> TaskSpec {
    let task = origin.task();
    // A run that only reads its thread has no reason to wait for the other runs of the thread.
    let thread_lane = task.thread.as_ref().map(|thread| format!("thread:{thread}"));
    let is_thread_lane =
        task.lane.as_ref().is_some_and(|lane| Some(lane.as_str()) == thread_lane.as_deref());
    let lane = task.lane.clone().filter(|_| request.writes_thread || !is_thread_lane);
    let mut forked = TaskSpec {
        root: id,
        parent: None,
        depth: 0,
        chain: None,
        batch: None,
        source: None,
        sandbox: None,
        retry_of: None,
        charged_to: None,
        start: EarliestStart::Now,
        lane,
        policy: request.policy.clone(),
        submitter: Some(request.by.clone()),
        earlier_submitters: origin.submitters().names_except(Some(&request.by)),
        forked_from: Some(Box::new(ForkOrigin {
            run: origin.id(),
            through,
            account: request.account,
            writes_thread: request.writes_thread,
            note: request.note.clone(),
        })),
        ..task.clone()
    };
    if let Some(agent) = &request.agent {
        (forked.agent, forked.definition) = (agent.name.clone(), agent.definition);
        forked.model = None;
    }
    if let Some(model) = &request.model {
        forked.model = Some(model.clone());
    }
    forked
}
