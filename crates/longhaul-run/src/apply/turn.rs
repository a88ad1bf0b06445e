//! Applies events about model calls to the control state of a run (everything but its
//! conversation).

use std::sync::Arc;

use longhaul_core::event::turn::{
    ModelCallPurpose, OutputCheckResult, RuntimeMessage, RuntimeMessageTopic, TurnCompleted,
    TurnFailed, TurnInterrupted, TurnStarted,
};
use longhaul_core::failure::FailureClass;
use longhaul_core::id::CallId;
use longhaul_core::message::{HANDLER_API, Message, StopReason};
use longhaul_core::status::RunError;
use longhaul_core::usage::BudgetAmount;

use crate::apply::{ApplyResult, NO_MESSAGES};
use crate::policy::output::{first_rule_text_output, output_from_data_fields};
use crate::state::call::{ToolCallState, TrackedCall};
use crate::state::control::ControlState;
use crate::state::guards::is_empty_reply;
use crate::state::stage::{
    ConcludingRunState, PendingModelCall, RunStage, RunningModelCall, RunningToolCalls, TurnState,
};

/// Result recorded for a tool call of a reply that was truncated by the token limit.
const TRUNCATED_CALL_RESULT: &str = "not run: the reply was truncated by the token limit";

/// Message that lets the model continue after its reply was interrupted by a message that was then
/// withdrawn.
pub(super) const CONTINUE_MESSAGE: &str = "[longhaul] You were interrupted. Continue.";

impl ControlState {
    pub(super) fn apply_turn_started(&mut self, data: &TurnStarted) -> ApplyResult {
        let RunStage::ModelPending(pending) = &self.stage else {
            return Err("the model is called only when nothing else is in progress");
        };
        if self.stop.cancel.is_some() {
            return Err("a run that is being cancelled starts no calls");
        }
        if data.turn != self.turn + 1 || data.attempt != pending.attempts + 1 {
            return Err("turns and attempts must be numbered without gaps");
        }
        if pending.turn.failures > 0 {
            self.retries.model_calls = self.retries.model_calls.saturating_add(1);
        }
        self.budget.clear_exhausted_shared_cap();
        let (was_interrupted, mut turn) = (pending.interrupted, pending.turn);
        turn.perception_refreshed |= data.purpose == ModelCallPurpose::Turn;
        self.stage = RunStage::ModelRunning(RunningModelCall {
            number: data.turn,
            attempt: data.attempt,
            turn,
            epoch: self.driver.epoch,
            purpose: data.purpose,
            hold: data.hold,
            caps: data.caps.clone(),
            max_tokens: data.max_tokens,
            model: data.model.clone(),
        });
        self.totals.held = data.hold;
        self.totals.add_active(data.perception_active);
        // If the interrupting message was withdrawn, another user message is needed, because a
        // conversation can't end with a message of the model.
        let continue_message = (was_interrupted && data.runtime_messages.is_empty())
            .then(|| Message::user(CONTINUE_MESSAGE));
        let runtime_messages = self.record_runtime_messages(&data.runtime_messages);
        Ok(continue_message.into_iter().chain(runtime_messages).collect())
    }

    /// Marks the warnings in these runtime messages as sent, and returns the messages for the
    /// conversation.
    fn record_runtime_messages(&mut self, messages: &[RuntimeMessage]) -> Vec<Message> {
        for message in messages {
            match message.topic {
                RuntimeMessageTopic::Output => self.guards.invalid_answers.reported = true,
                RuntimeMessageTopic::Loop => self.guards.same_calls.warned = true,
                RuntimeMessageTopic::Signal => self.unread_reports.clear(),
                RuntimeMessageTopic::NoProgress => self.guards.known_calls.warned = true,
                RuntimeMessageTopic::RepeatedText => self.guards.same_text.warned = true,
                RuntimeMessageTopic::Compaction => self.guards.compactions.warned = true,
                RuntimeMessageTopic::EmptyReply => self.guards.empty_replies.warned = true,
                RuntimeMessageTopic::World => {}
            }
        }
        let texts = messages.iter().map(|message| Message::user(Arc::clone(&message.text)));
        texts.collect()
    }

