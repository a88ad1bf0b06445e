//! The scorecard of a chaos test, as a table for people and as one JSON object.

use std::fmt::Write as _;
use std::path::PathBuf;

use longhaul_store::bench::SortedDurations;
use serde_json::{Map, Value, json};

use crate::chaos::kill_loop::{ChaosPlan, KillLoopResult};
use crate::chaos::verify::counts::{ChaosCounts, InDoubtCall, Invariant};

/// Maximum number of violated guarantees, and of incomplete runs, that are printed.
const SHOWN_MAX: usize = 10;

/// The results of a chaos test, to be printed.
#[derive(Debug)]
pub(crate) struct Scorecard<'a> {
    pub(crate) agent: &'a str,
    pub(crate) plan: &'a ChaosPlan,
    pub(crate) log: &'a KillLoopResult,
    pub(crate) counts: &'a ChaosCounts,
    pub(crate) duration_ms: u64,
    /// Path of the chaos test's temporary folder, if the folder was kept.
    pub(crate) folder: Option<PathBuf>,
}

impl Scorecard<'_> {
    pub(crate) fn as_json(&self) -> Value {
        let Self { plan, log, counts, .. } = self;
        let violation_counts = Invariant::ALL
            .map(|rule| (rule.name_and_label().0.to_owned(), counts.violation_count(rule).into()));
        let violation_counts: Map<String, Value> = violation_counts.into_iter().collect();
        let (median, worst) = self.median_and_max_recovery_ms();
        json!({
            "verdict": if counts.has_test_passed() { "passed" } else { "failed" },
            "agent": self.agent,
            "seed": plan.seed,
            "runs": {
                "submitted": log.runs.len(),
                "completed": counts.completed,
                "failed": counts.failed,
                "other": counts.other,
            },
            "kills": { "planned": plan.kills, "done": log.kills },
            "restarts": log.restarts,
            "recoveries": counts.recoveries,
            "recovery_ms": { "median": median, "worst": worst },
            "model_calls": { "total": counts.model_calls, "repeated": counts.model_calls_repeated },
            "once_calls": counts.once_calls,
            "pure_repeats": counts.pure_repeats,
            "keyed_repeats": counts.keyed_repeats,
            "in_doubt": counts.in_doubt,
            "violation_counts": violation_counts,
            "violations": counts.violations,
            "stalled": log.stalled,
            "duration_ms": self.duration_ms,
            "folder": self.folder,
        })
    }

    pub(crate) fn as_text(&self) -> String {
        let Self { log, counts, .. } = self;
        let mut text = String::new();
        let mut line = |name: &str, value: String| {
            // Writing to a string never fails.
            _ = writeln!(text, "  {name:<44} {value}");
        };
        let other_runs = match counts.other.len() {
            0 => String::new(),
            other_runs => format!(", {other_runs} cancelled or not ended"),
        };
        let (submitted, completed, failed) =
            (log.runs.len(), counts.completed, counts.failed.len());
        let (median, worst) = self.median_and_max_recovery_ms();
        let (calls, repeated) = (counts.model_calls, counts.model_calls_repeated);
        let (pure_repeats, keyed_repeats) = (counts.pure_repeats, counts.keyed_repeats);
        let runs =
            format!("{submitted} submitted, {completed} completed, {failed} failed{other_runs}");
        line("runs", runs);
        line("kills with SIGKILL", self.kills_text());
        line("worker restarts", log.restarts.to_string());
        let recovered_runs = counts.recoveries.to_string();
        line("runs recovered from a dead worker", recovered_runs);
        let recovery = format!("median {median} ms, worst {worst} ms");
        line("recovery, start to first event", recovery);
        line("model calls", format!("{calls} made, {repeated} repeated"));
        let repeats =
            format!("{pure_repeats} pure calls, {keyed_repeats} keyed calls with the same key");
        line("allowed repeats", repeats);
        line("once calls", counts.once_calls.to_string());
        line("in doubt, and reported as such", in_doubt_calls_text(&counts.in_doubt));
        for rule in Invariant::ALL {
            let violations = counts.violation_count(rule);
            let ok_or_broken = if violations == 0 { "ok" } else { "BROKEN" };
            line(rule.name_and_label().1, format!("{violations}  {ok_or_broken}"));
        }
        let _: std::fmt::Result = write!(text, "\n{}", self.verdict_text());
        text
    }

    /// Returns the median and the worst recovery time, in milliseconds.
    fn median_and_max_recovery_ms(&self) -> (u64, u64) {
        let durations = SortedDurations::new(self.log.recovery_times_ms.clone());
        (durations.percentile(50), durations.percentile(100))
    }

    fn kills_text(&self) -> String {
        let (planned_kills, kills) = (self.plan.kills, self.log.kills);
        if kills == planned_kills {
            return kills.to_string();
        }
        format!("{kills} of {planned_kills}: all runs ended before the last kill; increase --runs")
    }

    fn verdict_text(&self) -> String {
        let (counts, seed) = (self.counts, self.plan.seed);
        if counts.has_test_passed() {
            let seconds = self.duration_ms / 1_000;
            let kept_folder = self.folder.as_ref();
            let kept_folder =
                kept_folder.map(|folder| format!("\nKept folder:  {}", folder.display()));
            let kept_folder = kept_folder.unwrap_or_default();
            return format!("All guarantees held (seed {seed}, {seconds} s).{kept_folder}");
        }
        let mut text = format!("A guarantee was violated (seed {seed}).");
        if self.log.stalled {
            text.push_str(" The last worker wrote nothing for three minutes while runs were open.");
        }
        for violation in counts.violations.iter().take(SHOWN_MAX) {
            let call_suffix = violation.call.map(|call| format!(" {call}"));
            let call_suffix = call_suffix.unwrap_or_default();
            text.push_str(&format!("\n  {}{call_suffix}: {}", violation.run, violation.message));
        }
        let omitted = counts.violations.len().saturating_sub(SHOWN_MAX);
        if omitted > 0 {
            text.push_str(&format!("\n  and {omitted} more violations"));
        }
        for (runs, outcome) in [(&counts.failed, "failed"), (&counts.other, "did not complete")] {
            for run in runs.iter().take(SHOWN_MAX) {
                text.push_str(&format!("\n  {run} {outcome}"));
            }
        }
        let violation = counts.violations.first().map(|violation| violation.run);
        let run_to_inspect = violation.or(counts.failed.first().copied());
        let run_to_inspect = run_to_inspect.or(counts.other.first().copied());
        if let (Some(folder), Some(run)) = (&self.folder, run_to_inspect) {
            let folder = folder.display();
            text.push_str(&format!(
                "\nInspect the run:  cd {folder} && longhaul show {run} --events"
            ));
        }
        text
    }
}

/// Formats the number of calls in doubt (started, outcome unknown after a kill) and how their
/// outcome was decided.
fn in_doubt_calls_text(doubts: &[InDoubtCall]) -> String {
    if doubts.is_empty() {
        return "0".to_owned();
    }
    let mut outcomes: Vec<&str> = doubts.iter().map(|doubt| doubt.settled_by.as_str()).collect();
    outcomes.sort_unstable();
    let parts = outcomes
        .chunk_by(|one, other| one == other)
        .filter_map(|group| Some(format!("{} {}", group.len(), group.first()?)));
    let parts: Vec<String> = parts.collect();
    format!("{}: {}", doubts.len(), parts.join(", "))
}
