//! One run, its journal and its rows, played by hand: what a store, a driver
//! and people would do to it, in one thread and without waiting.
//!
//! Never: decides. It carries out batches, and checks after each that fold and
//! rows say the same.

pub(crate) mod driver;
pub(crate) mod inputs;
pub(crate) mod invariants;
pub(crate) mod rows;
pub(crate) mod script;
pub(crate) mod summary;

use longhaul_core::change::Batch;
use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::event::run::RunClaimed;
use longhaul_core::id::{AgentName, Epoch, InboxName, RunId, Seq, WorkerId};
use longhaul_core::policy::Policy;
use longhaul_core::raw::RawJson;
use longhaul_core::task::TaskSpec;
use longhaul_core::time::Timestamp;
use longhaul_core::usage::RemainingBudget;
use longhaul_run::{DecideContext, Input, Rejection, Run, decide};

use rows::{Head, RowConflict, Rows};

/// Where time begins in these tests.
pub(crate) const START: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

/// Who appends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Author {
    Driver,
    Closer,
    Outsider,
}

/// What came of an input.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TellOutcome {
    /// These facts were written.
    Events(Vec<Event>),
    /// The heart refused.
    Rejected(Rejection),
    /// A row refused, or the author may not write now.
    RowConflict(&'static str),
}

/// One run and everything around it.
#[derive(Debug, Clone)]
pub(crate) struct TestRun {
    pub(crate) entries: Vec<Entry>,
    pub(crate) run: Run,
    pub(crate) rows: Rows,
    pub(crate) now: Timestamp,
    pub(crate) steers_written: u128,
}

impl TestRun {
    /// A run that was submitted under this policy.
    pub(crate) fn new(policy: Policy) -> Self {
        Self::with_task(|task| task.policy = policy)
    }

    /// A run whose task is made by `make`.
    pub(crate) fn with_task(make: impl FnOnce(&mut TaskSpec)) -> Self {
        let id = RunId::from_bits(0x0190_0000_0000_7000_8000_1234_5678_9abc);
        let mut task = TaskSpec::new(
            id,
            AgentName::new("writer").unwrap(),
            RawJson::parse(r#""Write a poem.""#).unwrap(),
            InboxName::new("default").unwrap(),
        );
        task.submitter = Some("key:boss".into());
        make(&mut task);
        let new = longhaul_run::submit::submit(id, task).unwrap();
        let entries: Vec<Entry> = (1..)
            .zip(new.events)
            .map(|(seq, event)| Entry { run: id, seq: Seq(seq), at: START, epoch: Epoch(0), event })
            .collect();
        Self {
            run: Run::replay(&entries).unwrap(),
            rows: Rows::new(&new.task),
            entries,
            now: START,
            steers_written: 0,
        }
    }

    /// Tells the run something, as whoever may say such a thing.
    pub(crate) fn send_input(&mut self, input: Input) -> TellOutcome {
        let author = match input {
            Input::Command(_) => Author::Outsider,
            Input::CancelNow { .. } | Input::PauseNow { .. } => Author::Closer,
            _ => Author::Driver,
        };
        if !self.rows.admits(author) {
            return TellOutcome::RowConflict("fenced");
        }
        let mut moment = DecideContext::new(self.now);
        // The account refuses at most once: what it says then is taken in.
        for _ in 0..3 {
            let batch = match self.decided(input.clone(), moment) {
                Ok(batch) => batch,
                Err(refusal) => return TellOutcome::Rejected(refusal),
            };
            match self.append(author, batch) {
                Ok(events) => return TellOutcome::Events(events),
                Err(RowConflict::OverBudget(left)) => moment.remaining_budget = Some(left),
                Err(RowConflict::Row(why)) => return TellOutcome::RowConflict(why),
            }
        }
        panic!("what is left of the account was told, and the same hold was tried again");
    }

    /// Decides, twice: the same run, input and moment give the same batch.
    fn decided(&self, input: Input, moment: DecideContext) -> Result<Batch, Rejection> {
        let batch = decide(&self.run, input.clone(), moment);
        assert_eq!(batch, decide(&self.run, input, moment), "decided twice");
        batch
    }

    /// What `decide` says now, with nothing written.
    pub(crate) fn decide_only(
        &self,
        input: Input,
        left: Option<RemainingBudget>,
    ) -> Result<Batch, Rejection> {
        let moment = DecideContext { now: self.now, remaining_budget: left };
        self.decided(input, moment)
    }

    /// Writes a batch whole or not at all.
    pub(crate) fn append(
        &mut self,
        author: Author,
        batch: Batch,
    ) -> Result<Vec<Event>, RowConflict> {
        let mut rows = self.rows.clone();
        if author == Author::Outsider {
            rows.wake_from(&batch.events);
        }
        for change in batch.changes {
            rows.change(change, self.now)?;
        }
        self.rows = rows;
        self.apply_events(&batch.events);
        Ok(batch.events)
    }

    /// A worker takes the run, if it is ready.
    pub(crate) fn claim(&mut self) -> TellOutcome {
        if self.rows.head != Head::Ready {
            return TellOutcome::RowConflict("not ready");
        }
        self.rows.head = Head::Leased;
        self.rows.epoch += 1;
        let claimed = Event::RunClaimed(RunClaimed {
            worker: WorkerId::from_bits(u128::from(self.rows.epoch)),
            epoch: Epoch(self.rows.epoch),
        });
        self.apply_events(std::slice::from_ref(&claimed));
        TellOutcome::Events(vec![claimed])
    }

    /// The driver dies, and the store finds out.
    pub(crate) fn crash(&mut self) -> TellOutcome {
        if self.rows.head != Head::Leased {
            return TellOutcome::RowConflict("not driven");
        }
        self.rows.head = Head::Ready;
        TellOutcome::Events(Vec::new())
    }

    fn apply_events(&mut self, events: &[Event]) {
        for event in events {
            let entry = Entry {
                run: self.run.id(),
                seq: self.run.seq().next(),
                at: self.now,
                epoch: Epoch(self.rows.epoch),
                event: event.clone(),
            };
            let envelope = entry.to_envelope().unwrap();
            let line = serde_json::to_string(&envelope).unwrap();
            let read = serde_json::from_str(&line).unwrap();
            assert_eq!(Entry::try_from(&read).unwrap(), entry, "{line}");
            if let Err(misfit) = self.run.apply(&entry) {
                panic!("what was decided does not fold: {misfit}");
            }
            self.entries.push(entry);
        }
        invariants::check(self);
    }
}
