//! Sandboxes of the run: the rows and slots that a store keeps, and what a provider answers.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_core::change::{RowChange, RunSchedulingUpdate, SandboxRow, SandboxState, TimerKind};
use longhaul_core::event::Event;
use longhaul_core::event::environment::SandboxEvent;
use longhaul_core::id::{CallId, SandboxId, TimerId};
use longhaul_core::port::sandbox::{Isolation, SandboxError};
use longhaul_core::wait::WaitKind;
use longhaul_run::input::{SandboxChange, SandboxPlan};
use longhaul_run::{RunInput, change_idle_sandbox};

use super::inputs::saved_workspace;
use super::rows::{Head, RowConflict};
use super::script::outcome_line;
use super::{Author, InputOutcome, TestRun};

/// Provider of all sandboxes in these tests.
const PROVIDER: &str = "local";

/// Maximum number of sandboxes that run concurrently at the provider.
const CAPACITY: u32 = 2;

/// Rows of sandboxes, and the slots of the provider.
#[derive(Debug, Clone, Default)]
pub(crate) struct SandboxRows {
    pub(crate) rows: BTreeMap<SandboxId, SandboxRow>,
    slots: BTreeSet<SandboxId>,
    /// Number of slots that sandboxes of other runs occupy.
    used_by_others: u32,
    /// Whether the run is in the queue for a slot.
    pub(crate) is_queued: bool,
}

impl SandboxRows {
    pub(crate) fn change(&mut self, change: RowChange) -> Result<(), RowConflict> {
        match change {
            RowChange::SetSandbox(row) => _ = self.rows.insert(row.event.sandbox, row),
            RowChange::AcquireSlot(slot) => {
                assert_eq!(slot.provider, PROVIDER);
                let used = self.slots.len() + self.used_by_others as usize;
                if !self.slots.contains(&slot.sandbox) && used >= slot.capacity as usize {
                    return Err(RowConflict::NoSlot);
                }
                self.slots.insert(slot.sandbox);
                self.is_queued = false;
            }
            RowChange::ReleaseSlot(sandbox) => _ = self.slots.remove(&sandbox),
            RowChange::QueueForSlot(provider) => {
                assert_eq!(provider, PROVIDER);
                self.is_queued = true;
            }
            other => panic!("not a change of a sandbox: {other:?}"),
        }
        Ok(())
    }

    /// A run that no longer waits for a slot leaves the queue.
    pub(crate) fn update_queue(&mut self, to: &RunSchedulingUpdate) {
        self.is_queued &= match to {
            RunSchedulingUpdate::Release => true,
            RunSchedulingUpdate::Park { reason, .. } => *reason == WaitKind::SandboxSlot.code(),
            RunSchedulingUpdate::Pause | RunSchedulingUpdate::End { .. } => false,
        };
    }
}

impl TestRun {
    /// Plays `box` with what the engine does with the sandbox of the run, or what happens to the
    /// slots of the provider: `full` and `free`.
    pub(crate) fn play_box(&mut self, action: &str) -> String {
        let failed = |error| RunInput::SandboxChanged(SandboxChange::Failed(error));
        let input = match action {
            "open" => opening(),
            "runs" => running(),
            "stopped" => RunInput::SandboxChanged(SandboxChange::Stopped),
            "saved" => saved_workspace(0),
            "same" => saved_workspace(1),
            "skipped" => saved_workspace(2),
            "lost" => failed(SandboxError::NotFound),
            "noroom" => failed(SandboxError::NoCapacity("4 of 4 in use".to_owned())),
            "unavailable" => failed(SandboxError::Unavailable("timeout".to_owned())),
            "refused" => failed(SandboxError::Refused("There is no image `x`.".to_owned())),
            "full" => {
                let own = u32::try_from(self.rows.sandboxes.slots.len()).unwrap();
                self.rows.sandboxes.used_by_others = CAPACITY - own;
                return String::new();
            }
            "free" => {
                self.free_slots();
                return String::new();
            }
            other => panic!("unknown action `box {other}`"),
        };
        outcome_line(self.send_input(input))
    }

    /// Frees the slots of other runs. The store wakes the run with a timer if it is queued.
    pub(crate) fn free_slots(&mut self) {
        self.rows.sandboxes.used_by_others = 0;
        if std::mem::take(&mut self.rows.sandboxes.is_queued) && self.rows.head != Head::Ended {
            let timer = TimerId::derive(self.run.id().bits(), "slot", self.now);
            self.rows.timers.insert(timer, (self.now, TimerKind::Wake));
        }
    }

    /// Lets the runtime change the idle sandbox of the run, as if no driver knew about it.
    pub(crate) fn change_idle_sandbox(&mut self, state: &str) -> String {
        let Some(row) = self.last_sandbox_row().cloned() else {
            return "-".into();
        };
        let state: SandboxState = serde_json::from_value(state.into()).unwrap();
        let is_next = match state {
            SandboxState::Stopping => row.state.holds_slot(),
            SandboxState::Stopped | SandboxState::Lost => row.state == SandboxState::Stopping,
            _ => row.state == SandboxState::Stopped && row.owner_ended,
        };
        if row.idle_since.is_none() || !is_next {
            return "!in use".into();
        }
        let reason = Some("its run has not used it".to_owned());
        let (new_row, batch) = change_idle_sandbox(&row, state, (self.now, reason));
        if row.owner_ended {
            // The store refuses events of an ended run: only the row and the slot change.
            for change in batch.changes {
                self.rows.sandboxes.change(change).unwrap();
            }
            return new_row.state.as_str().to_owned();
        }
        if !self.rows.admits(Author::Closer) {
            return "!fenced".into();
        }
        match self.append(Author::Closer, batch) {
            Ok(events) => outcome_line(InputOutcome::Events(events)),
            Err(conflict) => panic!("an idle sandbox can't be changed: {conflict:?}"),
        }
    }

