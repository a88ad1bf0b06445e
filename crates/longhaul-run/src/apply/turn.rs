//! Facts about asking the model, taken in.
//!
//! Never: decides what a failure means.

use std::sync::Arc;

use longhaul_core::event::turn::{
    About, Aside, Fit, Purpose, TurnCompleted, TurnFailed, TurnInterrupted, TurnStarted,
};
use longhaul_core::failure::FailureClass;
use longhaul_core::id::CallId;
use longhaul_core::message::{Message, StopReason};
use longhaul_core::status::Fault;
use longhaul_core::time::Millis;
use longhaul_core::usage::{Hold, Micros, Usage};

use crate::apply::{SILENT, Said};
use crate::judge::output::{output_of, output_of_data};
use crate::state::call::{Call, CallState};
use crate::state::control::{Control, ROOM_TURNS};
use crate::state::stage::{Acting, Asking, Concluding, Stage, Thinking};

/// What the result of a call that the token limit cut off says.
const CUT_OFF: &str = "not run: the reply was cut off by the token limit";

/// What a model reads that was cut off for a message that was taken back.
const GO_ON: &str = "[longhaul] You were cut off. Go on.";

impl Control {
    pub(super) fn turn_started(&mut self, data: &TurnStarted) -> Said {
        let Stage::Thinking(thinking) = &self.stage else {
            return Err("the model is asked when nothing else is under way");
        };
        if self.cancel.is_some() {
            return Err("a run that is being cancelled starts nothing");
        }
        if data.turn != self.turn + 1 || data.attempt != thinking.tries + 1 {
            return Err("turns and their tries are counted without a gap");
        }
        self.stage = Stage::Asking(Asking {
            turn: data.turn,
            attempt: data.attempt,
            failures: thinking.failures,
            epoch: self.epoch,
            purpose: data.purpose,
            hold: data.hold,
            max_tokens: data.max_tokens,
            shortened: thinking.shortened,
            model: data.model.clone(),
            forced: thinking.overflow,
            unhelped: thinking.unhelped,
            looked: thinking.looked || data.purpose == Purpose::Think,
        });
        self.sums.held = data.hold;
        // Whoever cut the model off may have taken the message back: then
        // something must still be said, because the model's words can't be last.
        let cut_off = std::mem::take(&mut self.cut_off);
        let go_on = (cut_off && data.asides.is_empty()).then(|| Message::user(GO_ON));
        Ok(go_on.into_iter().chain(self.told(&data.asides)).collect())
    }

    /// What the runtime tells the model with a turn.
    fn told(&mut self, asides: &[Aside]) -> Vec<Message> {
        for aside in asides {
            match aside.about {
                About::Output => self.misfits.tell(),
                About::Circles => self.circles = self.circles.told(),
                About::World => {}
            }
        }
        let words = asides
            .iter()
            .map(|aside| Message::user(Arc::clone(&aside.text)));
        words.collect()
    }

