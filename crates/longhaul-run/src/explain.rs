//! Explains the state of a run in one sentence and suggests a command. Lists, pages, API responses
//! and `longhaul why` all show this text.

use longhaul_core::id::{GateId, RunId};
use longhaul_core::policy::budget::BudgetCap;
use longhaul_core::policy::gate::has_submit_again_tag;
use longhaul_core::status::{RunOutcome, Status};
use longhaul_core::wait::{SpendCapShortage, SpendCapWait, WaitReason};

use crate::state::Run;
use crate::state::call::ToolCallState;
use crate::state::driver::Activity;
use crate::state::stage::RunStage;

/// Explanation of a run's state, with a suggested command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateExplanation {
    /// Sentence that says what the run is doing or waiting for.
    pub message: String,
    /// Suggested `longhaul` command. Empty if no action is needed.
    pub command: String,
}

/// Explains the state of a run in one or two sentences and suggests a command.
pub fn explain_run_state(run: &Run) -> StateExplanation {
    let mut explanation = explain_state(run);
    // Questions from people and models may already end with a punctuation mark.
    if ["..", "?.", "!."].iter().any(|end| explanation.message.ends_with(end)) {
        explanation.message.pop();
    }
    explanation
}

/// Explains the state of a run in one or two sentences and suggests a command. The text may end
/// with two punctuation marks, such as `?.`, which the caller corrects.
fn explain_state(run: &Run) -> StateExplanation {
    let id = run.id();
    let explanation = |message: String, command: String| StateExplanation { message, command };
    match (&run.control.stage, &run.control.driver.activity) {
        (RunStage::Ended(ended), _) => match &ended.outcome {
            RunOutcome::Completed(_) => {
                explanation("The run completed.".into(), format!("longhaul show {id}"))
            }
            RunOutcome::Failed(error) => {
                // A child run can't be retried on its own.
                let is_child = run.task().root != id && run.task().chain.is_none();
                let command = if is_child { "show" } else { "retry" };
                let mut message = first_line_without_period(&error.message).to_owned();
                // Only this hint has a command that a person must know before the retry.
                if error.hint.contains("longhaul free-key") {
                    message = format!("{message}; {}", error.hint);
                }
                let message = format!("The run failed: {message}.");
                explanation(message, format!("longhaul {command} {id}"))
            }
            RunOutcome::Cancelled(cancellation) => {
                explanation(format!("The run was {cancellation}."), String::new())
            }
        },
        _ if run.is_cancelling() => explanation(
            "The run is being cancelled; it ends as soon as its driver sees the request.".into(),
            format!("longhaul watch {id}"),
        ),
        (_, Activity::Paused) => {
            explanation("The run is paused.".into(), format!("longhaul resume {id}"))
        }
        (_, Activity::Parked { wait, .. }) => explain_wait(run, wait),
        (_, Activity::Ready | Activity::Driven) => {
            let overdue = match run.control.attempt.overdue {
                true => " It takes longer than its soft timeout.",
                false => "",
            };
            let message = format!("{}{overdue}", explain_progress(run));
            explanation(message, format!("longhaul watch {id}"))
        }
    }
}

fn explain_wait(run: &Run, wait: &WaitReason) -> StateExplanation {
    let row = wait.row();
    let fill_in = |text| wait.fill_in(text, |fact| wait_fact(run, wait, fact));
    StateExplanation { message: fill_in(row.sentence), command: fill_in(row.command) }
}

