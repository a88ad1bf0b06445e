//! Verifies a chaos test from the journals and from the effects that probe tools recorded in a file.
//! It uses neither the store nor the fold of the runtime, so every finding can be checked by hand
//! from the same data.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::event::tool::VerifyOutcome;
use longhaul_core::event::turn::ModelCallPurpose;
use longhaul_core::failure::FailureClass;
use longhaul_core::id::{CallId, Epoch, GateId, RunId, Seq};
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::policy::gate::{GateDecision, GateKind};
use serde::Serialize;

use crate::chaos::project::{EffectRecord, PROBE_PREFIX};

/// A guarantee that a chaos test verifies. Each variant is described by its violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Invariant {
    /// A call with a recorded result was started again.
    RepeatedAfterResult,
    /// An effect that must not be repeated happened twice.
    DuplicateOnceEffect,
    /// A call that must not be repeated was started and lost, and the journal does not report it.
    LostWithoutReport,
    /// An effect happened, but no journal contains the start of the tool call.
    UnaccountedEffect,
    /// One kill lost more than one model call of a run.
    ExcessModelCalls,
    /// A journal has a gap, a decreasing epoch or an event after the end of the run.
    BrokenJournals,
}

impl Invariant {
    /// All guarantees with their labels on the scorecard.
    pub(crate) const ALL: [(Self, &str); 6] = [
        (Self::RepeatedAfterResult, "recorded results that were repeated"),
        (Self::DuplicateOnceEffect, "once effects that happened twice"),
        (Self::LostWithoutReport, "once calls lost without a report"),
        (Self::UnaccountedEffect, "effects without a start in a journal"),
        (Self::ExcessModelCalls, "runs that lost two model calls to one kill"),
        (Self::BrokenJournals, "journals with a gap or out of order"),
    ];
}

/// One violation of a guarantee in a run.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Violation {
    pub(crate) invariant: Invariant,
    pub(crate) run: RunId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) call: Option<CallId>,
    pub(crate) message: String,
}

/// A call that the journal reports as in doubt: started, its outcome unknown after a kill.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct InDoubtCall {
    pub(crate) run: RunId,
    pub(crate) call: CallId,
    pub(crate) tool: String,
    /// Whether the effect was recorded. `None` if the tool writes no records.
    pub(crate) happened: Option<bool>,
    /// How the outcome was decided, such as `verified` or a person's decision.
    pub(crate) settled_by: &'static str,
}

/// The acknowledged runs and their child runs, by how they ended.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct RunOutcomes {
    pub(crate) submitted: usize,
    pub(crate) completed: u64,
    pub(crate) failed: Vec<RunId>,
    /// Runs that were cancelled or have not ended.
    pub(crate) other: Vec<RunId>,
}

#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct ModelCallCounts {
    pub(crate) total: u64,
    /// Number of model calls that were interrupted by a kill and repeated.
    pub(crate) repeated: u64,
}

/// What the verification counted and found.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Findings {
    pub(crate) runs: RunOutcomes,
    /// Number of times that a new worker recovered a run of a dead worker.
    pub(crate) recoveries: u64,
    pub(crate) model_calls: ModelCallCounts,
    pub(crate) once_calls: u64,
    pub(crate) pure_repeats: u64,
    pub(crate) keyed_repeats: u64,
    pub(crate) in_doubt: Vec<InDoubtCall>,
    pub(crate) violation_counts: BTreeMap<Invariant, usize>,
    pub(crate) violations: Vec<Violation>,
}

impl Findings {
    /// Returns whether every run completed and no guarantee was violated.
    pub(crate) fn has_test_passed(&self) -> bool {
        let RunOutcomes { failed, other, .. } = &self.runs;
        self.violations.is_empty() && failed.is_empty() && other.is_empty()
    }
}

/// Verifies the journals of all runs against the recorded effects. A run with an effect is verified
/// even if it has no journal.
pub(crate) fn verify_runs(
    journals: &BTreeMap<RunId, Vec<JournalEntry>>,
    records: &[EffectRecord],
) -> Findings {
    let violation_counts = Invariant::ALL.map(|(invariant, _)| (invariant, 0)).into();
    let mut findings = Findings { violation_counts, ..Findings::default() };
    let mut runs: BTreeSet<RunId> = journals.keys().copied().collect();
    runs.extend(records.iter().map(|record| record.run));
    for run in runs {
        let effects = records.iter().filter(|record| record.run == run).collect();
        let entries = journals.get(&run).map_or(&[][..], Vec::as_slice);
        RunVerifier { run, effects, findings: &mut findings }.verify(entries);
    }
    findings
}

