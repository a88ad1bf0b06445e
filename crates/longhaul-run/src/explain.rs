//! Explains the state of a run in one sentence and suggests a command. Lists, pages, API responses
//! and `longhaul why` all show this text.

use longhaul_core::id::{GateId, RunId};
use longhaul_core::policy::budget::BudgetCap;
use longhaul_core::policy::effect_key::EffectKeyHolder;
use longhaul_core::policy::gate::has_submit_again_tag;
use longhaul_core::status::{RunOutcome, SpendCapShortage, SpendCapWait, Status, WaitReason};
use longhaul_core::time::Timestamp;

use crate::state::Run;
use crate::state::call::ToolCallState;
use crate::state::control::IdleReason;
use crate::state::stage::RunStage;

/// Explains a wait for budget that model calls of other runs have reserved.
const BUDGET_HELD: &str = "The run waits until model calls of other runs of its tree release what \
                           they hold of the budget; it then continues automatically.";

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
    let mut explanation = explain_state_with_unchecked_punctuation(run);
    // Questions from people and models may already end with a punctuation mark.
    for stop in [".", "?", "!"] {
        if explanation.message.ends_with(&format!("{stop}.")) {
            explanation.message.pop();
        }
    }
    explanation
}

/// Explains the state of a run in one or two sentences and suggests a command. The text may end
/// with two punctuation marks, such as `?.`, which the caller corrects.
fn explain_state_with_unchecked_punctuation(run: &Run) -> StateExplanation {
    let id = run.id();
    let explanation = |message: String, command: String| StateExplanation { message, command };
    match (&run.control.stage, &run.control.idle) {
        (RunStage::Ended(outcome), _) => match outcome {
            RunOutcome::Completed(_) => {
                explanation("The run completed.".into(), format!("longhaul show {id}"))
            }
            RunOutcome::Failed(error) => {
                // A child run can't be retried on its own.
                let is_child = run.task().root != id && run.task().chain.is_none();
                let command = if is_child { "show" } else { "retry" };
                explanation(
                    format!("The run failed: {}.", first_line_without_period(&error.message)),
                    format!("longhaul {command} {id}"),
                )
            }
            RunOutcome::Cancelled(cancellation) => {
                explanation(format!("The run was {cancellation}."), String::new())
            }
        },
        _ if run.is_cancelling() => explanation(
            "The run is being cancelled; it ends as soon as its driver sees the request.".into(),
            format!("longhaul watch {id}"),
        ),
        (_, Some(IdleReason::Paused)) => {
            explanation("The run is paused.".into(), format!("longhaul resume {id}"))
        }
        (_, Some(IdleReason::Parked { wait, .. })) => explain_wait(run, wait),
        (_, None) => {
            let overdue = match run.control.is_overdue() {
                true => " It takes longer than its soft timeout.",
                false => "",
            };
            let message = format!("{}{overdue}", explain_progress(run));
            explanation(message, format!("longhaul watch {id}"))
        }
    }
}

/// Returns the sentence about a run that waits for the result of a tool call.
fn explain_tool_wait(run: &Run, until: Timestamp) -> String {
    let mut calls = run.control.calls().iter();
    let pending = calls.find(|call| matches!(call.state, ToolCallState::Pending(_)));
    let tool = pending.map_or("a tool", |call| call.classification.tool.as_str());
    let message = pending.and_then(|call| call.suspended.as_ref()?.message.as_deref());
    let note = message.map_or_else(String::new, |message| {
        let line: String = first_line_without_period(message).chars().take(300).collect();
        format!(" ({line})")
    });
    format!("The run waits for the result of `{tool}`{note}, which is asked for again at {until}.")
}

