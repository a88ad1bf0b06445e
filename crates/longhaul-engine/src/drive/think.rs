//! Asks the model once and hears it out.
//!
//! Never: asks again. What the heart wants tried again comes as a new step.

use std::panic::AssertUnwindSafe;
use std::pin::pin;

use futures_util::FutureExt as _;
use longhaul_core::event::turn::{Appraisal, Fit, Purpose};
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::port::model::{Answered, Ask, Model};
use longhaul_core::time::Millis;
use longhaul_core::usage::Micros;
use longhaul_run::input::{CutOff, Replied};
use longhaul_run::{Input, Run};
use std::sync::Arc;

use crate::appraise::appraise;
use crate::capsule::Capsule;
use crate::clean::Cleaner;
use crate::drive::attend::{Cut, Ears, First};
use crate::drive::desk::Desk;
use crate::error::Error;
use crate::ports::{Found, Models, NoModel};

/// What came of a question.
pub(super) enum Heard {
    /// A reply, and the secret that each of its calls held.
    Reply(Answered, Vec<Option<String>>),
    /// None, why, and what it cost all the same.
    Failed(Failure, Option<Micros>),
    /// A message cut in after these words.
    CutOff(CutOff),
    /// The run is not ours any more.
    Gone,
}

impl Heard {
    /// The same without secrets: what a provider says is a stranger's word.
    fn clean(self, cleaner: Cleaner<'_>) -> Self {
        match self {
            Self::Reply(answered, _) => {
                let held = cleaner.held_in_calls(&answered.reply);
                Self::Reply(cleaner.answered(answered), held)
            }
            Self::Failed(failure, cost) => Self::Failed(cleaner.failure(failure), cost),
            Self::CutOff(cut) => Self::CutOff(CutOff {
                text: cleaner.words(&cut.text),
                ..cut
            }),
            Self::Gone => Self::Gone,
        }
    }

    /// What is told: of a reply what `made` makes of it; none: nothing is.
    pub(super) fn told(
        self,
        active: Millis,
        made: impl FnOnce(Answered, Vec<Option<String>>) -> Option<Input>,
    ) -> Option<Input> {
        match self {
            Self::Reply(answered, held) => made(answered, held),
            Self::Gone => None,
            Self::Failed(failure, cost) => Some(Input::ModelFailed {
                failure,
                cost,
                active,
            }),
            Self::CutOff(cut) => Some(Input::Interrupted(CutOff { active, ..cut })),
        }
    }
}

/// Asks for the next turn. None: the run is not ours any more.
pub(super) async fn think(desk: &mut Desk, ask: Ask) -> Result<Option<Input>, Error> {
    let (heard, active) = ask_model(desk, ask, Purpose::Think).await?;
    let (calls, fit) = match (&heard, &desk.capsule) {
        (Heard::Reply(answered, held), Some(capsule)) => {
            checked(capsule, desk.ledger.run(), (answered, held)).await
        }
        (Heard::Reply(..), None) => return Ok(None),
        (Heard::Failed(..) | Heard::CutOff(_) | Heard::Gone, _) => (Vec::new(), None),
    };
    Ok(heard.told(active, |answered, _| {
        Some(Input::Replied(Box::new(Replied {
            answered,
            calls,
            fit,
            active,
        })))
    }))
}

/// What the calls of a reply are, and whether it fits what the result must be.
async fn checked(
    capsule: &Capsule,
    run: &Run,
    (answered, held): (&Answered, &[Option<String>]),
) -> (Vec<Appraisal>, Option<Fit>) {
    let mut calls = Vec::with_capacity(held.len());
    for (call, held) in answered.reply.calls().zip(held) {
        calls.push(appraise(capsule, run, (call, held.as_deref())).await);
    }
    let fit = match capsule.contract() {
        Some(contract) => contract.judge(answered, &calls, &*capsule.clock).await,
        None => None,
    };
    (calls, fit)
}

