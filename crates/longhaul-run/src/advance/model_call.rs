//! About to ask the model: is it time, is it allowed, what must be said first.
//!
//! Never: asks. It states that the model is about to be asked.

use std::ops::ControlFlow;

use longhaul_core::event::Event;
use longhaul_core::event::run::RunRetried;
use longhaul_core::event::steer::Delivery;
use longhaul_core::event::turn::ModelCallPurpose;
use longhaul_core::status::{RunError, Wait};

use crate::advance::park::{park, park_until};
use crate::advance::steer::deliver;
use crate::advance::turn_start::start_turn;
use crate::advance::{finish, runtime_message};
use crate::decision::DecisionBuilder;
use crate::rejection::Rejection;
use crate::state::control::{COMPACTION_TURNS_MIN, Control};
use crate::state::stage::{ModelPending, Stage};

/// A turn is asked for so often at most, whoever died or failed. A question that
/// kills its worker would otherwise be asked for ever.
const TURN_ATTEMPTS_MAX: u32 = 64;

/// From this share of the window on the conversation is shortened, before a
/// provider refuses it.
const COMPACTION_THRESHOLD_PERCENT: u128 = 85;

/// It must have grown by this part of the window since it was shortened.
const COMPACTION_GROWTH_DIVISOR: u64 = 8;

/// With fewer messages there is nothing that could be summed up.
const COMPACTION_MESSAGES_MIN: usize = 4;

/// So many times in a row it may be shortened in vain.
const FUTILE_COMPACTIONS_MAX: u32 = 2;

pub(super) fn advance_model(draft: &mut DecisionBuilder<'_>) -> Result<ControlFlow<()>, Rejection> {
    let Stage::ModelPending(thinking) = &draft.control.stage else {
        return Ok(ControlFlow::Continue(()));
    };
    let thinking = thinking.clone();
    if let Some(fault) = runtime_message::invalid_output_error(&draft.control) {
        return finish::fail(draft, fault);
    }
    if let Some(cap) = draft.control.exhausted_cap {
        return park(draft, Wait::Budget(cap));
    }
    let spoken_to = draft.control.steers.iter().any(|steer| steer.delivery != Delivery::FollowUp);
    if !spoken_to && let Some(wait) = pending_wait(&thinking) {
        return park_until(draft, wait.0, wait.1);
    }
    if let Some(attempt) = thinking.retry_attempt {
        draft.record(Event::RunRetried(RunRetried { attempt }))?;
        return Ok(ControlFlow::Continue(()));
    }
    if deliver(draft, |steer| steer.delivery != Delivery::FollowUp)? {
        return Ok(ControlFlow::Continue(()));
    }
    if thinking.attempts >= TURN_ATTEMPTS_MAX {
        let words = format!("{TURN_ATTEMPTS_MAX} questions of one turn were never answered");
        let hint = "look why workers die or calls fail, then retry the run";
        return finish::fail(draft, RunError::new("lost", words, hint));
    }
    if let Some(fault) = runtime_message::loop_error(&draft.control) {
        return finish::fail(draft, fault);
    }
    match (thinking.must_compact, thinking.compacted) {
        (false, false) if is_window_nearly_full(draft) => {
            start_turn(draft, ModelCallPurpose::Compact)
        }
        (false, _) => start_turn(draft, ModelCallPurpose::Turn),
        (true, false) if is_compaction_futile(&draft.control) => {
            let words = "the conversation fills the model's window again as soon as it is \
                shortened";
            let hint = "use a model with a larger window, or tools that give back less at once";
            finish::fail(draft, RunError::new("compaction_thrash", words, hint))
        }
        (true, false) => start_turn(draft, ModelCallPurpose::Compact),
        (true, true) => {
            let words = "the conversation is too long for the model, also after it was shortened";
            let hint = "use a model with a larger window";
            finish::fail(draft, RunError::new("context_overflow", words, hint))
        }
    }
}

/// Whether the next question leaves little of the window, and there is something
/// to sum up. What could not be made shorter is left alone until it has grown.
fn is_window_nearly_full(draft: &DecisionBuilder<'_>) -> bool {
    let control = &draft.control;
    let tokens = |bytes| control.pricing.input_tokens(bytes);
    let window = control.pricing.window_tokens;
    let now = tokens(control.transcript_bytes);
    let grown = now.saturating_sub(tokens(control.compaction.remaining_bytes));
    u128::from(now) * 100 >= u128::from(window) * COMPACTION_THRESHOLD_PERCENT
        && grown >= window / COMPACTION_GROWTH_DIVISOR
        && draft.run.transcript.messages().len() >= COMPACTION_MESSAGES_MIN
}

/// Whether shortening has come to nothing twice in a row.
const fn is_compaction_futile(control: &Control) -> bool {
    let squeezed = control.compaction;
    squeezed.consecutive >= FUTILE_COMPACTIONS_MAX
        && control.turns - squeezed.last_turns < COMPACTION_TURNS_MIN
}

/// What it waits for before it may ask.
fn pending_wait(thinking: &ModelPending) -> Option<(Wait, longhaul_core::id::TimerId)> {
    let sleep = thinking.pending_timer.filter(|sleep| !sleep.fired)?;
    let wait =
        if thinking.rate_limited { Wait::RateLimit(sleep.until) } else { Wait::Retry(sleep.until) };
    Some((wait, sleep.timer))
}
