//! The scorecard of a chaos test, as a table for people and as one JSON object.

use std::path::PathBuf;

use serde_json::{Map, Value, json};

use crate::chaos::kills::{ChaosPlan, KillLog};
use crate::chaos::verify::{Findings, InDoubtCall, Invariant};

/// Maximum number of violations, and of incomplete runs, that are printed.
const SHOWN_MAX: usize = 10;

/// The results of a chaos test, to be printed.
#[derive(Debug)]
pub(crate) struct Scorecard {
    pub(crate) plan: ChaosPlan,
    pub(crate) log: KillLog,
    pub(crate) findings: Findings,
    pub(crate) duration_ms: u64,
    /// Path of the temporary folder, if it was kept.
    pub(crate) folder: Option<PathBuf>,
}

impl Scorecard {
    pub(crate) fn as_json(&self) -> anyhow::Result<Value> {
        let Self { plan, log, findings, .. } = self;
        let mut violation_counts = Map::new();
        for (invariant, _) in Invariant::ALL {
            let name = serde_json::to_value(invariant)?.as_str().unwrap_or_default().to_owned();
            violation_counts.insert(name, findings.violation_count(invariant).into());
        }
        let (median, worst) = self.recovery_ms();
        Ok(json!({
            "verdict": if findings.has_test_passed() { "passed" } else { "failed" },
            "agent": plan.task.agent,
            "seed": plan.seed,
            "runs": {
                "submitted": log.runs.len(),
                "completed": findings.completed,
                "failed": findings.failed,
                "other": findings.other,
            },
            "kills": { "planned": plan.kills, "done": log.kills },
            "restarts": log.restarts,
            "recoveries": findings.recoveries,
            "recovery_ms": { "median": median, "worst": worst },
            "model_calls": {
                "total": findings.model_calls,
                "repeated": findings.model_calls_repeated,
            },
            "once_calls": findings.once_calls,
            "pure_repeats": findings.pure_repeats,
            "keyed_repeats": findings.keyed_repeats,
            "in_doubt": findings.in_doubt,
            "violation_counts": violation_counts,
            "violations": findings.violations,
            "stalled": log.stalled,
            "duration_ms": self.duration_ms,
            "folder": self.folder,
        }))
    }

    pub(crate) fn as_text(&self) -> String {
        let Self { plan, log, findings, .. } = self;
        let (submitted, completed) = (log.runs.len(), findings.completed);
        let mut runs = format!(
            "{submitted} submitted, {completed} completed, {} failed",
            findings.failed.len()
        );
        if !findings.other.is_empty() {
            runs.push_str(&format!(", {} cancelled or not ended", findings.other.len()));
        }
        let mut kills = log.kills.to_string();
        if log.kills != plan.kills {
            let planned = plan.kills;
            kills.push_str(&format!(
                " of {planned}: all runs ended before the last kill; increase --runs"
            ));
        }
        let (median, worst) = self.recovery_ms();
        let (calls, repeated) = (findings.model_calls, findings.model_calls_repeated);
        let (pure, keyed) = (findings.pure_repeats, findings.keyed_repeats);
        let mut lines = vec![
            ("runs", runs),
            ("kills with SIGKILL", kills),
            ("worker restarts", log.restarts.to_string()),
            ("runs recovered from a dead worker", findings.recoveries.to_string()),
            ("recovery, start to first event", format!("median {median} ms, worst {worst} ms")),
            ("model calls", format!("{calls} made, {repeated} repeated")),
            (
                "allowed repeats",
                format!("{pure} pure calls, {keyed} keyed calls with the same key"),
            ),
            ("once calls", findings.once_calls.to_string()),
            ("in doubt, and reported as such", in_doubt_text(&findings.in_doubt)),
        ];
        lines.extend(Invariant::ALL.map(|(invariant, label)| {
            let violations = findings.violation_count(invariant);
            (label, format!("{violations}  {}", if violations == 0 { "ok" } else { "BROKEN" }))
        }));
        let lines: String =
            lines.iter().map(|(label, value)| format!("  {label:<44} {value}\n")).collect();
        format!("{lines}\n{}", self.verdict())
    }

    /// Returns the median and the worst recovery time, in milliseconds.
    fn recovery_ms(&self) -> (u64, u64) {
        let mut times = self.log.recovery_times_ms.clone();
        times.sort_unstable();
        let median = times.get(times.len().saturating_sub(1) / 2);
        (median.copied().unwrap_or_default(), times.last().copied().unwrap_or_default())
    }

    fn verdict(&self) -> String {
        let (findings, seed) = (&self.findings, self.plan.seed);
        if findings.has_test_passed() {
            let mut text =
                format!("All guarantees held (seed {seed}, {} s).", self.duration_ms / 1_000);
            if let Some(folder) = &self.folder {
                text.push_str(&format!("\nKept folder:  {}", folder.display()));
            }
            return text;
        }
        let mut text = format!("A guarantee was violated (seed {seed}).");
        if self.log.stalled {
            text.push_str(" The last worker wrote nothing for three minutes while runs were open.");
        }
        for violation in findings.violations.iter().take(SHOWN_MAX) {
            let call = violation.call.map_or(String::new(), |call| format!(" {call}"));
            text.push_str(&format!("\n  {}{call}: {}", violation.run, violation.message));
        }
        let omitted = findings.violations.len().saturating_sub(SHOWN_MAX);
        if omitted > 0 {
            text.push_str(&format!("\n  and {omitted} more violations"));
        }
        for (runs, outcome) in [(&findings.failed, "failed"), (&findings.other, "did not complete")]
        {
            for run in runs.iter().take(SHOWN_MAX) {
                text.push_str(&format!("\n  {run} {outcome}"));
            }
        }
        let violated = findings.violations.iter().map(|violation| violation.run);
        let run = { violated }
            .chain([&findings.failed, &findings.other].into_iter().flatten().copied())
            .next();
        if let (Some(folder), Some(run)) = (&self.folder, run) {
            let folder = folder.display();
            text.push_str(&format!(
                "\nInspect the run:  cd {folder} && longhaul show {run} --events"
            ));
        }
        text
    }
}

/// Formats the number of calls in doubt and how their outcome was decided.
fn in_doubt_text(calls: &[InDoubtCall]) -> String {
    let mut outcomes: Vec<&str> = calls.iter().map(|call| call.settled_by).collect();
    outcomes.sort_unstable();
    let groups = outcomes.chunk_by(|one, other| one == other);
    let parts: Vec<String> = groups.map(|group| format!("{} {}", group.len(), group[0])).collect();
    match calls.len() {
        0 => "0".to_owned(),
        count => format!("{count}: {}", parts.join(", ")),
    }
}
