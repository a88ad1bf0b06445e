//! What the runtime tells the model at the start of a turn, and when it has told
//! it often enough.
//!
//! Never: speaks between a call and its result, or says the same thing twice.

use std::sync::Arc;

use longhaul_core::event::turn::{About, Aside};
use longhaul_core::status::Fault;

use crate::draft::Draft;
use crate::state::control::Control;
use crate::state::stage::Thinking;

/// Whether somebody must look at the world before this turn. The first turn sees
/// what was perceived, and a turn that is tried again what its first try saw, unless
/// the conversation was shortened in between.
pub(crate) fn wants_look(control: &Control, thinking: &Thinking) -> bool {
    control.policy.looks_each_turn && control.turn > 0 && !thinking.looked
}

/// What the model is told with the turn that starts now. The world comes last: so
/// it is the newest that the model reads, and what stands before it stays cached.
pub(super) fn asides(draft: &Draft<'_>) -> Vec<Aside> {
    let control = &draft.control;
    let output = control.misfits.untold().map(|why| Aside {
        about: About::Output,
        text: format!(
            "[longhaul] This does not end the run: {why}. Call `finish` with an output that \
             fits, or answer with nothing but the JSON."
        )
        .into(),
    });
    let circles = control.circles.wants_word().then(|| Aside {
        about: About::Circles,
        text: format!(
            "[longhaul] You have made the same call {} times in a row, and its result was the \
             same each time. Another one will not change that. Do something else, or end with \
             what you have and say what is in the way.",
            control.circles.count()
        )
        .into(),
    });
    let look = draft.look.as_ref();
    let world = look
        .and_then(|look| look.words.as_ref())
        .map(|words| Aside {
            about: About::World,
            text: Arc::clone(words),
        });
    output.into_iter().chain(circles).chain(world).collect()
}

/// The end of a run whose answers do not fit, however often it was told.
pub(super) fn misfit(control: &Control) -> Option<Fault> {
    control.misfits.too_many().map(|(count, why)| {
        let words =
            format!("{count} final answers did not fit the output's schema; the last one: {why}");
        let hint = "look at the answers with `longhaul show`, then change the schema, the prompt \
            or the model";
        Fault::new("output_invalid", words, hint)
    })
}

/// The end of a run that was told and went on in its circle.
pub(super) fn stuck(control: &Control) -> Option<Fault> {
    control.circles.is_over().then(|| {
        let words = format!(
            "the same call was made {} times in a row with the same result",
            control.circles.count()
        );
        let hint = "look at the last calls with `longhaul show`, then change the task, the prompt \
            or the tool; `guards:` in the agent's file sets the bound";
        Fault::new("stuck", words, hint)
    })
}
