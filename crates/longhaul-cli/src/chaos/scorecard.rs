//! The scorecard of a chaos test, as one JSON object and as a table for people.

use std::path::PathBuf;

use longhaul_core::id::RunId;
use serde::Serialize;

use crate::chaos::kills::KillLog;
use crate::chaos::verify::{Findings, InDoubtCall, Invariant};

/// Maximum number of violations, and of incomplete runs, that are printed.
const SHOWN_MAX: usize = 10;

/// The results of a chaos test. In JSON it has the fields of its parts.
#[derive(Debug, Serialize)]
pub(crate) struct Scorecard {
    pub(crate) verdict: &'static str,
    pub(crate) agent: String,
    pub(crate) seed: u64,
    #[serde(flatten)]
    pub(crate) log: KillLog,
    #[serde(flatten)]
    pub(crate) findings: Findings,
    pub(crate) duration_ms: u64,
    /// Path of the temporary folder, if it was kept.
    pub(crate) folder: Option<PathBuf>,
}

impl Scorecard {
    pub(crate) fn as_text(&self) -> String {
        let Self { log, findings, .. } = self;
        let Findings { runs, model_calls, pure_repeats, keyed_repeats, .. } = findings;
        let other = match runs.other.len() {
            0 => String::new(),
            other => format!(", {other} cancelled or not ended"),
        };
        let (submitted, completed, failed) = (runs.submitted, runs.completed, runs.failed.len());
        let missing_kills = match (log.kills.done, log.kills.planned) {
            (done, planned) if done == planned => String::new(),
            (_, planned) => {
                format!(" of {planned}: all runs ended before the last kill; increase --runs")
            }
        };
        let (median, worst) = (log.recovery_ms.median, log.recovery_ms.worst);
        let repeats =
            format!("{pure_repeats} pure calls, {keyed_repeats} keyed calls with the same key");
        let mut lines = vec![
            (
                "runs",
                format!("{submitted} submitted, {completed} completed, {failed} failed{other}"),
            ),
            ("kills with SIGKILL", format!("{}{missing_kills}", log.kills.done)),
            ("worker restarts", log.restarts.to_string()),
            ("runs recovered from a dead worker", findings.recoveries.to_string()),
            ("recovery, start to first event", format!("median {median} ms, worst {worst} ms")),
            (
                "model calls",
                format!("{} made, {} repeated", model_calls.total, model_calls.repeated),
            ),
            ("allowed repeats", repeats),
            ("once calls", findings.once_calls.to_string()),
            ("in doubt, and reported as such", in_doubt_text(&findings.in_doubt)),
        ];
        lines.extend(Invariant::ALL.map(|(invariant, label)| {
            let violations = findings.violation_counts.get(&invariant).copied().unwrap_or_default();
            (label, format!("{violations}  {}", if violations == 0 { "ok" } else { "BROKEN" }))
        }));
        let lines: String =
            lines.iter().map(|(label, value)| format!("  {label:<44} {value}\n")).collect();
        format!("{lines}\n{}", self.verdict_text())
    }

    fn verdict_text(&self) -> String {
        let (Findings { violations, runs, .. }, seed) = (&self.findings, self.seed);
        let folder = self.folder.as_ref().map(|folder| folder.display().to_string());
        if self.findings.has_test_passed() {
            let folder = folder.map(|folder| format!("\nKept folder:  {folder}"));
            let seconds = self.duration_ms / 1_000;
            let folder = folder.unwrap_or_default();
            return format!("All guarantees held (seed {seed}, {seconds} s).{folder}");
        }
        let mut text = format!("A guarantee was violated (seed {seed}).");
        if self.log.stalled {
            text.push_str(" The last worker wrote nothing for three minutes while runs were open.");
        }
        for violation in violations.iter().take(SHOWN_MAX) {
            let call = violation.call.map_or(String::new(), |call| format!(" {call}"));
            text.push_str(&format!("\n  {}{call}: {}", violation.run, violation.message));
        }
        if let omitted @ 1.. = violations.len().saturating_sub(SHOWN_MAX) {
            text.push_str(&format!("\n  and {omitted} more violations"));
        }
        for (runs, outcome) in [(&runs.failed, "failed"), (&runs.other, "did not complete")] {
            let lines = runs.iter().take(SHOWN_MAX).map(|run| format!("\n  {run} {outcome}"));
            text.extend(lines);
        }
        let bad_runs: Vec<RunId> = violations.iter().map(|violation| violation.run).collect();
        let first = bad_runs.iter().chain(&runs.failed).chain(&runs.other).next();
        if let (Some(folder), Some(run)) = (folder, first) {
            let command = format!("cd {folder} && longhaul show {run} --events");
            text.push_str(&format!("\nInspect the run:  {command}"));
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
