//! One sentence for every state, and one command that helps: the same words in
//! lists, pages, answers and `longhaul why`.
//!
//! Never: decides. What is said here follows from the fold.

use longhaul_core::id::GateId;
use longhaul_core::policy::budget::Cap;
use longhaul_core::policy::gate::is_unanswerable;
use longhaul_core::status::{Outcome, Status, Wait};

use crate::state::Run;
use crate::state::control::Idle;
use crate::state::stage::Stage;

/// A sentence and a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// What is going on.
    pub message: String,
    /// What helps; empty when nothing is needed.
    pub command: String,
}

/// Says how a run stands.
pub fn explain(run: &Run) -> Explanation {
    let mut said = explain_state(run);
    // What people and models ask brings its own full stop.
    for stop in [".", "?", "!"] {
        if said.message.ends_with(&format!("{stop}.")) {
            said.message.pop();
        }
    }
    said
}

fn explain_state(run: &Run) -> Explanation {
    let id = run.id();
    let said = |sentence: String, command: String| Explanation { message: sentence, command };
    match (&run.control.stage, &run.control.idle) {
        (Stage::Ended(outcome), _) => match outcome {
            Outcome::Completed(_) => said("It completed.".into(), format!("longhaul show {id}")),
            Outcome::Failed(fault) => said(
                format!("It failed: {}.", first_line(&fault.message)),
                format!("longhaul show {id}"),
            ),
            Outcome::Cancelled(why) => said(format!("It was {why}."), String::new()),
        },
        _ if run.is_stopping() => said(
            "It was told to end, and does as soon as its driver hears.".into(),
            format!("longhaul watch {id}"),
        ),
        (_, Some(Idle::Paused)) => said("It is paused.".into(), format!("longhaul resume {id}")),
        (_, Some(Idle::Parked { wait, .. })) => explain_wait(run, wait),
        (_, None) => said(explain_progress(run), format!("longhaul watch {id}")),
    }
}

fn explain_wait(run: &Run, wait: &Wait) -> Explanation {
    let id = run.id();
    let ask = |gate| {
        run.control.open_gate(gate).map_or_else(String::new, |open| format!(": {}", open.ask))
    };
    let (sentence, command) = match wait {
        Wait::Approval(gates) => {
            let first = gates.first().map_or_else(String::new, |gate| ask(*gate));
            let count = gates.len();
            let what = if count > 1 { format!("{count} approvals") } else { "an approval".into() };
            (format!("It waits for {what}{first}."), format!("longhaul approve {id}"))
        }
        Wait::Question(gate) => (
            format!("It waits for an answer{}.", ask(*gate)),
            format!("longhaul answer {gate} TEXT"),
        ),
        Wait::Signal(gate) => {
            (format!("It waits for a signal{}.", ask(*gate)), format!("longhaul gates show {gate}"))
        }
        Wait::Blocked(gate) => {
            (format!("It can't go on{}.", ask(*gate)), unblock_command(run, *gate))
        }
        Wait::Timer(until) => {
            (format!("It waits until {until}."), format!("longhaul steer {id} TEXT"))
        }
        Wait::Child(child) => {
            (format!("It waits for {child} to end."), format!("longhaul why {child}"))
        }
        Wait::RateLimit(until) => (
            format!("The provider wants fewer requests; it asks again at {until}."),
            format!("longhaul steer {id} TEXT"),
        ),
        Wait::Retry(until) => (
            format!("The last call failed in a way that may pass; it tries again at {until}."),
            format!("longhaul steer {id} TEXT"),
        ),
        Wait::SandboxSlot => ("It waits for a free sandbox.".into(), "longhaul sandboxes".into()),
        Wait::Budget(cap) => {
            let (what, more) = raise_argument(run, *cap);
            (
                format!("Its budget of {what} is used up."),
                format!("longhaul resume {id} --budget {more}"),
            )
        }
        Wait::Message(until) => (
            format!("It is done and stays open for a message until {until}."),
            format!("longhaul steer {id} TEXT"),
        ),
        Wait::Worker => ("It waits for a worker.".into(), "longhaul worker".into()),
    };
    Explanation { message: sentence, command }
}

/// What helps a run that can't go on; at some gates no answer does.
fn unblock_command(run: &Run, gate: GateId) -> String {
    let open = run.control.open_gate(gate);
    match open.is_some_and(|open| is_unanswerable(&open.tags)) {
        true => format!("longhaul cancel {}", run.id()),
        false => format!("longhaul answer {gate} TEXT"),
    }
}

/// What is used up, and twice as much of it as it is written on the command line.
fn raise_argument(run: &Run, cap: Cap) -> (&'static str, String) {
    let caps = &run.control.caps;
    match cap {
        Cap::Money => {
            let micros = caps.micro_usd.map_or(0, |micros| micros.0);
            let dollars = micros.saturating_mul(2).div_ceil(1_000_000);
            ("money", format!("usd={}", dollars.max(1)))
        }
        Cap::Tokens => {
            let tokens = caps.tokens.unwrap_or_default().saturating_mul(2);
            ("tokens", format!("tokens={}", tokens.max(100_000)))
        }
        Cap::Turns => {
            let turns = caps.turns.unwrap_or_default().saturating_mul(2);
            ("turns", format!("turns={}", turns.max(10)))
        }
        Cap::ActiveTime => {
            let millis = caps.active.map_or(0, |span| span.0);
            let minutes = millis.saturating_mul(2).div_ceil(60_000);
            ("active time", format!("active_time={}m", minutes.max(10)))
        }
    }
}

fn explain_progress(run: &Run) -> String {
    if run.status() == Status::Pending {
        return "It waits for a worker.".into();
    }
    match &run.control.stage {
        Stage::New => "It gets ready: its tools are opened, and its world is looked at.".into(),
        Stage::ModelPending(_) => "It is about to ask the model.".into(),
        Stage::ModelRunning(asking) => format!("It asks the model, turn {}.", asking.turn),
        Stage::ToolsRunning(acting) => {
            let open = acting.calls.iter().filter(|call| !call.is_done());
            let names: Vec<_> = open.map(|call| call.classification.tool.as_str()).collect();
            format!("It uses {}.", names.join(", "))
        }
        Stage::Concluding(_) => "It is about to end.".into(),
        Stage::Ended(_) => "It has ended.".into(),
    }
}

/// A sentence has no more than one line.
fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default().trim_end_matches('.')
}
