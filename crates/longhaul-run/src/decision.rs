//! Builds a decision: events to append to the journal of a run, and the state that they lead to.
//!
//! Invariant: the run itself is not modified. The builder copies the control state and only borrows
//! the conversation.
//!
//! A decision depends only on the run, the input and a context: the time, the budget, the spend caps,
//! whether the provider accepts requests, the effect keys, revoked votes and a random number.

use std::ops::ControlFlow;
use std::sync::Arc;

use longhaul_core::change::{
    Blob, BudgetHoldSettlement, GateTransition, GateUpdate, JournalBatch, RowChange,
    RunSchedulingUpdate, TimerDueTime, TimerKind, TimerUpdate,
};
use longhaul_core::event::Event;
use longhaul_core::event::gate::{GateNotice, GateRaised};
use longhaul_core::event::tool::ToolOutput;
use longhaul_core::event::turn::PerceptionUpdate;
use longhaul_core::id::{GateId, RunId, TimerId};
use longhaul_core::policy::budget::BudgetAccount;
use longhaul_core::policy::effect_key::ClaimedEffectKey;
use longhaul_core::policy::gate::GateSpec;
use longhaul_core::policy::spend_cap::{CapHold, CapRefusal, CapWithWindow};
use longhaul_core::time::{Millis, Timestamp};

use crate::policy::effect_keys::settled_keys_after;
use crate::rejection::Rejection;
use crate::state::Run;
use crate::state::control::ControlState;
use crate::state::stage::RunStage;

/// Result of recording events. The error says why the input is rejected.
pub(crate) type RecordResult = Result<(), Rejection>;

/// Result of a step that records due events: whether more events may be due, or the run must wait.
pub(crate) type AdvanceResult = Result<ControlFlow<()>, Rejection>;

/// Like `AdvanceResult`. `None` means that the step had nothing to do.
pub(crate) type StepResult = Result<Option<ControlFlow<()>>, Rejection>;

/// More events may be due.
pub(crate) const CONTINUE: AdvanceResult = Ok(ControlFlow::Continue(()));

/// The run must wait for an external result, or has ended.
pub(crate) const BREAK: AdvanceResult = Ok(ControlFlow::Break(()));

/// Result of fetching the perception (the context provider's report on the outside world) again.
/// The message and the update are `None` if nothing has changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PerceptionRefresh {
    /// Message that tells the model the new state of the outside world. `None` means that this
    /// state has not changed; the context values for tools may have changed.
    pub message: Option<Arc<str>>,
    /// New hash of the state of the outside world, and new context values for tools. `None` means
    /// that nothing has changed.
    pub update: Option<PerceptionUpdate>,
    /// Time that the context provider needed.
    pub active: Millis,
}

/// A decision under construction: its events and row changes so far, and the state after them.
#[derive(Debug)]
pub(crate) struct Decision<'a> {
    pub(crate) run: &'a Run,
    pub(crate) control: ControlState,
    pub(crate) batch: JournalBatch,
    pub(crate) ctx: DecisionContext,
    /// Result of fetching the perception (the context provider's report on the outside world) again
    /// for the next turn. `None` means that it was not fetched again.
    pub(crate) perception_refresh: Option<PerceptionRefresh>,
}

/// Context of a decision: the store's time, what is known about the budget, the spend caps, whether
/// the provider accepts requests, the effect keys and revoked votes, and a random number.
#[derive(Debug, Clone, Default)]
pub struct DecisionContext {
    /// Current time according to the store.
    pub now: Timestamp,
    /// Budget account of the run's tree (root run and descendants), known only after the store has
    /// refused a reservation. `None` means that the budget is not known to be short.
    pub budget_account: Option<BudgetAccount>,
    /// Number of further child runs that the run's tree (root run and descendants) may start, known
    /// only after the store has refused a start. `None` means that the limit of open runs is not
    /// known to be reached.
    pub free_children: Option<usize>,
    /// Time until which the provider of the run's model accepts no requests, as learned by any run.
    /// `None` means that no limit is known.
    pub provider_blocked_until: Option<Timestamp>,
    /// Spend caps from the configuration, each with its current time window.
    pub caps: Vec<CapWithWindow>,
    /// Spend caps because of which the store refused earlier decisions about the same input.
    pub cap_refusals: Vec<CapRefusal>,
    /// Effect keys (names of effects that must happen at most once) that other tool calls have
    /// claimed, as found in the store.
    pub keys_claimed_by_other_calls: Vec<EffectKeyOfOtherCall>,
    /// Whether the store refused an earlier decision about the same input: a tool call was to wait
    /// for another call with the same effect key, but that call no longer holds the key.
    pub keys_changed: bool,
    /// Whether the store has refused to open the sandbox of the run, because no slot of its
    /// provider is free.
    pub no_sandbox_slot: bool,
    /// Indices of the recorded answers of the gate being answered that no longer count, because
    /// the keys of their authors were revoked.
    pub revoked_votes: Vec<usize>,
    /// Random number for the jitter of a retry delay. 0 means no jitter.
    pub random: u64,
}

