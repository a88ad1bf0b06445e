//! Tests as scripts: each line is an action and its expected outcome.
//!
//! The whole script is compared with the actual outcomes, so no line is skipped.

use longhaul_core::event::run::RunControlRequest;
use longhaul_core::event::steer::SteerMessage;
use longhaul_core::event::tool::{
    LateToolResultEvent, ToolOutput, ToolProgress, ToolVerified, VerifyOutcome,
};
use longhaul_core::id::{GateId, SteerId};
use longhaul_core::message::StopReason;
use longhaul_core::policy::RunPolicy;
use longhaul_core::policy::budget::BudgetRaise;
use longhaul_core::policy::gate::{
    Answer, AnswerScope, GateDecision, GateKind, GateSpec, GateStatus,
};
use longhaul_core::raw::RawJson;
use longhaul_core::time::Millis;
use longhaul_core::usage::MicroUsd;
use longhaul_run::commands::{RunCommand, remembered_scope};
use longhaul_run::input::ToolCallStatus;
use longhaul_run::{RunInput, shared_patterns};

use super::children::replace_child_names;
use super::inputs;
use super::summary::summarize;
use super::{InputOutcome, TestRun};

/// Plays a script of `action => outcome` lines and compares all outcomes.
#[track_caller]
pub(crate) fn check(policy: RunPolicy, script: &str) -> TestRun {
    check_in(TestRun::new(policy), script)
}

/// Like `check`, with an existing run.
#[track_caller]
pub(crate) fn check_in(mut test_run: TestRun, script: &str) -> TestRun {
    let mut before = test_run.status_line();
    let mut actual = Vec::new();
    let mut expected = Vec::new();
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (op, expect) = line.split_once("=>").unwrap_or((line, ""));
        let mut result = test_run.play(op.trim());
        if test_run.status_line() != before {
            before = test_run.status_line();
            result = format!("{result} | {before}");
        }
        expected.push(format!("{} => {}", op.trim(), expect.trim()));
        actual.push(format!("{} => {}", op.trim(), result.trim()));
    }
    let (actual, expected) = (actual.join("\n"), expected.join("\n"));
    assert!(actual == expected, "the actual outcomes are:\n{actual}\n");
    test_run
}

impl TestRun {
    /// Executes one line and returns its outcome as a short text.
    pub(crate) fn play(&mut self, line: &str) -> String {
        let line = &*replace_child_names(line, true);
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        match verb {
            "?" => self.show(rest),
            "claim" => outcome_line(self.claim()),
            "crash" => outcome_line(self.crash()),
            "tick" => self.tick(Millis::from_secs(rest.parse().unwrap())),
            "fire" => self.fire_next(),
            "others" => {
                let mut amounts = rest.split(' ').map(|amount| amount.parse().unwrap());
                self.rows.set_others(amounts.next().unwrap(), amounts.next().unwrap());
                String::new()
            }
            "limit" => {
                let duration = Millis::from_secs(rest.parse().unwrap());
                self.provider_blocked_until = Some(self.now.plus(duration));
                String::new()
            }
            "key" => {
                let (state, key) = rest.split_once(' ').unwrap();
                self.rows.change_key_of_other_run(state, key);
                String::new()
            }
            "raise" => outcome_line(self.raise_budget(raise(rest).unwrap_or_default())),
            "box" => self.play_box(rest),
            "idle" => self.change_idle_sandbox(rest),
            "drive" => self.drive(rest.parse().unwrap()),
            "race" => {
                let (pick, line) = rest.split_once(' ').unwrap();
                self.race(pick.parse().unwrap(), line)
            }
            _ => match self.input(verb, rest) {
                Some(input) => outcome_line(self.send_input(input)),
                None => "-".into(),
            },
        }
    }

    /// Returns the input for a line. `None` means that there is nothing it could apply to.
    pub(crate) fn input(&mut self, verb: &str, rest: &str) -> Option<RunInput> {
        let input = match verb {
            "spawn" => {
                let (calls, background) = match rest.strip_suffix(" background") {
                    Some(calls) => (calls, true),
                    None => (rest, false),
                };
                Some(self.prepared_children(calls.split(' '), (background, None)))
            }
            "unspawn" => Some(self.prepared_children(["t1.1"].into_iter(), (false, Some(rest)))),
            "grade" => Some(self.prepared_grading(None)),
            "ungrade" => Some(self.prepared_grading(Some(rest))),
            _ => driver(verb, rest),
        };
        match input {
            Some(input) => Some(self.with_approvals_beyond_one_run(input)),
            None => self.outsider(verb, rest).map(RunInput::Command),
        }
    }

