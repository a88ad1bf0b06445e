//! One call from its first start to its result, as its journal tells it.
//!
//! Never: looks at another call.

use std::collections::BTreeMap;

use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::event::tool::VerifyOutcome;
use longhaul_core::id::{CallId, Epoch, GateId};
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::policy::gate::{Decision, GateKind};

/// What the names of tools begin with that leave a line.
pub(crate) const PROBE_PREFIX: &str = "probe_";

/// A call.
#[derive(Debug, Default)]
pub(crate) struct CallHistory {
    pub(crate) tool: String,
    pub(crate) class: EffectClass,
    /// The fence at each start.
    pub(crate) start_epochs: Vec<Epoch>,
    /// So often somebody who knows said that it may begin anew.
    pub(crate) allowed_repeats: usize,
    pub(crate) doubt_count: u32,
    /// The fence at each recorded result; more than one is wrong.
    end_epochs: Vec<Epoch>,
    started_after_end: bool,
    /// Since its last start the journal says openly that its driver was lost.
    reported_lost: bool,
    settled_by: Option<&'static str>,
}

/// The calls of a run, by id.
pub(crate) fn call_histories(entries: &[Entry]) -> BTreeMap<CallId, CallHistory> {
    let mut lives: BTreeMap<CallId, CallHistory> = BTreeMap::new();
    let mut gates: BTreeMap<GateId, CallId> = BTreeMap::new();
    for entry in entries {
        #[expect(clippy::wildcard_enum_match_arm, reason = "only calls are looked at")]
        match &entry.event {
            Event::TurnCompleted(data) => {
                for (index, appraisal) in (1..).zip(&data.calls) {
                    let turn = data.turn;
                    let life = lives.entry(CallId { turn, index }).or_default();
                    life.tool = appraisal.tool.to_string();
                    life.class = appraisal.class;
                }
            }
            Event::ToolStarted(data) => {
                let life = lives.entry(data.call).or_default();
                life.start_epochs.push(entry.epoch);
                life.started_after_end |= !life.end_epochs.is_empty();
                life.reported_lost = false;
            }
            Event::ToolCompleted(data) | Event::ToolFailed(data) | Event::ToolInterrupted(data) => {
                lives.entry(data.call).or_default().end_epochs.push(entry.epoch);
            }
            Event::ToolInDoubt(data) => {
                let life = lives.entry(data.call).or_default();
                life.doubt_count += 1;
                life.reported_lost = true;
            }
            Event::ToolVerified(data) => {
                let life = lives.entry(data.call).or_default();
                life.allowed_repeats += usize::from(data.outcome == VerifyOutcome::NotHappened);
                life.settled_by = Some("verified");
            }
            Event::ToolSurfaced(data) => {
                let life = lives.entry(data.call).or_default();
                life.reported_lost = true;
                life.settled_by = Some("surfaced");
            }
            Event::GateRaised(data) if data.gate.kind == GateKind::InDoubt => {
                gates.extend(data.gate.call.map(|call| (data.gate.id, call)));
            }
            Event::GateAnswered(data) => {
                if let Some(call) = gates.get(&data.gate) {
                    let life = lives.entry(*call).or_default();
                    life.allowed_repeats += usize::from(data.answer.decision == Decision::Approve);
                    life.settled_by = Some(data.answer.decision.as_str());
                }
            }
            _ => {}
        }
    }
    lives
}

impl CallHistory {
    /// Whether its tool leaves a line where it was at work.
    pub(crate) fn is_probed(&self) -> bool {
        self.tool.starts_with(PROBE_PREFIX)
    }

    /// How a doubt about it was settled.
    pub(crate) fn settlement(&self) -> &'static str {
        match (self.settled_by, self.end_epochs.is_empty()) {
            (Some(settled), _) => settled,
            (None, false) => "reported",
            (None, true) => "open",
        }
    }

    /// Why its recorded result was not the end of it.
    pub(crate) fn repeated_after_result(&self, done: &[Epoch]) -> Option<String> {
        let tool = &self.tool;
        if self.started_after_end {
            return Some(format!("{tool} was started after its result"));
        }
        if self.end_epochs.len() > 1 {
            return Some(format!("{tool} has {} results", self.end_epochs.len()));
        }
        let end = self.end_epochs.first()?;
        let late = done.iter().find(|epoch| *epoch > end)?;
        Some(format!("{tool} has a result of epoch {end} and was seen at work in epoch {late}"))
    }

    /// Which deed stands under no start of its own.
    pub(crate) fn effect_without_start(&self, done: &[Epoch]) -> Option<String> {
        let count = |all: &[Epoch], one: &Epoch| all.iter().filter(|epoch| *epoch == one).count();
        let more = |epoch: &&Epoch| count(done, epoch) > count(&self.start_epochs, epoch);
        let epoch = done.iter().find(more)?;
        Some(format!(
            "{} was seen {}x in epoch {epoch} and started {}x there",
            self.tool,
            count(done, epoch),
            count(&self.start_epochs, epoch),
        ))
    }

    /// Why a call that must not be repeated was let go of without a word.
    pub(crate) fn lost_without_report(&self, done: &[Epoch], ended: bool) -> Option<String> {
        let tool = &self.tool;
        if self.reported_lost {
            return None;
        }
        let Some(end) = self.end_epochs.first() else {
            let begun = !done.is_empty() || (ended && !self.start_epochs.is_empty());
            return begun.then(|| format!("{tool} has begun, and has neither result nor doubt"));
        };
        let start = self.start_epochs.last()?;
        (end > start).then(|| {
            format!("{tool} was begun in epoch {start}, and epoch {end} gave it a result without a doubt")
        })
    }
}