/// Returns a fact about a wait that is not part of the wait itself, for the texts of its row. `None`
/// if this is no such fact.
fn wait_fact(run: &Run, wait: &WaitReason, fact: &str) -> Option<String> {
    let control = &run.control;
    Some(match (fact, wait) {
        ("id", _) => run.id().to_string(),
        ("approvals", WaitReason::Approval(gates)) => match gates.len() {
            0 | 1 => "an approval".to_owned(),
            count => format!("{count} approvals"),
        },
        ("approve", WaitReason::Approval(gates)) => approve_command(run, gates),
        ("question", WaitReason::Approval(gates)) => question_suffix(run, *gates.first()?),
        (
            "question",
            WaitReason::Question(gate) | WaitReason::Signal(gate) | WaitReason::Blocked(gate),
        ) => question_suffix(run, *gate),
        ("answer", WaitReason::Question(gate)) => answer_command(run, *gate),
        ("unblock", WaitReason::Blocked(gate)) => unblock_command(run, *gate),
        ("children", WaitReason::Child(child)) => child_wait_suffix(run, *child),
        ("tool", WaitReason::Tool(_)) => pending_tool_text(run),
        ("cause", WaitReason::Retry(_)) => match control.attempt.timed_out {
            true => "attempt reached its hard timeout".to_owned(),
            false => "last call failed with a transient error".to_owned(),
        },
        ("end", WaitReason::Outage(outage)) => {
            outage.since.plus(control.policy.retry.outage).to_string()
        }
        ("cap", WaitReason::Budget(cap)) => cap.name().to_owned(),
        ("tree", WaitReason::Budget(_)) => match is_child_at_shared_budget_cap(run) {
            true => " of its whole tree".to_owned(),
            false => String::new(),
        },
        ("raise", WaitReason::Budget(cap)) => {
            let payer = if is_child_at_shared_budget_cap(run) { run.task().root } else { run.id() };
            raise_command(run, payer, *cap)
        }
        ("subject", WaitReason::Cap(SpendCapWait { subject, .. })) => match subject.as_str() {
            "" => String::new(),
            capped_name => format!(" of {capped_name}"),
        },
        ("shortage", WaitReason::Cap(wait)) => shortage_suffix(wait),
        ("raise_cap", WaitReason::Cap(wait)) => cap_raise_command(wait),
        ("start", WaitReason::StartAt(at)) => format!(", {at}"),
        _ => return None,
    })
}

/// Returns a colon and the question of an open gate, or an empty text if the gate is closed.
fn question_suffix(run: &Run, gate: GateId) -> String {
    run.control.find_open_gate(gate).map_or_else(String::new, |open| format!(": {}", open.ask))
}

/// Returns the name of the tool whose result the run waits for, with the last message of the tool.
fn pending_tool_text(run: &Run) -> String {
    let mut calls = run.control.calls().iter();
    let pending = calls.find(|call| matches!(call.state, ToolCallState::Pending(_)));
    let tool = pending.map_or("a tool", |call| call.classification.tool.as_str());
    let message = pending.and_then(|call| call.suspended.as_ref()?.message.as_deref());
    let note = message.map_or_else(String::new, |message| {
        let line: String = first_line_without_period(message).chars().take(300).collect();
        format!(" ({line})")
    });
    format!("`{tool}`{note}")
}

/// Maximum number of gates that a suggested command names.
const NAMED_GATES_MAX: usize = 4;

/// Returns the command that approves what the run waits for. A run stands for its only open gate, so
/// one of several gates is named.
fn approve_command(run: &Run, gates: &[GateId]) -> String {
    let id = run.id();
    if run.control.people.gates.len() == 1 {
        return format!("longhaul approve {id}");
    }
    if gates.len() > NAMED_GATES_MAX {
        return format!("longhaul gates --run {id}");
    }
    let commands: Vec<_> = gates.iter().map(|gate| format!("longhaul approve {gate}")).collect();
    commands.join(" && ")
}

fn is_child_at_shared_budget_cap(run: &Run) -> bool {
    run.task().is_child() && run.control.budget.exhausted_shared_cap().is_some()
}

/// Returns the command that raises the budget of a whole tree of runs through a child run, which is
/// possible after the root run has ended. `None` if the run does not wait for this budget.
pub fn command_to_raise_shared_budget(run: &Run) -> Option<String> {
    let Some(WaitReason::Budget(cap)) = run.control.driver.wait() else { return None };
    is_child_at_shared_budget_cap(run).then(|| raise_command(run, run.id(), *cap))
}

