//! Messages that the runtime adds for the model at the start of a turn, and the errors that end a
//! run whose model ignores them. They are never sent between a tool call and its result, and each
//! one is sent once.

use std::sync::Arc;

use longhaul_core::event::turn::{RuntimeMessage, RuntimeMessageTopic};
use longhaul_core::status::RunError;

use crate::decision::DecisionBuilder;
use crate::state::control::ControlState;
use crate::state::stage::PendingModelCall;

/// Returns whether the perception (the context provider's report on the outside world) must be
/// fetched before this turn. The first turn uses the perception that was fetched when the run was
/// prepared. A retried turn uses that of its first attempt, unless the conversation was compacted
/// in between.
pub(crate) fn needs_perception_refresh(control: &ControlState, pending: &PendingModelCall) -> bool {
    control.policy.refresh_perception_each_turn && control.turn > 0 && !pending.perception_refreshed
}

/// Returns the runtime's messages for the turn that starts now. The new perception (the context
/// provider's report on the outside world) comes last, so that it is the newest message and
/// everything before it stays in the provider's cache.
pub(super) fn runtime_messages_for_turn(decision: &DecisionBuilder<'_>) -> Vec<RuntimeMessage> {
    let control = &decision.control;
    let output = control.output_retries.unreported_answer_problem().map(|problem| RuntimeMessage {
        topic: RuntimeMessageTopic::Output,
        text: format!(
            "[longhaul] This does not end the run: {problem}. Call `finish` with a valid \
             output, or reply with only the JSON."
        )
        .into(),
    });
    let empty_reply = control.empty_replies.should_ask_again().then(|| RuntimeMessage {
        topic: RuntimeMessageTopic::EmptyReply,
        text:
            "[longhaul] Your reply was empty. Go on with the task. If it is done, say what you did."
                .into(),
    });
    let loop_warning = control.loop_guard.should_warn().then(|| RuntimeMessage {
        topic: RuntimeMessageTopic::Loop,
        text: format!(
            "[longhaul] You have made the same call {} times in a row, and its result was the \
             same each time. Repeating it will not change that. Try something else, or finish with \
             what you have and explain the obstacle.",
            control.loop_guard.count()
        )
        .into(),
    });
    let signals = control
        .unread_reports
        .iter()
        .map(|text| RuntimeMessage { topic: RuntimeMessageTopic::Signal, text: Arc::clone(text) });
    let no_progress_warnings = no_progress_warnings(control);
    let refresh = decision.perception_refresh.as_ref();
    let world = refresh
        .and_then(|refresh| refresh.message.as_ref())
        .map(|text| RuntimeMessage { topic: RuntimeMessageTopic::World, text: Arc::clone(text) });
    output
        .into_iter()
        .chain(empty_reply)
        .chain(loop_warning)
        .chain(no_progress_warnings)
        .chain(signals)
        .chain(world)
        .collect()
}

/// Returns the warnings to a model that makes no progress.
fn no_progress_warnings(control: &ControlState) -> impl Iterator<Item = RuntimeMessage> {
    let (known_calls, same_text) =
        (control.progress_guard.known_calls, control.progress_guard.same_text);
    let no_progress = known_calls.should_warn_model().then(|| RuntimeMessage {
        topic: RuntimeMessageTopic::NoProgress,
        text: format!(
            "[longhaul] In the last {} turns you only made calls that you had made before, and their \
             results were the same. Try something else, or finish with what you have and explain the \
             obstacle.",
            known_calls.count()
        )
        .into(),
    });
    let repeated_text = same_text.should_warn_model().then(|| RuntimeMessage {
        topic: RuntimeMessageTopic::RepeatedText,
        text: format!(
            "[longhaul] Your last {} replies had the same text. Try something else, or finish with \
             what you have and explain the obstacle.",
            same_text.count()
        )
        .into(),
    });
    let compactions = control.progress_guard.compactions;
    let compaction = compactions.should_warn_model().then(|| RuntimeMessage {
        topic: RuntimeMessageTopic::Compaction,
        text:
            "[longhaul] The conversation was summarized again and again: large results fill your \
               context window at once. Ask for less at a time, such as parts of files or filtered \
               output, or finish with what you have and explain the obstacle."
                .into(),
    });
    no_progress.into_iter().chain(repeated_text).chain(compaction)
}

/// Returns the error that ends a run whose conversation has to be compacted again soon after too
/// many compactions in a row. `None` means that the limit is not reached.
pub(super) fn repeated_compaction_error(control: &ControlState) -> Option<RunError> {
    let compactions = control.progress_guard.compactions;
    (compactions.is_repetition_limit_reached() && control.is_soon_after_compaction()).then(|| {
        let message = "the conversation fills the model's context window again soon after it is \
            compacted";
        let hint = "use a model with a larger context window, or tools with shorter outputs; \
            `guards:` in the agent file sets the limit";
        RunError::new("compaction_thrash", message, hint)
    })
}

/// Returns the error that ends a run that makes no progress even after a warning. `None` means that
/// the limit of turns without progress is not reached.
pub(super) fn no_progress_error(control: &ControlState) -> Option<RunError> {
    let (known_calls, same_text) =
        (control.progress_guard.known_calls, control.progress_guard.same_text);
    let (code, message) = if known_calls.is_repetition_limit_reached() {
        let turns = known_calls.count();
        ("no_progress", format!("{turns} turns in a row had no new call and no new result"))
    } else if same_text.is_repetition_limit_reached() {
        ("repeated_text", format!("{} replies in a row had the same text", same_text.count()))
    } else {
        return None;
    };
    let hint = "inspect the last turns with `longhaul show`, then change the task, the prompt or the \
        tools; `guards:` in the agent file sets the limit";
    Some(RunError::new(code, message, hint))
}

/// Adds a hint that names the model to the error of a reply that was cut off at the model's own
/// limit. Other errors are not changed.
pub(super) fn add_hint_to_truncated_reply_error(
    decision: &DecisionBuilder<'_>,
    error: RunError,
) -> RunError {
    if error.code != "reply_cut_off" || !error.hint.is_empty() {
        return error;
    }
    let model = decision.run.transcript.current_model();
    let hint = format!(
        "set a larger `max_output` for `[prices.\"{model}\"]` in longhaul.toml, or ask for a \
         shorter answer; the text so far is in `error.partial_text` of the run"
    );
    RunError { hint, ..error }
}

/// Returns the error that ends a run whose model gave too many final answers that don't match the
/// output schema. `None` means that the limit is not reached.
pub(super) fn invalid_output_error(control: &ControlState) -> Option<RunError> {
    control.output_retries.invalid_answer_count_and_problem_over_limit().map(|(count, problem)| {
        let message = format!(
            "{count} final answers did not match the output schema; the last problem: {problem}"
        );
        let hint = "inspect the answers with `longhaul show`, then change the schema, the prompt \
            or the model";
        RunError::new("output_invalid", message, hint)
    })
}

/// Returns the error that ends a run whose model repeats the same calls even after a warning.
/// `None` means that the limit of repetitions is not reached.
pub(super) fn repeated_calls_error(control: &ControlState) -> Option<RunError> {
    control.loop_guard.is_limit_reached().then(|| {
        let message = format!(
            "the same call was made {} times in a row with the same result",
            control.loop_guard.count()
        );
        let hint = "inspect the last calls with `longhaul show`, then change the task, the prompt \
            or the tool; `guards:` in the agent file sets the limit";
        RunError::new("loop_detected", message, hint)
    })
}