fn explain_wait(run: &Run, wait: &WaitReason) -> StateExplanation {
    let id = run.id();
    let gate_text = |gate| {
        run.control.find_open_gate(gate).map_or_else(String::new, |open| format!(": {}", open.ask))
    };
    let (message, command) = match wait {
        WaitReason::Approval(gates) => {
            let question = gates.first().map_or_else(String::new, |gate| gate_text(*gate));
            let approvals = approval_count_text(gates.len());
            (format!("The run waits for {approvals}{question}."), approve_command(run, gates))
        }
        WaitReason::Question(gate) => (
            format!("The run waits for an answer{}.", gate_text(*gate)),
            answer_command(run, *gate),
        ),
        WaitReason::Signal(gate) => (
            format!("The run waits for a signal{}.", gate_text(*gate)),
            format!("longhaul gates show {gate}"),
        ),
        WaitReason::Blocked(gate) => {
            (format!("The run is blocked{}.", gate_text(*gate)), unblock_command(run, *gate))
        }
        WaitReason::Timer(until) => {
            (format!("The run waits until {until}."), format!("longhaul steer {id} TEXT"))
        }
        WaitReason::Child(child) => {
            (explain_child_wait(run, *child), format!("longhaul why {child}"))
        }
        WaitReason::Tool(until) => {
            (explain_tool_wait(run, *until), format!("longhaul cancel {id}"))
        }
        WaitReason::RateLimit(until) => (
            format!("The provider limits the request rate; the next attempt is at {until}."),
            format!("longhaul resume {id}"),
        ),
        WaitReason::Retry(until) if run.control.is_timed_out() => (
            format!("The attempt reached its hard timeout; the next attempt is at {until}."),
            format!("longhaul resume {id}"),
        ),
        WaitReason::Retry(until) => (
            format!("The last call failed with a transient error; the next attempt is at {until}."),
            format!("longhaul resume {id}"),
        ),
        WaitReason::Outage { since, until, class } => {
            let end = since.plus(run.control.policy.retry.outage);
            let times =
                format!("since {since}; the next attempt is at {until}, the last one at {end}");
            let message = format!("The provider is unavailable ({}) {times}.", class.as_str());
            (message, format!("longhaul resume {id}"))
        }
        WaitReason::SandboxSlot => {
            ("The run waits for a free sandbox.".into(), "longhaul sandboxes".into())
        }
        WaitReason::Budget(cap) => budget_wait_text_and_command(run, *cap),
        WaitReason::BudgetHeld => (BUDGET_HELD.to_owned(), String::new()),
        WaitReason::Cap(wait) => (explain_cap_wait(wait), cap_raise_command(wait)),
        WaitReason::Key(holder) => effect_key_wait_text_and_command(*holder),
        WaitReason::StartAt(at) => (format!("The run starts at {at}."), String::new()),
        WaitReason::Batch => {
            ("The run waits for the run before it in its batch.".into(), String::new())
        }
        WaitReason::Message(until) => (
            format!("The run is done and stays open for a message until {until}."),
            format!("longhaul steer {id} TEXT"),
        ),
        WaitReason::Worker => ("The run waits for a worker.".into(), "longhaul worker".into()),
    };
    StateExplanation { message, command }
}

/// Returns the sentence and the suggested command for a run that waits for another call with the
/// same effect key (name of an effect that must happen at most once).
fn effect_key_wait_text_and_command(
    EffectKeyHolder { run, call }: EffectKeyHolder,
) -> (String, String) {
    let message = format!(
        "The run waits for the call {call} of {run}, or of the run that retries {run}, which has the \
         same effect key; it gets the result of that call, or makes its own call if that one had no \
         effect."
    );
    (message, format!("longhaul why {run}"))
}

/// Maximum number of gates that a suggested command names.
const NAMED_GATES_MAX: usize = 4;

/// Returns the command that approves what the run waits for. A run stands for its only open gate, so
/// one of several gates is named.
fn approve_command(run: &Run, gates: &[GateId]) -> String {
    let id = run.id();
    if run.control.gates.len() == 1 {
        return format!("longhaul approve {id}");
    }
    if gates.len() > NAMED_GATES_MAX {
        return format!("longhaul gates --run {id}");
    }
    let commands: Vec<_> = gates.iter().map(|gate| format!("longhaul approve {gate}")).collect();
    commands.join(" && ")
}

/// Returns the sentence about a run whose budget is used up, and the command that raises the cap.
fn budget_wait_text_and_command(run: &Run, cap: BudgetCap) -> (String, String) {
    let (cap_name, new_cap) = cap_name_and_raise_argument(run, cap);
    let (tree_suffix, run_id) = match is_child_at_shared_budget_cap(run) {
        true => (" of its whole tree", run.task().root),
        false => ("", run.id()),
    };
    (
        format!("The run's budget of {cap_name}{tree_suffix} is used up."),
        format!("longhaul resume {run_id} --budget {new_cap}"),
    )
}

fn is_child_at_shared_budget_cap(run: &Run) -> bool {
    run.task().is_child() && run.control.exhausted_shared_cap_and_value().is_some()
}

/// Returns the command that raises the budget of a whole tree of runs through a child run, which is
/// possible after the root run has ended. `None` if the run does not wait for this budget.
pub fn command_to_raise_shared_budget(run: &Run) -> Option<String> {
    let Some(IdleReason::Parked { wait: WaitReason::Budget(cap), .. }) = &run.control.idle else {
        return None;
    };
    let (_, new_cap) = cap_name_and_raise_argument(run, *cap);
    is_child_at_shared_budget_cap(run)
        .then(|| format!("longhaul resume {} --budget {new_cap}", run.id()))
}

