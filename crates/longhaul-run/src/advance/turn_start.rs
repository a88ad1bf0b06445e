//! The start of a turn, within every cap.
//!
//! Never: a start that is not paid for. The worst case is held before the
//! request leaves, and a store that can't hold it refuses the whole batch.

use std::ops::ControlFlow;

use longhaul_core::change::Change;
use longhaul_core::event::Event;
use longhaul_core::event::environment::{BudgetReached, BudgetWarned};
use longhaul_core::event::run::Compactor;
use longhaul_core::event::turn::{ModelCallPurpose, TurnStarted};
use longhaul_core::policy::budget::Cap;
use longhaul_core::status::RunError;
use longhaul_core::usage::{ModelPricing, RemainingBudget};

use crate::advance::finish;
use crate::advance::runtime_message::{needs_perception_refresh, runtime_messages};
use crate::decision::DecisionBuilder;
use crate::rejection::Rejection;
use crate::state::control::Control;
use crate::state::stage::{ModelPending, Stage};

/// A reply that may have fewer tokens than this is not worth asking for.
const REPLY_TOKENS_MIN: u64 = 1_024;

/// The longest summary that is paid for.
const SUMMARY_TOKENS_MAX: u64 = 16_384;

pub(super) fn start_turn(
    draft: &mut DecisionBuilder<'_>,
    purpose: ModelCallPurpose,
) -> Result<ControlFlow<()>, Rejection> {
    if let Some(max) = draft.control.policy.max_turns
        && draft.control.turns >= max
    {
        let words = match max {
            1 => "the run has made the 1 turn it may make".to_owned(),
            max => format!("the run has made the {max} turns it may make"),
        };
        let hint = "raise max_turns in the agent's file";
        return finish::fail(draft, RunError::new("turn_limit", words, hint));
    }
    if let Some(cap) = exhausted_cap(&draft.control) {
        draft.record(Event::BudgetReached(BudgetReached { cap }))?;
        return Ok(ControlFlow::Continue(()));
    }
    if let Some(cap) = cap_to_warn(&draft.control) {
        return warn(draft, cap);
    }
    let Stage::ModelPending(thinking) = &draft.control.stage else {
        return Ok(ControlFlow::Continue(()));
    };
    let thinks = purpose == ModelCallPurpose::Turn;
    // The world is looked at outside; the turn starts when it was.
    if thinks
        && draft.perception_refresh.is_none()
        && needs_perception_refresh(&draft.control, thinking)
    {
        return Ok(ControlFlow::Break(()));
    }
    let attempt = thinking.attempts + 1;
    let (tariff, model) = model_and_pricing(&draft.control, thinking, purpose);
    let asides = if thinks { runtime_messages(draft) } else { Vec::new() };
    let said = asides.iter().map(|aside| aside.text.len() as u64);
    let bytes = draft.control.transcript_bytes + said.sum::<u64>();
    // Providers refuse a question whose longest reply does not fit into the window.
    let room = tariff.window_tokens;
    let room = room.saturating_sub(tariff.input_tokens(bytes));
    let mut max_tokens = tariff.max_output_tokens.min(room.max(REPLY_TOKENS_MIN));
    let mut hold = tariff.hold(bytes, max_tokens);
    if let Some(left) = draft.ctx.remaining_budget.filter(|left| !left.covers(hold)) {
        let short = if left.micro_usd.is_some_and(|left| hold.micro_usd > left) {
            Cap::Money
        } else {
            Cap::Tokens
        };
        match affordable_reply_tokens(&tariff, bytes, left) {
            Some(_) if !draft.control.warned.contains(&short) => return warn(draft, short),
            Some(tokens) => {
                max_tokens = tokens;
                hold = tariff.hold(bytes, max_tokens);
            }
            None => {
                draft.record(Event::BudgetReached(BudgetReached { cap: short }))?;
                return Ok(ControlFlow::Continue(()));
            }
        }
    }
    let turn = draft.control.turn + 1;
    let look = draft.perception_refresh.take().filter(|_| thinks);
    let seen = look.and_then(|look| look.update);
    draft.record(Event::TurnStarted(TurnStarted {
        turn,
        attempt,
        purpose,
        hold,
        max_tokens,
        model,
        runtime_messages: asides,
        perception: seen,
    }))?;
    draft.change(Change::Hold(hold));
    Ok(ControlFlow::Break(()))
}

