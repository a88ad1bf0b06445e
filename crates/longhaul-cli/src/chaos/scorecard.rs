//! The scorecard of a storm, as a table for people and as one JSON object.
//!
//! Never: a verdict of its own. It says what the judge has counted.

use std::fmt::Write as _;
use std::path::PathBuf;

use longhaul_store::bench::Spans;
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
        let zeros = Rule::ALL.map(|rule| (rule.names().0.to_owned(), tally.broken(rule).into()));
        let zeros: Map<String, Value> = zeros.into_iter().collect();
        let (median, worst) = self.recoveries();
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
            "recovery_ms": { "median": median, "worst": worst },
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
        let (submitted, completed, failed) = (log.runs.len(), tally.completed, tally.failed.len());
        let (median, worst) = self.recoveries();
        let (asked, again) = (tally.asked, tally.asked_again);
        let (pure, keyed) = (tally.pure_repeats, tally.keyed_repeats);
        let runs = format!("{submitted} submitted, {completed} completed, {failed} failed{other}");
        line("runs", runs);
        line("kills with SIGKILL", self.kills());
        line("workers started again", log.restarts.to_string());
        let picked_up = tally.picked_up.to_string();
        line("runs picked up from a dead worker", picked_up);
        let recovery = format!("median {median} ms, worst {worst} ms");
        line("recovery, start to first fact", recovery);
        line("model calls", format!("{asked} asked, {again} asked again"));
        let repeats = format!("{pure} pure, {keyed} keyed under the same key");
        line("repeats that are allowed", repeats);
        line("once calls", tally.once_calls.to_string());
        line("in doubt, and visible as such", doubts(&tally.in_doubt));
        for rule in Rule::ALL {
            let broken = tally.broken(rule);
            let mark = if broken == 0 { "ok" } else { "BROKEN" };
            line(rule.names().1, format!("{broken}  {mark}"));
        }
        let _: std::fmt::Result = write!(text, "\n{}", self.verdict());
        text
    }

    /// The median and the worst time to recover, in milliseconds.
    fn recoveries(&self) -> (u64, u64) {
        let spans = Spans::new(self.log.recoveries.clone());
        (spans.percentile(50), spans.percentile(100))
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
            let kept = self.folder.as_ref();
            let kept = kept.map(|folder| format!("\nKept:  {}", folder.display()));
            let kept = kept.unwrap_or_default();
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
        for (runs, what) in [
            (&tally.failed, "failed"),
            (&tally.other, "did not complete"),
        ] {
            for run in runs.iter().take(TOLD_MAX) {
                text.push_str(&format!("\n  {run} {what}"));
            }
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
