//! What the runtime tells the model at the start of a turn, and when it has told
//! it often enough.
//!
//! Never: speaks between a call and its result, or says the same thing twice.

use std::sync::Arc;

use longhaul_core::event::turn::{RuntimeMessage, Topic};
use longhaul_core::status::RunError;

use crate::decision::DecisionBuilder;
use crate::state::control::Control;
use crate::state::stage::ModelPending;

/// Whether somebody must look at the world before this turn. The first turn sees
/// what was perceived, and a turn that is tried again what its first try saw, unless
/// the conversation was shortened in between.
pub(crate) fn needs_perception_refresh(control: &Control, thinking: &ModelPending) -> bool {
    control.policy.refresh_perception_each_turn
        && control.turn > 0
        && !thinking.perception_refreshed
}

/// What the model is told with the turn that starts now. The world comes last: so
/// it is the newest that the model reads, and what stands before it stays cached.
pub(super) fn runtime_messages(draft: &DecisionBuilder<'_>) -> Vec<RuntimeMessage> {
    let control = &draft.control;
    let output = control.output_retries.unreported().map(|why| RuntimeMessage {
        topic: Topic::Output,
        text: format!(
            "[longhaul] This does not end the run: {why}. Call `finish` with an output that \
             fits, or answer with nothing but the JSON."
        )
        .into(),
    });
    let circles = control.loop_guard.should_warn().then(|| RuntimeMessage {
        topic: Topic::Loop,
        text: format!(
            "[longhaul] You have made the same call {} times in a row, and its result was the \
             same each time. Another one will not change that. Do something else, or end with \
             what you have and say what is in the way.",
            control.loop_guard.count()
        )
        .into(),
    });
    let look = draft.perception_refresh.as_ref();
    let world = look
        .and_then(|look| look.message.as_ref())
        .map(|words| RuntimeMessage { topic: Topic::World, text: Arc::clone(words) });
    output.into_iter().chain(circles).chain(world).collect()
}

/// The end of a run whose answers do not fit, however often it was told.
pub(super) fn invalid_output_error(control: &Control) -> Option<RunError> {
    control.output_retries.exceeded().map(|(count, why)| {
        let words =
            format!("{count} final answers did not fit the output's schema; the last one: {why}");
        let hint = "look at the answers with `longhaul show`, then change the schema, the prompt \
            or the model";
        RunError::new("output_invalid", words, hint)
    })
}

/// The end of a run that was told and went on in its circle.
pub(super) fn loop_error(control: &Control) -> Option<RunError> {
    control.loop_guard.is_exceeded().then(|| {
        let words = format!(
            "the same call was made {} times in a row with the same result",
            control.loop_guard.count()
        );
        let hint = "look at the last calls with `longhaul show`, then change the task, the prompt \
            or the tool; `guards:` in the agent's file sets the bound";
        RunError::new("loop_detected", words, hint)
    })
}
