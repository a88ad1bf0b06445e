//! The model did not reply: try the call again, try the run again, or end.
//!
//! Never: sleeps. A wait is a row and a timer.

use longhaul_core::change::{Change, Settlement, UsageRow};
use longhaul_core::event::Event;
use longhaul_core::event::run::RunRetryScheduled;
use longhaul_core::event::turn::TurnFailed;
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::policy::retry::call_delay;
use longhaul_core::status::{Fault, Wait};
use longhaul_core::time::Millis;
use longhaul_core::usage::{Hold, Micros};

use crate::advance::{advance, fail, park_until};
use crate::decide::place::release;
use crate::decide::replied::asking;
use crate::draft::Draft;
use crate::refusal::Refusal;
use crate::state::stage::Stage;

/// A provider that wants to be left alone for longer is not waited for when
/// another model can be asked.
const PATIENCE: Millis = Millis::from_secs(30);

pub(super) fn failed(
    draft: &mut Draft<'_>,
    failure: Failure,
    cost: Option<Micros>,
    active: Millis,
) -> Result<(), Refusal> {
    let class = failure.class;
    let stops = draft.control.cancel.is_some() || draft.control.doom.is_some();
    let instead = match stops {
        true => None,
        false => fallback(draft, &failure),
    };
    let turns = instead.is_some() || is_no_loss(draft, &failure);
    note(draft, &failure, (active, cost, instead))?;
    // The driver let go of its call without being told to by a cancel: it drains.
    if class == FailureClass::Stopped && !stops && draft.control.pause.is_none() {
        return release(draft);
    }
    if stops || turns || class == FailureClass::ContextOverflow || !class.counts() {
        return advance(draft);
    }
    // A conversation that nobody can shorten is too long: that is what ends the run.
    if draft.control.doom.is_some() && class == FailureClass::Refused {
        return advance(draft);
    }
    let Stage::Thinking(thinking) = &draft.control.stage else {
        return advance(draft);
    };
    // What need not be done counts as no failure of the run's; it is waited for all the same.
    let failures = thinking.failures.max(1);
    if let Some(delay) = call_delay(draft.run.id, failures, &failure) {
        return sleep(draft, delay, class);
    }
    let again = draft.control.policy.retry.after(draft.control.attempt);
    match again.filter(|_| class.may_pass()) {
        Some(after) => {
            let after = Millis(after.0.max(failure.retry_after.unwrap_or(Millis::ZERO).0));
            let attempt = draft.control.attempt + 1;
            let scheduled = RunRetryScheduled {
                attempt,
                after,
                class,
            };
            draft.record(Event::RunRetryScheduled(scheduled))?;
            sleep(draft, after, class)
        }
        None => fail(draft, fault(&failure)).map(|_| ()),
    }
}

/// The model to ask in the place of the one that failed, if that one is not worth
/// waiting for and there is another. A conversation that is too long is shortened.
fn fallback(draft: &Draft<'_>, failure: &Failure) -> Option<String> {
    let other = draft.run.transcript.fallback()?;
    let class = failure.class;
    let Stage::Asking(asking) = &draft.control.stage else {
        return None;
    };
    if class == FailureClass::ContextOverflow || !class.counts() || is_no_loss(draft, failure) {
        return None;
    }
    let delay = call_delay(draft.run.id, asking.failures + 1, failure);
    let is_patient = delay.is_some_and(|delay| delay <= PATIENCE);
    (!is_patient).then(|| other.to_owned())
}

/// Whether the run goes on at once whatever became of the call: the conversation
/// need not be shortened yet, or its own model can do it. A model that wants to be
/// left alone is: what would be asked next, it would be asked.
fn is_no_loss(draft: &Draft<'_>, failure: &Failure) -> bool {
    let Stage::Asking(asking) = &draft.control.stage else {
        return false;
    };
    let own = draft.run.transcript.model();
    let is_own = asking.asks(own) == own;
    (asking.is_early() || asking.model.is_some()) && !(is_own && wants_rest(failure))
}

/// Whether the provider wants fewer requests, or says when it can be asked again.
fn wants_rest(failure: &Failure) -> bool {
    let limits = matches!(
        failure.class,
        FailureClass::RateLimit | FailureClass::Overloaded
    );
    limits || (failure.class.may_pass() && failure.retry_after.is_some())
}

/// Writes the failure down with its time, its cost and the model that is asked instead,
/// and settles what was held.
fn note(
    draft: &mut Draft<'_>,
    failure: &Failure,
    (active, cost, instead): (Millis, Option<Micros>, Option<String>),
) -> Result<(), Refusal> {
    let asking = asking(draft)?;
    let (turn, attempt, held) = (asking.turn, asking.attempt, asking.hold);
    let usage = failure.usage.unwrap_or_default();
    let price = draft.control.tariff_of(asking).price;
    let micros = cost.or(price.map(|price| price.of(usage)));
    let asked = asking.asks(draft.run.transcript.model()).to_owned();
    let charged = Hold {
        micros: micros.unwrap_or_default(),
        tokens: usage.tokens(),
    };
    let failure = failure.clone();
    draft.record(Event::TurnFailed(TurnFailed {
        turn,
        attempt,
        failure,
        active,
        charged,
        cost,
        instead,
    }))?;
    draft.change(Change::Settle(Settlement {
        held,
        spent: charged,
        lost: Hold::default(),
    }));
    let used = usage.tokens() > 0;
    let model = if used { asked } else { String::new() };
    draft.change(Change::AddUsage(UsageRow {
        model,
        usage,
        cost: micros,
        turns: 0,
        active,
    }));
    Ok(())
}

fn sleep(draft: &mut Draft<'_>, delay: Millis, class: FailureClass) -> Result<(), Refusal> {
    if draft.control.pause.is_some() {
        return advance(draft);
    }
    let until = draft.moment.now.plus(delay);
    let timer = draft.wake_after("retry", delay);
    let wait = if class == FailureClass::RateLimit {
        Wait::RateLimit(until)
    } else {
        Wait::Retry(until)
    };
    park_until(draft, wait, timer).map(|_| ())
}

fn fault(failure: &Failure) -> Fault {
    let hint = match failure.class {
        FailureClass::Auth => "check the provider's key",
        FailureClass::Quota => "check the provider's account",
        FailureClass::InvalidRequest => "look at the request with `longhaul show --events`",
        FailureClass::Refused => "change the task or the model",
        FailureClass::ContextOverflow => "use a model with a larger window",
        FailureClass::RateLimit
        | FailureClass::Overloaded
        | FailureClass::Timeout
        | FailureClass::Network
        | FailureClass::Server
        | FailureClass::Lost
        | FailureClass::Stopped => "submit the task again later",
    };
    Fault::new(failure.class.as_str(), failure.message.clone(), hint)
}
