//! Judges what a storm left behind: journals and the world's own lines, nothing else.
//!
//! Never: asks a store, a clock or the runtime's own fold. What it says can be
//! checked by hand from the same data.

pub(crate) mod call_history;
pub(crate) mod counts;

use std::collections::{BTreeMap, BTreeSet};

use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::event::turn::ModelCallPurpose;
use longhaul_core::failure::FailureClass;
use longhaul_core::id::{CallId, Epoch, RunId};
use longhaul_core::policy::effect::EffectClass;

use crate::chaos::probe_log::ProbeRecord;
use crate::chaos::verify::call_history::{CallHistory, call_histories};
use crate::chaos::verify::counts::{ChaosCounts, DoubtfulCall, Invariant};

/// A run and its whole journal.
pub(crate) type RunJournal = (RunId, Vec<Entry>);

/// Judges all of it.
pub(crate) fn verify(journals: &[RunJournal], lines: &[ProbeRecord]) -> ChaosCounts {
    let mut tally = ChaosCounts::default();
    let mut deeds: BTreeMap<RunId, Vec<&ProbeRecord>> = BTreeMap::new();
    for line in lines {
        deeds.entry(line.run).or_default().push(line);
    }
    for (run, entries) in journals {
        let done = deeds.remove(run).unwrap_or_default();
        let mut bench = RunVerifier { run: *run, entries, effects: done, counts: &mut tally };
        bench.verify();
    }
    for line in deeds.into_values().flatten() {
        let words = format!("{} was done for a run that is in no journal", line.tool);
        tally.add_violation(Invariant::UnaccountedEffect, line.run, Some(line.call), words);
    }
    tally
}

/// One run before the judge.
struct RunVerifier<'a> {
    run: RunId,
    entries: &'a [Entry],
    effects: Vec<&'a ProbeRecord>,
    counts: &'a mut ChaosCounts,
}

impl RunVerifier<'_> {
    fn verify(&mut self) {
        self.count_outcome();
        self.check_order();
        self.check_turns();
        let lives = call_histories(self.entries);
        self.check_unaccounted(&lives);
        for (call, life) in &lives {
            self.check_call(*call, life);
        }
    }

    fn add_violation(&mut self, rule: Invariant, call: Option<CallId>, words: String) {
        self.counts.add_violation(rule, self.run, call, words);
    }

    fn count_outcome(&mut self) {
        let last = self.entries.last().map(|entry| &entry.event);
        match last {
            Some(Event::RunCompleted(_)) => self.counts.completed += 1,
            Some(Event::RunFailed(_)) => self.counts.failed.push(self.run),
            Some(_) => self.counts.other.push(self.run),
            None => {
                self.counts.other.push(self.run);
                let words = "it was acknowledged and has no journal".to_owned();
                self.add_violation(Invariant::BrokenJournal, None, words);
            }
        }
    }

    /// Sequences without a gap, epochs that never fall, nothing after the end.
    fn check_order(&mut self) {
        let mut highest = Epoch::default();
        let mut ended = false;
        for (place, entry) in (1..).zip(self.entries) {
            let (seq, epoch) = (entry.seq, entry.epoch);
            let wrong = if seq.0 != place {
                format!("place {place} holds event {seq}")
            } else if epoch < highest {
                format!("epoch {epoch} after {highest} at event {seq}")
            } else if ended {
                format!("event {seq} stands after the end")
            } else {
                highest = epoch;
                ended = entry.event.is_terminal();
                if matches!(entry.event, Event::RunRecovered(_)) {
                    self.counts.recoveries += 1;
                }
                continue;
            };
            return self.add_violation(Invariant::BrokenJournal, None, wrong);
        }
    }

    /// Model calls: a recorded reply is final, and a crash loses one at most.
    fn check_turns(&mut self) {
        let mut replied: BTreeSet<u32> = BTreeSet::new();
        let mut lost: BTreeMap<Epoch, u64> = BTreeMap::new();
        for entry in self.entries {
            #[expect(clippy::wildcard_enum_match_arm, reason = "only turns are looked at")]
            match &entry.event {
                Event::TurnStarted(data) => {
                    self.counts.model_calls += 1;
                    if data.purpose == ModelCallPurpose::Turn && replied.contains(&data.turn) {
                        let words = format!("turn {} was asked again after its reply", data.turn);
                        self.add_violation(Invariant::RepeatedAfterResult, None, words);
                    }
                }
                Event::TurnCompleted(data) if !replied.insert(data.turn) => {
                    let words = format!("turn {} has two replies", data.turn);
                    self.add_violation(Invariant::RepeatedAfterResult, None, words);
                }
                Event::TurnFailed(data) if data.failure.class == FailureClass::Lost => {
                    self.counts.model_calls_repeated += 1;
                    *lost.entry(entry.epoch).or_default() += 1;
                }
                _ => {}
            }
        }
        for (epoch, times) in lost.into_iter().filter(|(_, times)| *times > 1) {
            let words = format!("{times} model calls were lost by one kill, before epoch {epoch}");
            self.add_violation(Invariant::ExcessModelCalls, None, words);
        }
    }

    /// Deeds that no journal asked for.
    fn check_unaccounted(&mut self, lives: &BTreeMap<CallId, CallHistory>) {
        let strange = |line: &&&ProbeRecord| {
            !lives.contains_key(&line.call) || line.key != line.call.idempotency_key(self.run)
        };
        let strangers: Vec<(CallId, String)> = self
            .effects
            .iter()
            .filter(strange)
            .map(|line| (line.call, format!("{} under key {}", line.tool, line.key)))
            .collect();
        for (call, what) in strangers {
            let words = format!("{what} was done and never asked for");
            self.add_violation(Invariant::UnaccountedEffect, Some(call), words);
        }
    }

    fn check_call(&mut self, call: CallId, life: &CallHistory) {
        let epochs: Vec<Epoch> =
            self.effects.iter().filter(|line| line.call == call).map(|line| line.epoch).collect();
        let offend = |bench: &mut Self, rule, words| bench.add_violation(rule, Some(call), words);
        if let Some(words) = life.repeated_after_result(&epochs) {
            offend(self, Invariant::RepeatedAfterResult, words);
        }
        if let Some(words) = life.effect_without_start(&epochs) {
            offend(self, Invariant::UnaccountedEffect, words);
        }
        let times = life.start_epochs.len().max(epochs.len());
        let again = times.saturating_sub(1) as u64;
        match life.class {
            EffectClass::Pure => self.counts.pure_repeats += again,
            EffectClass::Keyed => self.counts.keyed_repeats += again,
            EffectClass::Once | EffectClass::Session => {
                self.counts.once_calls += u64::from(times > 0);
                if times > 1 + life.allowed_repeats {
                    let words = format!(
                        "{} was started {}x and seen {}x",
                        life.tool,
                        life.start_epochs.len(),
                        epochs.len()
                    );
                    offend(self, Invariant::DuplicateOnceEffect, words);
                }
                let ended = self.entries.last().is_some_and(|last| last.event.is_terminal());
                if let Some(words) = life.lost_without_report(&epochs, ended) {
                    offend(self, Invariant::LostWithoutReport, words);
                }
            }
        }
        if life.doubt_count > 0 {
            self.counts.in_doubt.push(DoubtfulCall {
                run: self.run,
                call,
                tool: life.tool.clone(),
                happened: life.is_probed().then_some(!epochs.is_empty()),
                settled_by: life.settlement().to_owned(),
            });
        }
    }
}

#[cfg(test)]
mod tests;
