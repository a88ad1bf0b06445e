//! A driver that does what `next` says, by a number: the same number in the
//! same state does the same thing. And a kind world that brings any run to its end.
//!
//! Never: draws a random number.

use longhaul_core::event::tool::{ToolOutput, ToolVerified, VerifyOutcome};
use longhaul_core::failure::FailureClass;
use longhaul_core::message::StopReason;
use longhaul_core::status::Wait;
use longhaul_run::input::ToolCallStatus;
use longhaul_run::next::{CallAction, CallTask};
use longhaul_run::state::control::Idle;
use longhaul_run::{Input, Step, next};

use super::rows::Head;
use super::script::outcome_line;
use super::{TellOutcome, TestRun, inputs};

/// What a driven run is brought to its end with at most.
const STEPS_MAX: usize = 600;

/// Replies that random models give.
const REPLIES: [&str; 12] = [
    "read/pure {\"path\": \"a\"}",
    "shell/once {\"command\": \"make\"}",
    "read/pure + write/keyed + shell/once {\"command\": \"rm x\"} + read/pure",
    "shell/once? {\"command\": \"rm y\"} + send/once!tell",
    "send/once!ask + read/pure",
    "send/once!fail",
    "ask_human/pure {\"question\": \"Which one?\"} + read/pure",
    "report_blocked/pure {\"reason\": \"no key\"} + ask_human/pure {\"question\": \"Why?\"}",
    "wait/pure {\"for\": \"1m\"} + read/pure",
    "wait/pure {\"signal\": \"deploy\"} + report_progress/pure {\"percent\": 5}",
    "finish/pure {\"output\": \"The end.\"} + shell/once {\"command\": \"rm z\"}",
    "nonsense/bad + wait/pure {\"until\": \"2001-01-01T00:00:00Z\"} + pty/session",
];

const CLASSES: [FailureClass; 6] = [
    FailureClass::Overloaded,
    FailureClass::RateLimit,
    FailureClass::ContextOverflow,
    FailureClass::Network,
    FailureClass::Stopped,
    FailureClass::Auth,
];

impl TestRun {
    /// Claims a ready run, does the next thing to one that is driven, and now
    /// and then helps one that rests.
    pub(crate) fn drive(&mut self, pick: usize) -> String {
        match self.rows.head {
            Head::Ready => outcome_line(self.claim()),
            Head::Leased => {
                let input = self.next_input(pick);
                let told = self.send_input(input);
                let TellOutcome::Events(events) = &told else {
                    panic!("what the run wanted was not taken: {told:?}");
                };
                assert!(!events.is_empty(), "a step that changes nothing");
                outcome_line(told)
            }
            Head::Parked if pick.is_multiple_of(3) => {
                self.unblock();
                "helped".into()
            }
            Head::Paused if pick.is_multiple_of(3) => self.play("resume"),
            Head::Parked | Head::Paused | Head::Ended => "-".into(),
        }
    }

    /// Decides before a fact comes from outside, and writes after: the journal
    /// has moved on, and the same input is decided again.
    pub(crate) fn race(&mut self, pick: usize, line: &str) -> String {
        if self.rows.head != Head::Leased {
            return self.play(line);
        }
        let input = self.next_input(pick);
        let first = self.decide_only(input.clone(), None);
        let before = self.run.seq();
        let came = self.play(line);
        if self.run.seq() == before || self.rows.head != Head::Leased {
            return came;
        }
        assert!(first.is_ok(), "the step itself was not taken: {first:?}");
        match self.send_input(input) {
            TellOutcome::Events(events) => {
                format!("{came} then {}", outcome_line(TellOutcome::Events(events)))
            }
            told => panic!("decided again after `{line}`, it is not taken: {told:?}"),
        }
    }

