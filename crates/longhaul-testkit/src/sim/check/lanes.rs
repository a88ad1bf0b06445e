//! I6: runs of a lane never overlap. That they go in the order they came is a
//! check of the conformance suite.
//!
//! Never: looks at the lane's rows.

use std::collections::BTreeMap;

use longhaul_core::event::Event;
use longhaul_core::event::entry::Entry;
use longhaul_core::id::{LaneKey, RunId};
use longhaul_core::policy::LaneOnPark;
use longhaul_core::time::Timestamp;

struct LaneHold {
    run: RunId,
    from: Timestamp,
    to: Timestamp,
}

pub(super) fn check(journals: &[(RunId, Vec<Entry>)]) -> Result<(), String> {
    let mut lanes: BTreeMap<LaneKey, Vec<LaneHold>> = BTreeMap::new();
    for (run, entries) in journals {
        for (lane, stay) in lane_holds(*run, entries) {
            lanes.entry(lane).or_default().push(stay);
        }
    }
    for (lane, mut stays) in lanes {
        stays.sort_by_key(|stay| (stay.from, stay.to));
        for pair in stays.windows(2) {
            let [before, after] = pair else { continue };
            if after.from <= before.to {
                return Err(format!("I6: {} and {} overlap in {lane}", before.run, after.run));
            }
        }
    }
    Ok(())
}

/// The times in which a run held its lane: from a claim to its end, or, if it
/// lets the next one go while it rests, from each claim to the next rest.
fn lane_holds(run: RunId, entries: &[Entry]) -> Vec<(LaneKey, LaneHold)> {
    let Some(Event::RunCreated(created)) = entries.first().map(|entry| &entry.event) else {
        return Vec::new();
    };
    let Some(lane) = created.task.lane.clone() else {
        return Vec::new();
    };
    let releases = created.task.policy.lane_on_park == LaneOnPark::Release;
    let mut stays = Vec::new();
    let mut from = None;
    for entry in entries {
        let rests = matches!(&entry.event, Event::RunBlocked(_))
            || matches!(&entry.event, Event::RunWaiting(data)
                if data.wait != longhaul_core::status::Wait::Worker);
        if matches!(entry.event, Event::RunClaimed(_)) {
            from.get_or_insert(entry.at);
        } else if (entry.event.is_terminal() || (releases && rests))
            && let Some(from) = from.take()
        {
            let to = entry.at;
            stays.push((lane.clone(), LaneHold { run, from, to }));
        }
    }
    stays
}
