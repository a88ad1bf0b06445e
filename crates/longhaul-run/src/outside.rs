//! Words from outside: they name no place in the journal, and need no fold.
//!
//! Never: looks at more than rows. A gate's row carries all that judging an
//! answer needs, so answering costs the same at turn 1 and at turn 10,000.

mod answer;
mod steer;
mod timer;

use longhaul_core::change::{Batch, Change};
use longhaul_core::event::Event;
use longhaul_core::event::run::RunAsked;
use longhaul_core::event::steer::SteerMessage;
use longhaul_core::event::tool::ToolSurfaced;
use longhaul_core::event::world::{BudgetRaised, ChildEnded, RuleRevoked};
use longhaul_core::id::{RuleId, RunId, SteerId, TimerId};
use longhaul_core::policy::budget::Raise;
use longhaul_core::policy::gate::{Answer, GateRow, GateStatus};
use longhaul_core::port::shelves::DueTimer;
use longhaul_core::status::{Outcome, Status};

pub use crate::outside::answer::{decisions, standing_digest, standing_input};

use crate::moment::Moment;
use crate::refusal::Refusal;
use crate::state::Run;

/// What an outsider says.
#[derive(Debug, Clone)]
pub enum Word {
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
        raise: Option<Raise>,
    },
    /// The account is filled.
    RaiseBudget {
        /// To what.
        raise: Raise,
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
    Surface(ToolSurfaced),
}

/// What an outsider can see of a run: rows, no journal.
#[derive(Debug, Clone, Copy)]
pub struct View {
    /// Which run.
    pub run: RunId,
    /// How it stands.
    pub status: Status,
}

impl View {
    /// What an outsider would see of this run.
    pub fn of(run: &Run) -> Self {
        Self {
            run: run.id,
            status: run.status(),
        }
    }
}

/// Decides what follows from a word: facts of the closed list that every open
/// run accepts, and the rows that go with them.
pub fn tell(view: &View, word: Word, moment: Moment) -> Result<Batch, Refusal> {
    if let Word::Timer(due) = &word {
        return Ok(match timer::ends(due) {
            Some(reason) => timer::spent_with(due, cancel("longhaul".into(), reason)),
            None => timer::due(due),
        });
    }
    if view.status.is_terminal() && !is_late(&word) {
        return Err(Refusal::Ended(view.status));
    }
    match word {
        Word::Answer { gate, answer } => answer::judge(&gate, answer, moment),
        Word::Steer(message) => steer::queue(message),
        Word::ChangeSteer(message) => steer::change(message),
        Word::WithdrawSteer { steer, by } => Ok(steer::withdraw(steer, by)),
        Word::Cancel { by, reason } => Ok(cancel(by, reason)),
        Word::Pause { by } => pause(view, by),
        Word::Resume { by, raise } => Ok(resume(by, raise)),
        Word::RaiseBudget { raise, by } => Ok(Batch {
            events: vec![Event::BudgetRaised(BudgetRaised { raise, by })],
            changes: vec![Change::SetCap(raise)],
        }),
        Word::RevokeRule { rule, by } => Ok(revoke(rule, by)),
        Word::ChildEnded {
            child,
            outcome,
            timer,
        } => Ok(Batch {
            events: vec![Event::ChildEnded(Box::new(ChildEnded { child, outcome }))],
            changes: vec![timer::spend(timer)],
        }),
        Word::Surface(surfaced) => Ok(fact(Event::ToolSurfaced(surfaced))),
        Word::Timer(due) => Ok(timer::due(&due)),
    }
}

/// Whether it is an answer to what was settled before the run ended: then who
/// settled it, and when, says more than that the run has ended.
fn is_late(word: &Word) -> bool {
    let Word::Answer { gate, .. } = word else {
        return false;
    };
    matches!(gate.status, GateStatus::Answered | GateStatus::Expired)
}

fn fact(event: Event) -> Batch {
    Batch {
        events: vec![event],
        changes: Vec::new(),
    }
}

fn cancel(by: String, reason: String) -> Batch {
    fact(Event::RunCancelRequested(RunAsked {
        by,
        reason,
        raise: None,
    }))
}

fn pause(view: &View, by: String) -> Result<Batch, Refusal> {
    if view.status == Status::Paused {
        return Err(Refusal::Already("paused"));
    }
    Ok(fact(Event::RunPauseRequested(RunAsked::by(by))))
}

fn resume(by: String, raise: Option<Raise>) -> Batch {
    let asked = RunAsked {
        raise,
        ..RunAsked::by(by)
    };
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
