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
    allowed_decisions, check_gate_open, current_gate_digest, current_gate_input,
    scope_of_remembered_approval,
};
pub use crate::commands::timer::cancel_request_of_timer;

use crate::context::DecisionContext;
use crate::policy::gate_timers::new_gate_timer_rows;
use crate::rejection::Rejection;

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

/// Decides the effect of a command to a run with this status: the events to record and the row changes
/// that belong to them. The events are valid in every run that has not ended.
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
            let rule =
                answer::scope_of_remembered_approval(&gate, &answer, agent).filter(|_| !has_rule);
            answer::decide_gate_answer(&gate, answer, rule, ctx)
        }
        RunCommand::RaiseSignalGate(gate) => Ok(raise_signal_gate(run, *gate, &ctx)),
        RunCommand::Steer(message) => steer::queue(message),
        RunCommand::ChangeSteer(message) => steer::edit(message),
        RunCommand::WithdrawSteer { steer, by } => Ok(steer::withdraw(steer, by)),
        RunCommand::Cancel { by, reason } => {
            let request = RunControlRequest::from_principal(by).with_reason(reason);
            Ok(batch(Event::RunCancelRequested(request), None))
        }
        RunCommand::Pause { by } => decide_pause(run, status, by),
        RunCommand::Resume { by, raise } => Ok(decide_resume(by, raise, false)),
        RunCommand::ResumeAndRaiseTreeBudget { by, raise } => {
            Ok(decide_resume(by, Some(raise), true))
        }
        RunCommand::RaiseBudget { raise, by } => {
            let event = Event::BudgetRaised(BudgetRaised { raise, by });
            Ok(batch(event, [RowChange::RaiseBudget(raise)]))
        }
        RunCommand::RevokeRule { rule, by } => {
            let event = Event::RuleRevoked(RuleRevoked { rule, by: by.clone() });
            Ok(batch(event, [RowChange::RevokeRule { rule, by }]))
        }
        RunCommand::ChildEnded { ended, full, timer } => {
            let changes = [timer::consume(timer)].into_iter().chain(full.map(RowChange::PutBlob));
            Ok(batch(Event::ChildEnded(ended), changes))
        }
        RunCommand::SurfaceResult(surfaced) => Ok(batch(Event::ToolSurfaced(surfaced), None)),
        RunCommand::Timer(due) => Ok(timer::decide_due_timer_effect(&due, ctx)),
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
    batch(Event::RunResumed(request), change)
}

/// Returns the events and row changes that raise a gate from outside the run.
fn raise_signal_gate(run: RunId, gate: GateSpec, ctx: &DecisionContext) -> JournalBatch {
    let timers = new_gate_timer_rows(run, &gate, ctx.now);
    let raised = Event::GateRaised(Box::new(GateRaised { gate: gate.clone() }));
    batch(raised, timers.into_iter().chain([RowChange::RaiseGate(Box::new(gate))]))
}
