//! Answers at gates.
//!
//! Never: lets an edit pass that the model itself could not have called.

use longhaul_core::id::{Epoch, GateId, RunId, Seq};
use longhaul_core::policy::gate::{Answer, Decision, GateKind, GateRow, GateStatus};
use longhaul_core::port::store::{GateFilter, Refused};
use longhaul_core::port::tool::ClaimId;
use longhaul_core::raw::RawJson;
use longhaul_core::time::Millis;
use longhaul_run::commands::{RunCommand, RunSnapshot, decide_command};
use longhaul_run::{DecideContext, Rejection, denial_reason};

use crate::blocker::Blocker;
use crate::classify::{classify_input, secret_problem};
use crate::error::Error;
use crate::handle::{Longhaul, check_len};
use crate::run_env::RunEnv;
use crate::run_session::fold;
use crate::services::release_external_tools;

/// So long may a note be, and the data that come with an answer.
const NOTE_BYTES_MAX: usize = 64 * 1024;
const PAYLOAD_BYTES_MAX: usize = 1024 * 1024;

/// So long is waited for the tools of a run whose edit is checked.
const CHECK_TIMEOUT: Millis = Millis::from_secs(20);

/// What became of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateAnswerOutcome {
    /// The gate is closed by it, at this place of the journal.
    Closed(Seq),
    /// It counts, and others must agree.
    Voted(Seq),
}

impl Longhaul {
    /// Gates, newest first.
    pub async fn gates(&self, ask: GateFilter) -> Result<Vec<GateRow>, Error> {
        Ok(self.services.store.list_gates(ask).await?)
    }

    /// One gate.
    pub async fn gate(&self, gate: GateId) -> Result<GateRow, Error> {
        let ask = GateFilter { gate: Some(gate), limit: 1, ..GateFilter::default() };
        let found = self.services.store.list_gates(ask).await?;
        found.into_iter().next().ok_or(Error::GateNotFound(gate))
    }

    /// Answers a gate. The first valid answer wins.
    pub async fn answer(&self, gate: GateId, answer: Answer) -> Result<GateAnswerOutcome, Error> {
        let note = answer.note.as_deref().map_or(0, str::len);
        let payload = answer.payload.as_ref().map_or(0, |json| json.as_str().len());
        check_len("the note", note, NOTE_BYTES_MAX)?;
        check_len("the payload", payload, PAYLOAD_BYTES_MAX)?;
        let held = match &answer.decision {
            Decision::Edit(edited) => self.redaction().secret_in_json(edited),
            Decision::Approve | Decision::Reject | Decision::Complete | Decision::Answer(_) => None,
        };
        let answer = self.redact_answer(answer);
        let row = self.gate(gate).await?;
        let run = row.run;
        // Whoever comes late hears that, and not what else is wrong.
        if let (GateStatus::Open, GateKind::Approval, Decision::Edit(edited)) =
            (row.status, &row.spec.kind, &answer.decision)
        {
            if let Some(secret) = held {
                return Err(Rejection::InvalidTask(secret_problem(&secret)).into());
            }
            self.check_edit(&row, edited).await?;
        }
        let now = self.services.records.now().await?;
        let stands = self.services.store.get_run(run).await?.ok_or(Error::RunNotFound(run))?;
        let view = RunSnapshot { run, status: stands.status };
        let word = RunCommand::Answer { gate: Box::new(row), answer };
        let batch = decide_command(&view, word, DecideContext::new(now))?;
        let counts = batch.events.iter().any(|event| event.kind() == "gate.voted");
        match self.append(run, batch).await? {
            Ok(seq) if counts => Ok(GateAnswerOutcome::Voted(seq)),
            Ok(seq) => Ok(GateAnswerOutcome::Closed(seq)),
            Err(Refused::GateClosed(status, by)) => Err(match status {
                GateStatus::Expired => Rejection::GateExpired(gate),
                GateStatus::Open | GateStatus::Answered | GateStatus::Withdrawn => {
                    let by = by.map(|given| (given.answer.by, given.at));
                    Rejection::GateClosed { gate, status, by }
                }
            }
            .into()),
            Err(Refused::GateNotFound) => Err(Error::GateNotFound(gate)),
            Err(_) => Err(Error::Contention(run)),
        }
    }

    /// What became of an answer that stands at this place of the journal.
    pub async fn answer_outcome_at(
        &self,
        run: RunId,
        seq: Seq,
    ) -> Result<GateAnswerOutcome, Error> {
        let before = Seq(seq.0.saturating_sub(1));
        let found = self.events(run, before, 1).await?;
        Ok(match found.first().map(|entry| entry.event.kind()) {
            Some("gate.voted") => GateAnswerOutcome::Voted(seq),
            Some(_) | None => GateAnswerOutcome::Closed(seq),
        })
    }

    /// Holds an edit to the tool's schema and to the rules that deny.
    async fn check_edit(&self, gate: &GateRow, edited: &RawJson) -> Result<(), Error> {
        let (run, _) = fold(&self.services, gate.run).await?;
        let bad = |why: String| Error::from(Rejection::InvalidTask(why));
        let looks = Epoch::default();
        let clock = &self.services.clock;
        let opened = tokio::select! {
            biased;
            opened = RunEnv::load(&self.services, &run, looks) => opened,
            () = clock.sleep(CHECK_TIMEOUT) => Ok(Err(Blocker::from(format!(
                "an edit can't be checked now: the tools of the run were not there after {} s",
                CHECK_TIMEOUT.0 / 1_000
            )))),
        };
        // Whoever drives it has servers of its own.
        let stay = ClaimId { run: run.id(), epoch: looks };
        release_external_tools(&self.services, stay).await;
        let capsule = opened?.map_err(|lack| bad(lack.message))?;
        let name = gate.spec.tool.clone().unwrap_or_default();
        let Some(equipped) = capsule.tool(&name) else {
            return Err(bad(format!("an edit of `{name}` can't be checked here")));
        };
        let appraisal = classify_input(&capsule, &run, equipped, edited).await;
        if let Some(problem) = &appraisal.problem {
            return Err(bad(problem.clone()));
        }
        match denial_reason(&run.task().policy, &appraisal) {
            None => Ok(()),
            Some(why) => Err(bad(format!("a rule forbids this call: {why}"))),
        }
    }
}
