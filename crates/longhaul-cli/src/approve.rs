//! `longhaul approve`: a yes to exactly what was shown.
//!
//! Never: a yes because nobody could be asked.

use clap::{Args, ValueEnum};
use longhaul_api::gate::GateView;
use longhaul_core::policy::gate::{Decision, Scope, is_unanswerable};
use longhaul_core::raw::{RawJson, check_readable};

use crate::answer::{AnswerFlow, DIGEST_CHARS};
use crate::error::CliError;
use crate::exit::Exit;
use crate::gate_card::full_card;
use crate::{output, resolve, sanitize};

/// The longest input that is read.
const EDIT_BYTES_MAX: u64 = 1024 * 1024;

const EXAMPLES: &str = "Examples:
  longhaul approve @last                               shows the call, and asks
  longhaul approve gate_01k3rzc --note \"squash, please\"
  longhaul approve gate_01k3rzc --digest 9f2c41aa      in a script: just what was seen
  longhaul approve gate_01k3rzc --yes                  in a script: whatever it is
  longhaul approve gate_01k3rzc --for run              and what the same rule stops later in this run
  longhaul approve gate_01k3rzc --yes --edit '{\"path\": \"a.txt\"}'   with this input instead";

/// Says yes at a gate.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Approve {
    /// The gate, or a run with only one open
    #[arg(value_name = "RUN|GATE")]
    gate: String,
    /// The digest of what was seen: all of it, or its first 8 letters or more
    #[arg(long, conflicts_with = "yes")]
    digest: Option<String>,
    /// Don't show it, don't ask
    #[arg(long)]
    yes: bool,
    /// How far it reaches
    #[arg(long = "for", value_enum, default_value_t, value_name = "SCOPE")]
    scope: ApprovalScope,
    /// Words for the model
    #[arg(long)]
    note: Option<String>,
    /// Another input for the call, as JSON; `-` reads it from stdin
    #[arg(long, value_name = "JSON|-")]
    edit: Option<String>,
    /// Print the gate as one JSON object
    #[arg(long)]
    json: bool,
}

/// How far an approval reaches.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum ApprovalScope {
    /// This call
    #[default]
    Once,
    /// Every call of this run that the same rule stops
    Run,
}

impl Approve {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        resolve::with_gate(&self.gate, async |client, gate| {
            check_approvable(&gate)?;
            let decision = match &self.edit {
                Some(said) => Decision::Edit(parse_edit(said)?),
                None => Decision::Approve,
            };
            if !self.is_confirmed(&gate, &decision)? {
                output::stderr_line(&format!(
                    "Nothing was said; {} still waits. A no: longhaul reject {}",
                    gate.run, gate.id
                ));
                return Ok(Exit::NeedsPerson);
            }
            let json = self.json;
            let answering = AnswerFlow { client, gate, json };
            let scope = match self.scope {
                ApprovalScope::Once => Scope::Once,
                ApprovalScope::Run => Scope::Run,
            };
            answering.send(decision, scope, self.note.clone()).await
        })
    }

    /// Whether a yes to this is really meant: by its digest, by word, or by a
    /// person who has just been shown it.
    fn is_confirmed(&self, gate: &GateView, decision: &Decision) -> anyhow::Result<bool> {
        if let Some(said) = &self.digest {
            check_digest(gate, said)?;
            return Ok(true);
        }
        if self.yes {
            return Ok(true);
        }
        if !output::is_interactive() || self.edit.as_deref() == Some("-") {
            return Err(unseen_error(gate).into());
        }
        full_card(gate).iter().for_each(|line| output::stderr_line(line));
        if let Decision::Edit(edited) = decision {
            output::stderr_line(&format!("  with this input instead: {}", edited.as_str()));
        }
        let said = output::prompt("approve? [y/N]").unwrap_or_default();
        Ok(is_yes(&said))
    }
}

fn is_yes(said: &str) -> bool {
    matches!(said.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

fn check_approvable(gate: &GateView) -> anyhow::Result<()> {
    let takes = &gate.decisions;
    if takes.iter().any(|decision| decision == "approve") {
        return Ok(());
    }
    let id = gate.id;
    let ask = sanitize::line(&gate.ask);
    let words = format!("{id} is no approval, it takes {}: {ask}", takes.join(" or "));
    let failure = CliError::usage(words);
    Err(match is_unanswerable(&gate.tags) {
        true => failure.hint("end the run", format!("longhaul cancel {}", gate.run)),
        false => failure.hint("answer it", format!("longhaul answer {id} TEXT")),
    }
    .into())
}

/// Why there is no yes without having seen it.
fn unseen_error(gate: &GateView) -> CliError {
    let id = gate.id;
    let failure = CliError::usage(format!(
        "an approval is of what was seen, and here is no terminal to show {id} on"
    ))
    .hint("look at it", format!("longhaul gates show {id}"));
    let failure = match short_digest(gate) {
        Some(digest) => {
            failure.hint("approve just that", format!("longhaul approve {id} --digest {digest}"))
        }
        None => failure,
    };
    failure.hint("or unseen", format!("longhaul approve {id} --yes"))
}

fn short_digest(gate: &GateView) -> Option<String> {
    let digest = gate.digest?.to_string();
    digest.get(..DIGEST_CHARS).map(str::to_owned)
}

/// Whether this is the digest of what is asked now.
fn check_digest(gate: &GateView, said: &str) -> anyhow::Result<()> {
    let id = gate.id;
    let look = format!("longhaul gates show {id}");
    let Some(standing) = gate.digest else {
        let words = format!("{id} has no digest: nothing is frozen");
        return Err(CliError::usage(words)
            .hint("approve it", format!("longhaul approve {id} --yes"))
            .into());
    };
    let hex = said.chars().all(|letter| letter.is_ascii_hexdigit());
    if !hex || said.len() < DIGEST_CHARS {
        let words =
            format!("--digest {said}: give all of it, or its first {DIGEST_CHARS} letters or more");
        return Err(CliError::usage(words).hint("look at it", look).into());
    }
    if !standing.to_string().starts_with(&said.to_ascii_lowercase()) {
        let words = format!("{said} is not the digest of what {id} asks now: look again");
        return Err(CliError::usage(words).hint("look at it", look).into());
    }
    Ok(())
}

fn parse_edit(said: &str) -> anyhow::Result<RawJson> {
    let text = match said {
        "-" => output::read_stdin(EDIT_BYTES_MAX, "the input")?,
        said => said.to_owned(),
    };
    let readable = check_readable(text.trim()).map_err(|bad| bad.to_string());
    let parsed = || RawJson::parse(text.trim()).map_err(|bad| bad.to_string());
    readable.and_then(|()| parsed()).map_err(|bad| {
        let words = format!("--edit is no JSON: {bad}");
        CliError::usage(words)
            .hint("write all of the input", "longhaul approve GATE --edit '{\"path\": \"a.txt\"}'")
            .into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_y_or_yes_confirms() {
        for said in ["y", "Y\n", " yes "] {
            assert!(is_yes(said), "{said}");
        }
        for said in ["", "\n", "n", "no", "yep", "y please"] {
            assert!(!is_yes(said), "{said}");
        }
    }
}
