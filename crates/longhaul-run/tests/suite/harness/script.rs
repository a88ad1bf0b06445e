//! Tests as text: each line is something that happens, and what comes of it.
//!
//! Never: hides a line. The whole script is compared with what really happened.

use longhaul_core::event::steer::SteerMessage;
use longhaul_core::event::tool::{
    ToolOutput, ToolProgress, ToolSurfaced, ToolVerified, VerifyOutcome,
};
use longhaul_core::id::SteerId;
use longhaul_core::message::StopReason;
use longhaul_core::policy::Policy;
use longhaul_core::policy::budget::BudgetRaise;
use longhaul_core::policy::gate::{Answer, Decision, GateStatus, Scope};
use longhaul_core::raw::RawJson;
use longhaul_core::time::Millis;
use longhaul_core::usage::MicroUsd;
use longhaul_run::Input;
use longhaul_run::commands::RunCommand;
use longhaul_run::input::ToolCallStatus;

use super::inputs;
use super::summary::summarize;
use super::{TellOutcome, TestRun};

/// Plays a script of `line => what comes of it` and compares the whole of it.
#[track_caller]
pub(crate) fn check(policy: Policy, script: &str) -> TestRun {
    check_in(TestRun::new(policy), script)
}

/// The same in a world that stands already.
#[track_caller]
pub(crate) fn check_in(mut world: TestRun, script: &str) -> TestRun {
    let mut before = world.status_line();
    let mut went = Vec::new();
    let mut expected = Vec::new();
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (op, expect) = line.split_once("=>").unwrap_or((line, ""));
        let mut came = world.play(op.trim());
        if world.status_line() != before {
            before = world.status_line();
            came = format!("{came} | {before}");
        }
        expected.push(format!("{} => {}", op.trim(), expect.trim()));
        went.push(format!("{} => {}", op.trim(), came.trim()));
    }
    let (went, expected) = (went.join("\n"), expected.join("\n"));
    assert!(went == expected, "it went like this:\n{went}\n");
    world
}

