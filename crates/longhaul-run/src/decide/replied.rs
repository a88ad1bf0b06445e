//! The model replied, or was cut off by a person.
//!
//! Never: throws away what was paid for without saying so.

use longhaul_core::change::{Change, Settlement, UsageRow};
use longhaul_core::event::Event;
use longhaul_core::event::turn::{Purpose, TurnCompleted, TurnFailed, TurnInterrupted};
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::time::Millis;
use longhaul_core::usage::{Hold, Micros, Usage};

use crate::advance::advance;
use crate::decide::place::out_of_place;
use crate::draft::Draft;
use crate::input::{CutOff, Replied};
use crate::judge::ending::ending;
use crate::refusal::Refusal;
use crate::state::stage::{Asking, Stage};

/// A call that ended and what it was paid with.
pub(super) struct Paid {
    held: Hold,
    usage: Usage,
    /// What was charged; where the provider does not say it, the list price.
    pub(super) cost: Option<Micros>,
    turns: u32,
}

impl Paid {
    /// The end of the call in flight.
    pub(super) fn of(
        draft: &Draft<'_>,
        usage: Usage,
        cost: Option<Micros>,
    ) -> Result<Self, Refusal> {
        let asking = asking(draft)?;
        let free = (usage.tokens() == 0).then_some(Micros::ZERO);
        let tariff = draft.control.tariff_of(asking);
        let listed = tariff.price.map(|price| price.of(usage));
        Ok(Self {
            held: asking.hold,
            usage,
            cost: cost.or(listed).or(free),
            turns: 0,
        })
    }

    /// Gives back what was held and counts what was used.
    pub(super) fn settle(self, draft: &mut Draft<'_>, model: String, active: Millis) {
        let spent = Hold {
            micros: self.cost.unwrap_or_default(),
            tokens: self.usage.tokens(),
        };
        let settlement = Settlement {
            held: self.held,
            spent,
            lost: Hold::default(),
        };
        draft.change(Change::Settle(settlement));
        draft.change(Change::AddUsage(UsageRow {
            model,
            usage: self.usage,
            cost: self.cost,
            turns: self.turns,
            active,
        }));
    }
}

/// The call in flight, if this driver has one.
pub(super) fn asking<'a>(draft: &'a Draft<'_>) -> Result<&'a Asking, Refusal> {
    if let Stage::Asking(asking) = &draft.control.stage
        && asking.epoch == draft.control.epoch
    {
        return Ok(asking);
    }
    Err(out_of_place(draft, "a model's reply"))
}

pub(super) fn replied(draft: &mut Draft<'_>, replied: Replied) -> Result<(), Refusal> {
    let answered = replied.answered;
    let mut paid = Paid::of(draft, answered.usage, answered.cost)?;
    let turn = asking(draft)?.turn;
    if draft.control.cancel.is_some() {
        return stopped(draft, paid, replied.active);
    }
    let mut done = Box::new(TurnCompleted {
        turn,
        reply: answered.reply,
        stop: answered.stop,
        usage: answered.usage,
        cost: paid.cost,
        model: answered.model.clone(),
        active: replied.active,
        calls: replied.calls,
        fit: replied.fit,
        output: None,
    });
    done.output = ending(&done);
    draft.record(Event::TurnCompleted(done))?;
    paid.turns = 1;
    paid.settle(draft, answered.model, replied.active);
    advance(draft)
}

pub(super) fn interrupted(draft: &mut Draft<'_>, cut: CutOff) -> Result<(), Refusal> {
    let paid = Paid::of(draft, cut.usage, cut.cost)?;
    let Asking { turn, purpose, .. } = *asking(draft)?;
    // Summing up has no words to keep: it begins anew when the message is read.
    if draft.control.cancel.is_some() || purpose == Purpose::Compact {
        return stopped(draft, paid, cut.active);
    }
    draft.record(Event::TurnInterrupted(TurnInterrupted {
        turn,
        text: cut.text,
        usage: cut.usage,
        cost: paid.cost,
        active: cut.active,
    }))?;
    let model = draft.run.transcript.model().to_owned();
    paid.settle(draft, model, cut.active);
    advance(draft)
}

/// After a cancel only closing facts pass: the reply is not needed any more,
/// what it used is counted.
pub(super) fn stopped(draft: &mut Draft<'_>, paid: Paid, active: Millis) -> Result<(), Refusal> {
    let asking = asking(draft)?;
    let (turn, attempt) = (asking.turn, asking.attempt);
    let model = asking.asks(draft.run.transcript.model()).to_owned();
    let why = match draft.control.cancel {
        Some(_) => "the run was cancelled",
        None => "a person wrote",
    };
    let mut failure = Failure::new(FailureClass::Stopped, why);
    failure.usage = Some(paid.usage);
    let charged = Hold {
        micros: paid.cost.unwrap_or_default(),
        tokens: paid.usage.tokens(),
    };
    draft.record(Event::TurnFailed(TurnFailed {
        turn,
        attempt,
        failure,
        active,
        charged,
        cost: paid.cost,
        instead: None,
    }))?;
    paid.settle(draft, model, active);
    advance(draft)
}
