//! `longhaul approve`: approves exactly the tool calls that were shown.
//!
//! Invariant: a gate is never approved only because nobody could be asked.

use clap::Args;
use clap::builder::{PossibleValue, TypedValueParser};
use longhaul_api::gate::GateView;
use longhaul_core::policy::gate::{
    Answer, AnswerScope, GateDecision, GateStatus, has_submit_again_tag,
};

use crate::answer::{DIGEST_CHARS, new_answer, parse_json_option, send_answer, short_gate_digest};
use crate::approve_many::{GateFilterArgs, approve_all, is_approvable, step_through};
use crate::client::connect::with_client;
use crate::error::{CliError, fail};
use crate::exit::Exit;
use crate::form_prompt::answer_command;
use crate::format::{name_parser, rule_pattern_text, scope_phrase};
use crate::gate_card::{self, gate_card};
use crate::{output, resolve, sanitize};

const EXAMPLES: &str = "Examples:
  longhaul approve                                     shows what waits, one after another
  longhaul approve @last                               the newest run that asks
  longhaul approve 7k3qv9 m2x4ta                       several, after one question
  longhaul approve --agent refunds --tool pay          all that match, after one question
  longhaul approve gate_01k3rzc --note \"squash, please\"
  longhaul approve gate_01k3rzc --digest 9f2c41aa      in a script: only what was seen
  longhaul approve gate_01k3rzc --yes                  in a script: without checking
  longhaul approve gate_01k3rzc --for run              also later calls of this run
  longhaul approve gate_01k3rzc --for agent            also in later runs of the agent
  longhaul approve gate_01k3rzc --yes --edit '{\"path\": \"a.txt\"}'   with this input instead
  longhaul approve @last --payload '{\"action\": \"create_pr\"}'            with data for programs";

/// Arguments of `longhaul approve`, which approves a gate.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ApproveCommand {
    /// Gates to approve, or runs with exactly one open gate. Without any, and without a filter, all
    /// open approvals are shown one after another
    #[arg(value_name = "RUN|GATE")]
    gates: Vec<String>,
    #[command(flatten)]
    filter: GateFilterArgs,
    /// Digest of the gate that was shown: the whole digest, or at least its first 8 characters
    #[arg(long, conflicts_with = "yes")]
    digest: Option<String>,
    /// Approve without showing the gates and without asking
    #[arg(long)]
    yes: bool,
    /// Calls that the approval covers
    #[arg(long = "for", visible_alias = "scope", value_name = "SCOPE", default_value = "once",
        value_parser = scope_parser())]
    scope: AnswerScope,
    /// Note for the model
    #[arg(long)]
    note: Option<String>,
    /// Replacement input for the call, as JSON; `-` reads it from stdin
    #[arg(long, value_name = "JSON|-")]
    edit: Option<String>,
    /// Data for the model and for programs, such as what to do with the result, as JSON
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// Print the approved gate as one JSON object
    #[arg(long)]
    json: bool,
}

fn scope_parser() -> impl TypedValueParser<Value = AnswerScope> {
    name_parser([
        PossibleValue::new("once").help("Only this call"),
        PossibleValue::new("run")
            .help("Every call of this run that needs approval by the same rule"),
        PossibleValue::new("agent")
            .help("Every call of this agent that needs approval by a rule with the same pattern"),
        PossibleValue::new("project")
            .help("Every call of the project that needs approval by a rule with the same pattern"),
    ])
}

