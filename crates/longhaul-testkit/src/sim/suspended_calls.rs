//! Tool calls that their tools suspend: some ask a person before they have an effect, and some have
//! their effect in another system, which tells the result later.

use longhaul_core::event::tool::{ToolOutput, ToolQuestion, ToolSuspension};
use longhaul_core::message::Part;
use longhaul_core::port::tool::{SuspendedCallWait, SuspendedToolCall};
use longhaul_core::raw::RawJson;
use longhaul_core::time::Millis;
use longhaul_run::input::ToolCallStatus;
use longhaul_run::next::ToolCallTask;

use crate::sim::external_world::{ExternalWorld, ToolEffect};

/// Starts or continues a call. One of six calls is suspended, and one of three of them again. Calls of
/// drivers that always choose 0 are never suspended.
pub(super) fn perform(
    world: &ExternalWorld,
    effect: ToolEffect,
    task: &ToolCallTask,
    choose: &mut dyn FnMut(usize) -> usize,
) -> (ToolCallStatus, ToolOutput) {
    let state = task.resumption.as_ref().map(|resumption| resumption.state.to_value());
    let result = state.as_ref().and_then(|state| state["result"].as_str());
    match (result, state.is_some()) {
        // The effect happened when the call was started.
        (Some(result), _) => match choose(3) {
            2 => (poll_later(result), ToolOutput::default()),
            _ => (ToolCallStatus::Completed, ToolOutput::text(result)),
        },
        (None, true) => (ToolCallStatus::Completed, world.perform(effect)),
        (None, false) => match choose(12) {
            10 => (ask_person(task.may_repeat), ToolOutput::default()),
            11 => {
                let output = world.perform(effect);
                let text = output.content.first().and_then(Part::text).unwrap_or_default();
                (poll_later(text), ToolOutput::default())
            }
            _ => (ToolCallStatus::Completed, world.perform(effect)),
        },
    }
}

fn poll_later(result: &str) -> ToolCallStatus {
    let state = RawJson::from_serialize(&serde_json::json!({ "result": result }));
    let suspension = ToolSuspension { state, may_repeat: true, must_cancel: true };
    let wait = SuspendedCallWait::Poll { after: Millis::from_secs(5), ttl: None, message: None };
    ToolCallStatus::Suspended(Box::new(SuspendedToolCall { suspension, wait }))
}

fn ask_person(may_repeat: bool) -> ToolCallStatus {
    let state = RawJson::from_serialize(&serde_json::json!({ "asked": true }));
    let suspension = ToolSuspension { state, may_repeat, must_cancel: false };
    let schema = serde_json::json!({ "properties": { "side": { "enum": ["left", "right"] } } });
    let wait = SuspendedCallWait::Answer(ToolQuestion {
        asker: "The server `map`".to_owned(),
        message: "Which side?".to_owned(),
        schema: RawJson::from_serialize(&schema),
    });
    ToolCallStatus::Suspended(Box::new(SuspendedToolCall { suspension, wait }))
}