/// An effect key (name of an effect that must happen at most once) that another call has claimed.
#[derive(Debug, Clone)]
pub struct EffectKeyOfOtherCall {
    /// The key, the call that has claimed it, and its state.
    pub key: ClaimedEffectKey,
    /// Output of the first call, if it has completed, and the blob that the output refers to.
    /// `None` if the first call has no stored result.
    pub result: Option<(ToolOutput, Option<Blob>)>,
}

impl<'a> Decision<'a> {
    pub(crate) fn new(run: &'a Run, ctx: DecisionContext) -> Self {
        Self {
            run,
            control: run.control.clone(),
            batch: JournalBatch::default(),
            ctx,
            perception_refresh: None,
        }
    }

    /// Returns the error for an input that is not valid in the current stage.
    pub(crate) const fn invalid_state(&self, input: &'static str) -> Rejection {
        Rejection::InvalidState { input, stage: self.control.stage.description() }
    }

    /// Adds an event to the batch of events to append and applies it to the copied control state.
    pub(crate) fn record_event(&mut self, event: Event) -> RecordResult {
        if let RunStage::Ended(ended) = &self.control.stage {
            return Err(Rejection::Ended(ended.outcome.status()));
        }
        let stage = self.control.stage.description();
        let settled_keys = settled_keys_after(&self.control, &event);
        self.control
            .apply_event(&event)
            .map_err(|_| Rejection::InvalidState { input: event.kind(), stage })?;
        if let Event::MemoryCompacted(compacted) = &event {
            let kept_bytes = self.run.transcript.messages().iter().skip(compacted.replaced);
            let kept_bytes: u64 = kept_bytes.map(|message| message.estimated_bytes()).sum();
            let summary = compacted.summary.iter();
            let summary: u64 = summary.map(longhaul_core::message::Message::estimated_bytes).sum();
            let loaded_bytes = self.run.transcript.loaded_bytes;
            self.control.set_compacted_size(kept_bytes + summary + loaded_bytes);
        }
        self.batch.events.push(event);
        self.batch.changes.extend(settled_keys);
        Ok(())
    }

    pub(crate) fn add_row_change(&mut self, change: RowChange) {
        self.batch.changes.push(change);
    }

    /// Adds the row changes that release the amounts reserved for a model call in the budget and in
    /// the spend caps, and charge what was spent or lost (reserved for calls whose result was
    /// lost).
    pub(crate) fn settle_holds(&mut self, settlement: BudgetHoldSettlement, caps: &[CapHold]) {
        self.add_row_change(RowChange::Settle(settlement));
        if !caps.is_empty() {
            let BudgetHoldSettlement { spent, lost, .. } = settlement;
            let settlements = caps.iter().map(|hold| hold.settlement(spent, lost));
            self.add_row_change(RowChange::SettleCaps(settlements.collect()));
        }
    }

    /// Adds row changes that store blobs, which an event refers to by hash.
    pub(crate) fn add_blob_changes(&mut self, blobs: Vec<Blob>) {
        let blobs = blobs.into_iter().map(RowChange::PutBlob);
        self.batch.changes.extend(blobs);
    }

    pub(crate) fn add_scheduling_update(&mut self, update: RunSchedulingUpdate) {
        self.add_row_change(RowChange::UpdateScheduling(update));
    }

    /// Returns a string that is unique within the run and starts with `purpose`. Ids are derived
    /// from it.
    pub(crate) fn unique_id_salt(&self, purpose: &str) -> String {
        let next_seq = self.run.seq.0 + self.batch.events.len() as u64 + 1;
        format!("{purpose}:{next_seq}")
    }

    pub(crate) fn new_gate_id(&self, purpose: &str) -> GateId {
        GateId::derive(self.run.id.bits(), &self.unique_id_salt(purpose), self.ctx.now)
    }

    /// Opens a gate and sets its deadline and reminder timers.
    pub(crate) fn raise_gate(&mut self, mut gate: GateSpec) -> RecordResult {
        if gate.approvers.not_submitter {
            let submitter = self.run.task.submitter.as_deref();
            gate.earlier_submitters = self.control.submitters.names_except(submitter);
        }
        self.record_event(Event::GateRaised(Box::new(GateRaised { gate: gate.clone() })))?;
        self.batch.changes.extend(new_gate_timer_rows(self.run.id, &gate, self.ctx.now));
        self.add_row_change(RowChange::RaiseGate(Box::new(gate)));
        Ok(())
    }

