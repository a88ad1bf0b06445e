//! Facts about messages for the run, taken in.
//!
//! Never: loses one. A message leaves the queue delivered, dropped or withdrawn.

use longhaul_core::event::steer::{Delivery, SteerDelivered, SteerMessage};
use longhaul_core::id::SteerId;
use longhaul_core::message::Message;

use crate::apply::{SILENT, Said};
use crate::state::call::CallState;
use crate::state::control::{Control, QueuedSteer};

impl Control {
    pub(super) fn steer_queued(&mut self, data: &SteerMessage) -> Said {
        let answers = data.delivery != Delivery::FollowUp && self.question_call().is_some();
        self.steers.push(QueuedSteer {
            id: data.steer,
            text: data.text.as_str().into(),
            delivery: data.delivery,
            answers,
        });
        SILENT
    }

    pub(super) fn steer_changed(&mut self, data: &SteerMessage) -> Said {
        let asked = self.question_call().is_some();
        if let Some(steer) = self.steers.iter_mut().find(|steer| steer.id == data.steer) {
            steer.text = data.text.as_str().into();
            steer.delivery = data.delivery;
            steer.answers = data.delivery != Delivery::FollowUp && (steer.answers || asked);
        }
        SILENT
    }

    pub(super) fn steer_gone(&mut self, id: SteerId) -> Said {
        self.steers.retain(|steer| steer.id != id);
        SILENT
    }

    pub(super) fn steer_delivered(&mut self, data: &SteerDelivered) -> Said {
        let Some(place) = self.steers.iter().position(|steer| steer.id == data.steer) else {
            return Err("this message is not waiting");
        };
        let steer = self.steers.remove(place);
        self.circles = self.circles.broken();
        if !data.as_answer {
            return self.say_between_turns(Message::user(steer.text));
        }
        let answered = self.question_call();
        if let Some(id) = answered {
            self.call_mut(id)?.state = CallState::settling(steer.text, false);
        }
        SILENT
    }
}
