//! Facts about asking the model, taken in.
//!
//! Never: decides what a failure means.

use std::sync::Arc;

use longhaul_core::event::turn::{
    ModelCallPurpose, OutputCheck, RuntimeMessage, Topic, TurnCompleted, TurnFailed,
    TurnInterrupted, TurnStarted,
};
use longhaul_core::failure::FailureClass;
use longhaul_core::id::CallId;
use longhaul_core::message::{Message, StopReason};
use longhaul_core::status::RunError;
use longhaul_core::time::Millis;
use longhaul_core::usage::{Hold, MicroUsd, Usage};

use crate::apply::{ApplyResult, NO_MESSAGES};
use crate::policy::legacy_output::{legacy_output_from_text, output_from_data};
use crate::state::call::{Call, CallState};
use crate::state::control::{COMPACTION_TURNS_MIN, Control};
use crate::state::stage::{Concluding, ModelPending, ModelRunning, Stage, ToolsRunning};

/// What the result of a call that the token limit cut off says.
const TRUNCATED_CALL: &str = "not run: the reply was cut off by the token limit";

/// What a model reads that was cut off for a message that was taken back.
const CONTINUE_MESSAGE: &str = "[longhaul] You were cut off. Go on.";

impl Control {
    pub(super) fn turn_started(&mut self, data: &TurnStarted) -> ApplyResult {
        let Stage::ModelPending(thinking) = &self.stage else {
            return Err("the model is asked when nothing else is under way");
        };
        if self.cancel.is_some() {
            return Err("a run that is being cancelled starts nothing");
        }
        if data.turn != self.turn + 1 || data.attempt != thinking.attempts + 1 {
            return Err("turns and their tries are counted without a gap");
        }
        self.stage = Stage::ModelRunning(ModelRunning {
            turn: data.turn,
            attempt: data.attempt,
            failures: thinking.failures,
            epoch: self.epoch,
            purpose: data.purpose,
            hold: data.hold,
            max_tokens: data.max_tokens,
            compacted: thinking.compacted,
            model: data.model.clone(),
            must_compact: thinking.must_compact,
            compactor_failed: thinking.compactor_failed,
            perception_refreshed: thinking.perception_refreshed
                || data.purpose == ModelCallPurpose::Turn,
        });
        self.totals.held = data.hold;
        // Whoever cut the model off may have taken the message back: then
        // something must still be said, because the model's words can't be last.
        let cut_off = std::mem::take(&mut self.interrupted);
        let go_on =
            (cut_off && data.runtime_messages.is_empty()).then(|| Message::user(CONTINUE_MESSAGE));
        Ok(go_on.into_iter().chain(self.take_runtime_messages(&data.runtime_messages)).collect())
    }

    /// What the runtime tells the model with a turn.
    fn take_runtime_messages(&mut self, asides: &[RuntimeMessage]) -> Vec<Message> {
        for aside in asides {
            match aside.topic {
                Topic::Output => self.output_retries.mark_reported(),
                Topic::Loop => self.loop_guard = self.loop_guard.mark_warned(),
                Topic::World => {}
            }
        }
        let words = asides.iter().map(|aside| Message::user(Arc::clone(&aside.text)));
        words.collect()
    }

