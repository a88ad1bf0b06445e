//! I10: a run whose results are graded completes only with a result that was accepted.

use longhaul_core::event::Event;
use longhaul_core::event::entry::JournalEntry;
use longhaul_core::event::environment::GradingVerdict;

pub(super) fn check(entries: &[JournalEntry]) -> Result<(), String> {
    let mut is_graded = false;
    let mut accepted = false;
    #[expect(clippy::wildcard_enum_match_arm, reason = "only results and verdicts matter here")]
    for entry in entries {
        match &entry.event {
            Event::RunCreated(created) => is_graded = created.task.policy.outcome_rounds.is_some(),
            Event::TurnCompleted(_) => accepted = false,
            Event::OutcomeGraded(graded) => accepted = graded.verdict == GradingVerdict::Satisfied,
            Event::RunCompleted(_) if is_graded && !accepted => {
                return Err("I10: it completed with a result that was not accepted".to_owned());
            }
            _ => {}
        }
    }
    Ok(())
}
