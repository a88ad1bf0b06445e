//! Facts about calls, taken in.
//!
//! Never: a second result for a call.

use longhaul_core::event::tool::{
    Finding, ToolEnded, ToolInDoubt, ToolStarted, ToolSurfaced, ToolVerified,
};
use longhaul_core::id::CallId;

use crate::apply::{SILENT, Said};
use crate::judge::names::{FINISH, wait_timer};
use crate::judge::output::output_of_finish;
use crate::state::call::{Call, CallState};
use crate::state::control::Control;
use crate::state::stage::Sleep;

impl Control {
    pub(super) fn call_mut(&mut self, id: CallId) -> Result<&mut Call, &'static str> {
        let mut calls = self.calls_mut().iter_mut();
        calls
            .find(|call| call.id == id)
            .ok_or("no such call is being made")
    }

    pub(super) fn tool_started(&mut self, data: &ToolStarted) -> Said {
        if self.cancel.is_some() {
            return Err("a run that is being cancelled starts nothing");
        }
        let epoch = self.epoch;
        let run = self.id;
        let call = self.call_mut(data.call)?;
        if !call.may_begin(epoch) {
            return Err("this call may not begin");
        }
        call.starts = data.attempt;
        call.state = match data.until {
            Some(until) => {
                let timer = wait_timer(run, call.id);
                CallState::Sleeping(Sleep {
                    timer,
                    until,
                    fired: false,
                })
            }
            None => CallState::Started(epoch),
        };
        SILENT
    }

    pub(super) fn tool_ended(&mut self, data: &ToolEnded, is_error: bool) -> Said {
        let call = self.call_mut(data.call)?;
        if call.is_done() {
            return Err("a call has one result");
        }
        call.state = CallState::Done {
            output: data.output.clone(),
            is_error,
        };
        if call.appraisal.tool.as_str() == FINISH && !is_error {
            let first = output_of_finish(&call.arguments().value());
            if let Some(acting) = self.acting_mut() {
                acting.finish = Some(acting.judged.clone().unwrap_or(first));
            }
        }
        self.sums.active = self.sums.active.plus(data.active);
        SILENT
    }

    pub(super) fn tool_in_doubt(&mut self, data: &ToolInDoubt) -> Said {
        let call = self.call_mut(data.call)?;
        let CallState::Started(_) = call.state else {
            return Err("only a call that has begun can be in doubt");
        };
        call.state = CallState::Doubtful {
            then: data.then,
            look: call.appraisal.verifies,
            why: data.why.clone(),
        };
        self.sums.active = self.sums.active.plus(data.active);
        SILENT
    }

    pub(super) fn tool_verified(&mut self, data: &ToolVerified) -> Said {
        let call = self.call_mut(data.call)?;
        let CallState::Doubtful { then, why, .. } = &call.state else {
            return Err("only a call in doubt is looked after");
        };
        call.state = match &data.finding {
            Finding::Happened(output) => CallState::Settling {
                output: output.clone(),
                is_error: false,
            },
            Finding::NotHappened => CallState::Waiting,
            Finding::Unknown => CallState::Doubtful {
                then: *then,
                look: false,
                why: why.clone(),
            },
        };
        SILENT
    }

    /// A real result settles a call in doubt, also one that a person is asked
    /// about. Where the result is written down already it changes nothing.
    pub(super) fn tool_surfaced(&mut self, data: &ToolSurfaced) -> Said {
        let epoch = self.epoch;
        let Ok(call) = self.call_mut(data.call) else {
            return SILENT;
        };
        let settles = match &call.state {
            CallState::Started(older) => *older < epoch,
            // Also one that was about to begin anew: its first start has a result.
            CallState::Doubtful { .. } | CallState::Asked(_) | CallState::Waiting => {
                call.starts > 0
            }
            CallState::Unjudged
            | CallState::Gated(_)
            | CallState::Sleeping(_)
            | CallState::Child(_)
            | CallState::Settling { .. }
            | CallState::Done { .. } => false,
        };
        if settles {
            call.state = CallState::Settling {
                output: data.output.clone(),
                is_error: data.is_error,
            };
        }
        SILENT
    }
}
