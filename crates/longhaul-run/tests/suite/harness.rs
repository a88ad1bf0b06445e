//! Test harness: one run with its journal and its rows. Simulates a store, a driver and people
//! in one thread, without waiting.
//!
//! Invariant: after every append, the folded state and the rows must agree.

pub(crate) mod amounts;
pub(crate) mod children;
pub(crate) mod driver;
pub(crate) mod inputs;
pub(crate) mod invariants;
pub(crate) mod rows;
pub(crate) mod sandboxes;
pub(crate) mod script;
pub(crate) mod summary;

use longhaul_core::change::{JournalBatch, NewRun, RowChange};
use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::event::environment::BudgetRaised;
use longhaul_core::event::run::RunClaimed;
use longhaul_core::id::{AgentName, Epoch, InboxName, RunId, Seq, WorkerId};
use longhaul_core::policy::RunPolicy;
use longhaul_core::policy::budget::{BudgetAccount, BudgetRaise};
use longhaul_core::raw::RawJson;
use longhaul_core::task::TaskSpec;
use longhaul_core::time::Timestamp;
use longhaul_run::fork::{ForkPoint, ForkRequest, fork_run};
use longhaul_run::submit::{RetryPoint, retry_failed_run};
use longhaul_run::{DecisionContext, EffectKeyOfOtherCall, Rejection, Run, RunInput, decide};

use rows::{Head, RowConflict, Rows};

/// Initial time in all tests.
pub(crate) const START: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

