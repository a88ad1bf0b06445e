//! Runs the demo: prints events, handles the approval, kills the worker and starts a new one.
//!
//! Invariant: if a person is at the terminal, only that person answers the approval.

use std::collections::BTreeSet;

use longhaul::project::ProjectRuntime;
use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::failure::FailureClass;
use longhaul_core::id::{RunId, Seq};
use longhaul_core::policy::gate::{Answer, GateDecision};
use longhaul_core::time::{Millis, Timestamp};
use longhaul_core::wait::WaitReason;
use longhaul_engine::Longhaul;
use longhaul_engine::handle::JournalStream;

use crate::answer::new_answer;
use crate::child_process::ChildProcess;
use crate::client::Client;
use crate::demo::project::DemoProject;
use crate::error::CliError;
use crate::event_printer::{EventPrinter, format_time_of_day};
use crate::exit::Exit;
use crate::gate_card::{self, gate_card};
use crate::output;
use crate::prompt::{PromptInput, TerminalPrompt, oldest_open_gate};

/// Turn of the run in which the worker is killed.
const KILL_TURN: u32 = 5;

/// Delay from the start of `KILL_TURN` until the worker is killed.
const KILL_DELAY: Millis = Millis(700);

/// Delay before the demo approves the call by itself if there is no terminal.
const AUTO_APPROVE_DELAY: Millis = Millis::from_secs(3);

/// Commands at the demo's prompt.
const COMMANDS: &str = "  a approve · r [note] reject · w why · d detach";

/// State of the running demo: its run, its worker and the prompt.
#[derive(Debug)]
pub(crate) struct DemoSession<'a> {
    longhaul: &'a Longhaul,
    client: Client,
    project: &'a DemoProject,
    run: RunId,
    worker: ChildProcess,
    journal: Vec<JournalEntry>,
    printer: EventPrinter,
    prompt: TerminalPrompt,
    /// Time at which the worker was killed, and the last event before that. `None` before the kill.
    kill: Option<(Timestamp, Seq)>,
    awaits_approval: bool,
}