    fn require_running_model_call(
        &self,
        turn: u32,
        purpose: ModelCallPurpose,
    ) -> Result<&RunningModelCall, &'static str> {
        let RunStage::ModelRunning(running) = &self.stage else {
            return Err("no turn is in progress");
        };
        match running.number == turn && running.purpose == purpose {
            true => Ok(running),
            false => Err("another turn is in progress"),
        }
    }

    pub(super) fn apply_turn_completed(&mut self, data: &TurnCompleted) -> ApplyResult {
        let running = self.require_running_model_call(data.turn, ModelCallPurpose::Turn)?;
        let max_tokens = running.max_tokens;
        if data.reply.tool_calls().count() != data.calls.len() {
            return Err("every call of a reply must be classified");
        }
        self.totals.add_call(data.usage, data.cost, data.active);
        self.turns += 1;
        self.turn = data.turn;
        self.stage = stage_after_reply(data);
        self.guards.record_reply(data);
        if let Some(error) = self.error_of_unusable_reply(data, max_tokens) {
            self.stop.failure = Some(error);
        }
        // Providers reject an empty message of the model.
        if data.reply.blocks.is_empty() || is_empty_reply(data) {
            return NO_MESSAGES;
        }
        Ok(vec![Message::Assistant(Arc::clone(&data.reply))])
    }

    pub(super) fn apply_turn_failed(&mut self, data: &TurnFailed) -> ApplyResult {
        let RunStage::ModelRunning(running) = self.stage.clone() else {
            return Err("no turn is in progress");
        };
        if running.number != data.turn {
            return Err("another turn is in progress");
        }
        let class = data.failure.class;
        // A refused key or account says nothing about the conversation.
        let is_refused_access = matches!(class, FailureClass::Auth | FailureClass::Quota);
        let is_final = class.counts_as_attempt()
            && !class.is_transient()
            && !is_refused_access
            && data.fallback_model.is_none();
        let used_compactor = running.model.is_some();
        let is_compaction = running.purpose == ModelCallPurpose::Compact;
        let is_required_compaction = is_compaction && running.turn.must_compact;
        if is_required_compaction && is_final && !used_compactor {
            let message = &data.failure.message;
            let message = format!("the conversation could not be compacted: {message}");
            let hint = "use a model with a larger context window";
            self.stop.failure = Some(RunError::new("context_overflow", message, hint));
        }
        if running.is_optional_compaction() && class.counts_as_attempt() && !used_compactor {
            // The run continues with the full conversation and tries again when it has grown.
            self.compaction.remaining_bytes = self.transcript_bytes;
        }
        let is_overflow = class == FailureClass::ContextOverflow;
        let is_turn = running.purpose == ModelCallPurpose::Turn;
        let must_compact = is_required_compaction || (is_overflow && is_turn);
        // The compactor is another model, so its failures don't count as failures of the run.
        let counts_as_failure =
            class.counts_as_attempt() && !used_compactor && !running.is_optional_compaction();
        let is_in_outage = running.turn.outage.is_some();
        self.stage = RunStage::ModelPending(PendingModelCall {
            attempts: data.attempt,
            turn: TurnState {
                // The fallback model has no failures yet.
                failures: match data.fallback_model {
                    Some(_) => 0,
                    None => running.turn.failures + u32::from(counts_as_failure),
                },
                outage_attempts: running.turn.outage_attempts
                    + u32::from(is_in_outage && class.counts_as_attempt()),
                unavailable_model: self.unavailable_model_after(data),
                must_compact,
                compactor_failed: running.turn.compactor_failed
                    || (used_compactor && class.counts_as_attempt()),
                ..running.turn
            },
            rate_limited: data.failure.class == FailureClass::RateLimit,
            ..PendingModelCall::default()
        });
        self.totals.held = BudgetAmount::default();
        self.totals.add_active(data.active);
        if data.failure.class == FailureClass::Lost {
            self.totals.lost.micro_usd = self.totals.lost.micro_usd.plus(data.charged.micro_usd);
            self.totals.lost.tokens = self.totals.lost.tokens.saturating_add(data.charged.tokens);
        } else {
            self.totals.usage = self.totals.usage.plus(data.failure.usage.unwrap_or_default());
            self.totals.cost = self.totals.cost.plus(data.charged.micro_usd);
            let has_usage = data.failure.usage.unwrap_or_default().total_tokens() > 0;
            let pricing = self.pricing_of_running_call(&running);
            let is_priced = data.cost.is_some() || pricing.price.is_some();
            self.totals.unpriced |= has_usage && !is_priced;
        }
        NO_MESSAGES
    }

    pub(super) fn apply_turn_interrupted(&mut self, data: &TurnInterrupted) -> ApplyResult {
        self.require_running_model_call(data.turn, ModelCallPurpose::Turn)?;
        self.totals.add_call(data.usage, data.cost, data.active);
        self.turn = data.turn;
        let interrupted = !data.text.trim().is_empty();
        let pending = PendingModelCall { interrupted, ..PendingModelCall::default() };
        self.stage = RunStage::ModelPending(pending);
        if !interrupted {
            return NO_MESSAGES;
        }
        Ok(vec![Message::assistant(Arc::clone(&data.text))])
    }

    pub(super) fn apply_memory_compacted(
        &mut self,
        data: &longhaul_core::event::environment::MemoryCompacted,
    ) -> ApplyResult {
        let RunStage::ModelRunning(running) = &self.stage else {
            return Err("a compaction needs a model call");
        };
        if running.purpose != ModelCallPurpose::Compact {
            return Err("another call is in progress");
        }
        self.stage = RunStage::ModelPending(PendingModelCall {
            attempts: running.attempt,
            turn: TurnState {
                failures: running.turn.failures,
                outage_attempts: running.turn.outage_attempts,
                compacted: true,
                // The perception of this turn may be summarized away, so it is fetched again.
                ..TurnState::default()
            },
            ..PendingModelCall::default()
        });
        let is_soon_after_compaction = self.is_soon_after_compaction();
        self.guards.compactions.record(is_soon_after_compaction);
        self.compaction.last_turns = Some(self.turns);
        self.totals.add_call(data.usage, data.cost, data.active);
        NO_MESSAGES
    }

    /// Returns the error that ends the run because of the reply's content. `None` means that the
    /// reply is usable, or that the model is asked again.
    fn error_of_unusable_reply(&self, data: &TurnCompleted, max_tokens: u64) -> Option<RunError> {
        match data.stop {
            StopReason::MaxTokens if !data.calls.is_empty() => None,
            StopReason::MaxTokens => Some(RunError {
                partial_text: Some(data.reply.text()).filter(|text| !text.is_empty()),
                ..reply_cut_off_error(max_tokens, self.pricing.max_output_tokens)
            }),
            StopReason::Refusal => Some(RunError::new(
                "refused",
                format!("the model refused to answer: {}", data.reply.text()),
                "change the task or the model",
            )),
            StopReason::EndTurn
            | StopReason::ToolUse
            | StopReason::PauseTurn
            | StopReason::Other(_) => self.guards.empty_replies.is_limit_reached().then(|| {
                RunError::new(
                    "empty_reply",
                    "the model replied twice without text or tool calls",
                    "change the task, the prompt or the model, then retry the run",
                )
            }),
        }
    }
}