fn raise_command(run: &Run, payer: RunId, cap: BudgetCap) -> String {
    format!("longhaul resume {payer} --budget {}", raise_argument(run, cap))
}

fn child_wait_suffix(run: &Run, child: RunId) -> String {
    let mut open = run.control.children.iter();
    if open.any(|open| open.id == child && open.call.is_none()) {
        let (round, rounds) = (run.control.outcome.next_round(), run.control.policy.outcome_rounds);
        let rounds = rounds.unwrap_or_default();
        return format!(", which grades its result (round {round} of {rounds})");
    }
    match run.control.children.len() {
        0 | 1 => " to end".to_owned(),
        2 => " and 1 more child run to end".to_owned(),
        open => format!(" and {} more child runs to end", open - 1),
    }
}

fn shortage_suffix(SpendCapWait { cap, shortage, .. }: &SpendCapWait) -> String {
    let amounts = shortage.map(|SpendCapShortage { needed, left, limit }| {
        let [needed, left, limit] =
            [needed, left, limit].map(|amount| cap_amount_text(cap, amount));
        format!(", which needs up to {needed} (left: {left} of {limit})")
    });
    amounts.unwrap_or_default()
}

/// Returns the unit of a spend cap. The id of a cap names its unit and whose usage it counts, such as
/// `day-usd-key`.
fn unit_of_cap_id(cap: &str) -> &str {
    cap.split('-').nth(1).unwrap_or_default()
}

/// Returns an amount of a spend cap with its unit.
fn cap_amount_text(cap_id: &str, amount: u64) -> String {
    match unit_of_cap_id(cap_id) {
        "usd" => format!("${}", dollars_text(amount)),
        unit if amount == 1 => format!("1 {}", unit.trim_end_matches('s')),
        unit => format!("{amount} {unit}"),
    }
}

/// Returns an amount of millionths of a dollar in dollars, rounded up to a cent.
pub fn dollars_text(micro_usd: u64) -> String {
    let cents = micro_usd.div_ceil(10_000);
    format!("{}.{:02}", cents / 100, cents % 100)
}

/// Returns the command that raises a spend cap so that it covers the next model call.
pub fn cap_raise_command(wait: &SpendCapWait) -> String {
    let SpendCapWait { cap, subject, shortage, .. } = wait;
    let unit = unit_of_cap_id(cap);
    let for_arg = match (cap.split('-').nth(2), subject.as_str()) {
        (Some("all") | None, _) => String::new(),
        // The subject may be text of another program, which must not change the command.
        (Some(_), subject) if is_safe_shell_argument(subject) => format!(" --for {subject}"),
        (Some(_), _) => " --for NAME".to_owned(),
    };
    let limit = shortage.map(|SpendCapShortage { needed, left, limit }| {
        let needed_limit = limit.saturating_add(needed.saturating_sub(left));
        if unit == "usd" { dollars_text(needed_limit) } else { needed_limit.to_string() }
    });
    format!("longhaul spend raise {cap}{for_arg} --{unit} {}", limit.as_deref().unwrap_or("N"))
}

/// Returns whether a shell passes the text unchanged as one argument that is not an option.
fn is_safe_shell_argument(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_:./@-".contains(c);
    !text.is_empty() && !text.starts_with('-') && text.chars().all(is_plain)
}

/// Returns the command that unblocks a run. A question of the agent needs an answer; a missing
/// dependency is checked again when the run is resumed. Some gates can't be answered usefully, so
/// their run can only be cancelled.
fn unblock_command(run: &Run, gate: GateId) -> String {
    match run.control.find_open_gate(gate) {
        Some(open) if has_submit_again_tag(&open.tags) => format!("longhaul cancel {}", run.id()),
        // The text of a call is written by a model, which must not choose the command.
        Some(open) if open.call.is_none() && open.ask.contains("`longhaul trust`") => {
            format!("longhaul trust && longhaul resume {}", run.id())
        }
        Some(open) if open.call.is_none() => format!("longhaul resume {}", run.id()),
        Some(_) | None => answer_command(run, gate),
    }
}