/// Puts a question to the run's model, and says how long it took.
pub(super) async fn ask_model(
    desk: &mut Desk,
    ask: Ask,
    purpose: Purpose,
) -> Result<(Heard, Millis), Error> {
    let begun = desk.ports.clock.nanos();
    let heard = put(desk, ask, purpose).await?;
    let heard = heard.clean(Cleaner(&*desk.ports.redact));
    let took = desk.ports.clock.nanos().saturating_sub(begun) / 1_000_000;
    Ok((heard, Millis(took)))
}

async fn put(desk: &mut Desk, ask: Ask, purpose: Purpose) -> Result<Heard, Error> {
    let Some(capsule) = desk.capsule.clone() else {
        return Ok(Heard::Gone);
    };
    // Its start is journaled; a worker that stops lets go of it unasked.
    if desk.stop.is_draining() {
        return Ok(Heard::Failed(stopped(), None));
    }
    let ask = desk.spell_out(ask).await?;
    // The last wait before the question: what is read after this may take so
    // long that the run is another's by then.
    if !desk.lease.may_begin().await {
        return Ok(Heard::Gone);
    }
    let ear = desk.ports.feed.ear(&ask, Arc::clone(&desk.ports.redact));
    let found = match found(&capsule, &*desk.ports.models, (&ask.model, purpose)) {
        Ok(found) => found,
        Err(failure) => return Ok(Heard::Failed(failure, None)),
    };
    let question = AssertUnwindSafe(found.model.reply(&ask, &ear)).catch_unwind();
    let question = pin!(question);
    let mut ears = Ears {
        hears_messages: true,
        ..Ears::new(&mut desk.ledger, &desk.lease, &desk.stop)
    };
    Ok(match ears.attend(question).await? {
        First::Done(Ok(Ok(answered))) => Heard::Reply(answered, Vec::new()),
        First::Done(Ok(Err(failure))) => {
            let cost = cost(&*found.model, &ask, &failure);
            Heard::Failed(failure, cost)
        }
        First::Done(Err(_)) => {
            let words = format!("the adapter of {} panicked", found.name);
            Heard::Failed(Failure::new(FailureClass::Server, words), None)
        }
        First::Cut(Cut::Cancelled | Cut::Stopping) => Heard::Failed(stopped(), None),
        First::Cut(Cut::Interrupted) => cut_off(&*found.model, &ask, ear.text()),
        First::Cut(Cut::Lost) => Heard::Gone,
    })
}

/// The model that is asked: one of the run's own, or who sums up for it. Nobody
/// else is asked in the place of that one: what is held was reckoned for it.
fn found(
    capsule: &Capsule,
    models: &dyn Models,
    (name, purpose): (&str, Purpose),
) -> Result<Found, Failure> {
    let own = capsule.models().iter().find(|found| found.name == name);
    if let Some(own) = own {
        return Ok(own.clone());
    }
    let missing = |why: NoModel| Failure::new(FailureClass::InvalidRequest, why.to_string());
    match (models.find(Some(name)), purpose) {
        (Ok(found), _) => Ok(found),
        (Err(why), Purpose::Compact) => Err(missing(why)),
        (Err(why), Purpose::Think) => {
            let stands_in = capsule.model(name).cloned();
            stands_in.ok_or_else(|| missing(why))
        }
    }
}

fn stopped() -> Failure {
    Failure::new(FailureClass::Stopped, "the question was taken back")
}

/// What a failed call cost at the price of the model that was asked: where a run has
/// several, the heart knows only that of the dearest.
fn cost(model: &dyn Model, ask: &Ask, failure: &Failure) -> Option<Micros> {
    let usage = failure.usage.filter(|usage| usage.tokens() > 0)?;
    let price = model.quote(ask).tariff.price?;
    Some(price.of(usage))
}

/// What was said and used until a message cut in, as far as one can guess.
fn cut_off(model: &dyn Model, ask: &Ask, text: Arc<str>) -> Heard {
    let tariff = model.quote(ask).tariff;
    let usage = tariff.estimate(ask.bytes(), text.len() as u64);
    Heard::CutOff(CutOff {
        text,
        usage,
        cost: tariff.price.map(|price| price.of(usage)),
        active: Millis::ZERO,
    })
}
