//! Applies events about the messages queued for a run to its control state (everything but its
//! conversation).
//!
//! Invariant: a message leaves the queue only as delivered, dropped or withdrawn.

use std::sync::Arc;

use longhaul_core::event::steer::{SteerDelivered, SteerDelivery, SteerMessage};
use longhaul_core::id::SteerId;
use longhaul_core::message::Message;

use crate::apply::{ApplyResult, NO_MESSAGES};
use crate::state::call::ToolCallState;
use crate::state::control::{ControlState, QueuedSteer};

impl ControlState {
    pub(super) fn apply_steer_queued(&mut self, data: &SteerMessage) -> ApplyResult {
        self.submitters.add(&data.by);
        let answers =
            data.delivery != SteerDelivery::FollowUp && self.answers_first_question(&data.text);
        self.people.steers.push(QueuedSteer {
            id: data.steer,
            text: data.text.as_str().into(),
            delivery: data.delivery,
            answers,
            is_task: data.is_task,
            by: data.by.clone(),
        });
        NO_MESSAGES
    }

    /// Returns the text of a queued message that gives the run a further task. `None` means that
    /// the message is an ordinary one, or not queued.
    pub(crate) fn text_of_queued_message_if_task(&self, id: SteerId) -> Option<Arc<str>> {
        let steer = self.people.steers.iter().find(|steer| steer.id == id && steer.is_task)?;
        Some(Arc::clone(&steer.text))
    }

    pub(super) fn apply_steer_changed(&mut self, data: &SteerMessage) -> ApplyResult {
        self.submitters.add(&data.by);
        let is_answer = self.first_asking_call().map(|_| self.answers_first_question(&data.text));
        if let Some(steer) = self.people.steers.iter_mut().find(|steer| steer.id == data.steer) {
            steer.text = data.text.as_str().into();
            steer.delivery = data.delivery;
            steer.by.clone_from(&data.by);
            steer.answers =
                data.delivery != SteerDelivery::FollowUp && is_answer.unwrap_or(steer.answers);
        }
        NO_MESSAGES
    }

    pub(super) fn remove_steer(&mut self, id: SteerId) -> ApplyResult {
        self.people.steers.retain(|steer| steer.id != id);
        NO_MESSAGES
    }

    pub(super) fn apply_steer_delivered(&mut self, data: &SteerDelivered) -> ApplyResult {
        let Some(index) = self.people.steers.iter().position(|steer| steer.id == data.steer) else {
            return Err("this message is not queued");
        };
        let steer = self.people.steers.remove(index);
        self.guards.forget_repetitions();
        self.outcome.reset_count();
        if !data.as_answer {
            return self.add_message_between_turns(Message::user(steer.text));
        }
        if let Some(call) = self.first_asking_call() {
            let text = data.answer.clone().unwrap_or_else(|| steer.text.to_string());
            self.call_mut(call)?.state = ToolCallState::from_result_text(text, false);
        }
        NO_MESSAGES
    }
}