/// What the journal says about one tool call.
#[derive(Debug, Default)]
struct CallHistory {
    tool: String,
    class: EffectClass,
    /// Epoch of the driver at each start of the call. The epoch grows with each takeover.
    starts: Vec<Epoch>,
    /// Epoch of the driver at the first recorded result of the call.
    end: Option<Epoch>,
    /// Number of times that a verification or a person allowed the call to be repeated.
    allowed_repeats: usize,
    was_in_doubt: bool,
    /// Whether an event after the last start reports that the call was lost with its worker.
    is_loss_reported: bool,
    settled_by: Option<&'static str>,
}

impl CallHistory {
    fn settle(&mut self, settled_by: &'static str, may_repeat: bool) {
        self.settled_by = Some(settled_by);
        self.allowed_repeats += usize::from(may_repeat);
    }
}

/// Verifies the journal of one run and the recorded effects of its calls.
struct RunVerifier<'a> {
    run: RunId,
    effects: Vec<&'a EffectRecord>,
    findings: &'a mut Findings,
}

impl RunVerifier<'_> {
    fn violated(&mut self, invariant: Invariant, call: Option<CallId>, message: String) {
        *self.findings.violation_counts.entry(invariant).or_default() += 1;
        self.findings.violations.push(Violation { invariant, run: self.run, call, message });
    }

    fn verify(&mut self, entries: &[JournalEntry]) {
        let last = entries.last().map(|entry| &entry.event);
        match last {
            Some(Event::RunCompleted(_)) => self.findings.runs.completed += 1,
            Some(Event::RunFailed(_)) => self.findings.runs.failed.push(self.run),
            Some(_) | None => self.findings.runs.other.push(self.run),
        }
        if let Some(message) = order_error(entries) {
            self.violated(Invariant::BrokenJournals, None, message);
        }
        let calls = self.read_events(entries);
        for record in self.effects.clone() {
            let EffectRecord { tool, call, key, .. } = record;
            if !calls.contains_key(call) || *key != call.call_idempotency_key(self.run) {
                let message = format!("{tool} had an effect, but no call in the journal has {key}");
                self.violated(Invariant::UnaccountedEffect, Some(*call), message);
            }
        }
        let has_ended = last.is_some_and(Event::is_terminal);
        calls.iter().for_each(|(call, history)| self.check_call(*call, history, has_ended));
    }

    /// Counts the model calls, and returns the history of every tool call. Checks that nothing with
    /// a recorded result is repeated, and that a kill loses at most one model call.
    fn read_events(&mut self, entries: &[JournalEntry]) -> BTreeMap<CallId, CallHistory> {
        let mut calls: BTreeMap<CallId, CallHistory> = BTreeMap::new();
        let mut gates: BTreeMap<GateId, CallId> = BTreeMap::new();
        let (mut replied_turns, mut epochs_with_loss) = (BTreeSet::new(), BTreeSet::new());
        for JournalEntry { event, epoch, seq, .. } in entries {
            let mut is_repeated = false;
            #[expect(clippy::wildcard_enum_match_arm, reason = "only turns and calls are checked")]
            match event {
                Event::RunRecovered(_) => self.findings.recoveries += 1,
                Event::TurnStarted(data) => {
                    self.findings.model_calls.total += 1;
                    let is_turn = data.purpose == ModelCallPurpose::Turn;
                    is_repeated = is_turn && replied_turns.contains(&data.turn);
                }
                Event::TurnCompleted(data) => {
                    is_repeated = !replied_turns.insert(data.turn);
                    for (index, planned) in (1..).zip(&data.calls) {
                        let call = calls.entry(CallId { turn: data.turn, index }).or_default();
                        (call.tool, call.class) = (planned.tool.to_string(), planned.class);
                    }
                }
                Event::TurnFailed(data) if data.failure.class == FailureClass::Lost => {
                    self.findings.model_calls.repeated += 1;
                    if !epochs_with_loss.insert(epoch) {
                        let message = format!("a kill lost two model calls before epoch {epoch}");
                        self.violated(Invariant::ExcessModelCalls, None, message);
                    }
                }
                Event::ToolStarted(data) => {
                    let call = calls.entry(data.call).or_default();
                    (is_repeated, call.is_loss_reported) = (call.end.is_some(), false);
                    call.starts.push(*epoch);
                }
                Event::ToolCompleted(data)
                | Event::ToolFailed(data)
                | Event::ToolInterrupted(data) => {
                    let call = calls.entry(data.call).or_default();
                    is_repeated = call.end.is_some();
                    call.end.get_or_insert(*epoch);
                }
                Event::ToolInDoubt(data) => {
                    let call = calls.entry(data.call).or_default();
                    (call.was_in_doubt, call.is_loss_reported) = (true, true);
                }
                Event::ToolVerified(data) => {
                    let may_repeat = data.outcome == VerifyOutcome::NotHappened;
                    calls.entry(data.call).or_default().settle("verified", may_repeat);
                }
                Event::ToolSurfaced(data) => {
                    let call = calls.entry(data.call).or_default();
                    (call.is_loss_reported, call.settled_by) = (true, Some("surfaced"));
                }
                Event::GateRaised(data) if data.gate.kind == GateKind::InDoubt => {
                    gates.extend(data.gate.call.map(|call| (data.gate.id, call)));
                }
                Event::GateAnswered(data) => {
                    if let Some(call) = gates.get(&data.gate).and_then(|call| calls.get_mut(call)) {
                        let decision = &data.answer.decision;
                        call.settle(decision.as_str(), *decision == GateDecision::Approve);
                    }
                }
                _ => {}
            }
            if is_repeated {
                let message = format!("event {seq}, {}, repeats a recorded result", event.kind());
                self.violated(Invariant::RepeatedAfterResult, None, message);
            }
        }
        calls
    }

    fn check_call(&mut self, call: CallId, history: &CallHistory, has_run_ended: bool) {
        let effects = self.effects.iter().filter(|record| record.call == call);
        let effects: Vec<Epoch> = effects.map(|record| record.epoch).collect();
        let CallHistory { tool, starts, .. } = history;
        if let Some(end) = history.end
            && effects.iter().any(|epoch| *epoch > end)
        {
            let message = format!("{tool} had an effect after its result in epoch {end}");
            self.violated(Invariant::RepeatedAfterResult, Some(call), message);
        }
        let count = |all: &[Epoch], epoch: &Epoch| all.iter().filter(|one| *one == epoch).count();
        let is_excess = |epoch: &&Epoch| count(&effects, epoch) > count(starts, epoch);
        if let Some(epoch) = effects.iter().find(is_excess) {
            let message = format!("{tool} had more effects than starts in epoch {epoch}");
            self.violated(Invariant::UnaccountedEffect, Some(call), message);
        }
        let attempts = starts.len().max(effects.len());
        let repeats = attempts.saturating_sub(1) as u64;
        match history.class {
            EffectClass::Pure => self.findings.pure_repeats += repeats,
            EffectClass::Keyed => self.findings.keyed_repeats += repeats,
            EffectClass::Once | EffectClass::Session => {
                self.findings.once_calls += u64::from(attempts > 0);
                if attempts > 1 + history.allowed_repeats {
                    let message = format!("{tool} was started or had its effect {attempts} times");
                    self.violated(Invariant::DuplicateOnceEffect, Some(call), message);
                }
                let is_lost = match history.end {
                    Some(end) => starts.last().is_some_and(|start| end > *start),
                    None => !effects.is_empty() || (has_run_ended && !starts.is_empty()),
                };
                if is_lost && !history.is_loss_reported {
                    let message = format!("{tool} was started and lost without a report");
                    self.violated(Invariant::LostWithoutReport, Some(call), message);
                }
            }
        }
        if history.was_in_doubt {
            let unsettled = history.end.map_or("open", |_| "reported");
            self.findings.in_doubt.push(InDoubtCall {
                run: self.run,
                call,
                tool: tool.clone(),
                happened: tool.starts_with(PROBE_PREFIX).then_some(!effects.is_empty()),
                settled_by: history.settled_by.unwrap_or(unsettled),
            });
        }
    }
}

/// Describes the first gap in the sequence numbers, decreasing epoch or event after the end of the
/// run. `None` means that the journal is in order.
fn order_error(entries: &[JournalEntry]) -> Option<String> {
    if entries.first().is_none_or(|entry| entry.seq != Seq::START.next()) {
        return Some("the journal does not start with event 1".to_owned());
    }
    let (before, entry) = entries.iter().zip(&entries[1..]).find(|(before, entry)| {
        let is_in_order = entry.seq == before.seq.next() && entry.epoch >= before.epoch;
        !is_in_order || before.event.is_terminal()
    })?;
    Some(format!("event {} or its epoch must not follow event {}", entry.seq, before.seq))
}

#[cfg(test)]
mod tests;