    /// Closes a gate without an answer, for the given reason.
    pub(crate) fn withdraw_gate(&mut self, gate: GateId, reason: &str) -> RecordResult {
        let notice = GateNotice { gate, reason: reason.into(), to: None };
        self.record_event(Event::GateWithdrawn(notice))?;
        let (seen_answers, transition) = (None, GateTransition::Withdrawn);
        let update = GateUpdate { gate, seen_answers, transition };
        self.add_row_change(RowChange::UpdateGate(update));
        Ok(())
    }

    /// Returns the id of a new timer of this run, derived from `purpose`.
    pub(crate) fn new_timer_id(&self, purpose: &str) -> TimerId {
        TimerId::derive(self.run.id.bits(), &self.unique_id_salt(purpose), self.ctx.now)
    }

    /// Sets a timer that wakes this run after a delay. The timer's id is derived from `purpose`.
    pub(crate) fn set_wake_timer(&mut self, purpose: &str, delay: Millis) -> TimerId {
        let timer = self.new_timer_id(purpose);
        self.set_delay_timer(timer, delay);
        timer
    }

    /// Sets a timer with a given id that wakes this run after a delay, even if the clock is set
    /// back meanwhile.
    pub(crate) fn set_delay_timer(&mut self, timer: TimerId, delay: Millis) {
        self.set_timer(timer, delay, TimerKind::Delay(delay));
    }

    /// Sets a timer with a given id that wakes this run at a given time of the wall clock.
    pub(crate) fn set_wake_timer_at(&mut self, timer: TimerId, until: Timestamp) {
        self.set_timer(timer, until.duration_since(self.ctx.now), TimerKind::Wake);
    }

    fn set_timer(&mut self, timer: TimerId, delay: Millis, kind: TimerKind) {
        let due = TimerDueTime::After(delay);
        let run = self.run.id;
        self.add_row_change(RowChange::SetTimer(TimerUpdate::Arm { timer, run, due, kind }));
    }
}

impl DecisionContext {
    /// Adds what is left of a spend cap because of which the store has refused a decision.
    pub fn add_cap_refusal(&mut self, refusal: CapRefusal) {
        self.cap_refusals.retain(|earlier| earlier.key != refusal.key);
        self.cap_refusals.push(refusal);
    }

    /// Adds an effect key that another call has claimed, because of which the store has refused a
    /// decision.
    pub fn add_taken_key(&mut self, taken: EffectKeyOfOtherCall) {
        self.keys_claimed_by_other_calls.retain(|earlier| earlier.key.key != taken.key.key);
        self.keys_claimed_by_other_calls.push(taken);
    }

    /// Forgets the claims of other calls, which are outdated: the store has refused a decision to
    /// wait for one of these calls.
    pub fn forget_taken_keys(&mut self) {
        self.keys_claimed_by_other_calls.clear();
        self.keys_changed = true;
    }

    /// Creates a context with this time, an unknown budget, no spend caps and no jitter.
    pub fn new(now: Timestamp) -> Self {
        Self { now, ..Self::default() }
    }
}

/// Returns the row changes that set the timers of a new gate.
pub(crate) fn new_gate_timer_rows(run: RunId, gate: &GateSpec, now: Timestamp) -> Vec<RowChange> {
    let deadline = gate.timeout.map(|after| (after, TimerKind::GateDeadline(gate.id), "deadline"));
    let remind = gate.remind.map(|after| (after, TimerKind::GateRemind(gate.id), "remind"));
    let auto = gate.auto_approve.as_ref();
    let auto = auto.map(|auto| (auto.after, TimerKind::GateAutoApprove(gate.id), "auto_approve"));
    let new_timer = |(after, kind, name): (Millis, TimerKind, &str)| {
        gate_timer(run, TimerId::derive(gate.id.bits(), name, now), (after, kind))
    };
    let steps = gate.escalation.iter().enumerate().map(|(step, escalation)| {
        let timer = TimerId::derive(gate.id.bits(), &format!("escalation:{step}"), now);
        gate_timer(run, timer, (escalation.after, TimerKind::GateEscalate { gate: gate.id, step }))
    });
    [deadline, remind, auto].into_iter().flatten().map(new_timer).chain(steps).collect()
}

/// Returns the row change that sets the next reminder of a gate. `None` means that the gate has no
/// reminders or expires before the next one.
pub(crate) fn next_gate_reminder(
    run: RunId,
    gate: &GateSpec,
    (deadline, now): (Option<Timestamp>, Timestamp),
) -> Option<RowChange> {
    let after = gate.remind?;
    if deadline.is_some_and(|deadline| now.plus(after) >= deadline) {
        return None;
    }
    let timer = TimerId::derive(gate.id.bits(), "remind", now);
    Some(gate_timer(run, timer, (after, TimerKind::GateRemind(gate.id))))
}

const fn gate_timer(run: RunId, timer: TimerId, (after, kind): (Millis, TimerKind)) -> RowChange {
    let due = TimerDueTime::After(after);
    RowChange::SetTimer(TimerUpdate::Arm { timer, run, due, kind })
}
