//! About to ask the model: is it time, is it allowed, what must be said first.
//!
//! Never: asks. It states that the model is about to be asked.

use longhaul_core::event::Event;
use longhaul_core::event::run::RunRetried;
use longhaul_core::event::steer::Delivery;
use longhaul_core::event::turn::Purpose;
use longhaul_core::status::{Fault, Wait};

use crate::advance::go::Go;
use crate::advance::park::{park, park_until};
use crate::advance::start::start_turn;
use crate::advance::steer::deliver;
use crate::advance::{aside, close};
use crate::draft::Draft;
use crate::refusal::Refusal;
use crate::state::control::{Control, ROOM_TURNS};
use crate::state::stage::{Stage, Thinking};

/// A turn is asked for so often at most, whoever died or failed. A question that
/// kills its worker would otherwise be asked for ever.
const TRIES_MAX: u32 = 64;

/// From this share of the window on the conversation is shortened, before a
/// provider refuses it.
const NEARLY_FULL_PERCENT: u128 = 85;

/// It must have grown by this part of the window since it was shortened.
const GROWN_PART: u64 = 8;

/// With fewer messages there is nothing that could be summed up.
const MESSAGES_MIN: usize = 4;

/// So many times in a row it may be shortened in vain.
const VAIN_MAX: u32 = 2;

pub(super) fn think(draft: &mut Draft<'_>) -> Result<Go, Refusal> {
    let Stage::Thinking(thinking) = &draft.control.stage else {
        return Ok(Go::On);
    };
    let thinking = thinking.clone();
    if let Some(fault) = aside::misfit(&draft.control) {
        return close::fail(draft, fault);
    }
    if let Some(cap) = draft.control.broke {
        return park(draft, Wait::Budget(cap));
    }
    let spoken_to = draft
        .control
        .steers
        .iter()
        .any(|steer| steer.delivery != Delivery::FollowUp);
    if !spoken_to && let Some(wait) = sleeping(&thinking) {
        return park_until(draft, wait.0, wait.1);
    }
    if let Some(attempt) = thinking.retry {
        draft.record(Event::RunRetried(RunRetried { attempt }))?;
        return Ok(Go::On);
    }
    if deliver(draft, |steer| steer.delivery != Delivery::FollowUp)? {
        return Ok(Go::On);
    }
    if thinking.tries >= TRIES_MAX {
        let words = format!("{TRIES_MAX} questions of one turn were never answered");
        let hint = "look why workers die or calls fail, then retry the run";
        return close::fail(draft, Fault::new("lost", words, hint));
    }
    if let Some(fault) = aside::stuck(&draft.control) {
        return close::fail(draft, fault);
    }
    match (thinking.overflow, thinking.shortened) {
        (false, false) if is_nearly_full(draft) => start_turn(draft, Purpose::Compact),
        (false, _) => start_turn(draft, Purpose::Think),
        (true, false) if is_in_vain(&draft.control) => {
            let words = "the conversation fills the model's window again as soon as it is \
                shortened";
            let hint = "use a model with a larger window, or tools that give back less at once";
            close::fail(draft, Fault::new("compaction_thrash", words, hint))
        }
        (true, false) => start_turn(draft, Purpose::Compact),
        (true, true) => {
            let words = "the conversation is too long for the model, also after it was shortened";
            let hint = "use a model with a larger window";
            close::fail(draft, Fault::new("context_overflow", words, hint))
        }
    }
}

/// Whether the next question leaves little of the window, and there is something
/// to sum up. What could not be made shorter is left alone until it has grown.
fn is_nearly_full(draft: &Draft<'_>) -> bool {
    let control = &draft.control;
    let tokens = |bytes| control.tariff.input_tokens(bytes);
    let window = control.tariff.window_tokens;
    let now = tokens(control.bytes);
    let grown = now.saturating_sub(tokens(control.squeezed.bytes));
    u128::from(now) * 100 >= u128::from(window) * NEARLY_FULL_PERCENT
        && grown >= window / GROWN_PART
        && draft.run.transcript.messages().len() >= MESSAGES_MIN
}

/// Whether shortening has come to nothing twice in a row.
const fn is_in_vain(control: &Control) -> bool {
    let squeezed = control.squeezed;
    squeezed.in_row >= VAIN_MAX && control.turns - squeezed.turns < ROOM_TURNS
}

/// What it waits for before it may ask.
fn sleeping(thinking: &Thinking) -> Option<(Wait, longhaul_core::id::TimerId)> {
    let sleep = thinking.sleep.filter(|sleep| !sleep.fired)?;
    let wait = if thinking.limited {
        Wait::RateLimit(sleep.until)
    } else {
        Wait::Retry(sleep.until)
    };
    Some((wait, sleep.timer))
}
