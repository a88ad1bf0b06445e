//! Words from outside: they name no place in the journal, and need no fold.
//!
//! Never: looks at more than rows. A gate's row carries all that judging an
//! answer needs, so answering costs the same at turn 1 and at turn 10,000.

mod answer;
mod steer;
mod timer;

use longhaul_core::change::{Batch, Change};
use longhaul_core::event::Event;
use longhaul_core::event::environment::{BudgetRaised, ChildEnded, RuleRevoked};
use longhaul_core::event::run::RunControlRequest;
use longhaul_core::event::steer::SteerMessage;
use longhaul_core::event::tool::ToolSurfaced;
use longhaul_core::id::{RuleId, RunId, SteerId, TimerId};
use longhaul_core::policy::budget::BudgetRaise;
use longhaul_core::policy::gate::{Answer, GateRow, GateStatus};
use longhaul_core::port::records::DueTimer;
use longhaul_core::status::{Outcome, Status};

pub use crate::commands::answer::{allowed_decisions, current_digest, current_input};

use crate::context::DecideContext;
use crate::rejection::Rejection;
use crate::state::Run;

/// What an outsider says.
#[derive(Debug, Clone)]
pub enum RunCommand {
    /// An answer at a gate.
    Answer {
        /// The gate as its row stands.
        gate: Box<GateRow>,
        /// What is said.
        answer: Answer,
    },
    /// A message for the run.
    Steer(SteerMessage),
    /// Other words for a message that waits.
    ChangeSteer(SteerMessage),
    /// A message is taken back.
    WithdrawSteer {
        /// Which.
        steer: SteerId,
        /// Who takes it back.
        by: String,
    },
    /// The run is to end.
    Cancel {
        /// Who says so.
        by: String,
        /// Why.
        reason: String,
    },
    /// The run is to stand still.
    Pause {
        /// Who says so.
        by: String,
    },
    /// The run is to go on.
    Resume {
        /// Who says so.
        by: String,
        /// New caps that come with it.
        raise: Option<BudgetRaise>,
    },
    /// The account is filled.
    RaiseBudget {
        /// To what.
        raise: BudgetRaise,
        /// Who says so.
        by: String,
    },
    /// A remembered approval is forgotten.
    RevokeRule {
        /// Which.
        rule: longhaul_core::change::RuleRow,
        /// Who says so.
        by: String,
    },
    /// A timer is due.
    Timer(Box<DueTimer>),
    /// A run that this one asked for has ended.
    ChildEnded {
        /// Which.
        child: RunId,
        /// How.
        outcome: Outcome,
        /// The timer that brought the news.
        timer: TimerId,
    },
    /// A result from a driver that had lost the run.
    SurfaceResult(ToolSurfaced),
}

/// What an outsider can see of a run: rows, no journal.
#[derive(Debug, Clone, Copy)]
pub struct RunSnapshot {
    /// Which run.
    pub run: RunId,
    /// How it stands.
    pub status: Status,
}

impl RunSnapshot {
    /// What an outsider would see of this run.
    pub fn from_run(run: &Run) -> Self {
        Self { run: run.id, status: run.status() }
    }
}

/// Decides what follows from a word: facts of the closed list that every open
/// run accepts, and the rows that go with them.
pub fn decide_command(
    view: &RunSnapshot,
    word: RunCommand,
    moment: DecideContext,
) -> Result<Batch, Rejection> {
    if let RunCommand::Timer(due) = &word {
        return Ok(match timer::cancel_reason(due) {
            Some(reason) => timer::with_timer_consumed(due, cancel("longhaul".into(), reason)),
            None => timer::timer_batch(due),
        });
    }
    if view.status.is_terminal() && !is_late_answer(&word) {
        return Err(Rejection::Ended(view.status));
    }
    match word {
        RunCommand::Answer { gate, answer } => answer::decide_answer(&gate, answer, moment),
        RunCommand::Steer(message) => steer::queue(message),
        RunCommand::ChangeSteer(message) => steer::change(message),
        RunCommand::WithdrawSteer { steer, by } => Ok(steer::withdraw(steer, by)),
        RunCommand::Cancel { by, reason } => Ok(cancel(by, reason)),
        RunCommand::Pause { by } => pause(view, by),
        RunCommand::Resume { by, raise } => Ok(resume(by, raise)),
        RunCommand::RaiseBudget { raise, by } => Ok(Batch {
            events: vec![Event::BudgetRaised(BudgetRaised { raise, by })],
            changes: vec![Change::SetCap(raise)],
        }),
        RunCommand::RevokeRule { rule, by } => Ok(revoke(rule, by)),
        RunCommand::ChildEnded { child, outcome, timer } => Ok(Batch {
            events: vec![Event::ChildEnded(Box::new(ChildEnded { child, outcome }))],
            changes: vec![timer::consume_timer(timer)],
        }),
        RunCommand::SurfaceResult(surfaced) => Ok(single_event(Event::ToolSurfaced(surfaced))),
        RunCommand::Timer(due) => Ok(timer::timer_batch(&due)),
    }
}

/// Whether it is an answer to what was settled before the run ended: then who
/// settled it, and when, says more than that the run has ended.
fn is_late_answer(word: &RunCommand) -> bool {
    let RunCommand::Answer { gate, .. } = word else {
        return false;
    };
    matches!(gate.status, GateStatus::Answered | GateStatus::Expired)
}

fn single_event(event: Event) -> Batch {
    Batch { events: vec![event], changes: Vec::new() }
}

fn cancel(by: String, reason: String) -> Batch {
    single_event(Event::RunCancelRequested(RunControlRequest { by, reason, raise: None }))
}

fn pause(view: &RunSnapshot, by: String) -> Result<Batch, Rejection> {
    if view.status == Status::Paused {
        return Err(Rejection::AlreadyInState("paused"));
    }
    Ok(single_event(Event::RunPauseRequested(RunControlRequest::by(by))))
}

fn resume(by: String, raise: Option<BudgetRaise>) -> Batch {
    let asked = RunControlRequest { raise, ..RunControlRequest::by(by) };
    Batch {
        events: vec![Event::RunResumed(asked)],
        changes: raise.map(Change::SetCap).into_iter().collect(),
    }
}

fn revoke(mut row: longhaul_core::change::RuleRow, by: String) -> Batch {
    let rule: RuleId = row.rule;
    row.active = false;
    Batch {
        events: vec![Event::RuleRevoked(RuleRevoked { rule, by })],
        changes: vec![Change::PutRule(row)],
    }
}
