//! I10: at every point in time, what a spend cap has counted and holds does not exceed its limit,
//! and at the end the stored counts are those of the journals.

use std::collections::BTreeMap;

use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::id::RunId;
use longhaul_core::policy::spend_cap::{CapCounterKey, CapHold, CapUnit};

use crate::sim::SimError;
use crate::sim::check::SimHistory;
use crate::sim::driver::SimServices;

#[derive(Debug, Default)]
struct Count {
    held: u64,
    used: u64,
}

/// Checks the spend caps of all runs together.
pub async fn check_caps(services: &SimServices, history: &SimHistory) -> Result<(), SimError> {
    let mut entries: Vec<&JournalEntry> = history.journals.iter().flat_map(own_entries).collect();
    entries.sort_by_key(|entry| (entry.at, entry.run, entry.seq));
    let raised = services.world.raised_caps();
    let limit = |key: &CapCounterKey| {
        let configured =
            services.caps.iter().find(|cap| cap.cap_id() == key.cap).map(|cap| cap.limit);
        configured.max(raised.get(key).copied()).unwrap_or_default()
    };
    let mut counts: BTreeMap<CapCounterKey, Count> = BTreeMap::new();
    let mut holds: BTreeMap<RunId, Vec<CapHold>> = BTreeMap::new();
    for entry in entries {
        if let Some(cost) = cost_of_ended_call(&entry.event) {
            for hold in holds.remove(&entry.run).unwrap_or_default() {
                let count = counts.entry(hold.key).or_default();
                count.held -= hold.amount;
                count.used += if hold.unit == CapUnit::Runs { hold.amount } else { cost };
            }
        }
        if let Event::TurnStarted(data) = &entry.event {
            for hold in &data.caps {
                let count = counts.entry(hold.key.clone()).or_default();
                count.held += hold.amount;
                if count.held + count.used > limit(&hold.key) {
                    let at = format!("{} {}", entry.run, entry.seq);
                    return Err(
                        format!("I10: {:?} is exceeded at {at}: {count:?}", hold.key).into()
                    );
                }
            }
            holds.insert(entry.run, data.caps.clone());
        }
    }
    for row in services.records.cap_counter_rows().await? {
        let used = counts.get(&row.key).map_or(0, |count| count.used);
        if row.held != 0 || row.spent + row.lost != used {
            return Err(format!("I10: the journals count {used}, the store {row:?}").into());
        }
    }
    Ok(())
}

/// Returns the entries without those that a retry has copied from the failed run.
fn own_entries((_, entries): &(RunId, Vec<JournalEntry>)) -> &[JournalEntry] {
    let fork_index = entries.iter().position(|entry| matches!(entry.event, Event::RunForked(_)));
    &entries[fork_index.map_or(0, |index| index + 1)..]
}

/// Returns the cost of the model call that the event ends. `None` if it ends none.
fn cost_of_ended_call(event: &Event) -> Option<u64> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "only the ends of model calls matter here")]
    match event {
        Event::TurnCompleted(data) => Some(data.cost.unwrap_or_default().0),
        Event::TurnInterrupted(data) => Some(data.cost.unwrap_or_default().0),
        Event::MemoryCompacted(data) => Some(data.cost.unwrap_or_default().0),
        Event::TurnFailed(data) => Some(data.charged.micro_usd.0),
        _ => None,
    }
}
