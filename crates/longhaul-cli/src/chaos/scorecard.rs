//! The scorecard of a storm, as a table for people and as one JSON object.
//!
//! Never: a verdict of its own. It says what the judge has counted.

use std::fmt::Write as _;
use std::path::PathBuf;

use longhaul_store::bench::Durations;
use serde_json::{Map, Value, json};

use crate::chaos::kill_loop::{ChaosPlan, KillLog};
use crate::chaos::verify::counts::{ChaosCounts, DoubtfulCall, Invariant};

/// So many broken rules are told in words.
const SHOWN_MAX: usize = 10;

/// Everything that a storm gave.
#[derive(Debug)]
pub(crate) struct Scorecard<'a> {
    pub(crate) agent: &'a str,
    pub(crate) plan: &'a ChaosPlan,
    pub(crate) log: &'a KillLog,
    pub(crate) counts: &'a ChaosCounts,
    pub(crate) duration_ms: u64,
    /// Where it can be looked at, if it was kept.
    pub(crate) folder: Option<PathBuf>,
}

impl Scorecard<'_> {
    /// For programs.
    pub(crate) fn as_json(&self) -> Value {
        let Self { plan, log, counts: tally, .. } = self;
        let zeros = Invariant::ALL
            .map(|rule| (rule.names().0.to_owned(), tally.violation_count(rule).into()));
        let zeros: Map<String, Value> = zeros.into_iter().collect();
        let (median, worst) = self.recovery_stats();
        json!({
            "verdict": if tally.is_clean() { "passed" } else { "failed" },
            "agent": self.agent,
            "seed": plan.seed,
            "runs": {
                "submitted": log.runs.len(),
                "completed": tally.completed,
                "failed": tally.failed,
                "other": tally.other,
            },
            "kills": { "planned": plan.kills, "done": log.kills },
            "restarts": log.restarts,
            "recoveries": tally.recoveries,
            "recovery_ms": { "median": median, "worst": worst },
            "model_calls": { "total": tally.model_calls, "repeated": tally.model_calls_repeated },
            "once_calls": tally.once_calls,
            "pure_repeats": tally.pure_repeats,
            "keyed_repeats": tally.keyed_repeats,
            "in_doubt": tally.in_doubt,
            "violation_counts": zeros,
            "violations": tally.violations,
            "stalled": log.stalled,
            "duration_ms": self.duration_ms,
            "folder": self.folder,
        })
    }

    /// For people.
    pub(crate) fn as_text(&self) -> String {
        let Self { log, counts: tally, .. } = self;
        let mut text = String::new();
        let mut line = |name: &str, value: String| {
            // Writing to a text never fails.
            _ = writeln!(text, "  {name:<44} {value}");
        };
        let other = match tally.other.len() {
            0 => String::new(),
            other => format!(", {other} other"),
        };
        let (submitted, completed, failed) = (log.runs.len(), tally.completed, tally.failed.len());
        let (median, worst) = self.recovery_stats();
        let (asked, again) = (tally.model_calls, tally.model_calls_repeated);
        let (pure, keyed) = (tally.pure_repeats, tally.keyed_repeats);
        let runs = format!("{submitted} submitted, {completed} completed, {failed} failed{other}");
        line("runs", runs);
        line("kills with SIGKILL", self.kills_text());
        line("workers started again", log.restarts.to_string());
        let picked_up = tally.recoveries.to_string();
        line("runs picked up from a dead worker", picked_up);
        let recovery = format!("median {median} ms, worst {worst} ms");
        line("recovery, start to first fact", recovery);
        line("model calls", format!("{asked} asked, {again} asked again"));
        let repeats = format!("{pure} pure, {keyed} keyed under the same key");
        line("repeats that are allowed", repeats);
        line("once calls", tally.once_calls.to_string());
        line("in doubt, and visible as such", doubts_text(&tally.in_doubt));
        for rule in Invariant::ALL {
            let broken = tally.violation_count(rule);
            let mark = if broken == 0 { "ok" } else { "BROKEN" };
            line(rule.names().1, format!("{broken}  {mark}"));
        }
        let _: std::fmt::Result = write!(text, "\n{}", self.verdict_text());
        text
    }

    /// The median and the worst time to recover, in milliseconds.
    fn recovery_stats(&self) -> (u64, u64) {
        let spans = Durations::new(self.log.recovery_times_ms.clone());
        (spans.percentile(50), spans.percentile(100))
    }

    fn kills_text(&self) -> String {
        let (wanted, happened) = (self.plan.kills, self.log.kills);
        if happened == wanted {
            return happened.to_string();
        }
        format!("{happened} of {wanted}: all runs had ended by then, try more --runs")
    }

    fn verdict_text(&self) -> String {
        let (tally, seed) = (self.counts, self.plan.seed);
        if tally.is_clean() {
            let took = self.duration_ms / 1_000;
            let kept = self.folder.as_ref();
            let kept = kept.map(|folder| format!("\nKept:  {}", folder.display()));
            let kept = kept.unwrap_or_default();
            return format!("Every promise held, seed {seed}, {took} s.{kept}");
        }
        let mut text = format!("Something did not hold, seed {seed}.");
        if self.log.stalled {
            text.push_str(" The last worker wrote nothing for three minutes while runs were open.");
        }
        for offence in tally.violations.iter().take(SHOWN_MAX) {
            let call = offence.call.map(|call| format!(" {call}"));
            let call = call.unwrap_or_default();
            text.push_str(&format!("\n  {}{call}: {}", offence.run, offence.message));
        }
        let rest = tally.violations.len().saturating_sub(SHOWN_MAX);
        if rest > 0 {
            text.push_str(&format!("\n  and {rest} more"));
        }
        for (runs, what) in [(&tally.failed, "failed"), (&tally.other, "did not complete")] {
            for run in runs.iter().take(SHOWN_MAX) {
                text.push_str(&format!("\n  {run} {what}"));
            }
        }
        let offence = tally.violations.first().map(|offence| offence.run);
        let first = offence.or(tally.failed.first().copied());
        let first = first.or(tally.other.first().copied());
        if let (Some(folder), Some(run)) = (&self.folder, first) {
            let folder = folder.display();
            text.push_str(&format!("\nLook at it:  cd {folder} && longhaul show {run} --events"));
        }
        text
    }
}

/// How many doubts there were, and how they were settled.
fn doubts_text(doubts: &[DoubtfulCall]) -> String {
    if doubts.is_empty() {
        return "0".to_owned();
    }
    let mut words: Vec<&str> = doubts.iter().map(|doubt| doubt.settled_by.as_str()).collect();
    words.sort_unstable();
    let parts = words
        .chunk_by(|one, other| one == other)
        .filter_map(|same| Some(format!("{} {}", same.len(), same.first()?)));
    let parts: Vec<String> = parts.collect();
    format!("{}: {}", doubts.len(), parts.join(", "))
}
