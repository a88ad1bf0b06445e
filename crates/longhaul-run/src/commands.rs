//! Commands to a run from outside, such as answers, messages and cancels.
//!
//! Commands are decided from rows of the store alone, without replaying the journal: a gate's row
//! has everything that is needed to check an answer. So a command costs the same at turn 1 and at
//! turn 10,000.
//!
//! A timer that is due is a command, too. Invariant: a timer fires once, because its row is
//! consumed in the same transaction. A timer of a closed gate or of an ended run is consumed
//! without further effect.

mod answer;

use longhaul_core::access::SYSTEM_PRINCIPAL;
use longhaul_core::change::{
    Blob, GateTransition, GateUpdate, JournalBatch, RowChange, RunSchedulingUpdate, SteerRow,
    SteerStatus, SteerUpdate, TimerKind, TimerUpdate,
};
use longhaul_core::event::Event;
use longhaul_core::event::environment::{ChildEnded, RuleRevoked, TimerFired};
use longhaul_core::event::gate::{GateExpired, GateNotice, GateRaised};
use longhaul_core::event::run::{CancelCause, RunControlRequest};
use longhaul_core::event::steer::{SteerMessage, SteerWithdrawn};
use longhaul_core::event::tool::LateToolResultEvent;
use longhaul_core::id::{AgentName, GateId, RuleId, RunId, SteerId, TimerId};
use longhaul_core::policy::budget::BudgetRaise;
use longhaul_core::policy::gate::{
    Answer, GateDecision, GateRow, GateSpec, GateStatus, GateTimeoutAction,
};
use longhaul_core::port::records::DueTimer;
use longhaul_core::status::Status;

use crate::commands::answer::{decide_gate_answer, newest_edited_input};
use crate::decision::{DecisionContext, new_gate_timer_rows, next_gate_reminder};
use crate::rejection::Rejection;

pub use crate::commands::answer::{
    allowed_decisions, check_gate_open, current_gate_digest, current_gate_input, remembered_scope,
};

/// A command to a run from outside, such as an answer, a message or a cancel.
#[derive(Debug, Clone)]
pub enum RunCommand {
    /// Answers a gate of the run.
    Answer {
        /// Current row of the gate in the store.
        gate: Box<GateRow>,
        /// Answer to the gate.
        answer: Answer,
        /// Agent of the run. An approval with the scope `agent` adds a rule for this agent.
        agent: AgentName,
        /// Whether the rule that the answer would add already exists and is active.
        has_rule: bool,
    },
    /// Raises a gate that a program closes later. The run can't end while the gate is open.
    RaiseSignalGate(Box<GateSpec>),
    /// Queues a message for the run.
    Steer(SteerMessage),
    /// Edits a queued message of the run.
    ChangeSteer(SteerMessage),
    /// Withdraws a queued message of the run.
    WithdrawSteer {
        /// Id of the message to withdraw.
        steer: SteerId,
        /// Principal that withdraws the message.
        by: String,
    },
    Cancel {
        /// Principal that cancels the run.
        by: String,
        /// Reason for the cancellation, as given by the principal.
        reason: String,
    },
    Pause {
        /// Principal that pauses the run.
        by: String,
    },
    Resume {
        /// Principal that resumes the run.
        by: String,
        /// New budget caps. `None` means that the caps don't change.
        raise: Option<BudgetRaise>,
        /// Whether a raise of a child run raises the caps of its whole tree (root run and
        /// descendants).
        raises_tree: bool,
    },
    /// Revokes a remembered approval: a rule that allows calls for the rest of the run.
    RevokeRule {
        rule: RuleId,
        /// Principal that revokes the rule.
        by: String,
    },
    /// Handles a timer of the run that is due.
    Timer(Box<DueTimer>),
    /// Reports to the parent run that a child run has ended.
    ChildEnded {
        /// What is recorded about the end of the child run.
        ended: Box<ChildEnded>,
        /// Full text of the child's result. `None` means that `ended` contains the whole result.
        full: Option<Blob>,
        /// Id of the timer that triggered this report.
        timer: TimerId,
    },
    /// Records the late result of a tool call, from a worker that had lost its claim on the run.
    SurfaceResult(LateToolResultEvent),
}

/// Maximum size of a message to a run in bytes.
const STEER_BYTES_MAX: usize = 64 * 1024;