    /// What a driver that does the next step would tell.
    fn next_input(&self, pick: usize) -> Input {
        let stops = self.run.is_stopping();
        match next(&self.run, self.now) {
            Step::Prepare if pick == 1 => Input::MissingDependency("set a key".into()),
            // So narrow that a few words fill it.
            Step::Prepare if pick.is_multiple_of(3) => {
                inputs::prepared_with_window(700, (pick % 2 == 1).then_some("cheap/x"))
            }
            Step::Prepare => inputs::prepared(["scripted/spare", "identical_calls=5"].into_iter()),
            Step::RefreshPerception if pick == 1 => Input::MissingDependency("nobody looks".into()),
            Step::RefreshPerception => inputs::perception_refreshed(["", "rain", "sun"][pick % 3]),
            Step::AskModel(_) if stops => inputs::failed(FailureClass::Stopped, None),
            Step::AskModel(_) if self.run.is_interrupted() => match pick % 3 {
                0 => inputs::interrupted("Half a"),
                1 => inputs::interrupted(""),
                _ => reply(pick),
            },
            // What has failed once fails again, half of the time.
            Step::AskModel(ask) if ask.attempt > 1 && pick < 20 => {
                inputs::failed(FailureClass::Overloaded, None)
            }
            Step::AskModel(_) => reply(pick),
            Step::UseTools(todos) => tools(&todos, pick),
            Step::Compact(_) if stops => inputs::failed(FailureClass::Stopped, None),
            Step::Compact(_) if self.run.is_interrupted() => inputs::interrupted("Half a"),
            Step::Compact(ask) => match pick % 5 {
                0 => inputs::failed(FailureClass::Network, None),
                1 if pick % 2 == 1 => inputs::failed(FailureClass::Refused, None),
                _ => inputs::compacted(pick % (ask.messages.len() + 2)),
            },
            Step::Park(_) | Step::Finish(_) | Step::Advance if pick == 2 => Input::Release,
            Step::Park(_) | Step::Finish(_) | Step::Advance => Input::Advance,
            Step::Idle => panic!("driven, with nothing to do"),
        }
    }

    /// From now on everybody helps: gates are answered, timers come, money is
    /// there, tools work and the model has only its last words to say.
    pub(crate) fn run_to_end(&mut self) -> usize {
        for step in 0..STEPS_MAX {
            match self.rows.head {
                Head::Ended => return step,
                Head::Ready => _ = self.claim(),
                Head::Paused => _ = self.play("resume"),
                Head::Leased => _ = self.drive(40),
                Head::Parked => self.unblock(),
            }
        }
        panic!("no end in {STEPS_MAX} steps: {:?}", self.run.control());
    }

    fn unblock(&mut self) {
        let before = self.run.seq();
        if self.run.control().gates.is_empty() {
            let rest = self.run.control().idle.as_ref();
            let is_broke = |rest: &Idle| matches!(rest, Idle::Parked { wait: Wait::Budget(_), .. });
            if rest.is_some_and(is_broke) {
                self.play("raise money 90000000");
                self.play("raise tokens 90000000");
                self.play("raise turns 1000");
                self.play("raise active 90000");
            }
        } else {
            for line in ["yes", "yes by cli:bob", "answer All is well."] {
                if self.run.seq() == before {
                    self.play(line);
                }
            }
        }
        // A gate whose time is over takes no answer, only its timer.
        if self.run.seq() == before {
            self.fire_next();
        }
        let waits = self.rows.head == Head::Parked && self.rows.timers.is_empty();
        assert!(self.run.seq() > before || !waits, "nothing wakes it: {:?}", self.run.control());
    }
}

fn reply(pick: usize) -> Input {
    match pick {
        0..12 => inputs::replied("", REPLIES[pick], StopReason::ToolUse),
        12..24 => inputs::replied("Well.", REPLIES[pick - 12], StopReason::EndTurn),
        24..30 => inputs::failed(CLASSES[pick - 24], pick.is_multiple_of(2).then_some(40)),
        30 => inputs::replied("So", REPLIES[1], StopReason::MaxTokens),
        31 => inputs::replied("", "", StopReason::EndTurn),
        32 => inputs::replied("Wait.", "", StopReason::PauseTurn),
        33 => inputs::replied("No.", REPLIES[1], StopReason::Refusal),
        34..40 => inputs::replied("", REPLIES[pick % 12], StopReason::ToolUse),
        _ => inputs::replied("Done.", "", StopReason::EndTurn),
    }
}

fn tools(todos: &[CallTask], pick: usize) -> Input {
    let verify = todos.iter().find(|todo| todo.action == CallAction::Verify);
    let made = todos.iter().filter(|todo| todo.action == CallAction::Run);
    let alone = made.clone().count() == 0;
    if let Some(todo) = verify.filter(|_| pick.is_multiple_of(2) || alone) {
        let finding = match pick % 3 {
            0 => VerifyOutcome::NotHappened,
            1 => VerifyOutcome::Unknown,
            _ => VerifyOutcome::Happened(ToolOutput::text("it is there")),
        };
        let call = todo.call;
        return Input::Verified(ToolVerified { call, outcome: finding }, Vec::new());
    }
    let end = match pick % 5 {
        0 => ToolCallStatus::Interrupted,
        1 => ToolCallStatus::Failed,
        _ => ToolCallStatus::Completed,
    };
    let many = if pick.is_multiple_of(7) { 1 } else { todos.len() };
    let done = made.take(many).map(|todo| inputs::tool_result(todo.call, end, "ok"));
    Input::ToolsDone(done.collect())
}
