//! Progress of grading the result of a run against the rubric of its agent.

use std::sync::Arc;

use longhaul_core::event::environment::{GradingVerdict, OutcomeGraded};
use longhaul_core::id::RunId;
use serde::{Deserialize, Serialize};

/// Maximum number of verdicts that the state keeps to be shown. The journal has all of them.
const VERDICTS_MAX: usize = 10;

/// Progress of grading one result.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Grading {
    /// No run grades the result yet.
    #[default]
    Pending,
    /// This run grades the result.
    Running(RunId),
    /// The grading run has ended. Its verdict is not recorded yet.
    Ended {
        /// Run that graded the result.
        child: RunId,
        /// Verdict about the result.
        verdict: GradingVerdict,
        /// What is missing in the result, or why there is no verdict.
        note: String,
    },
    /// The verdict is recorded.
    Graded(GradingVerdict),
}

/// The rounds in which results of the run were graded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GradingRounds {
    /// Number of grading rounds since the last accepted result or message of a person.
    round: u32,
    verdicts: Arc<Vec<OutcomeGraded>>,
}

impl GradingRounds {
    /// Returns the number of the next grading round, from 1.
    pub const fn next_round(&self) -> u32 {
        self.round.saturating_add(1)
    }

    /// Returns the latest verdicts, the newest last.
    pub fn verdicts(&self) -> &[OutcomeGraded] {
        &self.verdicts
    }

    /// Records the verdict of a grading round. An accepted result resets the count of rounds.
    pub(crate) fn record_verdict(&mut self, graded: &OutcomeGraded) {
        self.round = match graded.verdict {
            GradingVerdict::Satisfied => 0,
            GradingVerdict::NotSatisfied | GradingVerdict::GraderFailed => graded.round,
        };
        let verdicts = Arc::make_mut(&mut self.verdicts);
        verdicts.push(graded.clone());
        if verdicts.len() > VERDICTS_MAX {
            verdicts.remove(0);
        }
    }

    /// Restarts the count of grading rounds, because a person sent a message or the run is retried.
    pub(crate) const fn reset_count(&mut self) {
        self.round = 0;
    }
}