impl ApproveCommand {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        match (self.gates.as_slice(), self.filter.is_empty()) {
            ([gate], true) => self.approve_one(gate),
            ([], true) => self.check_single().and_then(|()| with_client(step_through)),
            (_, true) | ([], false) => self.check_single().and_then(|()| self.approve_several()),
            (_, false) => {
                let message = "gates are either named or selected by a filter";
                fail(message, "approve what matches", "longhaul approve --agent NAME --tool NAME")
            }
        }
    }

    /// Fails if an option is given that makes sense for one gate only.
    fn check_single(&self) -> anyhow::Result<()> {
        let is_bare = self.gates.is_empty() && self.filter.is_empty();
        let option = match () {
            () if self.digest.is_some() => "--digest",
            () if self.edit.is_some() => "--edit",
            () if is_bare && self.yes => "--yes",
            () if is_bare && self.scope != AnswerScope::Once => "--for",
            () => return Ok(()),
        };
        let message = format!("{option} needs the gate to approve");
        fail(message, "what waits for an answer", "longhaul gates")
    }

    fn approve_several(&self) -> anyhow::Result<Exit> {
        with_client(async |client| {
            let mut gates = Vec::new();
            for id in &self.gates {
                let gate = resolve::resolve_gate_by_gate_or_run_id(client, id).await?;
                check_gate_approvable(&gate)?;
                if gates.iter().all(|other: &GateView| other.id != gate.id) {
                    gates.push(gate);
                }
            }
            if self.gates.is_empty() {
                gates = self.filter.load_gates(client, Some(GateStatus::Open), None).await?;
                gates.retain(is_approvable);
            }
            if gates.is_empty() {
                output::eprint_line("No open approval matches.   What waits: longhaul gates");
                return Ok(Exit::Done);
            }
            let payload = self.payload.as_deref();
            let payload = payload.map(|json| parse_json_option("--payload", json)).transpose()?;
            let (scope, note) = (self.scope, self.note.clone());
            let answer = Answer { scope, note, payload, ..new_answer(GateDecision::Approve) };
            approve_all(client, gates, (&answer, self.yes, self.json)).await
        })
    }

    fn approve_one(&self, gate: &str) -> anyhow::Result<Exit> {
        resolve::with_resolved_gate(gate, async |client, gate| {
            check_gate_approvable(&gate)?;
            let decision = match &self.edit {
                Some(edit) => GateDecision::Edit(parse_json_option("--edit", edit)?),
                None => GateDecision::Approve,
            };
            let payload = self.payload.as_deref();
            let payload = payload.map(|json| parse_json_option("--payload", json)).transpose()?;
            if !self.confirm_approval(&gate, &decision)? {
                output::eprint_line(&format!(
                    "Not approved; {} still waits. To reject: longhaul reject {}",
                    gate.run, gate.id
                ));
                return Ok(Exit::NeedsPerson);
            }
            let scope = self.scope;
            let answer = Answer { scope, note: self.note.clone(), payload, ..new_answer(decision) };
            send_answer(client, &gate, answer, self.json).await
        })
    }

    /// Returns whether the approval is confirmed: by the gate's digest, by `--yes`, or by a person
    /// who was just shown the gate.
    fn confirm_approval(&self, gate: &GateView, decision: &GateDecision) -> anyhow::Result<bool> {
        if let Some(digest) = &self.digest {
            check_digest_prefix(gate, digest)?;
        }
        if self.yes || self.digest.is_some() {
            return Ok(true);
        }
        if !output::is_interactive() || self.edit.as_deref() == Some("-") {
            let id = gate.id;
            let message = format!(
                "only what was shown can be approved, and there is no terminal to show {id} on"
            );
            let mut error = CliError::usage_error(message)
                .with_hint("show the gate", format!("longhaul gates show {id}"));
            if let Some(digest) = short_gate_digest(gate) {
                let command = format!("longhaul approve {id} --digest {digest}");
                error = error.with_hint("approve this digest", command);
            }
            let command = format!("longhaul approve {id} --yes");
            return Err(error.with_hint("or approve without review", command).into());
        }
        gate_card(gate, gate_card::FULL).iter().for_each(|line| output::eprint_line(line));
        if let GateDecision::Edit(edited) = decision {
            output::eprint_line(&format!(
                "  the call gets this input instead: {}",
                edited.as_str()
            ));
        }
        if let (Some(pattern), true) = (&gate.pattern, self.scope != AnswerScope::Once) {
            let (scope_text, calls) = (scope_phrase(self.scope), rule_pattern_text(pattern));
            output::eprint_line(&format!("  also allowed {scope_text}: {calls}"));
        }
        Ok(output::confirms("approve? [y/N]"))
    }
}

fn check_gate_approvable(gate: &GateView) -> anyhow::Result<()> {
    if is_approvable(gate) {
        return Ok(());
    }
    let decisions = &gate.decisions;
    let id = gate.id;
    let question = sanitize::sanitize_line(&gate.ask);
    let message = format!(
        "{id} can't be approved; valid decisions: {}; question: {question}",
        decisions.join(" or ")
    );
    match has_submit_again_tag(&gate.tags) {
        true => fail(message, "cancel the run", format!("longhaul cancel {}", gate.run)),
        false => fail(message, "answer the question", answer_command(gate)),
    }
}

/// Checks that `prefix` is the start of the gate's current digest (hash of the content to approve).
fn check_digest_prefix(gate: &GateView, prefix: &str) -> anyhow::Result<()> {
    let id = gate.id;
    let Some(digest) = gate.digest else {
        let message = format!("{id} has no digest, because it has no call input");
        return fail(message, "approve the gate", format!("longhaul approve {id} --yes"));
    };
    let is_hex = prefix.chars().all(|c| c.is_ascii_hexdigit());
    let problem = if !is_hex || prefix.len() < DIGEST_CHARS {
        format!("is invalid: give {DIGEST_CHARS} or more hex digits of the digest")
    } else if digest.to_string().starts_with(&prefix.to_ascii_lowercase()) {
        return Ok(());
    } else {
        format!("does not match the digest of {id}: the call input may have changed")
    };
    let message = format!("--digest {prefix} {problem}");
    fail(message, "show the gate", format!("longhaul gates show {id}"))
}
