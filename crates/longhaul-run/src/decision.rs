//! A decision in the making: facts so far, and the state they lead to.
//!
//! Never: touches the run. A draft copies the small part and leaves the words.

use longhaul_core::change::{
    Batch, Blob, Change, Due, GateTransition, GateUpdate, HeadUpdate, TimerKind, TimerUpdate,
};
use longhaul_core::event::Event;
use longhaul_core::event::gate::{GateNotice, GateRaised};
use longhaul_core::id::{GateId, TimerId};
use longhaul_core::policy::gate::GateSpec;
use longhaul_core::time::{Millis, Timestamp};

use crate::input::{DecideContext, PerceptionRefresh};
use crate::rejection::Rejection;
use crate::state::Run;
use crate::state::control::Control;
use crate::state::stage::Stage;

/// A decision in the making.
#[derive(Debug)]
pub(crate) struct DecisionBuilder<'a> {
    pub(crate) run: &'a Run,
    pub(crate) control: Control,
    pub(crate) batch: Batch,
    pub(crate) ctx: DecideContext,
    /// What somebody saw just now who looked at the world again.
    pub(crate) perception_refresh: Option<PerceptionRefresh>,
}

impl<'a> DecisionBuilder<'a> {
    pub(crate) fn new(run: &'a Run, moment: DecideContext) -> Self {
        Self {
            run,
            control: run.control.clone(),
            batch: Batch::default(),
            ctx: moment,
            perception_refresh: None,
        }
    }

    /// States a fact and takes it in.
    pub(crate) fn record(&mut self, event: Event) -> Result<(), Rejection> {
        if let Stage::Ended(outcome) = &self.control.stage {
            return Err(Rejection::Ended(outcome.status()));
        }
        let stage = self.control.stage.description();
        self.control
            .apply(&event)
            .map_err(|_| Rejection::InvalidState { what: event.kind(), stage })?;
        if let Event::MemoryCompacted(compacted) = &event {
            let kept = self.run.transcript.messages().iter().skip(compacted.replaced);
            let kept: u64 = kept.map(|message| message.estimated_bytes()).sum();
            let summary = compacted.summary.iter();
            let summary: u64 = summary.map(longhaul_core::message::Message::estimated_bytes).sum();
            self.control.set_compacted_bytes(kept + summary);
        }
        self.batch.events.push(event);
        Ok(())
    }

    pub(crate) fn change(&mut self, change: Change) {
        self.batch.changes.push(change);
    }

    /// Keeps contents that a fact names by hash.
    pub(crate) fn put_blobs(&mut self, blobs: Vec<Blob>) {
        let blobs = blobs.into_iter().map(Change::PutBlob);
        self.batch.changes.extend(blobs);
    }

    pub(crate) fn set_head(&mut self, head: HeadUpdate) {
        self.change(Change::SetHead(head));
    }

    /// A word that no other thing of this run is derived from.
    pub(crate) fn salt(&self, what: &str) -> String {
        format!("{what}:{}", self.run.seq.0 + self.batch.events.len() as u64 + 1)
    }

    pub(crate) fn new_gate_id(&self, what: &str) -> GateId {
        GateId::derive(self.run.id.bits(), &self.salt(what), self.ctx.now)
    }

    /// Opens a gate, with its deadline and its reminder.
    pub(crate) fn raise(&mut self, gate: GateSpec) -> Result<(), Rejection> {
        let timers = [
            gate.timeout.map(|span| (span, TimerKind::GateDeadline(gate.id), "deadline")),
            gate.remind.map(|span| (span, TimerKind::GateRemind(gate.id), "remind")),
        ];
        self.record(Event::GateRaised(Box::new(GateRaised { gate: gate.clone() })))?;
        for (span, what, name) in timers.into_iter().flatten() {
            self.change(Change::SetTimer(TimerUpdate::Arm {
                timer: TimerId::derive(gate.id.bits(), name, self.ctx.now),
                run: self.run.id,
                due: Due::After(span),
                kind: what,
            }));
        }
        self.change(Change::RaiseGate(Box::new(gate)));
        Ok(())
    }

    /// Takes a question back.
    pub(crate) fn withdraw(&mut self, gate: GateId, why: &str) -> Result<(), Rejection> {
        self.record(Event::GateWithdrawn(GateNotice { gate, reason: why.into() }))?;
        self.change(Change::UpdateGate(GateUpdate { gate, transition: GateTransition::Withdrawn }));
        Ok(())
    }

    /// Sets a timer of this name that wakes this run after a while.
    pub(crate) fn wake_after(&mut self, what: &str, span: Millis) -> TimerId {
        let now = self.ctx.now;
        let timer = TimerId::derive(self.run.id.bits(), &self.salt(what), now);
        self.wake_at(timer, now.plus(span));
        timer
    }

    /// Sets a timer that wakes this run at a point that was told it before.
    pub(crate) fn wake_at(&mut self, timer: TimerId, until: Timestamp) {
        let span = until.since(self.ctx.now);
        self.change(Change::SetTimer(TimerUpdate::Arm {
            timer,
            run: self.run.id,
            due: Due::After(span),
            kind: TimerKind::Wake,
        }));
    }
}
