//! Verifies a chaos test from the journals and from the effects that probe tools recorded in a file.
//! It uses neither the store nor the fold of the runtime, so every finding can be checked by hand
//! from the same data.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::event::tool::VerifyOutcome;
use longhaul_core::event::turn::ModelCallPurpose;
use longhaul_core::failure::FailureClass;
use longhaul_core::id::{CallId, Epoch, GateId, RunId};
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

/// Verifies the journals of all runs against the recorded effects.
pub(crate) fn verify_runs(
    journals: &BTreeMap<RunId, Vec<JournalEntry>>,
    records: &[EffectRecord],
) -> Findings {
    let violation_counts = Invariant::ALL.map(|(invariant, _)| (invariant, 0)).into();
    let mut findings = Findings { violation_counts, ..Findings::default() };
    for (run, entries) in journals {
        let effects = records.iter().filter(|record| record.run == *run).collect();
        RunVerifier { run: *run, effects, findings: &mut findings }.verify(entries);
    }
    for record in records.iter().filter(|record| !journals.contains_key(&record.run)) {
        let EffectRecord { run, call, tool, .. } = record;
        let message = format!("{tool} had an effect for a run without a journal");
        let mut verifier = RunVerifier { run: *run, effects: Vec::new(), findings: &mut findings };
        verifier.violated(Invariant::UnaccountedEffect, Some(*call), message);
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
    /// Epoch of the driver at each recorded result of the call.
    ends: Vec<Epoch>,
    was_started_after_end: bool,
    /// Number of times that a verification or a person allowed the call to be repeated.
    allowed_repeats: usize,
    was_in_doubt: bool,
    /// Whether an event after the last start reports that the call was lost with its worker.
    is_loss_reported: bool,
    settled_by: Option<&'static str>,
}

/// Verifies the journal of one run and the recorded effects of its calls.
struct RunVerifier<'a> {
    run: RunId,
    effects: Vec<&'a EffectRecord>,
    findings: &'a mut Findings,
}

