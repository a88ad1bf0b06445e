//! One call from its first start to its result, as its journal tells it.
//!
//! Never: looks at another call.

use std::collections::BTreeMap;

use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::event::tool::Finding;
use longhaul_core::id::{CallId, Epoch, GateId};
use longhaul_core::policy::effect::EffectClass;
use longhaul_core::policy::gate::{Decision, GateKind};

/// What the names of tools begin with that leave a line.
pub(crate) const WITNESS: &str = "witness_";

/// A call.
#[derive(Debug, Default)]
pub(crate) struct Life {
    pub(crate) tool: String,
    pub(crate) class: EffectClass,
    /// The fence at each start.
    pub(crate) starts: Vec<Epoch>,
    /// So often somebody who knows said that it may begin anew.
    pub(crate) freed: usize,
    pub(crate) doubts: u32,
    /// The fence at each recorded result; more than one is wrong.
    ends: Vec<Epoch>,
    started_after_end: bool,
    /// Since its last start the journal says openly that its driver was lost.
    shown: bool,
    settled: Option<&'static str>,
}

/// The calls of a run, by id.
pub(crate) fn lives(entries: &[Entry]) -> BTreeMap<CallId, Life> {
    let mut lives: BTreeMap<CallId, Life> = BTreeMap::new();
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
                life.starts.push(entry.epoch);
                life.started_after_end |= !life.ends.is_empty();
                life.shown = false;
            }
            Event::ToolCompleted(data) | Event::ToolFailed(data) | Event::ToolInterrupted(data) => {
                lives.entry(data.call).or_default().ends.push(entry.epoch);
            }
            Event::ToolInDoubt(data) => {
                let life = lives.entry(data.call).or_default();
                life.doubts += 1;
                life.shown = true;
            }
            Event::ToolVerified(data) => {
                let life = lives.entry(data.call).or_default();
                life.freed += usize::from(data.finding == Finding::NotHappened);
                life.settled = Some("verified");
            }
            Event::ToolSurfaced(data) => {
                let life = lives.entry(data.call).or_default();
                life.shown = true;
                life.settled = Some("surfaced");
            }
            Event::GateRaised(data) if data.gate.kind == GateKind::InDoubt => {
                gates.extend(data.gate.call.map(|call| (data.gate.id, call)));
            }
            Event::GateAnswered(data) => {
                if let Some(call) = gates.get(&data.gate) {
                    let life = lives.entry(*call).or_default();
                    life.freed += usize::from(data.answer.decision == Decision::Approve);
                    life.settled = Some(data.answer.decision.as_str());
                }
            }
            _ => {}
        }
    }
    lives
}

impl Life {
    /// Whether its tool leaves a line where it was at work.
    pub(crate) fn is_witnessed(&self) -> bool {
        self.tool.starts_with(WITNESS)
    }

    /// How a doubt about it was settled.
    pub(crate) fn settlement(&self) -> &'static str {
        match (self.settled, self.ends.is_empty()) {
            (Some(settled), _) => settled,
            (None, false) => "told",
            (None, true) => "open",
        }
    }

    /// Why its recorded result was not the end of it.
    pub(crate) fn ran_again(&self, done: &[Epoch]) -> Option<String> {
        let tool = &self.tool;
        if self.started_after_end {
            return Some(format!("{tool} was started after its result"));
        }
        if self.ends.len() > 1 {
            return Some(format!("{tool} has {} results", self.ends.len()));
        }
        let end = self.ends.first()?;
        let late = done.iter().find(|epoch| *epoch > end)?;
        Some(format!(
            "{tool} has a result of epoch {end} and was seen at work in epoch {late}"
        ))
    }

    /// Which deed stands under no start of its own.
    pub(crate) fn done_unstarted(&self, done: &[Epoch]) -> Option<String> {
        let count = |all: &[Epoch], one: &Epoch| all.iter().filter(|epoch| *epoch == one).count();
        let more = |epoch: &&Epoch| count(done, epoch) > count(&self.starts, epoch);
        let epoch = done.iter().find(more)?;
        Some(format!(
            "{} was seen {}x in epoch {epoch} and started {}x there",
            self.tool,
            count(done, epoch),
            count(&self.starts, epoch),
        ))
    }

    /// Why a call that must not be repeated was let go of without a word.
    pub(crate) fn lost_silently(&self, done: &[Epoch], ended: bool) -> Option<String> {
        let tool = &self.tool;
        if self.shown {
            return None;
        }
        let Some(end) = self.ends.first() else {
            let begun = !done.is_empty() || (ended && !self.starts.is_empty());
            return begun.then(|| format!("{tool} has begun, and has neither result nor doubt"));
        };
        let start = self.starts.last()?;
        (end > start).then(|| {
            format!("{tool} was begun in epoch {start}, and epoch {end} gave it a result without a doubt")
        })
    }
}