impl TestRun {
    /// Lets one line happen, and says in short what came of it.
    pub(crate) fn play(&mut self, line: &str) -> String {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        match verb {
            "?" => self.show(rest),
            "claim" => outcome_line(self.claim()),
            "crash" => outcome_line(self.crash()),
            "tick" => self.tick(Millis::from_secs(rest.parse().unwrap())),
            "fire" => self.fire_next(),
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

    /// The input that a line stands for; none: there is nothing to say it to.
    pub(crate) fn input(&mut self, verb: &str, rest: &str) -> Option<Input> {
        driver(verb, rest).or_else(|| self.outsider(verb, rest).map(Input::Command))
    }

    fn outsider(&mut self, verb: &str, rest: &str) -> Option<RunCommand> {
        let by = || "cli:anna".to_owned();
        Some(match verb {
            "yes" | "no" | "edit" | "answer" | "complete" => return self.answer(verb, rest),
            "steer" => {
                let (delivery, text) = rest.split_once(' ').unwrap_or((rest, "Hurry."));
                self.steers_written += 1;
                RunCommand::Steer(SteerMessage {
                    steer: SteerId::from_bits(self.steers_written),
                    text: text.into(),
                    delivery: inputs::delivery_of(delivery),
                    by: by(),
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
                })
            }
            "cancel" => RunCommand::Cancel { by: by(), reason: rest.into() },
            "pause" => RunCommand::Pause { by: by() },
            "resume" => RunCommand::Resume { by: by(), raise: raise(rest) },
            "raise" => RunCommand::RaiseBudget { raise: raise(rest).unwrap_or_default(), by: by() },
            "revoke" => RunCommand::RevokeRule {
                rule: self.rows.rules.iter().find(|rule| rule.active)?.clone(),
                by: by(),
            },
            "surface" => {
                let (call, text) = rest.split_once(' ').unwrap_or((rest, "it worked"));
                RunCommand::SurfaceResult(ToolSurfaced {
                    call: call.parse().unwrap(),
                    is_error: false,
                    output: ToolOutput::text(text),
                })
            }
            other => panic!("nobody knows what `{other}` means"),
        })
    }

    /// `yes`, `yes run`, `yes by bob`, `no`, `no NOTE`, `edit JSON`, `answer WORDS`,
    /// each at the oldest open gate, or at gate 2 with `yes @2`; `blind` names no
    /// digest and `stale` a wrong one, `yes note WORDS` says something with it.
    fn answer(&mut self, verb: &str, rest: &str) -> Option<RunCommand> {
        let (place, rest) = match rest.strip_prefix('@') {
            Some(rest) => {
                let (place, rest) = rest.split_once(' ').unwrap_or((rest, ""));
                (Some(place.parse::<usize>().unwrap() - 1), rest)
            }
            None => (None, rest),
        };
        let (rest, by) = rest.split_once("by ").unwrap_or((rest, "cli:anna"));
        let rest = rest.trim();
        let open = |gate: &&longhaul_core::policy::gate::GateRow| gate.status == GateStatus::Open;
        let gate = match place {
            Some(place) => self.rows.gates.get(place)?,
            None => self.rows.gates.iter().find(open)?,
        };
        let decision = match verb {
            "yes" => Decision::Approve,
            "no" => Decision::Reject,
            "edit" => Decision::Edit(RawJson::parse(rest).unwrap()),
            "answer" => Decision::Answer(rest.into()),
            _ => Decision::Complete,
        };
        let note = match (verb, rest.strip_prefix("note ")) {
            (_, Some(words)) => Some(words.to_owned()),
            ("no", None) if !rest.is_empty() && rest != "run" => Some(rest.to_owned()),
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
            scope: if rest == "run" { Scope::Run } else { Scope::Once },
            note,
            payload: None,
            digest,
        };
        Some(RunCommand::Answer { gate: Box::new(gate.clone()), answer })
    }

    /// Lets time pass and tells every timer that is due, in order.
    pub(crate) fn tick(&mut self, span: Millis) -> String {
        let until = self.now.plus(span);
        let mut came = Vec::new();
        while let Some((due, _)) = self.rows.first_timer().filter(|(due, _)| *due <= until) {
            self.now = self.now.max(due);
            came.push(self.fire_next());
        }
        self.now = until;
        came.retain(|came| !came.is_empty());
        came.join(" ")
    }

    /// Waits for the first timer and tells it.
    pub(crate) fn fire_next(&mut self) -> String {
        let Some((due, timer)) = self.rows.first_timer() else {
            return "-".into();
        };
        self.now = self.now.max(due);
        let due = self.rows.due_timer(timer).unwrap();
        let told = self.send_input(Input::Command(RunCommand::Timer(Box::new(due))));
        assert!(matches!(told, TellOutcome::Events(_)), "a timer is told: {told:?}");
        outcome_line(told)
    }
}

/// What a driver, or whoever closes the run, says.
fn driver(verb: &str, rest: &str) -> Option<Input> {
    let (first, text) = rest.split_once(' ').unwrap_or((rest, ""));
    let call = || first.parse().unwrap();
    let one = |end| Some(Input::ToolsDone(vec![inputs::tool_result(call(), end, text)]));
    match verb {
        "go" => Some(Input::Advance),
        "see" => Some(inputs::prepared(rest.split_whitespace())),
        "peer" => Some(inputs::prepared_with_window(
            first.parse().unwrap(),
            Some(text).filter(|text| !text.is_empty()),
        )),
        "pour" => {
            let text = "x".repeat(text.parse().unwrap());
            let done = inputs::tool_result(call(), ToolCallStatus::Completed, &text);
            Some(Input::ToolsDone(vec![done]))
        }
        "look" => Some(inputs::perception_refreshed(rest)),
        "judged" => Some(inputs::replied_with_check(rest)),
        "progress" => Some(Input::Progress(ToolProgress {
            call: call(),
            percent: None,
            message: text.into(),
        })),
        "say" => Some(inputs::replied(rest, "", StopReason::EndTurn)),
        "call" => Some(inputs::replied("", rest, StopReason::ToolUse)),
        "cut" => Some(inputs::replied("I was about to", rest, StopReason::MaxTokens)),
        "refuse" => Some(inputs::replied("I won't.", rest, StopReason::Refusal)),
        "hold" => Some(inputs::replied("One moment.", rest, StopReason::PauseTurn)),
        "err" => Some(inputs::failed(inputs::class_of(first), text.parse().ok())),
        "waste" => Some(inputs::failed_with_cost(inputs::class_of(first), text.parse().ok())),
        "halt" => Some(inputs::interrupted(rest)),
        "sum" => Some(inputs::compacted(rest.parse().unwrap())),
        "done" => one(ToolCallStatus::Completed),
        "fail" => one(ToolCallStatus::Failed),
        "kill" => one(ToolCallStatus::Interrupted),
        "lose" => one(ToolCallStatus::Unknown),
        "found" => {
            let finding = match text {
                "nothing" => VerifyOutcome::NotHappened,
                "unknown" => VerifyOutcome::Unknown,
                text => VerifyOutcome::Happened(ToolOutput::text(text)),
            };
            let call = call();
            Some(Input::Verified(ToolVerified { call, outcome: finding }, Vec::new()))
        }
        "recover" => Some(Input::Recover),
        "loop" => Some(Input::CrashLoop),
        "missing" => Some(Input::MissingDependency(rest.into())),
        "release" => Some(Input::Release),
        "close" => Some(Input::CancelNow { by: "cli:anna".into(), reason: rest.into() }),
        "still" => Some(Input::PauseNow { by: "cli:anna".into() }),
        _ => None,
    }
}

fn raise(rest: &str) -> Option<BudgetRaise> {
    let (what, many) = rest.split_once(' ')?;
    let many: u64 = many.parse().unwrap();
    let mut raise = BudgetRaise::default();
    match what {
        "money" => raise.micro_usd = Some(MicroUsd(many)),
        "tokens" => raise.tokens = Some(many),
        "turns" => raise.turns = u32::try_from(many).ok(),
        _ => raise.active = Some(Millis::from_secs(many)),
    }
    Some(raise)
}

/// The digest that whoever looks at the gate now is shown.
fn current_digest(gate: &longhaul_core::policy::gate::GateRow) -> longhaul_core::raw::Hash {
    let edit = gate.answers.iter().rev().find_map(|given| {
        let Decision::Edit(edited) = &given.answer.decision else {
            return None;
        };
        Some(edited)
    });
    let original = gate.spec.digest.unwrap();
    let Some(edited) = edit else {
        return original;
    };
    let exact = serde_json::from_str(edited.as_str());
    let exact = exact.unwrap_or_else(|_| serde_json::Value::from(edited.as_str()));
    let value = serde_json::json!({ "v": 1, "original": original, "edited": exact });
    longhaul_core::raw::Hash::digest(longhaul_core::raw::canonical_json(&value).as_bytes())
}

/// What came of it, in short.
pub(crate) fn outcome_line(told: TellOutcome) -> String {
    match told {
        TellOutcome::Events(events) => events.iter().map(summarize).collect::<Vec<_>>().join(" "),
        TellOutcome::Rejected(refusal) => format!("!{}", refusal.code()),
        TellOutcome::RowConflict(why) => format!("!{why}"),
    }
}