    /// Adds the approvals of the agent and the project to the calls of a reply, as the engine does.
    pub(crate) fn with_approvals_beyond_one_run(&self, mut input: RunInput) -> RunInput {
        if let RunInput::ModelReplied(reply) = &mut input {
            for call in &mut reply.calls {
                let patterns = shared_patterns(&self.run.task().policy, call);
                let rules = self
                    .rows
                    .active_remembered_approvals()
                    .filter(|rule| rule.scope.run().is_none());
                let rules = rules.filter(|rule| patterns.contains(&rule.pattern));
                call.approvals = rules.cloned().map(Into::into).collect();
            }
        }
        input
    }

    fn outsider(&mut self, verb: &str, rest: &str) -> Option<RunCommand> {
        let by = || "cli:anna".to_owned();
        Some(match verb {
            "yes" | "no" | "edit" | "answer" | "complete" => return self.answer(verb, rest),
            "child" => return self.child_end(rest),
            "signal" => {
                self.steers_written += 1;
                let id = GateId::from_bits(self.steers_written);
                let gate = GateSpec::new(id, GateKind::Signal, rest);
                RunCommand::RaiseSignalGate(Box::new(GateSpec {
                    timeout: Some(Millis::from_secs(600)),
                    ..gate
                }))
            }
            "steer" => {
                let (delivery, text) = rest.split_once(' ').unwrap_or((rest, "Hurry."));
                self.steers_written += 1;
                RunCommand::Steer(SteerMessage {
                    steer: SteerId::from_bits(self.steers_written),
                    text: text.into(),
                    delivery: inputs::delivery_of(delivery),
                    by: by(),
                    is_task: false,
                })
            }
            "unsteer" => RunCommand::WithdrawSteer {
                steer: SteerId::from_bits(rest.parse().unwrap_or(self.steers_written)),
                by: by(),
            },
            "resteer" => {
                let (delivery, text) = rest.split_once(' ').unwrap_or((rest, "Take your time."));
                RunCommand::ChangeSteer(SteerMessage {
                    steer: SteerId::from_bits(self.steers_written),
                    text: text.into(),
                    delivery: inputs::delivery_of(delivery),
                    by: by(),
                    is_task: false,
                })
            }
            "cancel" => RunCommand::Cancel { by: by(), reason: rest.into() },
            "pause" => RunCommand::Pause { by: by() },
            "resume" => RunCommand::Resume { by: by(), raise: raise(rest), raises_tree: false },
            "revoke" => {
                let mut rows: Vec<_> = self.rows.active_remembered_approvals().cloned().collect();
                rows.sort_by_key(|row| row.scope.run().is_none());
                let row = rows.into_iter().next()?;
                if row.scope.run().is_none() {
                    self.rows.revoke_rule(row.rule, by(), self.now).unwrap();
                    return None;
                }
                RunCommand::RevokeRule { rule: row.rule, by: by() }
            }
            "surface" => {
                let (call, text) = rest.split_once(' ').unwrap_or((rest, "it worked"));
                RunCommand::SurfaceResult(LateToolResultEvent {
                    call: call.parse().unwrap(),
                    is_error: false,
                    output: ToolOutput::text(text),
                })
            }
            other => panic!("unknown action `{other}`"),
        })
    }