/// Returns the error for a final reply that was cut off after `max_tokens`. The hint about the
/// model's own limit names the model, so it is added when the run ends.
fn reply_cut_off_error(max_tokens: u64, model_max: u64) -> RunError {
    let (cause, hint) = match max_tokens < model_max {
        true => (
            format!(
                "after {max_tokens} tokens, because the rest of the budget or of the context window \
                 allowed no more"
            ),
            "raise the budget, use a model with a larger context window, or ask for a shorter answer",
        ),
        // The caller adds a hint that names the model.
        false => (format!("at the model's limit of {max_tokens} tokens"), ""),
    };
    RunError::new("reply_cut_off", format!("the final reply was cut off {cause}"), hint)
}

/// Returns the stage of the run after a model reply.
fn stage_after_reply(data: &TurnCompleted) -> RunStage {
    let is_paused = data.stop == StopReason::PauseTurn;
    if data.calls.is_empty() && (is_paused || is_empty_reply(data)) {
        return RunStage::ModelPending(PendingModelCall::default());
    }
    if data.calls.is_empty() {
        let output = match (&data.output_check, &data.output) {
            (Some(OutputCheckResult::Invalid(_)), _) => {
                return RunStage::ModelPending(PendingModelCall::default());
            }
            (_, Some(journaled)) => journaled.clone(),
            (Some(OutputCheckResult::Valid(data_fields)), None) => {
                output_from_data_fields(data_fields)
            }
            (None, None) => first_rule_text_output(data.reply.text()),
        };
        return RunStage::Concluding(ConcludingRunState {
            output,
            by_handler: data.reply.api == HANDLER_API,
            ..ConcludingRunState::default()
        });
    }
    let state = match data.stop == StopReason::MaxTokens {
        true => ToolCallState::from_result_text(TRUNCATED_CALL_RESULT, true),
        false => ToolCallState::Unevaluated,
    };
    let calls =
        data.reply.tool_calls().zip(&data.calls).zip(1..).map(|((call, classification), index)| {
            TrackedCall {
                id: CallId { turn: data.turn, index },
                provider_id: call.id.clone(),
                input: call.input.clone(),
                classification: classification.clone(),
                state: state.clone(),
                ..TrackedCall::default()
            }
        });
    RunStage::ToolsRunning(RunningToolCalls {
        turn: data.turn,
        calls: calls.collect(),
        final_output: data.output.clone(),
        finish_output: None,
    })
}
