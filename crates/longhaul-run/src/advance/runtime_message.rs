//! Messages that the runtime adds for the model at the start of a turn, and the errors that end a
//! run whose model ignores them. They are never sent between a tool call and its result, and each
//! one is sent once.

use std::sync::Arc;

use longhaul_core::event::turn::{RuntimeMessage, RuntimeMessageTopic};
use longhaul_core::status::RunError;

use crate::decision::Decision;
use crate::state::control::ControlState;
use crate::state::guards::Guards;
use crate::state::stage::PendingModelCall;

const TRY_SOMETHING_ELSE: &str =
    "Try something else, or finish with what you have and explain the obstacle.";

/// Returns whether the perception (the context provider's report on the outside world) must be
/// fetched before this turn. The first turn uses the perception that was fetched when the run was
/// prepared. A retried turn uses that of its first attempt, unless the conversation was compacted
/// in between.
pub(crate) fn needs_perception_refresh(control: &ControlState, pending: &PendingModelCall) -> bool {
    control.policy.refresh_perception_each_turn
        && control.turn > 0
        && !pending.turn.perception_refreshed
}

/// Returns the runtime's messages for the turn that starts now. The new perception (the context
/// provider's report on the outside world) comes last, so that it is the newest message and
/// everything before it stays in the provider's cache.
pub(super) fn runtime_messages_for_turn(decision: &Decision<'_>) -> Vec<RuntimeMessage> {
    use RuntimeMessageTopic as Topic;
    let control = &decision.control;
    let guards = &control.guards;
    let invalid_answer = guards.invalid_answers.unreported_problem().map(|problem| {
        format!(
            "This does not end the run: {problem}. Call `finish` with a valid output, or reply with \
             only the JSON."
        )
    });
    let empty_reply = guards.empty_replies.should_warn().then(|| {
        "Your reply was empty. Go on with the task. If it is done, say what you did.".to_owned()
    });
    let same_calls = (guards.same_calls.count >= 2 && guards.same_calls.should_warn()).then(|| {
        format!(
            "You have made the same call {} times in a row, and its result was the same each time. \
             Repeating it will not change that. {TRY_SOMETHING_ELSE}",
            guards.same_calls.count
        )
    });
    let known_calls = guards.known_calls.should_warn().then(|| {
        format!(
            "In the last {} turns you only made calls that you had made before, and their results \
             were the same. {TRY_SOMETHING_ELSE}",
            guards.known_calls.count
        )
    });
    let same_text = guards.same_text.should_warn().then(|| {
        let replies = guards.same_text.count;
        format!("Your last {replies} replies had the same text. {TRY_SOMETHING_ELSE}")
    });
    let compactions = guards.compactions.should_warn().then(|| {
        "The conversation was summarized again and again: large results fill your context window at \
         once. Ask for less at a time, such as parts of files or filtered output, or finish with what \
         you have and explain the obstacle."
            .to_owned()
    });
    let warnings = [
        (Topic::Output, invalid_answer),
        (Topic::EmptyReply, empty_reply),
        (Topic::Loop, same_calls),
        (Topic::NoProgress, known_calls),
        (Topic::RepeatedText, same_text),
        (Topic::Compaction, compactions),
    ];
    let warnings = warnings
        .into_iter()
        .filter_map(|(topic, text)| Some((topic, format!("[longhaul] {}", text?).into())));
    let signals = control.unread_reports.iter().map(|text| (Topic::Signal, Arc::clone(text)));
    let refresh = decision.perception_refresh.as_ref();
    let world = refresh.and_then(|refresh| refresh.message.as_ref());
    let world = world.map(|text| (Topic::World, Arc::clone(text)));
    let messages = warnings.chain(signals).chain(world);
    messages.map(|(topic, text)| RuntimeMessage { topic, text }).collect()
}

/// Returns the error that ends a run whose conversation has to be compacted again soon after too
/// many compactions in a row. `None` means that the limit is not reached.
pub(super) fn repeated_compaction_error(control: &ControlState) -> Option<RunError> {
    let compactions = control.guards.compactions;
    (compactions.is_limit_reached() && control.is_soon_after_compaction()).then(|| {
        let message = "the conversation fills the model's context window again soon after it is \
            compacted";
        let hint = "use a model with a larger context window, or tools with shorter outputs; \
            `guards:` in the agent file sets the limit";
        RunError::new("compaction_thrash", message, hint)
    })
}

/// Returns the error that ends a run that repeats itself even after a warning. `None` means that no
/// limit is reached.
pub(super) fn repetition_error(control: &ControlState) -> Option<RunError> {
    let Guards { same_calls, known_calls, same_text, .. } = &control.guards;
    let (code, message) = if same_calls.is_limit_reached() {
        let times = same_calls.count;
        let message = format!("the same call was made {times} times in a row with the same result");
        ("loop_detected", message)
    } else if known_calls.is_limit_reached() {
        let turns = known_calls.count;
        ("no_progress", format!("{turns} turns in a row had no new call and no new result"))
    } else if same_text.is_limit_reached() {
        ("repeated_text", format!("{} replies in a row had the same text", same_text.count))
    } else {
        return None;
    };
    let hint = "inspect the last turns with `longhaul show`, then change the task, the prompt or the \
        tools; `guards:` in the agent file sets the limit";
    Some(RunError::new(code, message, hint))
}

/// Adds a hint that names the model to the error of a reply that was cut off at the model's own
/// limit. Other errors are not changed.
pub(super) fn with_truncation_hint(decision: &Decision<'_>, error: RunError) -> RunError {
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
    control.guards.invalid_answers.over_limit().map(|(count, problem)| {
        let message = format!(
            "{count} final answers did not match the output schema; the last problem: {problem}"
        );
        let hint = "inspect the answers with `longhaul show`, then change the schema, the prompt \
            or the model";
        RunError::new("output_invalid", message, hint)
    })
}
