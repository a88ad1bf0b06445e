//! Signal gates that a program opens for an event that it will report later. A run can't complete
//! while such a gate is open.

use longhaul_core::id::{GateId, RunId};
use longhaul_core::policy::gate::{GateKind, GateRow, GateSpec, GateTimeout, check_gate_tags};
use longhaul_core::port::store::{AppendRefusalReason, GateFilter};
use longhaul_run::commands::{RunCommand, decide_command};
use longhaul_run::{DecisionContext, Rejection};

use crate::error::{Error, Result};
use crate::handle::submit::check_idempotency_key;
use crate::handle::{Longhaul, check_text_len};

/// Maximum length in bytes of the text that says what a gate waits for.
const ASK_BYTES_MAX: usize = 8_000;
/// Maximum number of open signal gates of a run that programs have opened. Gates at which a tool
/// call waits for a signal are not counted.
const SIGNAL_GATES_MAX: usize = 64;

/// Request to open a gate that a program will complete later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSignalGate {
    /// Run that can't complete while the gate is open. It can still fail or be cancelled.
    pub run: RunId,
    /// What the run waits for, as a sentence.
    pub ask: String,
    /// Tags of the gate, for searching.
    pub tags: Vec<String>,
    /// Key that identifies the gate within its run: a second request with the same key returns the
    /// existing gate, or an error if its content differs. `None` means that every request opens a
    /// new gate.
    pub idempotency_key: Option<String>,
    /// Time within which the gate must be answered.
    pub timeout: GateTimeout,
    /// Principal that opens the gate. The model reads its text, so it counts as a submitter.
    pub by: String,
}

impl Longhaul {
    /// Opens a gate for an event that a program will report. Returns the gate, and `true` if it is
    /// new: a second request with the same key returns the existing gate.
    pub async fn raise_signal_gate(&self, mut new: NewSignalGate) -> Result<(GateRow, bool)> {
        self.check_new_signal_gate(&new)?;
        // Redacted first, so that a repeated request is compared with what was stored.
        new.ask = self.redact(new.ask);
        let run = self.run_row(new.run).await?;
        let id = match &new.idempotency_key {
            // The id is derived from the key, so the store refuses a second gate.
            Some(key) => GateId::derive(new.run.bits(), &format!("key:{key}"), run.created_at),
            None => GateId::from_bits(self.services.ids.next_id_bits()),
        };
        if let Some(gate) = self.find_gate(id).await? {
            return gate_if_same_request(gate, &new).map(|gate| (gate, false));
        }
        self.check_signal_gate_count(new.run).await?;
        let spec = GateSpec {
            tags: new.tags.clone(),
            idempotency_key: new.idempotency_key.clone(),
            timeout: new.timeout.duration(),
            earlier_submitters: vec![self.redact(new.by.as_str())],
            ..GateSpec::new(id, GateKind::Signal, new.ask.as_str())
        };
        let command = RunCommand::RaiseSignalGate(Box::new(spec));
        let ctx = DecisionContext::new(self.store_time().await?);
        let batch = decide_command(new.run, run.status, command, ctx)?;
        match self.append_as_outsider(new.run, batch).await? {
            Ok(_) => Ok((self.get_gate(id).await?, true)),
            Err(AppendRefusalReason::GateExists) => {
                gate_if_same_request(self.get_gate(id).await?, &new).map(|gate| (gate, false))
            }
            Err(_) => Err(Error::Contention(new.run)),
        }
    }

    fn check_new_signal_gate(&self, new: &NewSignalGate) -> Result<()> {
        if new.ask.trim().is_empty() {
            return Err(Rejection::Empty("`ask`").into());
        }
        check_text_len("`ask`", new.ask.len(), ASK_BYTES_MAX)?;
        if let Some(key) = &new.idempotency_key {
            check_idempotency_key(key)?;
            self.check_no_secret_in_name("the idempotency key", key)?;
        }
        check_gate_tags(&new.tags).map_err(Rejection::InvalidTask)?;
        let mut tags = new.tags.iter();
        tags.try_for_each(|tag| self.check_no_secret_in_name("a tag", tag))
    }

    async fn check_signal_gate_count(&self, run: RunId) -> Result<()> {
        let filter = GateFilter::open(Some(run), 2 * SIGNAL_GATES_MAX);
        let open = self.services.store.list_gates(filter).await?;
        let signals =
            open.iter().filter(|gate| gate.spec.is_signal_gate_without_tool_call()).count();
        match signals < SIGNAL_GATES_MAX {
            true => Ok(()),
            false => {
                let reason = format!("the run waits for {SIGNAL_GATES_MAX} signals, the maximum");
                Err(Rejection::InvalidTask(reason).into())
            }
        }
    }

    async fn find_gate(&self, gate: GateId) -> Result<Option<GateRow>> {
        match self.get_gate(gate).await {
            Ok(row) => Ok(Some(row)),
            Err(Error::GateNotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Returns the existing gate if the request that opened it had the same content as `new`. Otherwise
/// returns the error that the idempotency key was used for another request.
fn gate_if_same_request(gate: GateRow, new: &NewSignalGate) -> Result<GateRow> {
    let spec = &gate.spec;
    let is_same =
        spec.ask == new.ask && spec.tags == new.tags && spec.timeout == new.timeout.duration();
    if is_same { Ok(gate) } else { Err(Error::IdempotencyKeyReused) }
}
