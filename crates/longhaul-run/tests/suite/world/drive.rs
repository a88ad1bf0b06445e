//! A driver that does what `next` says, by a number: the same number in the
//! same state does the same thing. And a kind world that brings any run to its end.
//!
//! Never: draws a random number.

use longhaul_core::event::tool::{Finding, ToolOutput, ToolVerified};
use longhaul_core::failure::FailureClass;
use longhaul_core::message::StopReason;
use longhaul_core::status::Wait;
use longhaul_run::input::ToolEnd;
use longhaul_run::next::{Todo, Work};
use longhaul_run::state::control::Rest;
use longhaul_run::{Input, Step, next};

use super::rows::Head;
use super::script::said;
use super::{Told, World, talk};

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

impl World {
    /// Claims a ready run, does the next thing to one that is driven, and now
    /// and then helps one that rests.
    pub(crate) fn drive(&mut self, pick: usize) -> String {
        match self.rows.head {
            Head::Ready => said(self.claim()),
            Head::Leased => {
                let input = self.work(pick);
                let told = self.tell(input);
                let Told::Facts(events) = &told else {
                    panic!("what the run wanted was not taken: {told:?}");
                };
                assert!(!events.is_empty(), "a step that changes nothing");
                said(told)
            }
            Head::Parked if pick.is_multiple_of(3) => {
                self.help();
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
        let input = self.work(pick);
        let first = self.would(input.clone(), None);
        let before = self.run.seq();
        let came = self.play(line);
        if self.run.seq() == before || self.rows.head != Head::Leased {
            return came;
        }
        assert!(first.is_ok(), "the step itself was not taken: {first:?}");
        match self.tell(input) {
            Told::Facts(events) => format!("{came} then {}", said(Told::Facts(events))),
            told => panic!("decided again after `{line}`, it is not taken: {told:?}"),
        }
    }

    /// What a driver that does the next step would tell.
    fn work(&self, pick: usize) -> Input {
        let stops = self.run.is_stopping();
        match next(&self.run, self.now) {
            Step::Perceive if pick == 1 => Input::Missing("set a key".into()),
            // So narrow that a few words fill it.
            Step::Perceive if pick.is_multiple_of(3) => {
                talk::narrow(700, (pick % 2 == 1).then_some("cheap/x"))
            }
            Step::Perceive => talk::perceived(["scripted/spare", "circles=5"].into_iter()),
            Step::Look if pick == 1 => Input::Missing("nobody looks".into()),
            Step::Look => talk::looked(["", "rain", "sun"][pick % 3]),
            Step::AskModel(_) if stops => talk::failed(FailureClass::Stopped, None),
            Step::AskModel(_) if self.run.is_interrupted() => match pick % 3 {
                0 => talk::interrupted("Half a"),
                1 => talk::interrupted(""),
                _ => reply(pick),
            },
            // What has failed once fails again, half of the time.
            Step::AskModel(ask) if ask.attempt > 1 && pick < 20 => {
                talk::failed(FailureClass::Overloaded, None)
            }
            Step::AskModel(_) => reply(pick),
            Step::UseTools(todos) => tools(&todos, pick),
            Step::Compact(_) if stops => talk::failed(FailureClass::Stopped, None),
            Step::Compact(_) if self.run.is_interrupted() => talk::interrupted("Half a"),
            Step::Compact(ask) => match pick % 5 {
                0 => talk::failed(FailureClass::Network, None),
                1 if pick % 2 == 1 => talk::failed(FailureClass::Refused, None),
                _ => talk::compacted(pick % (ask.messages.len() + 2)),
            },
            Step::Park(_) | Step::Finish(_) | Step::GoOn if pick == 2 => Input::Release,
            Step::Park(_) | Step::Finish(_) | Step::GoOn => Input::GoOn,
            Step::Rest => panic!("driven, with nothing to do"),
        }
    }

    /// From now on everybody helps: gates are answered, timers come, money is
    /// there, tools work and the model has only its last words to say.
    pub(crate) fn bring_to_an_end(&mut self) -> usize {
        for step in 0..STEPS_MAX {
            match self.rows.head {
                Head::Ended => return step,
                Head::Ready => _ = self.claim(),
                Head::Paused => _ = self.play("resume"),
                Head::Leased => _ = self.drive(40),
                Head::Parked => self.help(),
            }
        }
        panic!("no end in {STEPS_MAX} steps: {:?}", self.run.control());
    }

    fn help(&mut self) {
        let before = self.run.seq();
        if self.run.control().gates.is_empty() {
            let rest = self.run.control().rest.as_ref();
            let is_broke = |rest: &Rest| {
                matches!(
                    rest,
                    Rest::Parked {
                        wait: Wait::Budget(_),
                        ..
                    }
                )
            };
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
        assert!(
            self.run.seq() > before || !waits,
            "nothing wakes it: {:?}",
            self.run.control()
        );
    }
}

fn reply(pick: usize) -> Input {
    match pick {
        0..12 => talk::replied("", REPLIES[pick], StopReason::ToolUse),
        12..24 => talk::replied("Well.", REPLIES[pick - 12], StopReason::EndTurn),
        24..30 => talk::failed(CLASSES[pick - 24], pick.is_multiple_of(2).then_some(40)),
        30 => talk::replied("So", REPLIES[1], StopReason::MaxTokens),
        31 => talk::replied("", "", StopReason::EndTurn),
        32 => talk::replied("Wait.", "", StopReason::PauseTurn),
        33 => talk::replied("No.", REPLIES[1], StopReason::Refusal),
        34..40 => talk::replied("", REPLIES[pick % 12], StopReason::ToolUse),
        _ => talk::replied("Done.", "", StopReason::EndTurn),
    }
}

fn tools(todos: &[Todo], pick: usize) -> Input {
    let verify = todos.iter().find(|todo| todo.work == Work::Verify);
    let made = todos.iter().filter(|todo| todo.work == Work::Make);
    let alone = made.clone().count() == 0;
    if let Some(todo) = verify.filter(|_| pick.is_multiple_of(2) || alone) {
        let finding = match pick % 3 {
            0 => Finding::NotHappened,
            1 => Finding::Unknown,
            _ => Finding::Happened(ToolOutput::text("it is there")),
        };
        let call = todo.call;
        return Input::Verified(ToolVerified { call, finding }, Vec::new());
    }
    let end = match pick % 5 {
        0 => ToolEnd::Interrupted,
        1 => ToolEnd::Failed,
        _ => ToolEnd::Completed,
    };
    let many = if pick.is_multiple_of(7) {
        1
    } else {
        todos.len()
    };
    let done = made.take(many).map(|todo| talk::done(todo.call, end, "ok"));
    Input::ToolsDone(done.collect())
}