    /// Returns the input of a driver that opens the sandbox of the run. The number decides what the
    /// provider answers.
    pub(crate) fn sandbox_input(&self, pick: usize) -> RunInput {
        let sandbox = self.run.control().sandbox.as_deref();
        let Some(sandbox) = sandbox.filter(|sandbox| sandbox.state.holds_slot()) else {
            return opening();
        };
        let failed = |error| RunInput::SandboxChanged(SandboxChange::Failed(error));
        match pick {
            3 => failed(SandboxError::NotFound),
            7 | 8 => failed(SandboxError::NoCapacity("4 of 4 in use".to_owned())),
            13..16 => failed(SandboxError::Unavailable("timeout".to_owned())),
            21 => failed(SandboxError::Refused("There is no image `x`.".to_owned())),
            _ if sandbox.state == SandboxState::Stopping => {
                RunInput::SandboxChanged(SandboxChange::Stopped)
            }
            _ => running(),
        }
    }

    fn last_sandbox_row(&self) -> Option<&SandboxRow> {
        let sandbox = self.run.control().sandbox.as_deref()?;
        self.rows.sandboxes.rows.get(&sandbox.event.sandbox)
    }

    /// Returns the row of the sandbox: its state, whether it has a slot, whether it is idle and
    /// whether its owner has ended.
    pub(crate) fn show_sandbox(&self) -> String {
        let Some(row) = self.last_sandbox_row() else {
            return "none".into();
        };
        let marks = [
            (self.rows.sandboxes.slots.contains(&row.event.sandbox), "with slot"),
            (row.idle_since.is_some(), "idle"),
            (row.owner_ended, "of ended run"),
            (row.owner != self.run.id(), "of next run"),
        ];
        let marks = marks.iter().filter(|(is_set, _)| *is_set).map(|(_, mark)| *mark);
        std::iter::once(row.state.as_str()).chain(marks).collect::<Vec<_>>().join(", ")
    }
}

fn opening() -> RunInput {
    let event = SandboxEvent { provider: PROVIDER.to_owned(), ..SandboxEvent::default() };
    RunInput::OpenSandbox(Box::new(SandboxPlan { event, capacity: CAPACITY }))
}

fn running() -> RunInput {
    let (handle, isolation) = ("box".to_owned(), Isolation::Bubblewrap);
    RunInput::SandboxChanged(SandboxChange::Running { handle, isolation })
}

/// Checks the rows of sandboxes against the slots and the folded state, and that no call started in
/// a sandbox that did not run.
pub(crate) fn check(test_run: &TestRun) {
    let sandboxes = &test_run.rows.sandboxes;
    for (id, row) in &sandboxes.rows {
        let has_slot = sandboxes.slots.contains(id);
        assert_eq!(row.state.holds_slot(), has_slot, "the slot of a sandbox: {row:?}");
    }
    calls_start_in_running_sandbox(test_run);
    let Some(row) = test_run.last_sandbox_row() else {
        return;
    };
    if row.owner != test_run.run.id() {
        assert!(row.idle_since.is_some(), "the next run has not been claimed yet");
        return;
    }
    let sandbox = test_run.run.control().sandbox.as_deref().unwrap();
    if !row.owner_ended {
        assert_eq!((&row.event, row.state), (&sandbox.event, sandbox.state), "the sandbox row");
    }
    let is_idle = matches!(test_run.rows.head, Head::Parked | Head::Paused | Head::Ended);
    if is_idle && !row.state.is_gone() {
        assert!(row.idle_since.is_some(), "nobody uses the sandbox: {row:?}");
    }
    if test_run.is_sandbox_open() && test_run.rows.head == Head::Leased {
        assert_eq!(row.idle_since, None, "the run uses the sandbox");
    }
    let has_ended = test_run.rows.head == Head::Ended && !row.state.is_gone();
    assert!(row.owner_ended == has_ended || row.state.is_gone(), "{row:?}");
}

impl TestRun {
    /// Returns whether the journal says that the sandbox runs under the current claim.
    pub(crate) fn is_sandbox_open(&self) -> bool {
        let mut entries = self.entries.iter().rev();
        let last = entries.find(|entry| {
            is_sandbox_state(&entry.event)
                || matches!(entry.event, Event::RunClaimed(_) | Event::RunForked(_))
        });
        last.is_some_and(|entry| matches!(entry.event, Event::SandboxRunning(_)))
    }
}

fn is_sandbox_state(event: &Event) -> bool {
    event.kind().starts_with("sandbox.") && !matches!(event, Event::SandboxCommandRun(_))
}

fn calls_start_in_running_sandbox(test_run: &TestRun) {
    let mut sandboxed: BTreeSet<CallId> = BTreeSet::new();
    let mut is_open = false;
    for entry in &test_run.entries {
        match &entry.event {
            Event::TurnCompleted(data) => {
                let calls = data.calls.iter().zip(1..);
                let calls = calls.filter(|(call, _)| call.sandboxed);
                sandboxed.extend(calls.map(|(_, index)| CallId { turn: data.turn, index }));
            }
            Event::SandboxRunning(_) => is_open = true,
            Event::RunClaimed(_) | Event::RunForked(_) => is_open = false,
            Event::ToolStarted(data) => {
                let may_start = is_open || !sandboxed.contains(&data.call);
                assert!(may_start, "{} is started outside of a sandbox", data.call);
            }
            Event::ToolResumed(data) => {
                let may_start = is_open || !sandboxed.contains(&data.call);
                assert!(may_start, "{} is continued outside of a sandbox", data.call);
            }
            event if is_sandbox_state(event) => is_open = false,
            _ => {}
        }
    }
}
