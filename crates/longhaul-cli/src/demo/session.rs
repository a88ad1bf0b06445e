//! The demo as it happens: tells, asks, kills, tells on.
//!
//! Never: answers for a person who sits at the terminal.

use longhaul::assemble::ProjectRuntime;
use longhaul_api::gate::GateView;
use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::id::{RunId, Seq};
use longhaul_core::policy::gate::{Answer, Decision, Scope};
use longhaul_core::status::Wait;
use longhaul_core::time::{Millis, Timestamp};
use longhaul_engine::Longhaul;
use longhaul_engine::handle::JournalStream;

use crate::child_process::ChildProcess;
use crate::client::RunClient;
use crate::crash_counts::CrashCounts;
use crate::demo::project::DemoProject;
use crate::error::CliError;
use crate::event_printer::{EventPrinter, time_of_day};
use crate::exit::Exit;
use crate::gate_card::short_card;
use crate::output;
use crate::prompt::{PromptInput, TerminalPrompt, oldest_open_gate};

/// The turn in whose middle the worker dies.
const KILL_TURN: u32 = 5;

/// So long into it.
const KILL_DELAY: Millis = Millis(700);

/// Without a terminal the approval is given after this.
const AUTO_APPROVE_DELAY: Millis = Millis::from_secs(3);

/// Everything on stage.
#[derive(Debug)]
pub(crate) struct DemoSession<'a> {
    longhaul: &'a Longhaul,
    client: RunClient,
    project: &'a DemoProject,
    run: RunId,
    worker: ChildProcess,
    journal: Vec<Entry>,
    printer: EventPrinter,
    prompt: TerminalPrompt,
    /// When the worker was killed, and the last fact before.
    kill: Option<(Timestamp, Seq)>,
    awaits_approval: bool,
}