/// What the model charges that is asked, and its name where it is not the run's own.
fn model_and_pricing(
    control: &Control,
    thinking: &ModelPending,
    purpose: ModelCallPurpose,
) -> (ModelPricing, Option<String>) {
    match purpose {
        ModelCallPurpose::Turn => (control.pricing, None),
        ModelCallPurpose::Compact => {
            let helper = usable_compactor(control, thinking);
            let mut tariff = helper.map_or(control.pricing, |helper| helper.pricing);
            tariff.max_output_tokens = tariff.max_output_tokens.min(SUMMARY_TOKENS_MAX);
            (tariff, helper.map(|helper| helper.model.clone()))
        }
    }
}

/// Who sums the conversation up in the place of the run's own model: it must be
/// able to read all of it.
fn usable_compactor<'a>(control: &'a Control, thinking: &ModelPending) -> Option<&'a Compactor> {
    let helper = control.compactor.as_deref();
    helper.filter(|helper| {
        let needs = helper.pricing.input_tokens(control.transcript_bytes);
        !thinking.compactor_failed
            && needs.saturating_add(SUMMARY_TOKENS_MAX) <= helper.pricing.window_tokens
    })
}

/// The cap of this run alone that is used up.
fn exhausted_cap(control: &Control) -> Option<Cap> {
    let turns = control.caps.turns.filter(|cap| control.turns >= *cap);
    let active = control.caps.active.filter(|cap| control.totals.active >= *cap);
    turns.map(|_| Cap::Turns).or_else(|| active.map(|_| Cap::ActiveTime))
}

/// The cap of which so much is used that the agent should wrap up, and does not
/// know it yet. Of money and tokens the run knows its own share of the tree.
fn cap_to_warn(control: &Control) -> Option<Cap> {
    let caps = &control.caps;
    let sums = &control.totals;
    let money = sums.cost.plus(sums.lost.micro_usd).0;
    let tokens = sums.usage.tokens().saturating_add(sums.lost.tokens);
    let shares = [
        (Cap::Turns, u64::from(control.turns), caps.turns.map(u64::from)),
        (Cap::ActiveTime, sums.active.0, caps.active.map(|cap| cap.0)),
        (Cap::Money, money, caps.micro_usd.map(|cap| cap.0)),
        (Cap::Tokens, tokens, caps.tokens),
    ];
    let warn_at = u128::from(caps.warn_percent);
    shares.into_iter().find_map(|(cap, used, of)| {
        let near = u128::from(used) * 100 >= u128::from(of?) * warn_at && used > 0;
        (near && !control.warned.contains(&cap)).then_some(cap)
    })
}

fn warn(draft: &mut DecisionBuilder<'_>, cap: Cap) -> Result<ControlFlow<()>, Rejection> {
    let what = match cap {
        Cap::Money => "money",
        Cap::Tokens => "tokens",
        Cap::Turns => "turns",
        Cap::ActiveTime => "time",
    };
    let words = format!(
        "[longhaul] Little is left of the budget of {what}. Bring the work to a good end now: \
         finish what is half done, and say what is left."
    );
    draft.record(Event::BudgetWarned(BudgetWarned { cap, message: words }))?;
    Ok(ControlFlow::Continue(()))
}

/// The longest reply that what is left pays for, if that is long enough.
fn affordable_reply_tokens(
    tariff: &ModelPricing,
    bytes: u64,
    left: RemainingBudget,
) -> Option<u64> {
    let fits = |tokens: &u64| left.covers(tariff.hold(bytes, *tokens));
    let (mut low, mut high) = (REPLY_TOKENS_MIN, tariff.max_output_tokens);
    if high < low || !fits(&low) {
        return None;
    }
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if fits(&middle) { low = middle } else { high = middle - 1 }
    }
    Some(low)
}
