//! The person at the terminal: shows what is asked and takes the answer.
//!
//! Never: there when stdin or stderr is no terminal.

use std::io::BufRead as _;

use longhaul_api::gate::GateView;
use longhaul_core::event::steer::Delivery;
use longhaul_core::id::{GateId, RunId};
use longhaul_core::policy::gate::{Answer, Decision, GateKind, Scope, is_unanswerable};
use tokio::sync::mpsc;

use crate::caller_name::caller_name;
use crate::client::RunClient;
use crate::gate_card::short_card;
use crate::output;

/// What the person wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PromptInput {
    Approve,
    Reject(Option<String>),
    /// An answer to a question, or a message to the run.
    Text(String),
    Why,
    Detach,
    Empty,
}

/// Who sits at the terminal.
#[derive(Debug)]
pub(crate) struct TerminalPrompt {
    /// None: nobody.
    lines: Option<mpsc::Receiver<String>>,
    /// The gate that was shown last.
    shown_gate: Option<GateId>,
    /// A question is open: bare words are its answer.
    is_question: bool,
}

impl TerminalPrompt {
    /// Whoever sits at the terminal, unless nobody is to be asked.
    pub(crate) fn at_terminal(nobody: bool) -> Self {
        let there = !nobody && output::is_interactive();
        Self { lines: there.then(read_lines), shown_gate: None, is_question: false }
    }

    /// Whether somebody can be asked.
    pub(crate) const fn is_interactive(&self) -> bool {
        self.lines.is_some()
    }

    /// Shows what is asked, once.
    pub(crate) async fn show_gate(&mut self, client: &RunClient, run: RunId) -> anyhow::Result<()> {
        let Some(gate) = oldest_open_gate(client, run).await? else {
            return Ok(());
        };
        if self.shown_gate == Some(gate.id) {
            return Ok(());
        }
        self.shown_gate = Some(gate.id);
        self.is_question = matches!(gate.kind, GateKind::Question | GateKind::Blocked);
        for line in short_card(&gate) {
            output::stderr_line(&format!("          {line}"));
        }
        let (id, run) = (gate.id, gate.run);
        if is_unanswerable(&gate.tags) {
            output::stderr_line(&format!("          no answer helps:  longhaul cancel {run}"));
            if self.is_interactive() {
                output::stderr_line("          w why · d detach");
            }
        } else if self.is_interactive() {
            output::stderr_line(if self.is_question {
                "          type the answer, or: r reject · w why · d detach"
            } else {
                "          a approve · r [note] reject · s TEXT steer · w why · d detach"
            });
        } else if self.is_question {
            output::stderr_line(&format!("          answer it:  longhaul answer {id} TEXT"));
        } else {
            output::stderr_line(&format!(
                "          decide:  longhaul approve {id}    or  longhaul reject {id}"
            ));
        }
        Ok(())
    }

    /// Shows what is asked once more.
    pub(crate) const fn reset_shown(&mut self) {
        self.shown_gate = None;
    }

    /// What the person says next; never when nobody is there.
    pub(crate) async fn next_input(&mut self) -> PromptInput {
        let Some(lines) = &mut self.lines else {
            return std::future::pending().await;
        };
        match lines.recv().await {
            Some(line) => parse_input(line.trim(), self.is_question),
            // The terminal is gone; the run is not.
            None => {
                self.lines = None;
                PromptInput::Detach
            }
        }
    }

    /// Passes on what the person said.
    pub(crate) async fn submit(
        &mut self,
        client: &RunClient,
        run: RunId,
        said: PromptInput,
    ) -> anyhow::Result<()> {
        let gate = oldest_open_gate(client, run).await?;
        let (decision, note) = match (said, &gate) {
            (PromptInput::Approve, Some(_)) => (Decision::Approve, None),
            (PromptInput::Reject(note), Some(_)) => (Decision::Reject, note),
            (PromptInput::Text(words), Some(_)) if self.is_question => {
                (Decision::Answer(words), None)
            }
            (PromptInput::Text(words), _) => {
                let steered = client.steer(run, words, Delivery::AfterBatch);
                steered.await?;
                output::stderr_line("          queued: it is read as soon as the run goes on");
                return Ok(());
            }
            (PromptInput::Why, _) => {
                let why = client.why(run).await?;
                output::stderr_line(&format!("          {}", why.message));
                return Ok(());
            }
            (
                PromptInput::Approve
                | PromptInput::Reject(_)
                | PromptInput::Detach
                | PromptInput::Empty,
                _,
            ) => return Ok(()),
        };
        let Some(gate) = gate else { return Ok(()) };
        let answer = Answer {
            decision,
            by: caller_name(),
            scope: Scope::Once,
            note,
            payload: None,
            digest: gate.digest,
        };
        client.answer(&gate, answer).await?;
        Ok(())
    }
}

/// The gate that a run has waited for longest.
pub(crate) async fn oldest_open_gate(
    client: &RunClient,
    run: RunId,
) -> anyhow::Result<Option<GateView>> {
    Ok(client.open_gates(run).await?.pop())
}

fn parse_input(line: &str, question: bool) -> PromptInput {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let rest = rest.trim();
    let note = (!rest.is_empty()).then(|| rest.to_owned());
    match (word, question) {
        ("", _) => PromptInput::Empty,
        ("a" | "approve" | "y" | "yes", false) => PromptInput::Approve,
        ("r" | "reject", _) => PromptInput::Reject(note),
        ("n" | "no", false) => PromptInput::Reject(note),
        ("s" | "steer", false) if note.is_some() => PromptInput::Text(rest.to_owned()),
        ("w" | "why", _) if note.is_none() => PromptInput::Why,
        ("d" | "detach", _) if note.is_none() => PromptInput::Detach,
        (_, true) => PromptInput::Text(line.to_owned()),
        (_, false) => PromptInput::Empty,
    }
}

/// Reads lines in a thread of its own: a terminal can't be waited for otherwise.
fn read_lines() -> mpsc::Receiver<String> {
    let (send, lines) = mpsc::channel(16);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if send.blocking_send(line).is_err() {
                return;
            }
        }
    });
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompt_lines_are_parsed() {
        let words = |text: &str| PromptInput::Text(text.to_owned());
        for (line, question, said) in [
            ("a", false, PromptInput::Approve),
            ("r not now", false, PromptInput::Reject(Some("not now".into()))),
            ("s keep the old name", false, words("keep the old name")),
            ("go left", true, words("go left")),
            ("a", true, words("a")),
            ("w", true, PromptInput::Why),
            ("what?", false, PromptInput::Empty),
            ("", true, PromptInput::Empty),
        ] {
            assert_eq!(parse_input(line, question), said, "{line} {question}");
        }
    }
}
