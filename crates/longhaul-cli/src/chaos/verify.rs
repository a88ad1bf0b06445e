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
    for record in records {
        effects.entry(record.run).or_default().push(record);
    }
    for (run, entries) in journals {
        let run_effects = effects.remove(run).unwrap_or_default();
        let mut verifier =
            RunVerifier { run: *run, entries, effects: run_effects, counts: &mut counts };
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
        let last_event = self.entries.last().map(|entry| &entry.event);
        match last_event {
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
        let mut has_ended = false;
        for (position, entry) in (1..).zip(self.entries) {
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
                if matches!(entry.event, Event::RunRecovered(_)) {
                    self.counts.recoveries += 1;
                }
                continue;
            };
            return self.add_violation(Invariant::BrokenJournal, None, message);
        }
    }

    /// Checks the model calls: a turn with a recorded reply is never repeated, and a kill loses at
    /// most one model call.
    fn check_model_call_repeats(&mut self) {
        let mut replied_turns: BTreeSet<u32> = BTreeSet::new();
        let mut lost_calls_by_epoch: BTreeMap<Epoch, u64> = BTreeMap::new();
        for entry in self.entries {
            #[expect(clippy::wildcard_enum_match_arm, reason = "only turns are checked here")]
            match &entry.event {
                Event::TurnStarted(data) => {
                    self.counts.model_calls += 1;
                    if data.purpose == ModelCallPurpose::Turn && replied_turns.contains(&data.turn)
                    {
                        let message = format!("turn {} was repeated after its reply", data.turn);
                        self.add_violation(Invariant::RepeatedAfterResult, None, message);
                    }
                }
                Event::TurnCompleted(data) if !replied_turns.insert(data.turn) => {
                    let message = format!("turn {} has two replies", data.turn);
                    self.add_violation(Invariant::RepeatedAfterResult, None, message);
                }
                Event::TurnFailed(data) if data.failure.class == FailureClass::Lost => {
                    self.counts.model_calls_repeated += 1;
                    *lost_calls_by_epoch.entry(entry.epoch).or_default() += 1;
                }
                _ => {}
            }
        }
        for (epoch, times) in lost_calls_by_epoch.into_iter().filter(|(_, times)| *times > 1) {
            let message = format!(
                "one kill lost {times} model calls before epoch {epoch}, but may lose only one"
            );
            self.add_violation(Invariant::ExcessModelCalls, None, message);
        }
    }

    /// Checks for recorded effects that belong to no call in the journal.
    fn check_effects_without_call(&mut self, histories: &BTreeMap<CallId, CallHistory>) {
        let is_unaccounted = |record: &&&EffectRecord| {
            !histories.contains_key(&record.call)
                || record.key != record.call.call_idempotency_key(self.run)
        };
        let unaccounted_effects: Vec<(CallId, String)> = self
            .effects
            .iter()
            .filter(is_unaccounted)
            .map(|record| {
                (record.call, format!("{} with idempotency key {}", record.tool, record.key))
            })
            .collect();
        for (call, tool_and_key) in unaccounted_effects {
            let message = format!("{tool_and_key} had an effect without a call in the journal");
            self.add_violation(Invariant::UnaccountedEffect, Some(call), message);
        }
    }

    fn check_tool_call_effects(&mut self, call: CallId, history: &CallHistory) {
        let epochs: Vec<Epoch> = self
            .effects
            .iter()
            .filter(|record| record.call == call)
            .map(|record| record.epoch)
            .collect();
        let report_violation =
            |verifier: &mut Self, rule, message| verifier.add_violation(rule, Some(call), message);
        if let Some(message) = history.error_if_repeated_after_result(&epochs) {
            report_violation(self, Invariant::RepeatedAfterResult, message);
        }
        if let Some(message) = history.error_if_effect_without_start(&epochs) {
            report_violation(self, Invariant::UnaccountedEffect, message);
        }
        let attempts = history.start_epochs.len().max(epochs.len());
        let repeats = attempts.saturating_sub(1) as u64;
        match history.class {
            EffectClass::Pure => self.counts.pure_repeats += repeats,
            EffectClass::Keyed => self.counts.keyed_repeats += repeats,
            EffectClass::Once | EffectClass::Session => {
                self.counts.once_calls += u64::from(attempts > 0);
                if attempts > 1 + history.allowed_repeats {
                    let message = format!(
                        "{} was started {} times and had {} effects",
                        history.tool,
                        history.start_epochs.len(),
                        epochs.len()
                    );
                    report_violation(self, Invariant::DuplicateOnceEffect, message);
                }
                let has_ended = self.entries.last().is_some_and(|last| last.event.is_terminal());
                if let Some(message) = history.error_if_loss_unreported(&epochs, has_ended) {
                    report_violation(self, Invariant::LostWithoutReport, message);
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