fn approval_count_text(count: usize) -> String {
    if count > 1 { format!("{count} approvals") } else { "an approval".to_owned() }
}

fn explain_child_wait(run: &Run, child: RunId) -> String {
    let mut open = run.control.children.iter();
    if open.any(|open| open.id == child && open.call.is_none()) {
        let (round, rounds) = (run.control.outcome.next_round(), run.control.policy.outcome_rounds);
        let rounds = rounds.unwrap_or_default();
        return format!(
            "The run waits for {child}, which grades its result (round {round} of {rounds})."
        );
    }
    let others = match run.control.children.len() {
        0 | 1 => String::new(),
        2 => " and 1 more child run".to_owned(),
        open => format!(" and {} more child runs", open - 1),
    };
    format!("The run waits for {child}{others} to end.")
}

fn explain_cap_wait(wait: &SpendCapWait) -> String {
    let SpendCapWait { cap, subject, until, shortage } = wait;
    let suffix = match subject.as_str() {
        "" => String::new(),
        capped_name => format!(" of {capped_name}"),
    };
    let amounts = shortage.map(|SpendCapShortage { needed, left, limit }| {
        let [needed, left, limit] =
            [needed, left, limit].map(|amount| cap_amount_text(cap, amount));
        format!(", which needs up to {needed} (left: {left} of {limit})")
    });
    format!(
        "The cap `{cap}`{suffix} does not cover the next model call{}; the run continues when an \
         amount is released, when somebody raises the cap, or when its window ends at {until}.",
        amounts.unwrap_or_default()
    )
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

/// Returns the name of the exhausted budget cap, and the command-line argument that doubles it or,
/// if the next model call needs more, raises it so far that the call fits.
fn cap_name_and_raise_argument(run: &Run, cap: BudgetCap) -> (&'static str, String) {
    let caps = &run.control.caps;
    let tree_cap = run.control.exhausted_tree_cap;
    // Twice what is missing, because the model may first be warned that little is left.
    let missing = run.control.missing_budget.saturating_mul(2);
    let raised = |cap: u64| cap.saturating_add(cap.max(missing));
    match cap {
        BudgetCap::Money => {
            let micros = tree_cap.or(caps.micro_usd.map(|micros| micros.0)).unwrap_or_default();
            let dollars = raised(micros).div_ceil(1_000_000);
            ("money", format!("usd={}", dollars.max(1)))
        }
        BudgetCap::Tokens => {
            let tokens = raised(tree_cap.or(caps.tokens).unwrap_or_default());
            ("tokens", format!("tokens={}", tokens.max(100_000)))
        }
        BudgetCap::Turns => {
            let turns = caps.turns.unwrap_or_default().saturating_mul(2);
            ("turns", format!("turns={}", turns.max(10)))
        }
        BudgetCap::ActiveTime => {
            let millis = caps.active.map_or(0, |active| active.0);
            let minutes = millis.saturating_mul(2).div_ceil(60_000);
            ("active time", format!("active_time={}m", minutes.max(10)))
        }
    }
}

fn explain_progress(run: &Run) -> String {
    if run.status() == Status::Pending {
        return "The run waits for a worker.".into();
    }
    match &run.control.stage {
        RunStage::New => "The run is preparing: opening tools and fetching the perception.".into(),
        RunStage::ModelPending(_) => "The run is about to call the model.".into(),
        RunStage::ModelRunning(running) => {
            format!("The run is calling the model, turn {}.", running.turn)
        }
        RunStage::ToolsRunning(tools) => {
            let open = tools.calls.iter().filter(|call| !call.is_done());
            let (waiting, others): (Vec<_>, Vec<_>) =
                open.partition(|call| matches!(call.state, ToolCallState::AwaitingKey { .. }));
            match (waiting.first().map(|call| &call.state), others.as_slice()) {
                (Some(ToolCallState::AwaitingKey { holder, .. }), []) => {
                    effect_key_wait_text_and_command(*holder).0
                }
                _ => {
                    let names = others.iter().map(|call| call.classification.tool.as_str());
                    let names: Vec<_> = names.collect();
                    format!("The run is executing tool calls: {}.", names.join(", "))
                }
            }
        }
        RunStage::Concluding(_) if !run.control.steers.is_empty() => {
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
