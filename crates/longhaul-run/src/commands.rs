//! Commands to a run from outside, such as answers, messages and cancels.
//!
//! Commands are decided from rows of the store alone, without replaying the journal: a gate's row
//! has everything that is needed to check an answer. So a command costs the same at turn 1 and at
//! turn 10,000.

mod answer;
mod steer;
mod timer;

use longhaul_core::change::{Blob, JournalBatch, RowChange, TimerUpdate};
use longhaul_core::event::Event;
use longhaul_core::event::environment::{BudgetRaised, ChildEnded, RuleRevoked};
use longhaul_core::event::gate::GateRaised;
use longhaul_core::event::run::RunControlRequest;
use longhaul_core::event::steer::SteerMessage;
use longhaul_core::event::tool::LateToolResultEvent;
use longhaul_core::id::{AgentName, RuleId, RunId, SteerId, TimerId};
use longhaul_core::policy::budget::BudgetRaise;
use longhaul_core::policy::gate::{Answer, GateRow, GateSpec, GateStatus};
use longhaul_core::port::records::DueTimer;
use longhaul_core::status::Status;

pub use crate::commands::answer::{
    allowed_decisions, current_gate_digest, current_gate_input, scope_of_remembered_approval,
};
pub use crate::commands::timer::cancel_request_of_timer;

use crate::context::DecisionContext;
use crate::policy::gate_timers::new_gate_timer_rows;
use crate::rejection::Rejection;
use crate::state::Run;

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
        /// New budget caps of the run. `None` means that the caps don't change.
        raise: Option<BudgetRaise>,
    },
    /// Resumes a child run and raises the budget caps of its whole tree (root run and descendants).
    ResumeAndRaiseTreeBudget {
        /// Principal that resumes the run.
        by: String,
        /// New budget caps of the whole tree of runs.
        raise: BudgetRaise,
    },
    /// Raises the budget caps of the run.
    RaiseBudget {
        /// New budget caps of the run.
        raise: BudgetRaise,
        /// Principal that raises the budget caps.
        by: String,
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

/// Id and status of a run, as known from its row in the store without reading its journal.
#[derive(Debug, Clone, Copy)]
pub struct RunIdAndStatus {
    /// Id of the run that the command is for.
    pub run: RunId,
    pub status: Status,
}

impl RunIdAndStatus {
    /// Returns the id and status of a run whose journal was replayed.
    pub fn from_run(run: &Run) -> Self {
        Self { run: run.id, status: run.status() }
    }
}

/// Decides the effect of a command: the events to record and the row changes that belong to them.
/// The events are valid in every run that has not ended.
pub fn decide_command(
    snapshot: &RunIdAndStatus,
    command: RunCommand,
    ctx: DecisionContext,
) -> Result<JournalBatch, Rejection> {
    if let RunCommand::Timer(due) = &command {
        return Ok(match cancel_request_of_timer(due) {
            Some(request) => timer::with_timer_consumed(due, decide_cancel(request)),
            None => timer::decide_due_timer_effect(due, ctx),
        });
    }
    if snapshot.status.is_terminal() && !is_answer_with_closed_gate_row(&command) {
        return Err(Rejection::Ended(snapshot.status));
    }
    match command {
        RunCommand::Answer { gate, answer, agent, has_rule } => {
            let rule =
                answer::scope_of_remembered_approval(&gate, &answer, agent).filter(|_| !has_rule);
            answer::decide_gate_answer(&gate, answer, rule, ctx)
        }
        RunCommand::RaiseSignalGate(gate) => Ok(raise_signal_gate(snapshot.run, *gate, &ctx)),
        RunCommand::Steer(message) => steer::queue_steer(message),
        RunCommand::ChangeSteer(message) => steer::edit_steer_message(message),
        RunCommand::WithdrawSteer { steer, by } => Ok(steer::withdraw_steer(steer, by)),
        RunCommand::Cancel { by, reason } => {
            Ok(decide_cancel(RunControlRequest::from_principal(by).with_reason(reason)))
        }
        RunCommand::Pause { by } => decide_pause(snapshot, by),
        RunCommand::Resume { by, raise } => Ok(decide_resume(by, raise, false)),
        RunCommand::ResumeAndRaiseTreeBudget { by, raise } => {
            Ok(decide_resume(by, Some(raise), true))
        }
        RunCommand::RaiseBudget { raise, by } => Ok(JournalBatch {
            events: vec![Event::BudgetRaised(BudgetRaised { raise, by })],
            changes: vec![RowChange::RaiseBudget(raise)],
        }),
        RunCommand::RevokeRule { rule, by } => Ok(JournalBatch {
            events: vec![Event::RuleRevoked(RuleRevoked { rule, by: by.clone() })],
            changes: vec![RowChange::RevokeRule { rule, by }],
        }),
        RunCommand::ChildEnded { ended, full, timer } => Ok(JournalBatch {
            events: vec![Event::ChildEnded(ended)],
            changes: [timer::consume_timer(timer)]
                .into_iter()
                .chain(full.map(RowChange::PutBlob))
                .collect(),
        }),
        RunCommand::SurfaceResult(surfaced) => Ok(batch_with_event(Event::ToolSurfaced(surfaced))),
        RunCommand::Timer(due) => Ok(timer::decide_due_timer_effect(&due, ctx)),
    }
}

/// Returns whether the command answers a gate that was closed before the run ended. Then the error
/// should say who closed the gate and when, instead of only that the run has ended.
fn is_answer_with_closed_gate_row(command: &RunCommand) -> bool {
    let RunCommand::Answer { gate, .. } = command else {
        return false;
    };
    matches!(gate.status, GateStatus::Answered | GateStatus::Expired)
}

fn batch_with_event(event: Event) -> JournalBatch {
    JournalBatch { events: vec![event], changes: Vec::new() }
}

fn decide_cancel(request: RunControlRequest) -> JournalBatch {
    batch_with_event(Event::RunCancelRequested(request))
}

fn decide_pause(snapshot: &RunIdAndStatus, by: String) -> Result<JournalBatch, Rejection> {
    if snapshot.status == Status::Paused {
        return Err(Rejection::AlreadyInState("paused"));
    }
    let event = Event::RunPauseRequested(RunControlRequest::from_principal(by));
    // A person who pauses the run stops the approval: the gate then waits for an answer.
    let stop = RowChange::SetTimer(TimerUpdate::StopAutoApproval(snapshot.run));
    Ok(JournalBatch { events: vec![event], changes: vec![stop] })
}

fn decide_resume(by: String, raise: Option<BudgetRaise>, raises_tree_budget: bool) -> JournalBatch {
    let request = RunControlRequest {
        raise,
        raises_tree: raises_tree_budget,
        ..RunControlRequest::from_principal(by)
    };
    let change = raise.map(|raise| match raises_tree_budget {
        true => RowChange::RaiseTreeBudget(raise),
        false => RowChange::RaiseBudget(raise),
    });
    JournalBatch { events: vec![Event::RunResumed(request)], changes: change.into_iter().collect() }
}

/// Returns the events and row changes that raise a gate from outside the run.
fn raise_signal_gate(run: RunId, gate: GateSpec, ctx: &DecisionContext) -> JournalBatch {
    let mut changes = new_gate_timer_rows(run, &gate, ctx.now);
    let raised = GateRaised { gate: gate.clone() };
    changes.push(RowChange::RaiseGate(Box::new(gate)));
    JournalBatch { events: vec![Event::GateRaised(Box::new(raised))], changes }
}
