//! The person at the terminal: shows what is asked and takes the answer.
//!
//! Never: there when stdin or stderr is no terminal.

use std::io::BufRead as _;

use longhaul_api::gate::GateView;
use longhaul_core::event::steer::Delivery;
use longhaul_core::id::{GateId, RunId};
use longhaul_core::policy::gate::{Answer, Decision, GateKind, Scope, is_in_vain};
use tokio::sync::mpsc;

use crate::card::card;
use crate::client::RunClient;
use crate::me::me;
use crate::say;

/// What the person wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said {
    Approve,
    Reject(Option<String>),
    /// An answer to a question, or a message to the run.
    Words(String),
    Why,
    Detach,
    Nothing,
}

/// Who sits at the terminal.
#[derive(Debug)]
pub(crate) struct Person {
    /// None: nobody.
    lines: Option<mpsc::Receiver<String>>,
    /// The gate that was shown last.
    shown: Option<GateId>,
    /// A question is open: bare words are its answer.
    question: bool,
}

impl Person {
    /// Whoever sits at the terminal, unless nobody is to be asked.
    pub(crate) fn at_terminal(nobody: bool) -> Self {
        let there = !nobody && say::is_somebody_there();
        Self {
            lines: there.then(listen),
            shown: None,
            question: false,
        }
    }

    /// Whether somebody can be asked.
    pub(crate) const fn is_there(&self) -> bool {
        self.lines.is_some()
    }

    /// Shows what is asked, once.
    pub(crate) async fn show(&mut self, client: &RunClient, run: RunId) -> anyhow::Result<()> {
        let Some(gate) = oldest(client, run).await? else {
            return Ok(());
        };
        if self.shown == Some(gate.id) {
            return Ok(());
        }
        self.shown = Some(gate.id);
        self.question = matches!(gate.kind, GateKind::Question | GateKind::Blocked);
        for line in card(&gate) {
            say::talk(&format!("          {line}"));
        }
        let (id, run) = (gate.id, gate.run);
        if is_in_vain(&gate.tags) {
            say::talk(&format!(
                "          no answer helps:  longhaul cancel {run}"
            ));
            if self.is_there() {
                say::talk("          w why · d detach");
            }
        } else if self.is_there() {
            say::talk(if self.question {
                "          type the answer, or: r reject · w why · d detach"
            } else {
                "          a approve · r [note] reject · s TEXT steer · w why · d detach"
            });
        } else if self.question {
            say::talk(&format!("          answer it:  longhaul answer {id} TEXT"));
        } else {
            say::talk(&format!(
                "          decide:  longhaul approve {id}    or  longhaul reject {id}"
            ));
        }
        Ok(())
    }

    /// Shows what is asked once more.
    pub(crate) const fn show_again(&mut self) {
        self.shown = None;
    }

    /// What the person says next; never when nobody is there.
    pub(crate) async fn says(&mut self) -> Said {
        let Some(lines) = &mut self.lines else {
            return std::future::pending().await;
        };
        match lines.recv().await {
            Some(line) => understood(line.trim(), self.question),
            // The terminal is gone; the run is not.
            None => {
                self.lines = None;
                Said::Detach
            }
        }
    }

    /// Passes on what the person said.
    pub(crate) async fn answer(
        &mut self,
        client: &RunClient,
        run: RunId,
        said: Said,
    ) -> anyhow::Result<()> {
        let gate = oldest(client, run).await?;
        let (decision, note) = match (said, &gate) {
            (Said::Approve, Some(_)) => (Decision::Approve, None),
            (Said::Reject(note), Some(_)) => (Decision::Reject, note),
            (Said::Words(words), Some(_)) if self.question => (Decision::Answer(words), None),
            (Said::Words(words), _) => {
                let steered = client.steer(run, words, Delivery::AfterBatch);
                steered.await?;
                say::talk("          queued: it is read as soon as the run goes on");
                return Ok(());
            }
            (Said::Why, _) => {
                let why = client.why(run).await?;
                say::talk(&format!("          {}", why.sentence));
                return Ok(());
            }
            (Said::Approve | Said::Reject(_) | Said::Detach | Said::Nothing, _) => return Ok(()),
        };
        let Some(gate) = gate else { return Ok(()) };
        let answer = Answer {
            decision,
            by: me(),
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
pub(crate) async fn oldest(client: &RunClient, run: RunId) -> anyhow::Result<Option<GateView>> {
    Ok(client.open_gates(run).await?.pop())
}

fn understood(line: &str, question: bool) -> Said {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let rest = rest.trim();
    let note = (!rest.is_empty()).then(|| rest.to_owned());
    match (word, question) {
        ("", _) => Said::Nothing,
        ("a" | "approve" | "y" | "yes", false) => Said::Approve,
        ("r" | "reject", _) => Said::Reject(note),
        ("n" | "no", false) => Said::Reject(note),
        ("s" | "steer", false) if note.is_some() => Said::Words(rest.to_owned()),
        ("w" | "why", _) if note.is_none() => Said::Why,
        ("d" | "detach", _) if note.is_none() => Said::Detach,
        (_, true) => Said::Words(line.to_owned()),
        (_, false) => Said::Nothing,
    }
}

/// Reads lines in a thread of its own: a terminal can't be waited for otherwise.
fn listen() -> mpsc::Receiver<String> {
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
    fn words_at_the_prompt_are_understood() {
        let words = |text: &str| Said::Words(text.to_owned());
        for (line, question, said) in [
            ("a", false, Said::Approve),
            ("r not now", false, Said::Reject(Some("not now".into()))),
            ("s keep the old name", false, words("keep the old name")),
            ("go left", true, words("go left")),
            ("a", true, words("a")),
            ("w", true, Said::Why),
            ("what?", false, Said::Nothing),
            ("", true, Said::Nothing),
        ] {
            assert_eq!(understood(line, question), said, "{line} {question}");
        }
    }
}
