//! I8: at every point of a journal, spent, lost and held money together do not exceed the cap.

use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::failure::FailureClass;

/// Checks one journal. `raised` is the highest cap that was set through other runs with the account
/// of this run: child runs, and runs of its chain.
pub(super) fn check(entries: &[JournalEntry], raised: u64) -> Result<(), String> {
    let (mut held, mut used, mut cap) = (0_u64, 0_u64, None);
    for entry in entries {
        #[expect(clippy::wildcard_enum_match_arm, reason = "only money matters here")]
        match &entry.event {
            Event::RunCreated(data) => cap = data.task.policy.budget.micro_usd.map(|cap| cap.0),
            Event::RunResumed(data) => {
                if let Some(raised) = data.raise.and_then(|raise| raise.micro_usd) {
                    cap = Some(raised.0);
                }
            }
            Event::BudgetRaised(data) => {
                if let Some(raised) = data.raise.micro_usd {
                    cap = Some(raised.0);
                }
            }
            Event::TurnStarted(data) => held += data.hold.micro_usd.0,
            Event::TurnCompleted(data) => {
                held = 0;
                used += data.cost.unwrap_or_default().0;
            }
            Event::TurnInterrupted(data) => {
                held = 0;
                used += data.cost.unwrap_or_default().0;
            }
            Event::MemoryCompacted(data) => {
                held = 0;
                used += data.cost.unwrap_or_default().0;
            }
            Event::TurnFailed(data) => {
                if data.failure.class == FailureClass::Lost && data.charged.micro_usd.0 != held {
                    return Err(format!(
                        "the lost amount differs from the held amount, at {}",
                        entry.seq
                    ));
                }
                held = 0;
                used += data.charged.micro_usd.0;
            }
            _ => {}
        }
        if cap.is_some_and(|cap| held + used > cap.max(raised)) {
            return Err(format!("I8: {held} held and {used} used exceed the cap at {}", entry.seq));
        }
    }
    Ok(())
}
