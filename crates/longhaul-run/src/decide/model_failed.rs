//! The model did not reply: try the call again, try the run again, or end.
//!
//! Never: sleeps. A wait is a row and a timer.

use longhaul_core::change::{Change, Settlement, UsageRow};
use longhaul_core::event::Event;
use longhaul_core::event::run::RunRetryScheduled;
use longhaul_core::event::turn::TurnFailed;
use longhaul_core::failure::{Failure, FailureClass};
use longhaul_core::policy::retry::call_delay;
use longhaul_core::status::{RunError, Wait};
use longhaul_core::time::Millis;
use longhaul_core::usage::{Hold, MicroUsd};

use crate::advance::{advance, fail, park_until};
use crate::decide::model_replied::expect_model_call;
use crate::decide::release::release;
use crate::decision::DecisionBuilder;
use crate::rejection::Rejection;
use crate::state::stage::Stage;

/// A provider that wants to be left alone for longer is not waited for when
/// another model can be asked.
const FALLBACK_WAIT_MAX: Millis = Millis::from_secs(30);

pub(super) fn model_failed(
    draft: &mut DecisionBuilder<'_>,
    failure: Failure,
    cost: Option<MicroUsd>,
    active: Millis,
) -> Result<(), Rejection> {
    let class = failure.class;
    let stops = draft.control.cancel.is_some() || draft.control.pending_failure.is_some();
    let instead = match stops {
        true => None,
        false => fallback_model(draft, &failure),
    };
    let turns = instead.is_some() || may_continue_without(draft, &failure);
    record_failure(draft, &failure, (active, cost, instead))?;
    // The driver let go of its call without being told to by a cancel: it drains.
    if class == FailureClass::Stopped && !stops && draft.control.pause.is_none() {
        return release(draft);
    }
    if stops || turns || class == FailureClass::ContextOverflow || !class.counts_as_attempt() {
        return advance(draft);
    }
    // A conversation that nobody can shorten is too long: that is what ends the run.
    if draft.control.pending_failure.is_some() && class == FailureClass::Refused {
        return advance(draft);
    }
    let Stage::ModelPending(thinking) = &draft.control.stage else {
        return advance(draft);
    };
    // What need not be done counts as no failure of the run's; it is waited for all the same.
    let failures = thinking.failures.max(1);
    if let Some(delay) = call_delay(draft.run.id, failures, &failure) {
        return schedule_retry(draft, delay, class);
    }
    let again = draft.control.policy.retry.delay_after(draft.control.attempt);
    match again.filter(|_| class.is_transient()) {
        Some(after) => {
            let after = Millis(after.0.max(failure.retry_after.unwrap_or(Millis::ZERO).0));
            let attempt = draft.control.attempt + 1;
            let scheduled = RunRetryScheduled { attempt, delay: after, class };
            draft.record(Event::RunRetryScheduled(scheduled))?;
            schedule_retry(draft, after, class)
        }
        None => fail(draft, run_error(&failure)).map(|_| ()),
    }
}

/// The model to ask in the place of the one that failed, if that one is not worth
/// waiting for and there is another. A conversation that is too long is shortened.
fn fallback_model(draft: &DecisionBuilder<'_>, failure: &Failure) -> Option<String> {
    let other = draft.run.transcript.next_fallback()?;
    let class = failure.class;
    let Stage::ModelRunning(asking) = &draft.control.stage else {
        return None;
    };
    if class == FailureClass::ContextOverflow
        || !class.counts_as_attempt()
        || may_continue_without(draft, failure)
    {
        return None;
    }
    let delay = call_delay(draft.run.id, asking.failures + 1, failure);
    let is_patient = delay.is_some_and(|delay| delay <= FALLBACK_WAIT_MAX);
    (!is_patient).then(|| other.to_owned())
}

/// Whether the run goes on at once whatever became of the call: the conversation
/// need not be shortened yet, or its own model can do it. A model that wants to be
/// left alone is: what would be asked next, it would be asked.
fn may_continue_without(draft: &DecisionBuilder<'_>, failure: &Failure) -> bool {
    let Stage::ModelRunning(asking) = &draft.control.stage else {
        return false;
    };
    let own = draft.run.transcript.model();
    let is_own = asking.model_or(own) == own;
    (asking.is_early_compaction() || asking.model.is_some()) && !(is_own && is_throttled(failure))
}

/// Whether the provider wants fewer requests, or says when it can be asked again.
fn is_throttled(failure: &Failure) -> bool {
    let limits = matches!(failure.class, FailureClass::RateLimit | FailureClass::Overloaded);
    limits || (failure.class.is_transient() && failure.retry_after.is_some())
}

/// Writes the failure down with its time, its cost and the model that is asked instead,
/// and settles what was held.
fn record_failure(
    draft: &mut DecisionBuilder<'_>,
    failure: &Failure,
    (active, cost, instead): (Millis, Option<MicroUsd>, Option<String>),
) -> Result<(), Rejection> {
    let asking = expect_model_call(draft)?;
    let (turn, attempt, held) = (asking.turn, asking.attempt, asking.hold);
    let usage = failure.usage.unwrap_or_default();
    let price = draft.control.pricing_for(asking).price;
    let micros = cost.or(price.map(|price| price.cost(usage)));
    let asked = asking.model_or(draft.run.transcript.model()).to_owned();
    let charged = Hold { micro_usd: micros.unwrap_or_default(), tokens: usage.tokens() };
    let failure = failure.clone();
    draft.record(Event::TurnFailed(TurnFailed {
        turn,
        attempt,
        failure,
        active,
        charged,
        cost,
        fallback_model: instead,
    }))?;
    draft.change(Change::Settle(Settlement { held, spent: charged, lost: Hold::default() }));
    let used = usage.tokens() > 0;
    let model = if used { asked } else { String::new() };
    draft.change(Change::AddUsage(UsageRow { model, usage, cost: micros, turns: 0, active }));
    Ok(())
}

fn schedule_retry(
    draft: &mut DecisionBuilder<'_>,
    delay: Millis,
    class: FailureClass,
) -> Result<(), Rejection> {
    if draft.control.pause.is_some() {
        return advance(draft);
    }
    let until = draft.ctx.now.plus(delay);
    let timer = draft.wake_after("retry", delay);
    let wait =
        if class == FailureClass::RateLimit { Wait::RateLimit(until) } else { Wait::Retry(until) };
    park_until(draft, wait, timer).map(|_| ())
}

fn run_error(failure: &Failure) -> RunError {
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
    RunError::new(failure.class.as_str(), failure.message.clone(), hint)
}