/// Author of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Author {
    Driver,
    Closer,
    Outsider,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum InputOutcome {
    /// These events were written.
    Events(Vec<Event>),
    /// The state machine rejected the input.
    Rejected(Rejection),
    /// A row refused the change, or the author may not write now.
    RowConflict(&'static str),
}

/// One run with its journal and rows.
#[derive(Debug, Clone)]
pub(crate) struct TestRun {
    pub(crate) entries: Vec<JournalEntry>,
    pub(crate) run: Run,
    pub(crate) rows: Rows,
    pub(crate) now: Timestamp,
    pub(crate) steers_written: u128,
    /// Time until which the provider accepts no requests, as another run has learned.
    pub(crate) provider_blocked_until: Option<Timestamp>,
}

impl TestRun {
    /// Creates a run submitted with this policy.
    pub(crate) fn new(policy: RunPolicy) -> Self {
        Self::with_task(|task| task.policy = policy)
    }

    /// Creates a run whose task is changed by `make`.
    pub(crate) fn with_task(edit_task: impl FnOnce(&mut TaskSpec)) -> Self {
        let id = RunId::from_bits(0x0190_0000_0000_7000_8000_1234_5678_9abc);
        let mut task = TaskSpec::new(
            id,
            AgentName::new("writer").unwrap(),
            RawJson::parse(r#""Write a poem.""#).unwrap(),
            InboxName::new("default").unwrap(),
        );
        task.submitter = Some("key:boss".into());
        edit_task(&mut task);
        let new = longhaul_run::submit::new_run_from_task(id, task).unwrap();
        let entries: Vec<JournalEntry> = (1..)
            .zip(new.events)
            .map(|(seq, event)| JournalEntry {
                run: id,
                seq: Seq(seq),
                at: START,
                epoch: Epoch(0),
                event,
            })
            .collect();
        Self {
            run: Run::replay(&entries).unwrap(),
            rows: Rows::new(&new.task),
            entries,
            now: START,
            steers_written: 0,
            provider_blocked_until: None,
        }
    }

    /// Passes an input to the run, with an author that may send it.
    pub(crate) fn send_input(&mut self, input: RunInput) -> InputOutcome {
        let author = match input {
            RunInput::Command(_) => Author::Outsider,
            RunInput::CancelNow(_) | RunInput::PauseNow { .. } | RunInput::CloseNow { .. } => {
                Author::Closer
            }
            _ => Author::Driver,
        };
        if !self.rows.admits(author) {
            return InputOutcome::RowConflict("fenced");
        }
        let mut ctx = DecisionContext::new(self.now);
        ctx.provider_blocked_until = self.provider_blocked_until;
        // The account and each key refuse once: the next decision knows what is left or taken.
        for _ in 0..12 {
            let batch = match self.decided(input.clone(), ctx.clone()) {
                Ok(batch) => batch,
                Err(refusal) => return InputOutcome::Rejected(refusal),
            };
            match self.append(author, batch) {
                Ok(events) => return InputOutcome::Events(events),
                Err(RowConflict::OverBudget(account)) => ctx.budget_account = Some(account),
                Err(RowConflict::KeyTaken(key)) => {
                    ctx.add_taken_key(EffectKeyOfOtherCall { key, result: None });
                }
                Err(RowConflict::KeyNotHeld) => ctx.forget_taken_keys(),
                Err(RowConflict::NoSlot) => ctx.no_sandbox_slot = true,
                Err(RowConflict::Row(reason)) => return InputOutcome::RowConflict(reason),
            }
        }
        panic!("the same change was tried again although its refusal was known");
    }

    /// Decides twice and checks that the same run, input and context give the same batch.
    fn decided(&self, input: RunInput, ctx: DecisionContext) -> Result<JournalBatch, Rejection> {
        let batch = decide(&self.run, input.clone(), ctx.clone());
        assert_eq!(batch, decide(&self.run, input, ctx), "`decide` is not deterministic");
        batch
    }

    /// Returns what `decide` returns now, without writing it.
    pub(crate) fn decide_only(
        &self,
        input: RunInput,
        account: Option<BudgetAccount>,
    ) -> Result<JournalBatch, Rejection> {
        let ctx = DecisionContext { budget_account: account, ..DecisionContext::new(self.now) };
        self.decided(input, ctx)
    }

    /// Writes a batch as a whole or not at all.
    pub(crate) fn append(
        &mut self,
        author: Author,
        batch: JournalBatch,
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

    /// Raises the budget caps of the run, as an earlier build did. Its journals can still be read.
    pub(crate) fn raise_budget(&mut self, raise: BudgetRaise) -> InputOutcome {
        if self.run.status().is_terminal() {
            return InputOutcome::Rejected(Rejection::Ended(self.run.status()));
        }
        let event = Event::BudgetRaised(BudgetRaised { raise, by: "cli:anna".into() });
        let batch =
            JournalBatch { events: vec![event], changes: vec![RowChange::RaiseBudget(raise)] };
        match self.append(Author::Outsider, batch) {
            Ok(events) => InputOutcome::Events(events),
            Err(_) => InputOutcome::RowConflict("raise"),
        }
    }

    /// Claims the run for a worker, if it is ready.
    pub(crate) fn claim(&mut self) -> InputOutcome {
        if self.rows.head != Head::Ready {
            return InputOutcome::RowConflict("not ready");
        }
        self.rows.head = Head::Leased;
        self.rows.is_woken_by_key = false;
        self.rows.epoch += 1;
        let claimed = Event::RunClaimed(RunClaimed {
            worker: WorkerId::from_bits(u128::from(self.rows.epoch)),
            epoch: Epoch(self.rows.epoch),
        });
        self.apply_events(std::slice::from_ref(&claimed));
        InputOutcome::Events(vec![claimed])
    }

    /// Returns the retry of the failed run, as a store creates it.
    pub(crate) fn retry(&self) -> Self {
        let mut point = RetryPoint::default();
        self.entries.iter().for_each(|entry| point.update_from_entry(entry));
        let id = RunId::from_bits(self.run.id().bits() + 1);
        // Not one of the people who answer gates: a rule can forbid answers of the submitter.
        let new = retry_failed_run(id, &self.run, &point, "key:boss".into()).unwrap();
        let mut rows = Rows::new(&new.task);
        if new.copied_journal.is_some() {
            (rows.account, rows.used) = (self.rows.account, self.rows.used);
        }
        rows.steers.clone_from(&new.steers);
        self.with_new_run(&new, rows)
    }

    /// Returns a fork of the run before an event, as a store creates it.
    pub(crate) fn fork(&self, before: u64, request: ForkRequest) -> Result<Self, Rejection> {
        let mut point = ForkPoint::before(Seq(before));
        let mut run = Run::replay(&self.entries[..1]).unwrap();
        for entry in &self.entries[1..] {
            point.update_from_entry(&run, entry);
            run.apply(entry).unwrap();
        }
        let id = RunId::from_bits(self.run.id().bits() + 1);
        let policy =
            RunPolicy { budget: run.control().budget.caps, ..self.run.task().policy.clone() };
        let by = "key:boss".to_owned();
        let request = ForkRequest { by, policy, account: self.run.id(), ..request };
        let new = fork_run(id, &run, point, request)?;
        let mut rows = Rows::new(&new.task);
        let copied = new.copied_journal.map_or(1, |copied| copied.through.0);
        let totals = Run::replay(&self.entries[..usize::try_from(copied).unwrap()]).unwrap();
        rows.set_used(totals.control());
        Ok(self.with_new_run(&new, rows))
    }

    /// Returns a new run that may have copied a part of the journal of this run.
    fn with_new_run(&self, new: &NewRun, rows: Rows) -> Self {
        let id = new.id;
        let through = new.copied_journal.map_or(1, |copied| copied.through.0);
        let copied = self.entries.iter().filter(|entry| (2..=through).contains(&entry.seq.0));
        let copied = copied.map(|entry| JournalEntry { run: id, ..entry.clone() });
        let written = new.events.iter().map(|event| JournalEntry {
            run: id,
            seq: Seq::START,
            at: self.now,
            epoch: Epoch(0),
            event: event.clone(),
        });
        let mut entries: Vec<JournalEntry> =
            written.clone().take(1).chain(copied).chain(written.skip(1)).collect();
        entries.iter_mut().zip(1..).for_each(|(entry, seq)| entry.seq = Seq(seq));
        assert_eq!(entries.last().map(|last| last.seq), Some(new.last_seq()));
        let run = Run::replay(&entries).unwrap();
        let test_run = Self { run, rows, entries, ..self.clone() };
        invariants::check(&test_run);
        test_run
    }

    /// Simulates the death of the driver and its detection by the store.
    pub(crate) fn crash(&mut self) -> InputOutcome {
        if self.rows.head != Head::Leased {
            return InputOutcome::RowConflict("not driven");
        }
        self.rows.head = Head::Ready;
        InputOutcome::Events(Vec::new())
    }

    fn apply_events(&mut self, events: &[Event]) {
        for event in events {
            let entry = JournalEntry {
                run: self.run.id(),
                seq: self.run.seq().next(),
                at: self.now,
                epoch: Epoch(self.rows.epoch),
                event: event.clone(),
            };
            let envelope = entry.to_envelope().unwrap();
            let line = serde_json::to_string(&envelope).unwrap();
            let parsed = serde_json::from_str(&line).unwrap();
            assert_eq!(JournalEntry::try_from(&parsed).unwrap(), entry, "{line}");
            if let Err(error) = self.run.apply(&entry) {
                panic!("a decided event can't be applied: {error}");
            }
            self.entries.push(entry);
        }
        invariants::check(self);
    }
}
