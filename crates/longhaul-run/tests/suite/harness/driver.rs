//! A deterministic driver: a number selects how it executes the step that `next_engine_step`
//! returns. Also brings any run to its end by answering all gates and firing all timers.

use longhaul_core::event::tool::{ToolOutput, ToolVerified, VerifyOutcome};
use longhaul_core::failure::FailureClass;
use longhaul_core::message::StopReason;
use longhaul_core::time::Millis;
use longhaul_core::wait::WaitReason;
use longhaul_run::input::ToolCallStatus;
use longhaul_run::next::{ToolCallAction, ToolCallTask};
use longhaul_run::{EngineStep, RunInput, next_engine_step};

use super::rows::Head;
use super::script::outcome_line;
use super::{InputOutcome, TestRun, inputs};

/// Maximum number of steps to bring a run to its end.
const STEPS_MAX: usize = 600;

/// Replies of random models.
const REPLIES: [&str; 12] = [
    "run_agent/pure {\"agent\": \"reader\", \"input\": \"a\"} + run_agent/pure",
    "shell/once@box {\"command\": \"make\"}",
    "read/pure + write/keyed@box + shell/once@box {\"command\": \"rm x\"} + read/pure",
    "shell/once?@box {\"command\": \"rm y\"} + send/once!tell",
    "send/once!ask {\"key\": \"k\"} + write/keyed {\"key\": \"k\"} + read/pure",
    "send/once!fail {\"key\": \"k\"}",
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
    /// Claims a ready run, executes the next step of a driven one, and sometimes
    /// answers gates or fires timers of an idle one.
    pub(crate) fn drive(&mut self, pick: usize) -> String {
        match self.rows.head {
            Head::Ready => outcome_line(self.claim()),
            Head::Leased => {
                let input = self.next_input(pick);
                let outcome = self.send_input(input);
                let InputOutcome::Events(events) = &outcome else {
                    panic!("the result of a step was not accepted: {outcome:?}");
                };
                assert!(!events.is_empty(), "a step changed nothing");
                outcome_line(outcome)
            }
            Head::Parked if pick.is_multiple_of(3) => {
                self.unblock();
                "helped".into()
            }
            Head::Paused if pick.is_multiple_of(3) => self.play("resume"),
            Head::Parked | Head::Paused | Head::Ended => "-".into(),
        }
    }

    /// Decides before an outsider's event arrives and writes afterwards. The journal has then grown,
    /// so the same input is decided again.
    pub(crate) fn race(&mut self, pick: usize, line: &str) -> String {
        if self.rows.head != Head::Leased {
            return self.play(line);
        }
        let input = self.next_input(pick);
        let first = self.decide_only(input.clone(), None);
        let before = self.run.seq();
        let result = self.play(line);
        if self.run.seq() == before || self.rows.head != Head::Leased {
            return result;
        }
        assert!(first.is_ok(), "the result of the step was not accepted: {first:?}");
        match self.send_input(input) {
            InputOutcome::Events(events) => {
                format!("{result} then {}", outcome_line(InputOutcome::Events(events)))
            }
            outcome => panic!("the input was not accepted after `{line}`: {outcome:?}"),
        }
    }

    /// Returns the input of a driver that has executed the next step, with the approvals of the agent
    /// and the project that cover its calls.
    fn next_input(&self, pick: usize) -> RunInput {
        self.with_approvals_beyond_one_run(self.next_plain_input(pick))
    }

    fn next_plain_input(&self, pick: usize) -> RunInput {
        let is_cancelling = self.run.is_cancelling();
        match next_engine_step(&self.run, self.now) {
            EngineStep::Prepare if pick == 1 => RunInput::MissingDependency("set a key".into()),
            // A window so small that a few messages fill it.
            EngineStep::Prepare if pick.is_multiple_of(3) => {
                inputs::prepared_with_window(700, (pick % 2 == 1).then_some("cheap/x"))
            }
            EngineStep::Prepare => inputs::prepared(
                ["scripted/spare", "identical_calls=5", "no_progress=9"].into_iter(),
            ),
            EngineStep::RefreshPerception if pick == 1 => {
                RunInput::MissingDependency("no context provider".into())
            }
            EngineStep::RefreshPerception => {
                inputs::perception_refreshed(["", "rain", "sun"][pick % 3])
            }
            EngineStep::AskModel(_) if is_cancelling => inputs::failed(FailureClass::Stopped, None),
            EngineStep::AskModel(_) if self.run.has_interrupting_steer() => match pick % 3 {
                0 => inputs::interrupted("Half a"),
                1 => inputs::interrupted(""),
                _ => reply(pick),
            },
            // A retry fails again, half of the time.
            EngineStep::AskModel(request) if request.attempt > 1 && pick < 20 => {
                inputs::failed(FailureClass::Overloaded, None)
            }
            EngineStep::AskModel(_) => reply(pick),
            EngineStep::StartChildren(requests) => {
                let calls: Vec<_> = requests.iter().map(|start| start.call.to_string()).collect();
                let problem = pick.is_multiple_of(5).then_some("there is no such agent");
                let options = (pick.is_multiple_of(2), problem);
                self.prepared_children(calls.iter().map(String::as_str), options)
            }
            EngineStep::OpenSandbox => self.sandbox_input(pick),
            EngineStep::SaveWorkspace => inputs::saved_workspace(pick),
            EngineStep::StartGrading => {
                self.prepared_grading(pick.is_multiple_of(9).then_some("there is no model"))
            }
            EngineStep::UseTools(tasks) => tools(&tasks, pick),
            EngineStep::Compact(_) if is_cancelling => inputs::failed(FailureClass::Stopped, None),
            EngineStep::Compact(_) if self.run.has_interrupting_steer() => {
                inputs::interrupted("Half a")
            }
            EngineStep::Compact(request) => match pick % 5 {
                0 => inputs::failed(FailureClass::Network, None),
                1 if pick % 2 == 1 => inputs::failed(FailureClass::Refused, None),
                _ => inputs::compacted(pick % (request.messages.len() + 2)),
            },
            EngineStep::Advance if pick == 2 => RunInput::Release,
            EngineStep::Advance => RunInput::Advance,
            EngineStep::Idle => panic!("a driven run has no next step"),
        }
    }

    /// Brings the run to its end: answers gates, fires timers, raises budgets, lets tools succeed
    /// and lets the model give its final answer.
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
        panic!("the run did not end in {STEPS_MAX} steps: {:?}", self.run.control());
    }

    fn unblock(&mut self) {
        let before = self.run.seq();
        if let Some(WaitReason::Child(child)) = self.run.control().driver.wait() {
            let number =
                self.rows.children.iter().position(|created| created == child).unwrap() + 1;
            let mut open = self.run.control().children.iter();
            let is_grading = open.any(|open| open.id == *child && open.call.is_none());
            self.play(&match is_grading {
                true => format!("child {number} {{\"satisfied\": true, \"note\": \"Good.\"}}"),
                false => format!("child {number} Read."),
            });
            return;
        }
        if let Some(WaitReason::Key(_)) = self.run.control().driver.wait() {
            self.rows.free_keys_of_other_run();
            return;
        }
        self.free_slots();
        if self.run.control().people.gates.is_empty() {
            if let Some(WaitReason::Budget(_)) = self.run.control().driver.wait() {
                self.play("raise money 90000000");
                self.play("raise tokens 90000000");
                self.play("raise turns 1000");
                self.play("raise active 90000");
            }
        } else {
            for line in [
                "yes",
                "yes by cli:bob",
                "yes by cli:cleo",
                "answer All is well.",
                r#"answer {"name": "Ada"}"#,
            ] {
                if self.run.seq() == before {
                    self.play(line);
                }
            }
        }
        // A gate whose deadline has passed accepts no answer, only its timer.
        if self.run.seq() == before {
            self.fire_next();
        }
        let is_stuck = self.rows.head == Head::Parked && self.rows.timers.is_empty();
        assert!(
            self.run.seq() > before || !is_stuck,
            "nothing can wake the run: {:?}",
            self.run.control()
        );
    }
}