/// Decides the effect of a command to a run with this status: the events to record and the row
/// changes that belong to them. The events are valid in every run that has not ended.
pub fn decide_command(
    run: RunId,
    status: Status,
    command: RunCommand,
    ctx: DecisionContext,
) -> Result<JournalBatch, Rejection> {
    let is_timer = matches!(command, RunCommand::Timer(_));
    if status.is_terminal() && !is_timer && !is_answer_with_closed_gate_row(&command) {
        return Err(Rejection::Ended(status));
    }
    match command {
        RunCommand::Answer { gate, answer, agent, has_rule } => {
            let rule = answer::remembered_scope(&gate, &answer, agent).filter(|_| !has_rule);
            answer::decide_gate_answer(&gate, answer, rule, ctx)
        }
        RunCommand::RaiseSignalGate(gate) => Ok(raise_signal_gate(run, *gate, &ctx)),
        RunCommand::Steer(message) => queue_steer(message),
        RunCommand::ChangeSteer(message) => edit_steer(message),
        RunCommand::WithdrawSteer { steer, by } => Ok(withdraw_steer(steer, by)),
        RunCommand::Cancel { by, reason } => {
            let request = RunControlRequest::from_principal(by).with_reason(reason);
            Ok(batch(Event::RunCancelRequested(request), None))
        }
        RunCommand::Pause { by } => decide_pause(run, status, by),
        RunCommand::Resume { by, raise, raises_tree } => Ok(decide_resume(by, raise, raises_tree)),
        RunCommand::RevokeRule { rule, by } => {
            let event = Event::RuleRevoked(RuleRevoked { rule, by: by.clone() });
            Ok(batch(event, [RowChange::RevokeRule { rule, by }]))
        }
        RunCommand::ChildEnded { ended, full, timer } => {
            let changes = [consume_timer(timer)].into_iter().chain(full.map(RowChange::PutBlob));
            Ok(batch(Event::ChildEnded(ended), changes))
        }
        RunCommand::SurfaceResult(surfaced) => Ok(batch(Event::ToolSurfaced(surfaced), None)),
        RunCommand::Timer(due) => Ok(decide_due_timer(&due, ctx)),
    }
}

/// Returns whether the command answers a gate that was closed before the run ended. Then the error
/// should say who closed the gate and when, instead of only that the run has ended.
fn is_answer_with_closed_gate_row(command: &RunCommand) -> bool {
    let RunCommand::Answer { gate, .. } = command else { return false };
    matches!(gate.status, GateStatus::Answered | GateStatus::Expired)
}

fn batch(event: Event, changes: impl IntoIterator<Item = RowChange>) -> JournalBatch {
    JournalBatch { events: vec![event], changes: changes.into_iter().collect() }
}

fn decide_pause(run: RunId, status: Status, by: String) -> Result<JournalBatch, Rejection> {
    if status == Status::Paused {
        return Err(Rejection::AlreadyInState("paused"));
    }
    let event = Event::RunPauseRequested(RunControlRequest::from_principal(by));
    // A person who pauses the run stops the approval: the gate then waits for an answer.
    Ok(batch(event, [RowChange::SetTimer(TimerUpdate::StopAutoApproval(run))]))
}

fn decide_resume(by: String, raise: Option<BudgetRaise>, raises_tree: bool) -> JournalBatch {
    let request = RunControlRequest { raise, raises_tree, ..RunControlRequest::from_principal(by) };
    let change = raise.map(|raise| match raises_tree {
        true => RowChange::RaiseTreeBudget(raise),
        false => RowChange::RaiseBudget(raise),
    });
    batch(Event::RunResumed(request), change)
}

/// Returns the events and row changes that raise a gate from outside the run.
fn raise_signal_gate(run: RunId, gate: GateSpec, ctx: &DecisionContext) -> JournalBatch {
    let timers = new_gate_timer_rows(run, &gate, ctx.now);
    let raised = Event::GateRaised(Box::new(GateRaised { gate: gate.clone() }));
    batch(raised, timers.into_iter().chain([RowChange::RaiseGate(Box::new(gate))]))
}

fn queue_steer(message: SteerMessage) -> Result<JournalBatch, Rejection> {
    check_steer_text(&message.text)?;
    let row = RowChange::QueueSteer(SteerRow::queued(&message));
    Ok(batch(Event::SteerQueued(message), [row]))
}

fn edit_steer(message: SteerMessage) -> Result<JournalBatch, Rejection> {
    check_steer_text(&message.text)?;
    let (steer, edit) = (message.steer, Some((message.text.clone(), message.delivery)));
    let change = SteerUpdate { steer, edit, status: SteerStatus::Queued };
    Ok(batch(Event::SteerChanged(message), [RowChange::UpdateSteer(change)]))
}

fn withdraw_steer(steer: SteerId, by: String) -> JournalBatch {
    let change = SteerUpdate { steer, edit: None, status: SteerStatus::Withdrawn };
    let event = Event::SteerWithdrawn(SteerWithdrawn { steer, by });
    batch(event, [RowChange::UpdateSteer(change)])
}

fn check_steer_text(text: &str) -> Result<(), Rejection> {
    if text.trim().is_empty() {
        return Err(Rejection::Empty("a message"));
    }
    if text.len() > STEER_BYTES_MAX {
        return Err(Rejection::TooLong { text_name: "a message", max: STEER_BYTES_MAX });
    }
    Ok(())
}

