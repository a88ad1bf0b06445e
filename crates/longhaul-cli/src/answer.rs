//! `longhaul answer` and `longhaul reject`, and the code with which all commands answer a gate: a
//! question or approval that waits for a person.
//!
//! Invariant: a run that no worker drives is never reported as continuing.

use clap::Args;
use longhaul_api::gate::{AnswerOutcomeKind, AnswerResponse, GateView};
use longhaul_core::policy::gate::{Answer, AnswerScope, GateDecision};
use longhaul_core::raw::RawJson;

use crate::client::Client;
use crate::environment::caller_name;
use crate::error::{CliError, fail};
use crate::event_printer::first_line;
use crate::exit::Exit;
use crate::form_prompt::{FormPrompt, answer_command};
use crate::format::{count_with_noun, scope_phrase};
use crate::gate_card::{self, gate_card};
use crate::task_args::parse_json;
use crate::{output, resolve};

/// Maximum length of an answer, in bytes.
const ANSWER_BYTES_MAX: u64 = 1024 * 1024;

/// Number of characters of a gate's digest (hash of the content to approve) that are printed.
pub(crate) const DIGEST_CHARS: usize = 8;

const ANSWER_EXAMPLES: &str = "Examples:
  longhaul answer @last \"the first of March\"
  longhaul answer gate_01k3w2b                                 asks, field by field if it is a form
  longhaul answer gate_01k3w2b --answer '{\"city\": \"Bern\"}'    the fields of a form
  longhaul answer gate_01k3w2b - < notes.txt                   the answer from stdin";

const REJECT_EXAMPLES: &str = "Examples:
  longhaul reject @last
  longhaul reject gate_01k3rzc --note \"not on a Friday\"     the model reads the note";

/// Arguments of `longhaul answer`, which answers a question of a run.
#[derive(Debug, Args)]
#[command(after_help = ANSWER_EXAMPLES)]
pub(crate) struct AnswerCommand {
    /// The gate to answer, or a run with exactly one open gate
    #[arg(value_name = "RUN|GATE")]
    gate: String,
    /// Text of the answer; `-` reads it from stdin. Without it, the command asks for the answer
    text: Vec<String>,
    /// Fields of the question's form, as a JSON object; `-` reads it from stdin
    #[arg(long, value_name = "JSON|-", conflicts_with = "text")]
    answer: Option<String>,
    /// Print the answered gate as one JSON object
    #[arg(long)]
    json: bool,
}

/// Arguments of `longhaul reject`, which rejects a gate.
#[derive(Debug, Args)]
#[command(after_help = REJECT_EXAMPLES)]
pub(crate) struct RejectCommand {
    /// The gate to reject, or a run with exactly one open gate
    #[arg(value_name = "RUN|GATE")]
    gate: String,
    /// Note for the model, such as the reason
    #[arg(long)]
    note: Option<String>,
    /// Print the rejected gate as one JSON object
    #[arg(long)]
    json: bool,
}

impl AnswerCommand {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let text = match (&self.answer, self.text.as_slice()) {
            (Some(json), _) => Some(parse_json_option("--answer", json)?.as_str().to_owned()),
            (None, []) => None,
            (None, text) => {
                Some(output::join_args_or_read_stdin(text, ANSWER_BYTES_MAX, "the answer")?)
            }
        };
        resolve::with_resolved_gate(&self.gate, async |client, gate| {
            let text = text.map_or_else(|| ask_for_answer(&gate), Ok)?;
            if text.trim().is_empty() {
                return Err(CliError::usage_error("the answer must not be empty").into());
            }
            let answer = new_answer(GateDecision::Answer(text));
            send_answer(client, &gate, answer, self.json).await
        })
    }
}

/// Shows a question at the terminal and reads the answer: a line, or each field of a form.
fn ask_for_answer(gate: &GateView) -> anyhow::Result<String> {
    if !output::is_interactive() {
        return fail("the answer is missing", "answer the question", answer_command(gate));
    }
    gate_card(gate, gate_card::FULL).iter().for_each(|line| output::eprint_line(line));
    let Some(mut form) = FormPrompt::for_gate(gate) else {
        return Ok(output::ask_for_line("answer:").unwrap_or_default());
    };
    while let Some(question) = form.next_question() {
        let Some(line) = output::ask_for_line(&question) else {
            return Err(CliError::usage_error("the form was not filled in").into());
        };
        if let Err(reason) = form.enter_field_value(&line) {
            output::eprint_line(&reason);
        }
    }
    Ok(form.answer_json())
}

