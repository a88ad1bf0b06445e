//! The demo as it happens: tells, asks, kills, tells on.
//!
//! Never: answers for a person who sits at the terminal.

use longhaul::assemble::House;
use longhaul_api::gate::GateView;
use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::id::{RunId, Seq};
use longhaul_core::policy::gate::{Answer, Decision, Scope};
use longhaul_core::status::Wait;
use longhaul_core::time::{Millis, Timestamp};
use longhaul_engine::Longhaul;
use longhaul_engine::handle::Watching;

use crate::card::card;
use crate::client::RunClient;
use crate::crash_counts::CrashCounts;
use crate::demo::project::Project;
use crate::error::CliError;
use crate::exit::Exit;
use crate::own_process::OwnProcess;
use crate::person::{Person, Said, oldest};
use crate::say;
use crate::teller::{Teller, clock};

/// The turn in whose middle the worker dies.
const DEADLY_TURN: u32 = 5;

/// So long into it.
const DIES_AFTER: Millis = Millis(700);

/// Without a terminal the approval is given after this.
const ANSWERS_AFTER: Millis = Millis::from_secs(3);

/// Everything on stage.
#[derive(Debug)]
pub(crate) struct Stage<'a> {
    longhaul: &'a Longhaul,
    client: RunClient,
    project: &'a Project,
    run: RunId,
    worker: OwnProcess,
    journal: Vec<Entry>,
    teller: Teller,
    person: Person,
    /// When the worker was killed, and the last fact before.
    killed: Option<(Timestamp, Seq)>,
    asked: bool,
}

impl<'a> Stage<'a> {
    /// Sets the stage: the worker starts.
    pub(crate) fn set(house: &'a House, project: &'a Project, run: RunId) -> anyhow::Result<Self> {
        Ok(Self {
            longhaul: &house.longhaul,
            client: RunClient::local(&house.longhaul),
            project,
            run,
            worker: project.start_worker()?,
            journal: Vec::new(),
            teller: Teller::default(),
            person: Person::at_terminal(false),
            killed: None,
            asked: false,
        })
    }

    /// Plays to the end.
    pub(crate) async fn show(&mut self) -> anyhow::Result<Exit> {
        let mut watching = self.longhaul.watch(self.run, Seq::START).await?;
        while let Some(entries) = self.next(&mut watching).await? {
            for entry in entries {
                self.take_in(entry).await?;
            }
            if self.asked {
                self.ask(&mut watching).await?;
            }
        }
        self.worker.stop().await?;
        self.tell_score()?;
        let view = self.longhaul.show(self.run).await?;
        Ok(Exit::of(&view))
    }

    /// What happens next, unless the worker breaks.
    async fn next(&mut self, watching: &mut Watching) -> anyhow::Result<Option<Vec<Entry>>> {
        tokio::select! {
            biased;
            seen = watching.next() => Ok(seen?),
            status = self.worker.exited() => {
                let exit = match status?.code() {
                    Some(5) => Exit::Busy,
                    _ => Exit::Usage,
                };
                let said = self.worker.stderr();
                let said = said.trim().trim_start_matches("error: ");
                let words = format!("the demo's worker ended: {said}");
                Err(CliError::usage(words).exit(exit).into())
            }
        }
    }

    async fn take_in(&mut self, entry: Entry) -> anyhow::Result<()> {
        if let Some((killed, last)) = self.killed
            && let Event::RunRecovered(_) = &entry.event
        {
            let took = entry.at.since(killed);
            self.tell(
                &entry,
                "resumed",
                &format!(
                    "from event {last} on a new worker, {} ms after the kill",
                    took.0
                ),
            )?;
        } else if let Some(line) = self.teller.line(&entry) {
            say::data(&format!("  {line}"))?;
        }
        #[expect(clippy::wildcard_enum_match_arm, reason = "the rest is only told")]
        let (asked, deadly) = match &entry.event {
            Event::RunWaiting(waiting) => (matches!(waiting.wait, Wait::Approval(_)), false),
            Event::TurnStarted(started) => {
                (false, started.turn == DEADLY_TURN && self.killed.is_none())
            }
            _ => (false, false),
        };
        self.asked = asked;
        self.journal.push(entry);
        if deadly {
            self.kill().await?;
        }
        Ok(())
    }

    /// The worker dies in the middle of a call, and a new one comes.
    async fn kill(&mut self) -> anyhow::Result<()> {
        let time = &self.longhaul.ports().clock;
        time.sleep(DIES_AFTER).await;
        self.worker.kill()?;
        let killed = time.now();
        let last = self.journal.last().map_or(Seq::START, |entry| entry.seq);
        self.killed = Some((killed, last));
        say::data(&format!(
            "  {}  ☠ demo    its worker was killed with SIGKILL, on purpose, while the model was asked",
            clock(killed)
        ))?;
        self.worker = self.project.start_worker()?;
        Ok(())
    }

    /// Shows the gate, and waits for the person, or answers where there is none.
    async fn ask(&mut self, watching: &mut Watching) -> anyhow::Result<()> {
        let Some(gate) = oldest(&self.client, self.run).await? else {
            return Ok(());
        };
        self.asked = false;
        say::data(
            "            waiting   nothing runs and nothing is spent while a person decides",
        )?;
        for line in card(&gate) {
            say::data(&format!("            {line}"))?;
        }
        if self.person.is_there() {
            say::data("            a approve · r [note] reject · w why · d detach")?;
            return self.hear(watching).await;
        }
        say::data(&format!(
            "            no terminal: the demo approves by itself in {} s",
            ANSWERS_AFTER.0 / 1_000
        ))?;
        let time = &self.longhaul.ports().clock;
        time.sleep(ANSWERS_AFTER).await;
        self.approve(&gate).await
    }

    /// Waits for the person; another terminal may be quicker.
    async fn hear(&mut self, watching: &mut Watching) -> anyhow::Result<()> {
        loop {
            tokio::select! {
                biased;
                seen = watching.next() => {
                    for entry in seen?.unwrap_or_default() {
                        self.take_in(entry).await?;
                    }
                    return Ok(());
                }
                said = self.person.says() => match said {
                    Said::Nothing => {}
                    Said::Detach => {
                        let words = format!("detached. The run is saved: cd {} && longhaul watch {}", self.project.said(), self.run);
                        return Err(CliError::usage(words).exit(Exit::Interrupted).into());
                    }
                    said @ (Said::Approve | Said::Reject(_) | Said::Words(_) | Said::Why) => {
                        self.person.answer(&self.client, self.run, said).await?;
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

    fn tell(&self, entry: &Entry, what: &str, words: &str) -> anyhow::Result<()> {
        say::data(&format!("  {}  {what:<9} {words}", clock(entry.at)))
    }

    fn tell_score(&self) -> anyhow::Result<()> {
        let Some((_, crash)) = self.killed else {
            return Ok(());
        };
        let counts = CrashCounts::new(&self.journal, crash);
        say::data(&format!(
            "
  What the crash cost
    {:>3}  model replies and {} tool results were recorded before it
    {:>3}  of them were repeated
    {:>3}  model call was under way and was asked again
    {:>3}  effects are in doubt
         $0.00 (scripted)",
            counts.replies, counts.results, counts.repeated, counts.asked_again, counts.in_doubt
        ))
    }
}
