//! Answers at gates.
//!
//! Never: lets an edit pass that the model itself could not have called.

use longhaul_core::id::{Epoch, GateId, RunId, Seq};
use longhaul_core::policy::gate::{Answer, Decision, GateKind, GateRow, GateStatus};
use longhaul_core::port::store::{GatesAsk, Refused};
use longhaul_core::port::tool::Stay;
use longhaul_core::raw::RawJson;
use longhaul_core::time::Millis;
use longhaul_run::outside::{View, Word, tell};
use longhaul_run::{Moment, Refusal, denied};

use crate::appraise::{appraise_input, holds};
use crate::capsule::Capsule;
use crate::error::Error;
use crate::handle::{Longhaul, within};
use crate::lack::Lack;
use crate::ledger::fold;
use crate::ports::let_go;

/// So long may a note be, and the data that come with an answer.
const NOTE_BYTES_MAX: usize = 64 * 1024;
const PAYLOAD_BYTES_MAX: usize = 1024 * 1024;

/// So long is waited for the tools of a run whose edit is checked.
const CHECK_TIMEOUT: Millis = Millis::from_secs(20);

/// What became of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The gate is closed by it, at this place of the journal.
    Closed(Seq),
    /// It counts, and others must agree.
    Counted(Seq),
}

impl Longhaul {
    /// Gates, newest first.
    pub async fn gates(&self, ask: GatesAsk) -> Result<Vec<GateRow>, Error> {
        Ok(self.ports.store.gates(ask).await?)
    }

    /// One gate.
    pub async fn gate(&self, gate: GateId) -> Result<GateRow, Error> {
        let ask = GatesAsk {
            gate: Some(gate),
            limit: 1,
            ..GatesAsk::default()
        };
        let found = self.ports.store.gates(ask).await?;
        found.into_iter().next().ok_or(Error::NoGate(gate))
    }

    /// Answers a gate. The first valid answer wins.
    pub async fn answer(&self, gate: GateId, answer: Answer) -> Result<Verdict, Error> {
        let note = answer.note.as_deref().map_or(0, str::len);
        let payload = answer
            .payload
            .as_ref()
            .map_or(0, |json| json.as_str().len());
        within("the note", note, NOTE_BYTES_MAX)?;
        within("the payload", payload, PAYLOAD_BYTES_MAX)?;
        let held = match &answer.decision {
            Decision::Edit(edited) => self.cleaner().held_in(edited),
            Decision::Approve | Decision::Reject | Decision::Complete | Decision::Answer(_) => None,
        };
        let answer = self.clean_answer(answer);
        let row = self.gate(gate).await?;
        let run = row.run;
        // Whoever comes late hears that, and not what else is wrong.
        if let (GateStatus::Open, GateKind::Approval, Decision::Edit(edited)) =
            (row.status, &row.spec.kind, &answer.decision)
        {
            if let Some(secret) = held {
                return Err(Refusal::BadTask(holds(&secret)).into());
            }
            self.check_edit(&row, edited).await?;
        }
        let now = self.ports.shelves.now().await?;
        let stands = self.ports.store.row(run).await?.ok_or(Error::NoRun(run))?;
        let view = View {
            run,
            status: stands.status,
        };
        let word = Word::Answer {
            gate: Box::new(row),
            answer,
        };
        let batch = tell(&view, word, Moment::at(now))?;
        let counts = batch
            .events
            .iter()
            .any(|event| event.kind() == "gate.voted");
        match self.append(run, batch).await? {
            Ok(seq) if counts => Ok(Verdict::Counted(seq)),
            Ok(seq) => Ok(Verdict::Closed(seq)),
            Err(Refused::GateClosed(status, by)) => Err(match status {
                GateStatus::Expired => Refusal::GateExpired(gate),
                GateStatus::Open | GateStatus::Answered | GateStatus::Withdrawn => {
                    let by = by.map(|given| (given.answer.by, given.at));
                    Refusal::GateClosed { gate, status, by }
                }
            }
            .into()),
            Err(Refused::NoGate) => Err(Error::NoGate(gate)),
            Err(_) => Err(Error::Crowded(run)),
        }
    }

    /// What became of an answer that stands at this place of the journal.
    pub async fn verdict_at(&self, run: RunId, seq: Seq) -> Result<Verdict, Error> {
        let before = Seq(seq.0.saturating_sub(1));
        let found = self.events(run, before, 1).await?;
        Ok(match found.first().map(|entry| entry.event.kind()) {
            Some("gate.voted") => Verdict::Counted(seq),
            Some(_) | None => Verdict::Closed(seq),
        })
    }

    /// Holds an edit to the tool's schema and to the rules that deny.
    async fn check_edit(&self, gate: &GateRow, edited: &RawJson) -> Result<(), Error> {
        let (run, _) = fold(&self.ports, gate.run).await?;
        let bad = |why: String| Error::from(Refusal::BadTask(why));
        let looks = Epoch::default();
        let clock = &self.ports.clock;
        let opened = tokio::select! {
            biased;
            opened = Capsule::open(&self.ports, &run, looks) => opened,
            () = clock.sleep(CHECK_TIMEOUT) => Ok(Err(Lack::from(format!(
                "an edit can't be checked now: the tools of the run were not there after {} s",
                CHECK_TIMEOUT.0 / 1_000
            )))),
        };
        // Whoever drives it has servers of its own.
        let stay = Stay {
            run: run.id(),
            epoch: looks,
        };
        let_go(&self.ports, stay).await;
        let capsule = opened?.map_err(|lack| bad(lack.sentence))?;
        let name = gate.spec.tool.clone().unwrap_or_default();
        let Some(equipped) = capsule.tool(&name) else {
            return Err(bad(format!("an edit of `{name}` can't be checked here")));
        };
        let appraisal = appraise_input(&capsule, &run, equipped, edited).await;
        if let Some(problem) = &appraisal.problem {
            return Err(bad(problem.clone()));
        }
        match denied(&run.task().policy, &appraisal) {
            None => Ok(()),
            Some(why) => Err(bad(format!("a rule forbids this call: {why}"))),
        }
    }
}