    fn expect_model_call(
        &self,
        turn: u32,
        purpose: ModelCallPurpose,
    ) -> Result<&ModelRunning, &'static str> {
        let Stage::ModelRunning(asking) = &self.stage else {
            return Err("no turn is under way");
        };
        match asking.turn == turn && asking.purpose == purpose {
            true => Ok(asking),
            false => Err("another turn is under way"),
        }
    }

    fn add_usage(&mut self, usage: Usage, cost: Option<MicroUsd>, active: Millis) {
        self.totals.usage = self.totals.usage.plus(usage);
        self.totals.cost = self.totals.cost.plus(cost.unwrap_or_default());
        self.totals.unpriced |= cost.is_none();
        self.totals.active = self.totals.active.plus(active);
        self.totals.held = Hold::default();
    }

    pub(super) fn turn_completed(&mut self, data: &TurnCompleted) -> ApplyResult {
        self.expect_model_call(data.turn, ModelCallPurpose::Turn)?;
        if data.reply.calls().count() != data.calls.len() {
            return Err("every call of a reply is appraised");
        }
        self.add_usage(data.usage, data.cost, data.active);
        self.turns += 1;
        self.turn = data.turn;
        self.stage = stage_after_reply(data);
        self.output_retries.record_reply(data);
        if let Some(fault) = failure_after_reply(data) {
            self.pending_failure = Some(fault);
        }
        // No provider takes a message without words back.
        if data.reply.blocks.is_empty() {
            return NO_MESSAGES;
        }
        Ok(vec![Message::Assistant(Arc::clone(&data.reply))])
    }

    pub(super) fn turn_failed(&mut self, data: &TurnFailed) -> ApplyResult {
        let Stage::ModelRunning(asking) = self.stage.clone() else {
            return Err("no turn is under way");
        };
        if asking.turn != data.turn {
            return Err("another turn is under way");
        }
        let class = data.failure.class;
        let given_up =
            class.counts_as_attempt() && !class.is_transient() && data.fallback_model.is_none();
        let helped = asking.model.is_some();
        let must = asking.purpose == ModelCallPurpose::Compact && asking.must_compact;
        if must && given_up && !helped {
            let words =
                format!("the conversation could not be shortened: {}", data.failure.message);
            self.pending_failure =
                Some(RunError::new("context_overflow", words, "use a model with a larger window"));
        }
        if asking.is_early_compaction() && class.counts_as_attempt() && !helped {
            // The run goes on with what it has, and tries again when that has grown.
            self.compaction.remaining_bytes = self.transcript_bytes;
        }
        let too_long = class == FailureClass::ContextOverflow;
        let overflow = must || (too_long && asking.purpose == ModelCallPurpose::Turn);
        // Who sums up is another model, and what it fails at is no failure of the run's.
        let counts = class.counts_as_attempt() && !helped && !asking.is_early_compaction();
        self.stage = Stage::ModelPending(ModelPending {
            attempts: data.attempt,
            // Another model has failed at nothing yet.
            failures: match data.fallback_model {
                Some(_) => 0,
                None => asking.failures + u32::from(counts),
            },
            pending_timer: None,
            rate_limited: data.failure.class == FailureClass::RateLimit,
            retry_attempt: None,
            must_compact: overflow,
            compacted: asking.compacted,
            compactor_failed: asking.compactor_failed || (helped && class.counts_as_attempt()),
            perception_refreshed: asking.perception_refreshed,
        });
        self.totals.held = Hold::default();
        self.totals.active = self.totals.active.plus(data.active);
        if data.failure.class == FailureClass::Lost {
            self.totals.lost.micro_usd = self.totals.lost.micro_usd.plus(data.charged.micro_usd);
            self.totals.lost.tokens = self.totals.lost.tokens.saturating_add(data.charged.tokens);
        } else {
            self.totals.usage = self.totals.usage.plus(data.failure.usage.unwrap_or_default());
            self.totals.cost = self.totals.cost.plus(data.charged.micro_usd);
            let used = data.failure.usage.unwrap_or_default().tokens() > 0;
            let is_priced = data.cost.is_some() || self.pricing_for(&asking).price.is_some();
            self.totals.unpriced |= used && !is_priced;
        }
        NO_MESSAGES
    }

    pub(super) fn turn_interrupted(&mut self, data: &TurnInterrupted) -> ApplyResult {
        self.expect_model_call(data.turn, ModelCallPurpose::Turn)?;
        self.add_usage(data.usage, data.cost, data.active);
        self.turn = data.turn;
        self.stage = Stage::ModelPending(ModelPending::default());
        if data.text.trim().is_empty() {
            return NO_MESSAGES;
        }
        self.interrupted = true;
        Ok(vec![Message::assistant(Arc::clone(&data.text))])
    }

    pub(super) fn memory_compacted(
        &mut self,
        data: &longhaul_core::event::environment::MemoryCompacted,
    ) -> ApplyResult {
        let Stage::ModelRunning(asking) = &self.stage else {
            return Err("a conversation is shortened by a call of its own");
        };
        if asking.purpose != ModelCallPurpose::Compact {
            return Err("another call is under way");
        }
        self.stage = Stage::ModelPending(ModelPending {
            attempts: asking.attempt,
            failures: asking.failures,
            compacted: true,
            // Neither `looked`: what was seen for this turn may have been summed up too.
            ..ModelPending::default()
        });
        let again = self.compaction.consecutive > 0
            && self.turns - self.compaction.last_turns < COMPACTION_TURNS_MIN;
        self.compaction.consecutive = if again { self.compaction.consecutive + 1 } else { 1 };
        self.compaction.last_turns = self.turns;
        self.add_usage(data.usage, data.cost, data.active);
        NO_MESSAGES
    }
}

/// Where a reply leads.
fn stage_after_reply(data: &TurnCompleted) -> Stage {
    let pauses = data.stop == StopReason::PauseTurn;
    if data.calls.is_empty() && pauses {
        return Stage::ModelPending(ModelPending::default());
    }
    if data.calls.is_empty() {
        let output = match (&data.output_check, &data.output) {
            (Some(OutputCheck::Invalid(_)), _) => {
                return Stage::ModelPending(ModelPending::default());
            }
            (_, Some(judged)) => judged.clone(),
            (Some(OutputCheck::Valid(given)), None) => output_from_data(given),
            (None, None) => legacy_output_from_text(data.reply.text()),
        };
        return Stage::Concluding(Concluding::new(output, false));
    }
    // A call that the limit cut off may lack half its arguments: it never runs.
    let state = match data.stop == StopReason::MaxTokens {
        true => CallState::settling(TRUNCATED_CALL, true),
        false => CallState::Unevaluated,
    };
    let calls =
        data.reply.calls().zip(&data.calls).zip(1..).map(|((call, appraisal), index)| Call {
            id: CallId { turn: data.turn, index },
            provider_id: call.id.clone(),
            input: call.input.clone(),
            classification: appraisal.clone(),
            starts: 0,
            edited: None,
            approval_note: None,
            state: state.clone(),
        });
    Stage::ToolsRunning(ToolsRunning {
        turn: data.turn,
        calls: calls.collect(),
        final_output: data.output.clone(),
        finish_output: None,
    })
}

/// What ends a run although the model replied.
fn failure_after_reply(data: &TurnCompleted) -> Option<RunError> {
    match data.stop {
        StopReason::MaxTokens if !data.calls.is_empty() => None,
        StopReason::MaxTokens => Some(RunError::new(
            "reply_cut_off",
            "the final reply was cut off by the token limit",
            "raise the model's max_tokens or ask for a shorter answer",
        )),
        StopReason::Refusal => Some(RunError::new(
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