    fn asking(&self, turn: u32, purpose: Purpose) -> Result<&Asking, &'static str> {
        let Stage::Asking(asking) = &self.stage else {
            return Err("no turn is under way");
        };
        match asking.turn == turn && asking.purpose == purpose {
            true => Ok(asking),
            false => Err("another turn is under way"),
        }
    }

    fn used(&mut self, usage: Usage, cost: Option<Micros>, active: Millis) {
        self.sums.usage = self.sums.usage.plus(usage);
        self.sums.cost = self.sums.cost.plus(cost.unwrap_or_default());
        self.sums.unpriced |= cost.is_none();
        self.sums.active = self.sums.active.plus(active);
        self.sums.held = Hold::default();
    }

    pub(super) fn turn_completed(&mut self, data: &TurnCompleted) -> Said {
        self.asking(data.turn, Purpose::Think)?;
        if data.reply.calls().count() != data.calls.len() {
            return Err("every call of a reply is appraised");
        }
        self.used(data.usage, data.cost, data.active);
        self.turns += 1;
        self.turn = data.turn;
        self.stage = after_reply(data);
        self.misfits.judge(data);
        if let Some(fault) = doom(data) {
            self.doom = Some(fault);
        }
        // No provider takes a message without words back.
        if data.reply.blocks.is_empty() {
            return SILENT;
        }
        Ok(vec![Message::Assistant(Arc::clone(&data.reply))])
    }

    pub(super) fn turn_failed(&mut self, data: &TurnFailed) -> Said {
        let Stage::Asking(asking) = self.stage.clone() else {
            return Err("no turn is under way");
        };
        if asking.turn != data.turn {
            return Err("another turn is under way");
        }
        let class = data.failure.class;
        let given_up = class.counts() && !class.may_pass() && data.instead.is_none();
        let helped = asking.model.is_some();
        let must = asking.purpose == Purpose::Compact && asking.forced;
        if must && given_up && !helped {
            let words = format!(
                "the conversation could not be shortened: {}",
                data.failure.message
            );
            self.doom = Some(Fault::new(
                "context_overflow",
                words,
                "use a model with a larger window",
            ));
        }
        if asking.is_early() && class.counts() && !helped {
            // The run goes on with what it has, and tries again when that has grown.
            self.squeezed.bytes = self.bytes;
        }
        let too_long = class == FailureClass::ContextOverflow;
        let overflow = must || (too_long && asking.purpose == Purpose::Think);
        // Who sums up is another model, and what it fails at is no failure of the run's.
        let counts = class.counts() && !helped && !asking.is_early();
        self.stage = Stage::Thinking(Thinking {
            tries: data.attempt,
            // Another model has failed at nothing yet.
            failures: match data.instead {
                Some(_) => 0,
                None => asking.failures + u32::from(counts),
            },
            sleep: None,
            limited: data.failure.class == FailureClass::RateLimit,
            retry: None,
            overflow,
            shortened: asking.shortened,
            unhelped: asking.unhelped || (helped && class.counts()),
            looked: asking.looked,
        });
        self.sums.held = Hold::default();
        self.sums.active = self.sums.active.plus(data.active);
        if data.failure.class == FailureClass::Lost {
            self.sums.lost.micros = self.sums.lost.micros.plus(data.charged.micros);
            self.sums.lost.tokens = self.sums.lost.tokens.saturating_add(data.charged.tokens);
        } else {
            self.sums.usage = self.sums.usage.plus(data.failure.usage.unwrap_or_default());
            self.sums.cost = self.sums.cost.plus(data.charged.micros);
            let used = data.failure.usage.unwrap_or_default().tokens() > 0;
            let is_priced = data.cost.is_some() || self.tariff_of(&asking).price.is_some();
            self.sums.unpriced |= used && !is_priced;
        }
        SILENT
    }

    pub(super) fn turn_interrupted(&mut self, data: &TurnInterrupted) -> Said {
        self.asking(data.turn, Purpose::Think)?;
        self.used(data.usage, data.cost, data.active);
        self.turn = data.turn;
        self.stage = Stage::Thinking(Thinking::default());
        if data.text.trim().is_empty() {
            return SILENT;
        }
        self.cut_off = true;
        Ok(vec![Message::assistant(Arc::clone(&data.text))])
    }

    pub(super) fn memory_compacted(
        &mut self,
        data: &longhaul_core::event::world::MemoryCompacted,
    ) -> Said {
        let Stage::Asking(asking) = &self.stage else {
            return Err("a conversation is shortened by a call of its own");
        };
        if asking.purpose != Purpose::Compact {
            return Err("another call is under way");
        }
        self.stage = Stage::Thinking(Thinking {
            tries: asking.attempt,
            failures: asking.failures,
            shortened: true,
            // Neither `looked`: what was seen for this turn may have been summed up too.
            ..Thinking::default()
        });
        let again = self.squeezed.in_row > 0 && self.turns - self.squeezed.turns < ROOM_TURNS;
        self.squeezed.in_row = if again { self.squeezed.in_row + 1 } else { 1 };
        self.squeezed.turns = self.turns;
        self.used(data.usage, data.cost, data.active);
        SILENT
    }
}

/// Where a reply leads.
fn after_reply(data: &TurnCompleted) -> Stage {
    let pauses = data.stop == StopReason::PauseTurn;
    if data.calls.is_empty() && pauses {
        return Stage::Thinking(Thinking::default());
    }
    if data.calls.is_empty() {
        let output = match (&data.fit, &data.output) {
            (Some(Fit::Misfit(_)), _) => return Stage::Thinking(Thinking::default()),
            (_, Some(judged)) => judged.clone(),
            (Some(Fit::Fits(given)), None) => output_of_data(given),
            (None, None) => output_of(data.reply.text()),
        };
        return Stage::Concluding(Concluding::new(output, false));
    }
    // A call that the limit cut off may lack half its arguments: it never runs.
    let state = match data.stop == StopReason::MaxTokens {
        true => CallState::settling(CUT_OFF, true),
        false => CallState::Unjudged,
    };
    let calls = data
        .reply
        .calls()
        .zip(&data.calls)
        .zip(1..)
        .map(|((call, appraisal), index)| Call {
            id: CallId {
                turn: data.turn,
                index,
            },
            provider_id: call.id.clone(),
            input: call.input.clone(),
            appraisal: appraisal.clone(),
            starts: 0,
            edited: None,
            remark: None,
            state: state.clone(),
        });
    Stage::Acting(Acting {
        turn: data.turn,
        calls: calls.collect(),
        judged: data.output.clone(),
        finish: None,
    })
}

/// What ends a run although the model replied.
fn doom(data: &TurnCompleted) -> Option<Fault> {
    match data.stop {
        StopReason::MaxTokens if !data.calls.is_empty() => None,
        StopReason::MaxTokens => Some(Fault::new(
            "reply_cut_off",
            "the final reply was cut off by the token limit",
            "raise the model's max_tokens or ask for a shorter answer",
        )),
        StopReason::Refusal => Some(Fault::new(
            "refused",
            format!("the model declined: {}", data.reply.text()),
            "change the task or the model",
        )),
        StopReason::EndTurn
        | StopReason::ToolUse
        | StopReason::PauseTurn
        | StopReason::Other(_) => None,
    }
}