impl RejectCommand {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let answer = Answer { note: self.note.clone(), ..new_answer(GateDecision::Reject) };
        resolve::with_resolved_gate(&self.gate, async |client, gate| {
            send_answer(client, &gate, answer, self.json).await
        })
    }
}

/// Returns an answer with this decision, by the person who runs the command.
pub(crate) fn new_answer(decision: GateDecision) -> Answer {
    Answer {
        decision,
        by: caller_name(),
        scope: AnswerScope::Once,
        note: None,
        payload: None,
        digest: None,
    }
}

/// Parses the JSON value of a command-line option, or of stdin if the value is `-`.
pub(crate) fn parse_json_option(option: &str, argument: &str) -> anyhow::Result<RawJson> {
    let text = match argument {
        "-" => output::read_stdin(ANSWER_BYTES_MAX, "the JSON")?,
        argument => argument.to_owned(),
    };
    parse_json(text.trim()).map_err(|error| {
        let message = format!("{option} is not valid JSON: {error}");
        let example = format!("{option} '{{\"path\": \"a.txt\"}}'");
        CliError::usage_error(message).with_hint("quote the JSON", example).into()
    })
}

/// Sends an answer to a gate and prints the outcome. The answer carries the digest of the gate as
/// it was read, so the engine rejects the answer if the gate has changed since.
pub(crate) async fn send_answer(
    client: &Client,
    gate: &GateView,
    answer: Answer,
    json: bool,
) -> anyhow::Result<Exit> {
    let action = match (&answer.decision, answer.scope) {
        (GateDecision::Approve, AnswerScope::Once) => "Approved".to_owned(),
        (GateDecision::Approve, scope) => format!("Approved {}", scope_phrase(scope)),
        (GateDecision::Edit(_), _) => "Approved with your change".to_owned(),
        (GateDecision::Reject, _) => "Rejected".to_owned(),
        (GateDecision::Answer(_), _) => "Answered".to_owned(),
        (GateDecision::Complete, _) => "Completed".to_owned(),
    };
    let needs_digest = matches!(answer.decision, GateDecision::Approve | GateDecision::Edit(_));
    let answer = Answer { digest: gate.digest.filter(|_| needs_digest), ..answer };
    let response = client.answer_gate(gate, answer).await?;
    if json {
        output::print_json(&response.gate)?;
    } else {
        // The answer has taken effect, even if what follows can't be read.
        output::print_text(&format!("{action}: {}", gate_summary_text(&response.gate)))?;
        output::print_text(&run_continuation_text(client, &response).await?)?;
    }
    Ok(Exit::Done)
}

/// Returns a sentence about the run of the answered gate: when it continues or what it needs.
async fn run_continuation_text(
    client: &Client,
    response: &AnswerResponse,
) -> anyhow::Result<String> {
    let AnswerResponse { outcome, seq, gate } = response;
    let run = gate.run;
    if *outcome == AnswerOutcomeKind::Voted {
        let (votes, required) = (gate.answers.len(), gate.approvers);
        return Ok(format!("{votes} of {required} people have agreed; {run} still waits."));
    }
    let open_gates = client.list_open_gates(run).await?.len();
    if open_gates > 0 {
        let answers = count_with_noun(open_gates as u64, "more answer");
        return Ok(format!("{run} waits for {answers}. To list them: longhaul gates --run {run}"));
    }
    Ok(match client.has_process_driving_runs().await? {
        true => format!("{run} resumes at event {seq}."),
        false => format!(
            "{run} resumes at event {seq} when a worker drives it. To drive it: longhaul watch {run}"
        ),
    })
}

/// Returns what the gate is about: the tool call with its input, or the question.
pub(crate) fn gate_summary_text(gate: &GateView) -> String {
    let summary = match (&gate.tool, &gate.input) {
        (Some(tool), Some(input)) => first_line(&format!("{tool} {}", input.as_str())),
        (Some(_), None) | (None, _) => first_line(&gate.ask),
    };
    let injected = match gate.injected_rule_match_texts.join(", ") {
        texts if texts.is_empty() => texts,
        texts => format!("   set by the runtime: {}", first_line(&texts)),
    };
    let digest = short_gate_digest(gate).map(|digest| format!("   digest {digest}"));
    format!("{summary}{injected}{}", digest.unwrap_or_default())
}

/// Returns the first characters of a gate's digest (hash of the content to approve), if it has one.
pub(crate) fn short_gate_digest(gate: &GateView) -> Option<String> {
    gate.digest?.to_string().get(..DIGEST_CHARS).map(str::to_owned)
}
