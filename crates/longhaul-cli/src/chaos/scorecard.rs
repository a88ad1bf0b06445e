//! The scorecard of a storm, as a table for people and as one JSON object.
//!
//! Never: a verdict of its own. It says what the judge has counted.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::chaos::judge::tally::{Doubt, Rule, Tally};
use crate::chaos::storm::{Log, Plan};

/// So many broken rules are told in words.
const TOLD_MAX: usize = 10;

/// Everything that a storm gave.
#[derive(Debug)]
pub(crate) struct Scorecard<'a> {
    pub(crate) agent: &'a str,
    pub(crate) plan: &'a Plan,
    pub(crate) log: &'a Log,
    pub(crate) tally: &'a Tally,
    pub(crate) took_ms: u64,
    /// Where it can be looked at, if it was kept.
    pub(crate) folder: Option<PathBuf>,
}

impl Scorecard<'_> {
    /// For programs.
    pub(crate) fn as_json(&self) -> Value {
        let Self {
            plan, log, tally, ..
        } = self;
        let zeros: Map<String, Value> = Rule::ALL
            .iter()
            .map(|(rule, name, _)| ((*name).to_owned(), tally.broken(*rule).into()))
            .collect();
        json!({
            "verdict": if tally.holds() { "holds" } else { "broken" },
            "agent": self.agent,
            "seed": plan.seed,
            "runs": {
                "submitted": log.runs.len(),
                "completed": tally.completed,
                "failed": tally.failed,
                "other": tally.other,
            },
            "kills": { "wanted": plan.kills, "happened": log.kills },
            "restarts": log.restarts,
            "picked_up": tally.picked_up,
            "recovery_ms": { "median": median(&log.recoveries), "worst": worst(&log.recoveries) },
            "model_calls": { "asked": tally.asked, "asked_again": tally.asked_again },
            "once_calls": tally.once_calls,
            "pure_repeats": tally.pure_repeats,
            "keyed_repeats": tally.keyed_repeats,
            "in_doubt": tally.in_doubt,
            "must_be_zero": zeros,
            "offences": tally.offences,
            "stalled": log.stalled,
            "took_ms": self.took_ms,
            "folder": self.folder,
        })
    }

    /// For people.
    pub(crate) fn as_text(&self) -> String {
        let Self { log, tally, .. } = self;
        let mut text = String::new();
        let mut line = |name: &str, value: String| {
            // Writing to a text never fails.
            _ = writeln!(text, "  {name:<44} {value}");
        };
        let other = match tally.other.len() {
            0 => String::new(),
            other => format!(", {other} other"),
        };
        line(
            "runs",
            format!(
                "{} submitted, {} completed, {} failed{other}",
                log.runs.len(),
                tally.completed,
                tally.failed.len()
            ),
        );
        line("kills with SIGKILL", self.kills());
        line("workers started again", log.restarts.to_string());
        line(
            "runs picked up from a dead worker",
            tally.picked_up.to_string(),
        );
        line(
            "recovery, start to first fact",
            format!(
                "median {} ms, worst {} ms",
                median(&log.recoveries),
                worst(&log.recoveries)
            ),
        );
        line(
            "model calls",
            format!("{} asked, {} asked again", tally.asked, tally.asked_again),
        );
        line(
            "repeats that are allowed",
            format!(
                "{} pure, {} keyed under the same key",
                tally.pure_repeats, tally.keyed_repeats
            ),
        );
        line("once calls", tally.once_calls.to_string());
        line("in doubt, and visible as such", doubts(&tally.in_doubt));
        for (rule, _, words) in Rule::ALL {
            let broken = tally.broken(rule);
            let mark = if broken == 0 { "ok" } else { "BROKEN" };
            line(words, format!("{broken}  {mark}"));
        }
        let _: std::fmt::Result = write!(text, "\n{}", self.verdict());
        text
    }

    fn kills(&self) -> String {
        let (wanted, happened) = (self.plan.kills, self.log.kills);
        if happened == wanted {
            return happened.to_string();
        }
        format!("{happened} of {wanted}: all runs had ended by then, try more --runs")
    }

    fn verdict(&self) -> String {
        let (tally, seed) = (self.tally, self.plan.seed);
        if tally.holds() {
            let took = self.took_ms / 1_000;
            let kept = self.folder.as_deref().map(kept).unwrap_or_default();
            return format!("Every promise held, seed {seed}, {took} s.{kept}");
        }
        let mut text = format!("Something did not hold, seed {seed}.");
        if self.log.stalled {
            text.push_str(" The last worker wrote nothing for three minutes while runs were open.");
        }
        for offence in tally.offences.iter().take(TOLD_MAX) {
            let call = offence.call.map(|call| format!(" {call}"));
            let call = call.unwrap_or_default();
            text.push_str(&format!("\n  {}{call}: {}", offence.run, offence.words));
        }
        let rest = tally.offences.len().saturating_sub(TOLD_MAX);
        if rest > 0 {
            text.push_str(&format!("\n  and {rest} more"));
        }
        for run in tally.failed.iter().take(TOLD_MAX) {
            text.push_str(&format!("\n  {run} failed"));
        }
        for run in tally.other.iter().take(TOLD_MAX) {
            text.push_str(&format!("\n  {run} did not complete"));
        }
        let offence = tally.offences.first().map(|offence| offence.run);
        let first = offence.or(tally.failed.first().copied());
        let first = first.or(tally.other.first().copied());
        if let (Some(folder), Some(run)) = (&self.folder, first) {
            let folder = folder.display();
            text.push_str(&format!(
                "\nLook at it:  cd {folder} && longhaul show {run} --events"
            ));
        }
        text
    }
}

fn kept(folder: &Path) -> String {
    format!("\nKept:  {}", folder.display())
}

/// How many doubts there were, and how they were settled.
fn doubts(doubts: &[Doubt]) -> String {
    if doubts.is_empty() {
        return "0".to_owned();
    }
    let mut words: Vec<&str> = doubts.iter().map(|doubt| doubt.settled.as_str()).collect();
    words.sort_unstable();
    let parts = words
        .chunk_by(|one, other| one == other)
        .filter_map(|same| Some(format!("{} {}", same.len(), same.first()?)));
    let parts: Vec<String> = parts.collect();
    format!("{}: {}", doubts.len(), parts.join(", "))
}

fn worst(spans: &[u64]) -> u64 {
    spans.iter().max().copied().unwrap_or_default()
}

fn median(spans: &[u64]) -> u64 {
    let mut spans = spans.to_vec();
    spans.sort_unstable();
    spans.get(spans.len() / 2).copied().unwrap_or_default()
}