    /// Parses `yes`, `yes run` (or another scope), `yes by bob`, `no`, `no NOTE`, `edit JSON` and `answer TEXT`. The
    /// answer goes to the oldest open gate, or to gate 2 with `yes @2`. `blind` sends no digest,
    /// `stale` a wrong one, `yes note TEXT` adds a note, and `yes data JSON`
    /// adds a payload.
    fn answer(&mut self, verb: &str, rest: &str) -> Option<RunCommand> {
        let (index, rest) = match rest.strip_prefix('@') {
            Some(rest) => {
                let (index, rest) = rest.split_once(' ').unwrap_or((rest, ""));
                (Some(index.parse::<usize>().unwrap() - 1), rest)
            }
            None => (None, rest),
        };
        let (rest, by) = rest.split_once("by ").unwrap_or((rest, "cli:anna"));
        let (rest, payload) = match rest.split_once("data ") {
            Some((rest, data)) => (rest, Some(RawJson::parse(data.trim()).unwrap())),
            None => (rest, None),
        };
        let rest = rest.trim();
        let open = |gate: &&longhaul_core::policy::gate::GateRow| gate.status == GateStatus::Open;
        let gate = match index {
            Some(index) => self.rows.gates.get(index)?,
            None => self.rows.gates.iter().find(open)?,
        };
        let decision = match verb {
            "yes" => GateDecision::Approve,
            "no" => GateDecision::Reject,
            "edit" => GateDecision::Edit(RawJson::parse(rest).unwrap()),
            "answer" => GateDecision::Answer(rest.into()),
            _ => GateDecision::Complete,
        };
        let scope = AnswerScope::ALL.into_iter().find(|scope| scope.as_str() == rest);
        let note = match (verb, rest.strip_prefix("note ")) {
            (_, Some(text)) => Some(text.to_owned()),
            ("no", None) if !rest.is_empty() && scope.is_none() => Some(rest.to_owned()),
            _ => None,
        };
        let digest = match rest {
            "blind" => None,
            "stale" => Some(longhaul_core::raw::Hash::digest(b"another thing")),
            _ => gate.spec.digest.map(|_| current_digest(gate)),
        };
        let answer = Answer {
            decision,
            by: by.into(),
            scope: scope.unwrap_or_default(),
            note,
            payload,
            digest,
        };
        let agent = self.run.task().agent.clone();
        let scope = remembered_scope(gate, &answer, agent.clone());
        let has_rule = self.rows.active_remembered_approvals().any(|rule| {
            Some(&rule.scope) == scope.as_ref() && Some(&rule.pattern) == gate.spec.pattern.as_ref()
        });
        Some(RunCommand::Answer { gate: Box::new(gate.clone()), answer, agent, has_rule })
    }

    /// Advances the time and fires all due timers in order.
    pub(crate) fn tick(&mut self, duration: Millis) -> String {
        let until = self.now.plus(duration);
        let mut results = Vec::new();
        while let Some((due, _)) = self.rows.first_timer().filter(|(due, _)| *due <= until) {
            self.now = self.now.max(due);
            results.push(self.fire_next());
        }
        self.now = until;
        results.retain(|results| !results.is_empty());
        results.join(" ")
    }

    /// Advances the time to the first timer and fires it.
    pub(crate) fn fire_next(&mut self) -> String {
        let Some((due, timer)) = self.rows.first_timer() else {
            return "-".into();
        };
        self.now = self.now.max(due);
        let due = self.rows.due_timer(timer).unwrap();
        let outcome = self.send_input(RunInput::Command(RunCommand::Timer(Box::new(due))));
        assert!(
            matches!(outcome, InputOutcome::Events(_)),
            "the timer was not accepted: {outcome:?}"
        );
        outcome_line(outcome)
    }
}