impl<'a> DemoSession<'a> {
    /// Sets the stage: the worker starts.
    pub(crate) fn start(
        house: &'a ProjectRuntime,
        project: &'a DemoProject,
        run: RunId,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            longhaul: &house.longhaul,
            client: RunClient::local(&house.longhaul),
            project,
            run,
            worker: project.start_worker()?,
            journal: Vec::new(),
            printer: EventPrinter::default(),
            prompt: TerminalPrompt::at_terminal(false),
            kill: None,
            awaits_approval: false,
        })
    }

    /// Plays to the end.
    pub(crate) async fn run_to_end(&mut self) -> anyhow::Result<Exit> {
        let mut watching = self.longhaul.watch(self.run, Seq::START).await?;
        while let Some(entries) = self.next_entries(&mut watching).await? {
            for entry in entries {
                self.handle_entry(entry).await?;
            }
            if self.awaits_approval {
                self.handle_gate(&mut watching).await?;
            }
        }
        self.worker.stop().await?;
        self.print_score()?;
        let view = self.longhaul.show(self.run).await?;
        Ok(Exit::from_run(&view))
    }

    /// What happens next, unless the worker breaks.
    async fn next_entries(
        &mut self,
        watching: &mut JournalStream,
    ) -> anyhow::Result<Option<Vec<Entry>>> {
        tokio::select! {
            biased;
            seen = watching.next() => Ok(seen?),
            status = self.worker.wait() => {
                let exit = match status?.code() {
                    Some(5) => Exit::Busy,
                    _ => Exit::Usage,
                };
                let said = self.worker.read_stderr();
                let said = said.trim().trim_start_matches("error: ");
                let words = format!("the demo's worker ended: {said}");
                Err(CliError::usage(words).with_exit(exit).into())
            }
        }
    }

    async fn handle_entry(&mut self, entry: Entry) -> anyhow::Result<()> {
        if let Some((killed, last)) = self.kill
            && let Event::RunRecovered(_) = &entry.event
        {
            let took = entry.at.since(killed);
            self.print_line(
                &entry,
                "resumed",
                &format!("from event {last} on a new worker, {} ms after the kill", took.0),
            )?;
        } else if let Some(line) = self.printer.line(&entry) {
            output::stdout_line(&format!("  {line}"))?;
        }
        #[expect(clippy::wildcard_enum_match_arm, reason = "the rest is only told")]
        let (asked, deadly) = match &entry.event {
            Event::RunWaiting(waiting) => (matches!(waiting.wait, Wait::Approval(_)), false),
            Event::TurnStarted(started) => {
                (false, started.turn == KILL_TURN && self.kill.is_none())
            }
            _ => (false, false),
        };
        self.awaits_approval = asked;
        self.journal.push(entry);
        if deadly {
            self.kill_worker().await?;
        }
        Ok(())
    }

    /// The worker dies in the middle of a call, and a new one comes.
    async fn kill_worker(&mut self) -> anyhow::Result<()> {
        let time = &self.longhaul.services().clock;
        time.sleep(KILL_DELAY).await;
        self.worker.kill()?;
        let killed = time.now();
        let last = self.journal.last().map_or(Seq::START, |entry| entry.seq);
        self.kill = Some((killed, last));
        output::stdout_line(&format!(
            "  {}  ☠ demo    its worker was killed with SIGKILL, on purpose, while the model was asked",
            time_of_day(killed)
        ))?;
        self.worker = self.project.start_worker()?;
        Ok(())
    }

    /// Shows the gate, and waits for the person, or answers where there is none.
    async fn handle_gate(&mut self, watching: &mut JournalStream) -> anyhow::Result<()> {
        let Some(gate) = oldest_open_gate(&self.client, self.run).await? else {
            return Ok(());
        };
        self.awaits_approval = false;
        output::stdout_line(
            "            waiting   nothing runs and nothing is spent while a person decides",
        )?;
        for line in short_card(&gate) {
            output::stdout_line(&format!("            {line}"))?;
        }
        if self.prompt.is_interactive() {
            output::stdout_line("            a approve · r [note] reject · w why · d detach")?;
            return self.wait_for_answer(watching).await;
        }
        output::stdout_line(&format!(
            "            no terminal: the demo approves by itself in {} s",
            AUTO_APPROVE_DELAY.0 / 1_000
        ))?;
        let time = &self.longhaul.services().clock;
        time.sleep(AUTO_APPROVE_DELAY).await;
        self.approve(&gate).await
    }

    /// Waits for the person; another terminal may be quicker.
    async fn wait_for_answer(&mut self, watching: &mut JournalStream) -> anyhow::Result<()> {
        loop {
            tokio::select! {
                biased;
                seen = watching.next() => {
                    for entry in seen?.unwrap_or_default() {
                        self.handle_entry(entry).await?;
                    }
                    return Ok(());
                }
                said = self.prompt.next_input() => match said {
                    PromptInput::Empty => {}
                    PromptInput::Detach => {
                        let words = format!("detached. The run is saved: cd {} && longhaul watch {}", self.project.display_path(), self.run);
                        return Err(CliError::usage(words).with_exit(Exit::Interrupted).into());
                    }
                    said @ (PromptInput::Approve | PromptInput::Reject(_) | PromptInput::Text(_) | PromptInput::Why) => {
                        self.prompt.submit(&self.client, self.run, said).await?;
                    }
                },
            }
        }
    }

    async fn approve(&self, gate: &GateView) -> anyhow::Result<()> {
        let answer = Answer {
            decision: Decision::Approve,
            by: "the demo, no terminal".to_owned(),
            scope: Scope::Once,
            note: None,
            payload: None,
            digest: gate.digest,
        };
        self.client.answer(gate, answer).await?;
        Ok(())
    }

    fn print_line(&self, entry: &Entry, what: &str, words: &str) -> anyhow::Result<()> {
        output::stdout_line(&format!("  {}  {what:<9} {words}", time_of_day(entry.at)))
    }

    fn print_score(&self) -> anyhow::Result<()> {
        let Some((_, crash)) = self.kill else {
            return Ok(());
        };
        let counts = CrashCounts::from_journal(&self.journal, crash);
        output::stdout_line(&format!(
            "
  What the crash cost
    {:>3}  model replies and {} tool results were recorded before it
    {:>3}  of them were repeated
    {:>3}  model call was under way and was asked again
    {:>3}  effects are in doubt
         $0.00 (scripted)",
            counts.recorded_replies,
            counts.recorded_results,
            counts.repeated,
            counts.retried_model_calls,
            counts.in_doubt
        ))
    }
}