fn reply(pick: usize) -> RunInput {
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

fn tools(tasks: &[ToolCallTask], pick: usize) -> RunInput {
    let verify = tasks.iter().find(|task| task.action == ToolCallAction::Verify);
    let started = tasks.iter().filter(|task| task.action == ToolCallAction::Run);
    let is_alone = started.clone().count() == 0;
    if let Some(task) = verify.filter(|_| pick.is_multiple_of(2) || is_alone) {
        let outcome = match pick % 3 {
            0 => VerifyOutcome::NotHappened,
            1 => VerifyOutcome::Unknown,
            _ => VerifyOutcome::Happened(ToolOutput::text("it is there")),
        };
        let call = task.call;
        return RunInput::Verified(ToolVerified { call, outcome }, Vec::new());
    }
    let cancel = tasks.iter().find(|task| task.action == ToolCallAction::Cancel);
    if let Some(task) = cancel.filter(|_| pick.is_multiple_of(3) || is_alone) {
        let result = inputs::tool_result(task.call, ToolCallStatus::Interrupted, "cancelled");
        return RunInput::ToolsDone(vec![result]);
    }
    let status = match pick % 20 {
        // The number with which a run is ended.
        _ if pick == 40 => ToolCallStatus::Completed,
        0 | 5 | 10 | 15 => ToolCallStatus::Interrupted,
        1 | 6 | 11 | 16 => ToolCallStatus::Failed,
        2 => inputs::pending_call(Millis(pick as u64 * 1_000), None),
        8 => inputs::asking_call(pick == 8),
        _ => ToolCallStatus::Completed,
    };
    let count = if pick.is_multiple_of(7) { 1 } else { tasks.len() };
    let results =
        started.take(count).map(|task| inputs::tool_result(task.call, status.clone(), "ok"));
    RunInput::ToolsDone(results.collect())
}
