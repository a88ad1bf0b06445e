//! Approves several gates: those that the command line names or that filters select, or one after
//! another at the terminal.
//!
//! Invariant: an approval applies to exactly the gate that was shown. One failure does not stop the
//! other approvals, and the exit code reports it.

use std::collections::BTreeSet;

use clap::Args;
use longhaul_api::gate::GateView;
use longhaul_api::operations::LIST_GATES;
use longhaul_api::query::GatesQuery;
use longhaul_core::id::RunId;
use longhaul_core::policy::gate::{Answer, AnswerScope, GateDecision, GateStatus};

use crate::answer::{new_answer, send_answer};
use crate::client::Client;
use crate::error::{CliError, fail};
use crate::event_printer::first_line;
use crate::exit::Exit;
use crate::format::{count_with_noun, rule_pattern_text, scope_phrase};
use crate::gate_card::{self, gate_card};
use crate::output;

/// Maximum number of open gates that are read.
const GATES_MAX: usize = 10_000;

/// Filter of open gates on the command line.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct GateFilterArgs {
    /// Only gates of runs of this agent
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Only gates about calls of this tool
    #[arg(long, value_name = "NAME")]
    pub(crate) tool: Option<String>,
    /// Only gates with this tag
    #[arg(long)]
    pub(crate) tag: Option<String>,
}

impl GateFilterArgs {
    pub(crate) const fn is_empty(&self) -> bool {
        self.agent.is_none() && self.tool.is_none() && self.tag.is_none()
    }

    /// Returns the gates that match, with this status or all, of this run or of all runs. The gate
    /// that has waited longest comes first.
    pub(crate) async fn load_gates(
        &self,
        client: &Client,
        status: Option<GateStatus>,
        run: Option<RunId>,
    ) -> anyhow::Result<Vec<GateView>> {
        let query = GatesQuery { run, status, tag: self.tag.clone(), ..GatesQuery::default() };
        let mut gates = client.list(LIST_GATES, query, GATES_MAX).await?;
        if gates.len() == GATES_MAX {
            output::eprint_line(&format!("note: only the newest {GATES_MAX} gates are read"));
        }
        let is_same =
            |wanted: &Option<String>, found: &Option<String>| wanted.is_none() || wanted == found;
        gates.retain(|gate| is_same(&self.agent, &gate.agent) && is_same(&self.tool, &gate.tool));
        gates.reverse();
        Ok(gates)
    }
}

/// Returns whether an answer to the gate may approve it.
pub(crate) fn is_approvable(gate: &GateView) -> bool {
    gate.decisions.iter().any(|decision| decision == "approve")
}

/// Shows these gates, asks once, and approves all of them. `answer` is what each of them gets.
pub(crate) async fn approve_all(
    client: &Client,
    gates: Vec<GateView>,
    (answer, yes, json): (&Answer, bool, bool),
) -> anyhow::Result<Exit> {
    let count = count_with_noun(gates.len() as u64, "call");
    if !yes {
        if !output::is_interactive() {
            let message = format!("{count} can be approved, and there is no terminal to ask on");
            return Err(CliError::usage_error(message)
                .with_hint("what they are", "longhaul gates")
                .with_hint("approve all of them without review", "add --yes")
                .into());
        }
        for gate in &gates {
            eprint_whole_gate(gate);
        }
        eprint_consequences(&gates, answer);
        let is_wide = answer.scope != AnswerScope::Once;
        let scope = is_wide.then(|| format!(" {}", scope_phrase(answer.scope)));
        let scope = scope.unwrap_or_default();
        if !output::confirms(&format!("approve {count}{scope}? [y/N]")) {
            output::eprint_line("Nothing was approved.   To list what waits: longhaul gates");
            return Ok(Exit::NeedsPerson);
        }
    }
    let total = gates.len();
    let mut failed = 0;
    for gate in &gates {
        if let Err(error) = send_answer(client, gate, answer.clone(), json).await {
            failed += 1;
            output::eprint_line(&format!("{} was not approved:", gate.id));
            output::print_error(&error);
        }
    }
    output::eprint_line(&format!("{} of {count} approved.", total - failed));
    Ok(if failed == 0 { Exit::Done } else { Exit::RunFailed })
}