impl RunVerifier<'_> {
    fn violated(&mut self, invariant: Invariant, call: Option<CallId>, message: impl Into<String>) {
        *self.findings.violation_counts.entry(invariant).or_default() += 1;
        let (run, message) = (self.run, message.into());
        self.findings.violations.push(Violation { invariant, run, call, message });
    }

    fn verify(&mut self, entries: &[JournalEntry]) {
        let last = entries.last().map(|entry| &entry.event);
        match last {
            Some(Event::RunCompleted(_)) => self.findings.runs.completed += 1,
            Some(Event::RunFailed(_)) => self.findings.runs.failed.push(self.run),
            Some(_) | None => self.findings.runs.other.push(self.run),
        }
        if last.is_none() {
            let message = "the run was acknowledged but has no journal";
            self.violated(Invariant::BrokenJournals, None, message);
        }
        self.check_event_order(entries);
        self.check_model_calls(entries);
        let histories = call_histories(entries);
        for record in self.effects.clone() {
            let is_key_of_call = record.key == record.call.call_idempotency_key(self.run);
            if !histories.contains_key(&record.call) || !is_key_of_call {
                let (tool, key) = (&record.tool, &record.key);
                let message = format!(
                    "{tool} with idempotency key {key} had an effect without a call in the journal"
                );
                self.violated(Invariant::UnaccountedEffect, Some(record.call), message);
            }
        }
        let has_ended = last.is_some_and(Event::is_terminal);
        for (call, history) in &histories {
            self.check_call(*call, history, has_ended);
        }
    }

    /// Checks that sequence numbers have no gap, epochs never decrease, and no event follows the
    /// end of the run. Only the first violation is reported.
    fn check_event_order(&mut self, entries: &[JournalEntry]) {
        let (mut highest_epoch, mut has_ended) = (Epoch::default(), false);
        for (position, entry) in (1..).zip(entries) {
            let (seq, epoch) = (entry.seq, entry.epoch);
            let message = if seq.0 != position {
                format!(
                    "event {seq} is at journal position {position}, but the numbers must be equal"
                )
            } else if epoch < highest_epoch {
                format!("event {seq} has epoch {epoch}, but an earlier event has {highest_epoch}")
            } else if has_ended {
                format!("event {seq} follows the end of the run")
            } else {
                highest_epoch = epoch;
                has_ended = entry.event.is_terminal();
                self.findings.recoveries +=
                    u64::from(matches!(entry.event, Event::RunRecovered(_)));
                continue;
            };
            return self.violated(Invariant::BrokenJournals, None, message);
        }
    }

    /// Checks that a turn with a recorded reply is never repeated, and that a kill loses at most
    /// one model call.
    fn check_model_calls(&mut self, entries: &[JournalEntry]) {
        let mut replied_turns: BTreeSet<u32> = BTreeSet::new();
        let mut lost_by_epoch: BTreeMap<Epoch, u64> = BTreeMap::new();
        for entry in entries {
            #[expect(clippy::wildcard_enum_match_arm, reason = "only turns are checked here")]
            match &entry.event {
                Event::TurnStarted(data) => {
                    self.findings.model_calls.total += 1;
                    if data.purpose == ModelCallPurpose::Turn && replied_turns.contains(&data.turn)
                    {
                        let message = format!("turn {} was repeated after its reply", data.turn);
                        self.violated(Invariant::RepeatedAfterResult, None, message);
                    }
                }
                Event::TurnCompleted(data) if !replied_turns.insert(data.turn) => {
                    let message = format!("turn {} has two replies", data.turn);
                    self.violated(Invariant::RepeatedAfterResult, None, message);
                }
                Event::TurnFailed(data) if data.failure.class == FailureClass::Lost => {
                    self.findings.model_calls.repeated += 1;
                    *lost_by_epoch.entry(entry.epoch).or_default() += 1;
                }
                _ => {}
            }
        }
        for (epoch, lost) in lost_by_epoch.into_iter().filter(|(_, lost)| *lost > 1) {
            let message = format!(
                "one kill lost {lost} model calls before epoch {epoch}, but may lose only one"
            );
            self.violated(Invariant::ExcessModelCalls, None, message);
        }
    }

    fn check_call(&mut self, call: CallId, history: &CallHistory, has_run_ended: bool) {
        let effects = self.effects.iter().filter(|record| record.call == call);
        let effects: Vec<Epoch> = effects.map(|record| record.epoch).collect();
        let tool = &history.tool;
        if let Some(message) = history.repeat_after_result(&effects) {
            self.violated(Invariant::RepeatedAfterResult, Some(call), message);
        }
        let count = |epochs: &[Epoch], epoch| epochs.iter().filter(|one| **one == epoch).count();
        let counts = |epoch: &Epoch| (count(&effects, *epoch), count(&history.starts, *epoch));
        let is_excess = |epoch: &&Epoch| counts(epoch).0 > counts(epoch).1;
        if let Some(epoch) = effects.iter().find(is_excess) {
            let (effects, starts) = counts(epoch);
            let message =
                format!("{tool} had {effects} effects in epoch {epoch}, but {starts} starts");
            self.violated(Invariant::UnaccountedEffect, Some(call), message);
        }
        let attempts = history.starts.len().max(effects.len());
        let repeats = attempts.saturating_sub(1) as u64;
        match history.class {
            EffectClass::Pure => self.findings.pure_repeats += repeats,
            EffectClass::Keyed => self.findings.keyed_repeats += repeats,
            EffectClass::Once | EffectClass::Session => {
                self.findings.once_calls += u64::from(attempts > 0);
                if attempts > 1 + history.allowed_repeats {
                    let (starts, effects) = (history.starts.len(), effects.len());
                    let message =
                        format!("{tool} was started {starts} times and had {effects} effects");
                    self.violated(Invariant::DuplicateOnceEffect, Some(call), message);
                }
                if let Some(message) = history.unreported_loss(!effects.is_empty(), has_run_ended) {
                    self.violated(Invariant::LostWithoutReport, Some(call), message);
                }
            }
        }
        if history.was_in_doubt {
            let unsettled = if history.ends.is_empty() { "open" } else { "reported" };
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

/// Returns the history of every tool call of a run.
fn call_histories(entries: &[JournalEntry]) -> BTreeMap<CallId, CallHistory> {
    let mut histories: BTreeMap<CallId, CallHistory> = BTreeMap::new();
    let mut gates: BTreeMap<GateId, CallId> = BTreeMap::new();
    let mut of = |call: CallId, change: &dyn Fn(&mut CallHistory)| {
        change(histories.entry(call).or_default());
    };
    for entry in entries {
        #[expect(clippy::wildcard_enum_match_arm, reason = "only calls are checked here")]
        match &entry.event {
            Event::TurnCompleted(data) => {
                for (index, planned) in (1..).zip(&data.calls) {
                    of(CallId { turn: data.turn, index }, &|history| {
                        (history.tool, history.class) = (planned.tool.to_string(), planned.class);
                    });
                }
            }
            Event::ToolStarted(data) => of(data.call, &|history| {
                history.starts.push(entry.epoch);
                history.was_started_after_end |= !history.ends.is_empty();
                history.is_loss_reported = false;
            }),
            Event::ToolCompleted(data) | Event::ToolFailed(data) | Event::ToolInterrupted(data) => {
                of(data.call, &|history| history.ends.push(entry.epoch));
            }
            Event::ToolInDoubt(data) => of(data.call, &|history| {
                history.was_in_doubt = true;
                history.is_loss_reported = true;
            }),
            Event::ToolVerified(data) => of(data.call, &|history| {
                history.allowed_repeats += usize::from(data.outcome == VerifyOutcome::NotHappened);
                history.settled_by = Some("verified");
            }),
            Event::ToolSurfaced(data) => of(data.call, &|history| {
                history.is_loss_reported = true;
                history.settled_by = Some("surfaced");
            }),
            Event::GateRaised(data) if data.gate.kind == GateKind::InDoubt => {
                gates.extend(data.gate.call.map(|call| (data.gate.id, call)));
            }
            Event::GateAnswered(data) => {
                let decision = &data.answer.decision;
                if let Some(call) = gates.get(&data.gate) {
                    of(*call, &|history| {
                        history.allowed_repeats += usize::from(*decision == GateDecision::Approve);
                        history.settled_by = Some(decision.as_str());
                    });
                }
            }
            _ => {}
        }
    }
    histories
}

impl CallHistory {
    /// Describes a repetition of the call after its result was recorded. `effects` has the epoch of
    /// each recorded effect.
    fn repeat_after_result(&self, effects: &[Epoch]) -> Option<String> {
        let (tool, end) = (&self.tool, self.ends.first()?);
        let late = effects.iter().find(|epoch| *epoch > end);
        match (self.was_started_after_end, self.ends.len()) {
            (true, _) => Some(format!("{tool} was started again after its result")),
            (false, 1) => Some(format!(
                "{tool} has a result in epoch {end}, but had an effect later, in epoch {}",
                late?
            )),
            (false, results) => Some(format!("{tool} has {results} results for one call")),
        }
    }

    /// Describes the loss of a call that must not be repeated, if the journal does not report it.
    fn unreported_loss(&self, had_effect: bool, has_run_ended: bool) -> Option<String> {
        let tool = &self.tool;
        if self.is_loss_reported {
            return None;
        }
        let Some(end) = self.ends.first() else {
            let has_begun = had_effect || (has_run_ended && !self.starts.is_empty());
            return has_begun.then(|| {
                format!("{tool} was started and has neither a result nor an event that its outcome is unknown")
            });
        };
        let start = self.starts.last()?;
        (end > start).then(|| {
            format!("{tool} was started in epoch {start} and got a result in epoch {end} without an event that its outcome is unknown")
        })
    }
}

#[cfg(test)]
mod tests;