impl<'a> DemoSession<'a> {
    /// Starts the demo's worker and returns the session.
    pub(crate) fn start(
        runtime: &'a ProjectRuntime,
        project: &'a DemoProject,
        run: RunId,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            longhaul: &runtime.longhaul,
            client: Client::for_store(runtime)?,
            project,
            run,
            worker: project.start_worker()?,
            journal: Vec::new(),
            printer: EventPrinter::default(),
            prompt: TerminalPrompt::new(false),
            kill: None,
            awaits_approval: false,
        })
    }

    pub(crate) async fn run_to_end(&mut self) -> anyhow::Result<Exit> {
        let mut stream = self.longhaul.watch_run_journal(self.run, Seq::START).await?;
        while let Some(entries) = self.next_entries(&mut stream).await? {
            for entry in entries {
                self.print_and_record_entry(entry).await?;
            }
            if self.awaits_approval {
                self.ask_for_approval(&mut stream).await?;
            }
        }
        self.worker.stop().await?;
        self.print_crash_counts()?;
        let view = self.longhaul.get_run(self.run).await?;
        Ok(Exit::from_run(&view))
    }

    /// Returns the next events of the run. Fails if the worker exits.
    async fn next_entries(
        &mut self,
        stream: &mut JournalStream,
    ) -> anyhow::Result<Option<Vec<JournalEntry>>> {
        tokio::select! {
            biased;
            entries = stream.next() => Ok(entries?),
            status = self.worker.wait() => {
                let exit = match status?.code() {
                    Some(5) => Exit::Busy,
                    _ => Exit::Usage,
                };
                let stderr = self.worker.read_stderr();
                let stderr = stderr.trim().trim_start_matches("error: ");
                let message = format!("the demo's worker exited: {stderr}");
                Err(CliError::usage_error(message).with_exit_code(exit).into())
            }
        }
    }

    async fn print_and_record_entry(&mut self, entry: JournalEntry) -> anyhow::Result<()> {
        if let Some((killed_at, last_event)) = self.kill
            && let Event::RunRecovered(_) = &entry.event
        {
            let (millis, at) = (entry.at.duration_since(killed_at).0, format_time_of_day(entry.at));
            output::print_line(&format!(
                "  {at}  resumed   from event {last_event} on a new worker, {millis} ms after the kill"
            ))?;
        } else if let Some(line) = self.printer.format_event_line(&entry) {
            output::print_line(&format!("  {line}"))?;
        }
        self.awaits_approval = matches!(&entry.event, Event::RunWaiting(waiting)
            if matches!(waiting.wait, WaitReason::Approval(_)));
        let is_kill_turn = self.kill.is_none()
            && matches!(&entry.event, Event::TurnStarted(started) if started.turn == KILL_TURN);
        self.journal.push(entry);
        if is_kill_turn {
            self.kill_worker().await?;
        }
        Ok(())
    }

    /// Kills the worker process in the middle of a model call and starts a new worker.
    async fn kill_worker(&mut self) -> anyhow::Result<()> {
        let time = &self.longhaul.services().clock;
        time.sleep(KILL_DELAY).await;
        self.worker.kill()?;
        let killed_at = time.now();
        let last_seq = self.journal.last().map_or(Seq::START, |entry| entry.seq);
        self.kill = Some((killed_at, last_seq));
        output::print_line(&format!(
            "  {}  ☠ demo    the worker was killed with SIGKILL, on purpose, during a model call",
            format_time_of_day(killed_at)
        ))?;
        self.worker = self.project.start_worker()?;
        Ok(())
    }

    /// Shows the tool call that needs approval and waits for the person's decision. Without a
    /// terminal the demo approves the call itself.
    async fn ask_for_approval(&mut self, stream: &mut JournalStream) -> anyhow::Result<()> {
        let Some(gate) = oldest_open_gate(&self.client, self.run).await? else {
            return Ok(());
        };
        self.awaits_approval = false;
        output::print_line(
            "            waiting   nothing runs and nothing is spent while a person decides",
        )?;
        for gate_line in gate_card(&gate, gate_card::SHORT) {
            output::print_line(&format!("            {gate_line}"))?;
        }
        if self.prompt.is_interactive() {
            self.prompt.ask_about_shown_gate(gate.id, COMMANDS);
        }
        // Until the person answers, here or at another terminal.
        while self.prompt.is_interactive() {
            tokio::select! {
                biased;
                entries = stream.next() => {
                    for entry in entries?.unwrap_or_default() {
                        self.print_and_record_entry(entry).await?;
                    }
                    return Ok(());
                }
                input = self.prompt.next_input() => {
                    if input == PromptInput::Detach {
                        let message = format!("Detached. The run is saved. To continue it: cd {} && longhaul watch {}", self.project.display_path(), self.run);
                        return Err(CliError::usage_error(message).with_exit_code(Exit::Interrupted).into());
                    }
                    self.prompt.send_input_to_run(&self.client, self.run, input).await?;
                }
            }
        }
        output::print_line(&format!(
            "            no terminal: the demo approves automatically in {} s",
            AUTO_APPROVE_DELAY.0 / 1_000
        ))?;
        let time = &self.longhaul.services().clock;
        time.sleep(AUTO_APPROVE_DELAY).await;
        let by = "the demo, no terminal".to_owned();
        let answer = Answer { by, digest: gate.digest, ..new_answer(GateDecision::Approve) };
        self.longhaul.answer_gate(gate.id, answer).await?;
        Ok(())
    }

    /// Counts in the journal what was recorded before the crash and what was repeated after it, and
    /// prints the numbers.
    fn print_crash_counts(&self) -> anyhow::Result<()> {
        let Some((_, last_seq)) = self.kill else {
            return Ok(());
        };
        let (mut replies, mut results, mut repeated) = (0, 0, 0);
        let (mut lost_model_calls, mut in_doubt) = (0, 0);
        let (mut turns, mut calls) = (BTreeSet::new(), BTreeSet::new());
        for entry in &self.journal {
            let before_crash = usize::from(entry.seq <= last_seq);
            #[expect(clippy::wildcard_enum_match_arm, reason = "other events are not counted")]
            match &entry.event {
                Event::TurnCompleted(completed) => {
                    replies += before_crash;
                    turns.insert(completed.turn);
                }
                Event::ToolCompleted(ended) | Event::ToolFailed(ended) => {
                    results += before_crash;
                    calls.insert(ended.call);
                }
                // Started again although the reply or the result was recorded.
                Event::TurnStarted(started) if turns.contains(&started.turn) => repeated += 1,
                Event::ToolStarted(started) if calls.contains(&started.call) => repeated += 1,
                Event::TurnFailed(failed) if failed.failure.class == FailureClass::Lost => {
                    lost_model_calls += 1;
                }
                Event::ToolInDoubt(_) => in_doubt += 1,
                _ => {}
            }
        }
        output::print_line(&format!(
            "
  What the crash cost
    {replies:>3}  model replies and {results} tool results were recorded before it
    {repeated:>3}  of them were repeated
    {lost_model_calls:>3}  model call was in flight and was repeated
    {in_doubt:>3}  effects are in doubt
         $0.00 (scripted)"
        ))
    }
}
