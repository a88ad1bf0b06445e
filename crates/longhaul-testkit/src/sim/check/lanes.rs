//! I6: runs of one lane never overlap, and a chain keeps its lane between its runs. The order of the
//! runs is checked by the conformance suite.

use std::collections::BTreeMap;

use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::id::{LaneKey, RunId};
use longhaul_core::policy::ParkedLanePolicy;
use longhaul_core::time::Timestamp;

struct LaneHold {
    run: RunId,
    /// Root of the run if it belongs to a chain.
    chain: Option<RunId>,
    from: Timestamp,
    to: Timestamp,
}

pub(super) fn check(journals: &[(RunId, Vec<JournalEntry>)]) -> Result<(), String> {
    let mut lanes: BTreeMap<LaneKey, Vec<LaneHold>> = BTreeMap::new();
    for (run, entries) in journals {
        for (lane, hold) in lane_holds(*run, entries) {
            let holds = lanes.entry(lane).or_default();
            let is_same_chain =
                |other: &&mut LaneHold| hold.chain.is_some() && other.chain == hold.chain;
            match holds.iter_mut().find(is_same_chain) {
                Some(other) => {
                    other.from = other.from.min(hold.from);
                    other.to = other.to.max(hold.to);
                }
                None => holds.push(hold),
            }
        }
    }
    for (lane, mut holds) in lanes {
        holds.sort_by_key(|hold| (hold.from, hold.to));
        for pair in holds.windows(2) {
            let [before, after] = pair else { continue };
            if after.from <= before.to {
                return Err(format!("I6: {} and {} overlap in {lane}", before.run, after.run));
            }
        }
    }
    Ok(())
}

/// Returns the periods in which a run held its lane: from its first claim to its end or, if it
/// releases the lane while it is parked, from each claim to the next park.
fn lane_holds(run: RunId, entries: &[JournalEntry]) -> Vec<(LaneKey, LaneHold)> {
    let Some(Event::RunCreated(created)) = entries.first().map(|entry| &entry.event) else {
        return Vec::new();
    };
    let Some(lane) = created.task.lane.clone() else {
        return Vec::new();
    };
    let chain = created.task.chain.as_ref().map(|_| created.task.root);
    let releases_on_park = created.task.policy.lane_on_park == ParkedLanePolicy::Release;
    let mut holds = Vec::new();
    let mut from = None;
    for entry in entries {
        let is_parked = matches!(&entry.event, Event::RunBlocked(_))
            || matches!(&entry.event, Event::RunWaiting(data)
                if data.wait != longhaul_core::wait::WaitReason::Worker);
        if matches!(entry.event, Event::RunForked(_)) {
            // The events before were copied from a failed run, which held the lane then.
            (holds, from) = (Vec::new(), None);
        } else if matches!(entry.event, Event::RunClaimed(_)) {
            from.get_or_insert(entry.at);
        } else if (entry.event.is_terminal() || (releases_on_park && is_parked))
            && let Some(from) = from.take()
        {
            let to = entry.at;
            holds.push((lane.clone(), LaneHold { run, chain, from, to }));
        }
    }
    holds
}
