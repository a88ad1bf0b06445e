//! The history of one tool call, from its first start to its result, read from the journal.

use std::collections::BTreeMap;

use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::event::tool::VerifyOutcome;
use longhaul_core::id::{CallId, Epoch, GateId};
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::policy::gate::{GateDecision, GateKind};

/// Prefix of the names of probe tools (tools for crash tests), which record each effect in a file.
pub(crate) const PROBE_PREFIX: &str = "probe_";

/// What the journal says about one tool call.
#[derive(Debug, Default)]
pub(crate) struct CallHistory {
    pub(crate) tool: String,
    pub(crate) class: EffectClass,
    /// Epoch of the worker's claim at each start of the call. The epoch grows when another worker
    /// takes over the run.
    pub(crate) start_epochs: Vec<Epoch>,
    /// Number of times that a verification or a person allowed the call to be repeated.
    pub(crate) allowed_repeats: usize,
    pub(crate) doubt_count: u32,
    /// Epoch of the worker's claim at each recorded result of the call; more than one result is a
    /// violation.
    end_epochs: Vec<Epoch>,
    started_after_end: bool,
    /// True if an event after the call's last start reports that the call was lost when the worker
    /// that made it died.
    is_loss_reported: bool,
    settled_by: Option<&'static str>,
}

/// Returns the history of every tool call of a run, by call id.
pub(crate) fn collect_call_histories(entries: &[JournalEntry]) -> BTreeMap<CallId, CallHistory> {
    let mut histories: BTreeMap<CallId, CallHistory> = BTreeMap::new();
    let mut gates: BTreeMap<GateId, CallId> = BTreeMap::new();
    for entry in entries {
        #[expect(clippy::wildcard_enum_match_arm, reason = "only calls are checked here")]
        match &entry.event {
            Event::TurnCompleted(data) => {
                for (index, classification) in (1..).zip(&data.calls) {
                    let turn = data.turn;
                    let history = histories.entry(CallId { turn, index }).or_default();
                    history.tool = classification.tool.to_string();
                    history.class = classification.class;
                }
            }
            Event::ToolStarted(data) => {
                let history = histories.entry(data.call).or_default();
                history.start_epochs.push(entry.epoch);
                history.started_after_end |= !history.end_epochs.is_empty();
                history.is_loss_reported = false;
            }
            Event::ToolCompleted(data) | Event::ToolFailed(data) | Event::ToolInterrupted(data) => {
                histories.entry(data.call).or_default().end_epochs.push(entry.epoch);
            }
            Event::ToolInDoubt(data) => {
                let history = histories.entry(data.call).or_default();
                history.doubt_count += 1;
                history.is_loss_reported = true;
            }
            Event::ToolVerified(data) => {
                let history = histories.entry(data.call).or_default();
                history.allowed_repeats += usize::from(data.outcome == VerifyOutcome::NotHappened);
                history.settled_by = Some("verified");
            }
            Event::ToolSurfaced(data) => {
                let history = histories.entry(data.call).or_default();
                history.is_loss_reported = true;
                history.settled_by = Some("surfaced");
            }
            Event::GateRaised(data) if data.gate.kind == GateKind::InDoubt => {
                gates.extend(data.gate.call.map(|call| (data.gate.id, call)));
            }
            Event::GateAnswered(data) => {
                if let Some(call) = gates.get(&data.gate) {
                    let history = histories.entry(*call).or_default();
                    history.allowed_repeats +=
                        usize::from(data.answer.decision == GateDecision::Approve);
                    history.settled_by = Some(data.answer.decision.as_str());
                }
            }
            _ => {}
        }
    }
    histories
}

impl CallHistory {
    /// Returns whether the call is one of a probe tool, which is a tool for crash tests that
    /// records its effects in a file.
    pub(crate) fn is_effect_logging_tool_call(&self) -> bool {
        self.tool.starts_with(PROBE_PREFIX)
    }

    /// Returns how the outcome of a call in doubt (started, outcome unknown after a kill) was
    /// decided, or `open` if it was not.
    pub(crate) fn in_doubt_outcome_label(&self) -> &'static str {
        match (self.settled_by, self.end_epochs.is_empty()) {
            (Some(settled), _) => settled,
            (None, false) => "reported",
            (None, true) => "open",
        }
    }

    /// Returns a violation message if the call was repeated after its result was recorded.
    /// `effect_epochs` has the epoch of the worker's claim at each recorded effect of the call.
    pub(crate) fn error_if_repeated_after_result(&self, effect_epochs: &[Epoch]) -> Option<String> {
        let tool = &self.tool;
        if self.started_after_end {
            return Some(format!("{tool} was started again after its result"));
        }
        if self.end_epochs.len() > 1 {
            return Some(format!("{tool} has {} results for one call", self.end_epochs.len()));
        }
        let end = self.end_epochs.first()?;
        let late_epoch = effect_epochs.iter().find(|epoch| *epoch > end)?;
        Some(format!(
            "{tool} has a result in epoch {end}, but had an effect later, in epoch {late_epoch}"
        ))
    }

    /// Returns a violation message if the call had more effects than starts in one epoch, that is,
    /// under one claim of a worker. `effect_epochs` has the epoch of each recorded effect of the
    /// call.
    pub(crate) fn error_if_effect_without_start(&self, effect_epochs: &[Epoch]) -> Option<String> {
        let count = |epochs: &[Epoch], wanted: &Epoch| {
            epochs.iter().filter(|epoch| *epoch == wanted).count()
        };
        let has_more_effects =
            |epoch: &&Epoch| count(effect_epochs, epoch) > count(&self.start_epochs, epoch);
        let epoch = effect_epochs.iter().find(has_more_effects)?;
        Some(format!(
            "{} had {} effects in epoch {epoch}, but {} starts",
            self.tool,
            count(effect_epochs, epoch),
            count(&self.start_epochs, epoch),
        ))
    }

    /// Returns a violation message if a call that must not be repeated was lost and the journal
    /// does not report the loss.
    pub(crate) fn error_if_loss_unreported(
        &self,
        effect_epochs: &[Epoch],
        run_ended: bool,
    ) -> Option<String> {
        let tool = &self.tool;
        if self.is_loss_reported {
            return None;
        }
        let Some(end) = self.end_epochs.first() else {
            let has_begun =
                !effect_epochs.is_empty() || (run_ended && !self.start_epochs.is_empty());
            return has_begun.then(|| {
                format!("{tool} was started and has neither a result nor an event that its outcome is unknown")
            });
        };
        let start = self.start_epochs.last()?;
        (end > start).then(|| {
            format!("{tool} was started in epoch {start} and got a result in epoch {end} without an event that its outcome is unknown")
        })
    }
}
