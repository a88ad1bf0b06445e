//! Checks the order of events: I1 sequence numbers have no gaps, I2 epochs never decrease, I3
//! one worker per epoch, I5 a gate ends once, I7 no event follows the end; and no message is
//! lost.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::id::{GateId, SteerId};

pub(super) fn check(entries: &[JournalEntry]) -> Result<(), String> {
    check_sequence(entries)?;
    check_epochs(entries)?;
    check_gates(entries)?;
    check_steers(entries)?;
    check_end(entries)
}

fn check_sequence(entries: &[JournalEntry]) -> Result<(), String> {
    for (index, entry) in entries.iter().enumerate() {
        if entry.seq.0 != index as u64 + 1 {
            return Err(format!("I1: position {} has event {}", index + 1, entry.seq));
        }
    }
    Ok(())
}

fn check_epochs(entries: &[JournalEntry]) -> Result<(), String> {
    let mut highest = 0;
    let mut workers = BTreeMap::new();
    for entry in entries {
        // A retry starts with the events of a failed run, and its own epochs start from 1 again.
        if let Event::RunForked(_) = &entry.event {
            highest = 0;
            workers.clear();
        }
        if entry.epoch.0 < highest {
            return Err(format!(
                "I2: epoch {} after {highest} at event {}",
                entry.epoch, entry.seq
            ));
        }
        highest = entry.epoch.0;
        if let Event::RunClaimed(claimed) = &entry.event
            && workers.insert(claimed.epoch, claimed.worker).is_some()
        {
            return Err(format!("I3: epoch {} was claimed twice", claimed.epoch));
        }
    }
    Ok(())
}

fn check_gates(entries: &[JournalEntry]) -> Result<(), String> {
    let mut open: BTreeSet<GateId> = BTreeSet::new();
    for entry in entries {
        #[expect(clippy::wildcard_enum_match_arm, reason = "only gates matter here")]
        let gate = match &entry.event {
            Event::GateRaised(data) => {
                open.insert(data.gate.id);
                continue;
            }
            // The gates of a failed run are not open in its retry.
            Event::RunForked(_) => {
                open.clear();
                continue;
            }
            Event::GateAnswered(data) => data.gate,
            Event::GateExpired(data) => data.gate,
            Event::GateWithdrawn(data) => data.gate,
            _ => continue,
        };
        if !open.remove(&gate) {
            return Err(format!("I5: {gate} ended twice, the second time at event {}", entry.seq));
        }
    }
    match open.first() {
        None => Ok(()),
        Some(gate) => Err(format!("I5: {gate} never ended")),
    }
}

fn check_steers(entries: &[JournalEntry]) -> Result<(), String> {
    let mut open: BTreeSet<SteerId> = BTreeSet::new();
    for entry in entries {
        #[expect(clippy::wildcard_enum_match_arm, reason = "only messages matter here")]
        let steer = match &entry.event {
            Event::SteerQueued(data) => {
                open.insert(data.steer);
                continue;
            }
            // Messages that a failed run had not read are queued again in its retry.
            Event::RunForked(_) => {
                open.clear();
                continue;
            }
            Event::SteerDelivered(data) => data.steer,
            Event::SteerDropped(data) => data.steer,
            Event::SteerWithdrawn(data) => data.steer,
            _ => continue,
        };
        if !open.remove(&steer) {
            return Err(format!("{steer} was settled twice, at event {}", entry.seq));
        }
    }
    match open.first() {
        None => Ok(()),
        Some(steer) => Err(format!("{steer} was acknowledged but never read or dropped")),
    }
}

fn check_end(entries: &[JournalEntry]) -> Result<(), String> {
    let end = entries.iter().position(|entry| entry.event.is_terminal());
    match end {
        None => Err("the run never ended".into()),
        Some(end) if end + 1 < entries.len() => {
            let after = &entries[end + 1];
            Err(format!("I7: `{}` after the end, at {}", after.event.kind(), after.seq))
        }
        Some(_) => Ok(()),
    }
}
