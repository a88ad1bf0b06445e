//! Verifies the result of a chaos test from the journals and the effects that probe tools recorded
//! in a file. The verification uses neither the store nor the runtime's own replay of journals, so
//! every finding can be checked by hand from the same data.

pub(crate) mod call_history;
pub(crate) mod counts;

use std::collections::{BTreeMap, BTreeSet};

use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::event::turn::ModelCallPurpose;
use longhaul_core::failure::FailureClass;
use longhaul_core::id::{CallId, Epoch, RunId};
use longhaul_core::policy::effect::EffectClass;

use crate::chaos::probe_log::EffectRecord;
use crate::chaos::verify::call_history::{CallHistory, collect_call_histories};
use crate::chaos::verify::counts::{ChaosCounts, InDoubtCall, Invariant};

/// A run and its whole journal.
pub(crate) type RunJournal = (RunId, Vec<JournalEntry>);

/// Verifies the journals of all runs against the effects that the probe tools (tools for crash
/// tests) recorded.
pub(crate) fn verify_runs(journals: &[RunJournal], records: &[EffectRecord]) -> ChaosCounts {
    let mut counts = ChaosCounts::default();
    let mut effects: BTreeMap<RunId, Vec<&EffectRecord>> = BTreeMap::new();
    for line in records {
        effects.entry(line.run).or_default().push(line);
    }
    for (run, entries) in journals {
        let done = effects.remove(run).unwrap_or_default();
        let mut verifier = RunVerifier { run: *run, entries, effects: done, counts: &mut counts };
        verifier.verify_run();
    }
    for record in effects.into_values().flatten() {
        let message = format!("{} had an effect for a run without a journal", record.tool);
        counts.add_violation(Invariant::UnaccountedEffect, record.run, Some(record.call), message);
    }
    counts
}

/// Verifies the journal of one run and the recorded effects of its calls.
struct RunVerifier<'a> {
    run: RunId,
    entries: &'a [JournalEntry],
    effects: Vec<&'a EffectRecord>,
    counts: &'a mut ChaosCounts,
}