/// Returns the command that answers a question with a text, or with JSON if the question has a form.
fn answer_command(run: &Run, gate: GateId) -> String {
    let open = run.control.find_open_gate(gate);
    match open.is_some_and(|open| open.schema.is_some()) {
        true => format!("longhaul answer {gate} --answer '{{...}}'"),
        false => format!("longhaul answer {gate} TEXT"),
    }
}

/// Returns the command-line argument that doubles the exhausted budget cap or, if the next model call
/// needs more, raises it so far that the call fits.
fn raise_argument(run: &Run, cap: BudgetCap) -> String {
    let caps = &run.control.budget.caps;
    let exhausted = run.control.budget.exhausted;
    let tree_cap = exhausted.and_then(|reached| reached.tree_cap);
    // Twice what is missing, because the model may first be warned that little is left.
    let missing = exhausted.map_or(0, |reached| reached.missing).saturating_mul(2);
    let raised = |cap: u64| cap.saturating_add(cap.max(missing));
    match cap {
        BudgetCap::Money => {
            let micros = tree_cap.or(caps.micro_usd.map(|micros| micros.0)).unwrap_or_default();
            let dollars = raised(micros).div_ceil(1_000_000);
            format!("usd={}", dollars.max(1))
        }
        BudgetCap::Tokens => {
            let tokens = raised(tree_cap.or(caps.tokens).unwrap_or_default());
            format!("tokens={}", tokens.max(100_000))
        }
        BudgetCap::Turns => {
            let turns = caps.turns.unwrap_or_default().saturating_mul(2);
            format!("turns={}", turns.max(10))
        }
        BudgetCap::ActiveTime => {
            let millis = caps.active.map_or(0, |active| active.0);
            let minutes = millis.saturating_mul(2).div_ceil(60_000);
            format!("active_time={}m", minutes.max(10))
        }
    }
}

fn explain_progress(run: &Run) -> String {
    if run.status() == Status::Pending {
        return "The run waits for a worker.".into();
    }
    match &run.control.stage {
        RunStage::New { .. } => {
            "The run is preparing: opening tools and fetching the perception.".into()
        }
        RunStage::ModelPending(_) => "The run is about to call the model.".into(),
        RunStage::ModelRunning(running) => {
            format!("The run is calling the model, turn {}.", running.number)
        }
        RunStage::ToolsRunning(tools) => {
            let open = tools.calls.iter().filter(|call| !call.is_done());
            let (waiting, others): (Vec<_>, Vec<_>) =
                open.partition(|call| matches!(call.state, ToolCallState::AwaitingKey { .. }));
            match (waiting.first().map(|call| &call.state), others.as_slice()) {
                (Some(ToolCallState::AwaitingKey { holder, .. }), []) => {
                    explain_wait(run, &WaitReason::Key(*holder)).message
                }
                _ => {
                    let names = others.iter().map(|call| call.classification.tool.as_str());
                    let names: Vec<_> = names.collect();
                    format!("The run is executing tool calls: {}.", names.join(", "))
                }
            }
        }
        RunStage::Concluding(_) if !run.control.people.steers.is_empty() => {
            "The run is about to read a message.".into()
        }
        RunStage::Concluding(_) => "The run is about to end.".into(),
        RunStage::Ended(_) => "The run has ended.".into(),
    }
}

/// Returns the first line of a text without its final period, so that an explanation fits on one
/// line and can add its own period.
fn first_line_without_period(text: &str) -> &str {
    text.lines().next().unwrap_or_default().trim_end_matches('.')
}