/// Returns the events and row changes for a timer that is due.
fn decide_due_timer(due_timer: &DueTimer, ctx: DecisionContext) -> JournalBatch {
    let spent = consume_timer(due_timer.timer);
    let mut batch = JournalBatch { events: Vec::new(), changes: vec![spent] };
    if due_timer.run_ended {
        return batch;
    }
    batch.events.extend(cancel_request_of_timer(due_timer).map(Event::RunCancelRequested));
    match &due_timer.kind {
        TimerKind::Wake | TimerKind::Delay(_) | TimerKind::Start | TimerKind::BatchNext(_) => {
            batch.events.push(Event::TimerFired(TimerFired { timer: due_timer.timer }));
        }
        TimerKind::GateDeadline(gate) => {
            if let Some(row) = &due_timer.open_gate {
                let on_timeout = row.spec.on_timeout;
                let edited = newest_edited_input(row).cloned();
                let edited = edited.filter(|_| on_timeout == GateTimeoutAction::Approve);
                let expired = GateExpired { gate: *gate, on_timeout, edited };
                batch.events.push(Event::GateExpired(expired));
                let (seen_answers, transition) = (None, GateTransition::Expired);
                let update = GateUpdate { gate: *gate, seen_answers, transition };
                batch.changes.push(RowChange::UpdateGate(update));
            }
        }
        TimerKind::GateRemind(gate) => {
            if let Some(row) = &due_timer.open_gate {
                batch.events.push(gate_reminded_event(*gate, None));
                let times = (row.deadline, ctx.now);
                batch.changes.extend(next_gate_reminder(due_timer.run, &row.spec, times));
            }
        }
        TimerKind::GateAutoApprove(_) => {
            let approved = due_timer.open_gate.as_ref().and_then(|row| auto_approve_gate(row, ctx));
            let JournalBatch { events, changes } = approved.unwrap_or_default();
            batch.events.extend(events);
            batch.changes.extend(changes);
        }
        TimerKind::GateEscalate { gate, step } => {
            let step = due_timer.open_gate.as_ref().and_then(|row| row.spec.escalation.get(*step));
            batch.events.extend(step.map(|step| gate_reminded_event(*gate, Some(step.to.clone()))));
        }
        // The first four cancel the run. The report of a child's end needs its outcome; the sweeper
        // sends it as a command of its own.
        TimerKind::BatchStopped(_)
        | TimerKind::ParentEnded(_)
        | TimerKind::VerdictUnneeded(_)
        | TimerKind::LaneInterrupted(_)
        | TimerKind::ChildEnded(_) => {}
    }
    batch
}

/// Approves a gate without a person, and makes its parked run ready. `None` means that a person has
/// voted.
fn auto_approve_gate(row: &GateRow, ctx: DecisionContext) -> Option<JournalBatch> {
    let auto = row.spec.auto_approve.as_ref().filter(|_| row.answers.is_empty())?;
    let approval = Answer::new(GateDecision::Approve, auto.by.clone());
    let answer = Answer { digest: current_gate_digest(row), ..approval };
    let mut batch = decide_gate_answer(row, answer, None, ctx).ok()?;
    batch.changes.push(RowChange::UpdateScheduling(RunSchedulingUpdate::Release));
    Some(batch)
}

fn gate_reminded_event(gate: GateId, to: Option<String>) -> Event {
    Event::GateReminded(GateNotice { gate, reason: "no answer yet".to_owned(), to })
}

const fn consume_timer(timer: TimerId) -> RowChange {
    RowChange::SetTimer(TimerUpdate::Consume(timer))
}

/// Returns the request with which this due timer cancels its run. `None` means that the timer does
/// not cancel the run.
#[expect(clippy::wildcard_enum_match_arm, reason = "no other timer cancels a run")]
pub fn cancel_request_of_timer(due_timer: &DueTimer) -> Option<RunControlRequest> {
    let (cause, reason) = match &due_timer.kind {
        _ if due_timer.run_ended => return None,
        TimerKind::BatchStopped(batch) => {
            (CancelCause::BatchStopped, format!("the run before it in {batch} did not complete"))
        }
        TimerKind::ParentEnded(parent) => {
            (CancelCause::ParentEnded, format!("its parent run {parent} has ended"))
        }
        TimerKind::VerdictUnneeded(parent) => {
            (CancelCause::ParentEnded, format!("its parent run {parent} does not need its verdict"))
        }
        TimerKind::LaneInterrupted(newer_run) => {
            (CancelCause::LaneInterrupted, format!("the newer run {newer_run} interrupted it"))
        }
        _ => return None,
    };
    Some(
        RunControlRequest { cause, ..RunControlRequest::from_principal(SYSTEM_PRINCIPAL) }
            .with_reason(reason),
    )
}