/// Returns the input of a driver, or of a process that closes the run.
fn driver(verb: &str, rest: &str) -> Option<RunInput> {
    let (first, text) = rest.split_once(' ').unwrap_or((rest, ""));
    let call = || first.parse().unwrap();
    let tool_result = |end| Some(RunInput::ToolsDone(vec![inputs::tool_result(call(), end, text)]));
    match verb {
        "go" => Some(RunInput::Advance),
        "see" => Some(inputs::prepared(rest.split_whitespace())),
        "peer" => Some(inputs::prepared_with_window(
            first.parse().unwrap(),
            Some(text).filter(|text| !text.is_empty()),
        )),
        "pour" => {
            let text = "x".repeat(text.parse().unwrap());
            let done = inputs::tool_result(call(), ToolCallStatus::Completed, &text);
            Some(RunInput::ToolsDone(vec![done]))
        }
        "look" => Some(inputs::perception_refreshed(rest)),
        "checked" => Some(inputs::replied_with_check(rest)),
        "late" => {
            Some(RunInput::TimeoutPassed { elapsed: Millis::from_secs(rest.parse().unwrap()) })
        }
        "progress" => Some(RunInput::Progress(ToolProgress {
            call: call(),
            percent: None,
            message: text.into(),
        })),
        "say" => Some(inputs::replied(rest, "", StopReason::EndTurn)),
        "call" => Some(inputs::replied("", rest, StopReason::ToolUse)),
        "cut" => Some(inputs::replied("I was about to", rest, StopReason::MaxTokens)),
        "refuse" => Some(inputs::replied("I won't.", rest, StopReason::Refusal)),
        "hold" => Some(inputs::replied("One moment.", rest, StopReason::PauseTurn)),
        "continue" => Some(inputs::replied(rest, "", StopReason::PauseTurn)),
        "err" => Some(inputs::failed(inputs::class_of(first), text.parse().ok())),
        "waste" => Some(inputs::failed_with_cost(inputs::class_of(first), text.parse().ok())),
        "halt" => Some(inputs::interrupted(rest)),
        "sum" => Some(inputs::compacted(rest.parse().unwrap())),
        "done" => tool_result(ToolCallStatus::Completed),
        "fail" => tool_result(ToolCallStatus::Failed),
        "kill" => tool_result(ToolCallStatus::Interrupted),
        "lose" => tool_result(ToolCallStatus::Unknown),
        "ask" => tool_result(inputs::asking_call(text == "task")),
        "pend" => {
            let (after, ttl) = text.split_once(' ').unwrap_or((text, ""));
            let seconds = |text: &str| text.parse().ok().map(Millis::from_secs);
            tool_result(inputs::pending_call(seconds(after).unwrap(), seconds(ttl)))
        }
        "found" => {
            let outcome = match text {
                "nothing" => VerifyOutcome::NotHappened,
                "unknown" => VerifyOutcome::Unknown,
                text => VerifyOutcome::Happened(ToolOutput::text(text)),
            };
            let call = call();
            Some(RunInput::Verified(ToolVerified { call, outcome }, Vec::new()))
        }
        "recover" => Some(RunInput::Recover),
        "loop" => Some(RunInput::CrashLoop),
        "missing" => Some(RunInput::MissingDependency(rest.into())),
        "release" => Some(RunInput::Release),
        "close" => Some(RunInput::CancelNow(
            RunControlRequest::from_principal("cli:anna").with_reason(rest),
        )),
        "still" => Some(RunInput::PauseNow { by: "cli:anna".into() }),
        "end" => Some(RunInput::CloseNow { by: "cli:anna".into() }),
        _ => None,
    }
}

fn raise(rest: &str) -> Option<BudgetRaise> {
    let (cap_name, value) = rest.split_once(' ')?;
    let value: u64 = value.parse().unwrap();
    let mut raise = BudgetRaise::default();
    match cap_name {
        "money" => raise.micro_usd = Some(MicroUsd(value)),
        "tokens" => raise.tokens = Some(value),
        "turns" => raise.turns = u32::try_from(value).ok(),
        _ => raise.active = Some(Millis::from_secs(value)),
    }
    Some(raise)
}

/// Returns the digest that the gate currently shows.
fn current_digest(gate: &longhaul_core::policy::gate::GateRow) -> longhaul_core::raw::Hash {
    let edit = gate.answers.iter().rev().find_map(|recorded| {
        let GateDecision::Edit(edited) = &recorded.answer.decision else {
            return None;
        };
        Some(edited)
    });
    let original = gate.spec.digest.unwrap();
    let Some(edited) = edit else {
        return original;
    };
    let edited_value = serde_json::from_str(edited.as_str());
    let edited_value = edited_value.unwrap_or_else(|_| serde_json::Value::from(edited.as_str()));
    let value = serde_json::json!({ "v": 1, "original": original, "edited": edited_value });
    longhaul_core::raw::Hash::digest(longhaul_core::raw::canonical_json(&value).as_bytes())
}

/// Returns the outcome as a short text.
pub(crate) fn outcome_line(outcome: InputOutcome) -> String {
    match outcome {
        InputOutcome::Events(events) => events.iter().map(summarize).collect::<Vec<_>>().join(" "),
        InputOutcome::Rejected(rejection) => format!("!{}", rejection.code()),
        InputOutcome::RowConflict(reason) => format!("!{reason}"),
    }
}
