//! Judges what a storm left behind: journals and the world's own lines, nothing else.
//!
//! Never: asks a store, a clock or the runtime's own fold. What it says can be
//! checked by hand from the same data.

pub(crate) mod life;
pub(crate) mod tally;

use std::collections::{BTreeMap, BTreeSet};

use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::event::turn::Purpose;
use longhaul_core::failure::FailureClass;
use longhaul_core::id::{CallId, Epoch, RunId};
use longhaul_core::policy::effect::EffectClass;

use crate::chaos::judge::life::{Life, lives};
use crate::chaos::judge::tally::{Doubt, Rule, Tally};
use crate::chaos::witness::Line;

/// A run and its whole journal.
pub(crate) type Journal = (RunId, Vec<Entry>);

/// Judges all of it.
pub(crate) fn judge(journals: &[Journal], lines: &[Line]) -> Tally {
    let mut tally = Tally::default();
    let mut deeds: BTreeMap<RunId, Vec<&Line>> = BTreeMap::new();
    for line in lines {
        deeds.entry(line.run).or_default().push(line);
    }
    for (run, entries) in journals {
        let done = deeds.remove(run).unwrap_or_default();
        let mut bench = Bench {
            run: *run,
            entries,
            done,
            tally: &mut tally,
        };
        bench.judge();
    }
    for line in deeds.into_values().flatten() {
        let words = format!("{} was done for a run that is in no journal", line.tool);
        tally.offend(Rule::Unaccounted, line.run, Some(line.call), words);
    }
    tally
}

/// One run before the judge.
struct Bench<'a> {
    run: RunId,
    entries: &'a [Entry],
    done: Vec<&'a Line>,
    tally: &'a mut Tally,
}

impl Bench<'_> {
    fn judge(&mut self) {
        self.outcome();
        self.order();
        self.turns();
        let lives = lives(self.entries);
        self.strangers(&lives);
        for (call, life) in &lives {
            self.call(*call, life);
        }
    }

    fn offend(&mut self, rule: Rule, call: Option<CallId>, words: String) {
        self.tally.offend(rule, self.run, call, words);
    }

    fn outcome(&mut self) {
        let last = self.entries.last().map(|entry| &entry.event);
        match last {
            Some(Event::RunCompleted(_)) => self.tally.completed += 1,
            Some(Event::RunFailed(_)) => self.tally.failed.push(self.run),
            Some(_) => self.tally.other.push(self.run),
            None => {
                self.tally.other.push(self.run);
                let words = "it was acknowledged and has no journal".to_owned();
                self.offend(Rule::BrokenJournal, None, words);
            }
        }
    }

    /// Sequences without a gap, epochs that never fall, nothing after the end.
    fn order(&mut self) {
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
                    self.tally.picked_up += 1;
                }
                continue;
            };
            return self.offend(Rule::BrokenJournal, None, wrong);
        }
    }

    /// Model calls: a recorded reply is final, and a crash loses one at most.
    fn turns(&mut self) {
        let mut replied: BTreeSet<u32> = BTreeSet::new();
        let mut lost: BTreeMap<Epoch, u64> = BTreeMap::new();
        for entry in self.entries {
            #[expect(clippy::wildcard_enum_match_arm, reason = "only turns are looked at")]
            match &entry.event {
                Event::TurnStarted(data) => {
                    self.tally.asked += 1;
                    if data.purpose == Purpose::Think && replied.contains(&data.turn) {
                        let words = format!("turn {} was asked again after its reply", data.turn);
                        self.offend(Rule::RanAgain, None, words);
                    }
                }
                Event::TurnCompleted(data) if !replied.insert(data.turn) => {
                    let words = format!("turn {} has two replies", data.turn);
                    self.offend(Rule::RanAgain, None, words);
                }
                Event::TurnFailed(data) if data.failure.class == FailureClass::Lost => {
                    self.tally.asked_again += 1;
                    *lost.entry(entry.epoch).or_default() += 1;
                }
                _ => {}
            }
        }
        for (epoch, times) in lost.into_iter().filter(|(_, times)| *times > 1) {
            let words = format!("{times} model calls were lost by one kill, before epoch {epoch}");
            self.offend(Rule::AskedTooOften, None, words);
        }
    }

    /// Deeds that no journal asked for.
    fn strangers(&mut self, lives: &BTreeMap<CallId, Life>) {
        let strange =
            |line: &&&Line| !lives.contains_key(&line.call) || line.key != line.call.key(self.run);
        let strangers: Vec<(CallId, String)> = self
            .done
            .iter()
            .filter(strange)
            .map(|line| (line.call, format!("{} under key {}", line.tool, line.key)))
            .collect();
        for (call, what) in strangers {
            let words = format!("{what} was done and never asked for");
            self.offend(Rule::Unaccounted, Some(call), words);
        }
    }

    fn call(&mut self, call: CallId, life: &Life) {
        let epochs: Vec<Epoch> = self
            .done
            .iter()
            .filter(|line| line.call == call)
            .map(|line| line.epoch)
            .collect();
        let offend = |bench: &mut Self, rule, words| bench.offend(rule, Some(call), words);
        if let Some(words) = life.ran_again(&epochs) {
            offend(self, Rule::RanAgain, words);
        }
        if let Some(words) = life.done_unstarted(&epochs) {
            offend(self, Rule::Unaccounted, words);
        }
        let times = life.starts.len().max(epochs.len());
        let again = times.saturating_sub(1) as u64;
        match life.class {
            EffectClass::Pure => self.tally.pure_repeats += again,
            EffectClass::Keyed => self.tally.keyed_repeats += again,
            EffectClass::Once | EffectClass::Session => {
                self.tally.once_calls += u64::from(times > 0);
                if times > 1 + life.freed {
                    let words = format!(
                        "{} was started {}x and seen {}x",
                        life.tool,
                        life.starts.len(),
                        epochs.len()
                    );
                    offend(self, Rule::OnceTwice, words);
                }
                let ended = self
                    .entries
                    .last()
                    .is_some_and(|last| last.event.is_terminal());
                if let Some(words) = life.lost_silently(&epochs, ended) {
                    offend(self, Rule::LostSilently, words);
                }
            }
        }
        if life.doubts > 0 {
            self.tally.in_doubt.push(Doubt {
                run: self.run,
                call,
                tool: life.tool.clone(),
                happened: life.is_witnessed().then_some(!epochs.is_empty()),
                settled: life.settlement().to_owned(),
            });
        }
    }
}

#[cfg(test)]
mod tests;