impl RunVerifier<'_> {
    fn verify_run(&mut self) {
        self.count_run_outcome();
        self.check_event_order();
        self.check_model_call_repeats();
        let histories = collect_call_histories(self.entries);
        self.check_effects_without_call(&histories);
        for (call, history) in &histories {
            self.check_tool_call_effects(*call, history);
        }
    }

    fn add_violation(&mut self, invariant: Invariant, call: Option<CallId>, message: String) {
        self.counts.add_violation(invariant, self.run, call, message);
    }

    /// Counts the run as completed, failed or other, according to the last event of its journal.
    fn count_run_outcome(&mut self) {
        let last = self.entries.last().map(|entry| &entry.event);
        match last {
            Some(Event::RunCompleted(_)) => self.counts.completed += 1,
            Some(Event::RunFailed(_)) => self.counts.failed.push(self.run),
            Some(_) => self.counts.other.push(self.run),
            None => {
                self.counts.other.push(self.run);
                let message = "the run was acknowledged but has no journal".to_owned();
                self.add_violation(Invariant::BrokenJournal, None, message);
            }
        }
    }

    /// Checks that sequence numbers have no gap, epochs never decrease, and no event follows the
    /// one that ends the run.
    fn check_event_order(&mut self) {
        let mut highest_epoch = Epoch::default();
        let mut ended = false;
        for (position, entry) in (1..).zip(self.entries) {
            let (seq, epoch) = (entry.seq, entry.epoch);
            let wrong = if seq.0 != position {
                format!(
                    "event {seq} is at journal position {position}, but the numbers must be equal"
                )
            } else if epoch < highest_epoch {
                format!("event {seq} has epoch {epoch}, but an earlier event has {highest_epoch}")
            } else if ended {
                format!("event {seq} follows the end of the run")
            } else {
                highest_epoch = epoch;
                ended = entry.event.is_terminal();
                if matches!(entry.event, Event::RunRecovered(_)) {
                    self.counts.recoveries += 1;
                }
                continue;
            };
            return self.add_violation(Invariant::BrokenJournal, None, wrong);
        }
    }

    /// Checks the model calls: a turn with a recorded reply is never repeated, and a kill loses at
    /// most one model call.
    fn check_model_call_repeats(&mut self) {
        let mut replied: BTreeSet<u32> = BTreeSet::new();
        let mut lost: BTreeMap<Epoch, u64> = BTreeMap::new();
        for entry in self.entries {
            #[expect(clippy::wildcard_enum_match_arm, reason = "only turns are checked here")]
            match &entry.event {
                Event::TurnStarted(data) => {
                    self.counts.model_calls += 1;
                    if data.purpose == ModelCallPurpose::Turn && replied.contains(&data.turn) {
                        let message = format!("turn {} was repeated after its reply", data.turn);
                        self.add_violation(Invariant::RepeatedAfterResult, None, message);
                    }
                }
                Event::TurnCompleted(data) if !replied.insert(data.turn) => {
                    let message = format!("turn {} has two replies", data.turn);
                    self.add_violation(Invariant::RepeatedAfterResult, None, message);
                }
                Event::TurnFailed(data) if data.failure.class == FailureClass::Lost => {
                    self.counts.model_calls_repeated += 1;
                    *lost.entry(entry.epoch).or_default() += 1;
                }
                _ => {}
            }
        }
        for (epoch, times) in lost.into_iter().filter(|(_, times)| *times > 1) {
            let message = format!(
                "one kill lost {times} model calls before epoch {epoch}, but may lose only one"
            );
            self.add_violation(Invariant::ExcessModelCalls, None, message);
        }
    }

    /// Checks for recorded effects that belong to no call in the journal.
    fn check_effects_without_call(&mut self, histories: &BTreeMap<CallId, CallHistory>) {
        let strange = |record: &&&EffectRecord| {
            !histories.contains_key(&record.call)
                || record.key != record.call.call_idempotency_key(self.run)
        };
        let unaccounted: Vec<(CallId, String)> = self
            .effects
            .iter()
            .filter(strange)
            .map(|record| {
                (record.call, format!("{} with idempotency key {}", record.tool, record.key))
            })
            .collect();
        for (call, tool_and_key) in unaccounted {
            let message = format!("{tool_and_key} had an effect without a call in the journal");
            self.add_violation(Invariant::UnaccountedEffect, Some(call), message);
        }
    }

    fn check_tool_call_effects(&mut self, call: CallId, history: &CallHistory) {
        let epochs: Vec<Epoch> =
            self.effects.iter().filter(|line| line.call == call).map(|line| line.epoch).collect();
        let offend =
            |bench: &mut Self, rule, message| bench.add_violation(rule, Some(call), message);
        if let Some(message) = history.error_if_repeated_after_result(&epochs) {
            offend(self, Invariant::RepeatedAfterResult, message);
        }
        if let Some(message) = history.error_if_effect_without_start(&epochs) {
            offend(self, Invariant::UnaccountedEffect, message);
        }
        let times = history.start_epochs.len().max(epochs.len());
        let again = times.saturating_sub(1) as u64;
        match history.class {
            EffectClass::Pure => self.counts.pure_repeats += again,
            EffectClass::Keyed => self.counts.keyed_repeats += again,
            EffectClass::Once | EffectClass::Session => {
                self.counts.once_calls += u64::from(times > 0);
                if times > 1 + history.allowed_repeats {
                    let message = format!(
                        "{} was started {} times and had {} effects",
                        history.tool,
                        history.start_epochs.len(),
                        epochs.len()
                    );
                    offend(self, Invariant::DuplicateOnceEffect, message);
                }
                let ended = self.entries.last().is_some_and(|last| last.event.is_terminal());
                if let Some(message) = history.error_if_loss_unreported(&epochs, ended) {
                    offend(self, Invariant::LostWithoutReport, message);
                }
            }
        }
        if history.doubt_count > 0 {
            self.counts.in_doubt.push(InDoubtCall {
                run: self.run,
                call,
                tool: history.tool.clone(),
                happened: history.is_effect_logging_tool_call().then_some(!epochs.is_empty()),
                settled_by: history.in_doubt_outcome_label().to_owned(),
            });
        }
    }
}

#[cfg(test)]
mod tests;