/// Prints all of a gate, with the agent and the task of its run.
fn eprint_whole_gate(gate: &GateView) {
    if let (Some(agent), Some(task)) = (&gate.agent, &gate.task) {
        output::eprint_line(&format!("  {agent}: {}", first_line(task)));
    }
    gate_card(gate, gate_card::FULL).iter().for_each(|line| output::eprint_line(line));
}

/// Prints what an answer does beside approving these calls: the calls that need no approval later,
/// and the data for the runs.
fn eprint_consequences(gates: &[GateView], answer: &Answer) {
    if answer.scope != AnswerScope::Once {
        let patterns = gates.iter().filter_map(|gate| gate.pattern.as_ref());
        for calls in patterns.map(rule_pattern_text).collect::<BTreeSet<_>>() {
            output::eprint_line(&format!("  also allowed {}: {calls}", scope_phrase(answer.scope)));
        }
    }
    if let Some(payload) = &answer.payload {
        output::eprint_line(&format!("  each run gets this data: {}", payload.as_str()));
    }
}

/// Shows the open approvals one after another at the terminal, and asks about each.
pub(crate) async fn step_through(client: &Client) -> anyhow::Result<Exit> {
    if !output::is_interactive() {
        return fail(
            "there is no terminal to ask on, so the gates to approve must be named",
            "what waits for an answer",
            "longhaul gates",
        );
    }
    let gates = GateFilterArgs::default().load_gates(client, Some(GateStatus::Open), None).await?;
    let others = gates.iter().filter(|gate| !is_approvable(gate)).count();
    let gates: Vec<GateView> = gates.into_iter().filter(is_approvable).collect();
    let (total, mut left, mut failed) = (gates.len(), gates.len(), 0_usize);
    for (index, gate) in gates.iter().enumerate() {
        output::eprint_line(&format!("{} of {total}", index + 1));
        eprint_whole_gate(gate);
        match ask_about_gate() {
            StepAnswer::Quit => break,
            StepAnswer::Skip => {}
            StepAnswer::Decide(decision) => {
                match send_answer(client, gate, new_answer(decision), false).await {
                    Ok(_) => left -= 1,
                    Err(error) => {
                        failed += 1;
                        output::print_error(&error);
                    }
                }
            }
        }
    }
    output::eprint_line(&match (total, others) {
        (0, 0) => "Nothing waits for an approval.   All runs: longhaul ls".to_owned(),
        (_, 0) => format!("{} of {total} decided.", total - left),
        (_, others) => {
            let questions = count_with_noun(others as u64, "question");
            format!("{} of {total} decided; {questions} left: longhaul gates", total - left)
        }
    });
    Ok(match (failed, left) {
        (1.., _) => Exit::RunFailed,
        (0, 1..) => Exit::NeedsPerson,
        (0, 0) => Exit::Done,
    })
}

/// What a person decides about a gate that was shown.
#[derive(Debug)]
enum StepAnswer {
    Decide(GateDecision),
    Skip,
    Quit,
}

fn ask_about_gate() -> StepAnswer {
    loop {
        let Some(line) = output::ask_for_line("a approve · r reject · s skip · q quit:") else {
            return StepAnswer::Quit;
        };
        match line.trim().to_ascii_lowercase().as_str() {
            "a" | "approve" => return StepAnswer::Decide(GateDecision::Approve),
            "r" | "reject" => return StepAnswer::Decide(GateDecision::Reject),
            "s" | "skip" => return StepAnswer::Skip,
            "q" | "quit" => return StepAnswer::Quit,
            _ => {}
        }
    }
}
