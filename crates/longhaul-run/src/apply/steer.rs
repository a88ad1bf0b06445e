//! Facts about messages for the run, taken in.
//!
//! Never: loses one. A message leaves the queue delivered, dropped or withdrawn.

use longhaul_core::event::steer::{Delivery, SteerDelivered, SteerMessage};
use longhaul_core::id::SteerId;
use longhaul_core::message::Message;

use crate::apply::{ApplyResult, NO_MESSAGES};
use crate::state::call::CallState;
use crate::state::control::{Control, QueuedSteer};

impl Control {
    pub(super) fn steer_queued(&mut self, data: &SteerMessage) -> ApplyResult {
        let answers = data.delivery != Delivery::FollowUp && self.question_call().is_some();
        self.steers.push(QueuedSteer {
            id: data.steer,
            text: data.text.as_str().into(),
            delivery: data.delivery,
            answers,
        });
        NO_MESSAGES
    }

    pub(super) fn steer_changed(&mut self, data: &SteerMessage) -> ApplyResult {
        let asked = self.question_call().is_some();
        if let Some(steer) = self.steers.iter_mut().find(|steer| steer.id == data.steer) {
            steer.text = data.text.as_str().into();
            steer.delivery = data.delivery;
            steer.answers = data.delivery != Delivery::FollowUp && (steer.answers || asked);
        }
        NO_MESSAGES
    }

    pub(super) fn steer_removed(&mut self, id: SteerId) -> ApplyResult {
        self.steers.retain(|steer| steer.id != id);
        NO_MESSAGES
    }

    pub(super) fn steer_delivered(&mut self, data: &SteerDelivered) -> ApplyResult {
        let Some(place) = self.steers.iter().position(|steer| steer.id == data.steer) else {
            return Err("this message is not waiting");
        };
        let steer = self.steers.remove(place);
        self.loop_guard = self.loop_guard.reset();
        if !data.as_answer {
            return self.push_between_turns(Message::user(steer.text));
        }
        let answered = self.question_call();
        if let Some(id) = answered {
            self.call_mut(id)?.state = CallState::settling(steer.text, false);
        }
        NO_MESSAGES
    }
}
