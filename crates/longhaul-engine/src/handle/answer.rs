//! Lists and answers gates: questions and approvals that wait for a person.
//!
//! Invariant: an input or result that a person edited passes the same checks as one of the model.
//!
//! A program opens a signal gate for an event that it will report later. A run can't complete while
//! such a gate is open.

use longhaul_core::access::key_name_of_principal;
use longhaul_core::change::LateToolResult;
use longhaul_core::event::turn::OutputCheckResult;
use longhaul_core::id::{AgentName, Epoch, GateId, RunId, Seq};
use longhaul_core::output_reference::{OUTPUT_MEMBER, OutputReference};
use longhaul_core::policy::effect_key::EffectKeyHolder;
use longhaul_core::policy::gate::{
    Answer, GateDecision, GateKind, GateRow, GateSpec, GateStatus, GateTimeout, RecordedAnswer,
    check_gate_tags,
};
use longhaul_core::policy::rule::RULES_MAX;
use longhaul_core::port::store::{AppendRefusalReason, GateFilter};
use longhaul_core::port::tool::RunClaimId;
use longhaul_core::raw::RawJson;
use longhaul_core::time::Millis;
use longhaul_run::commands::{RunCommand, decide_command, remembered_scope};
use longhaul_run::{DecisionContext, Rejection, Run, edit_refusal_reason, output_from_human_edit};

use crate::drive::classify::{classify_input, secret_in_input_message};
use crate::drive::run_env::{RunBlocker, RunEnv, compile_output_schema, load_run_agent};
use crate::error::{Error, Result, invalid_task};
use crate::handle::submit::check_idempotency_key;
use crate::handle::{Longhaul, check_text_len};
use crate::replay::{replay_run, replay_run_state};
use crate::services::release_external_tools;

/// Maximum length in bytes of the note in an answer to a gate.
const NOTE_BYTES_MAX: usize = 64 * 1024;
/// Maximum length in bytes of the payload in an answer to a gate.
const PAYLOAD_BYTES_MAX: usize = 1024 * 1024;

/// Maximum number of attempts to record an answer to a gate while other answers are recorded.
const ATTEMPTS_MAX: usize = 32;

/// Maximum time to wait until the tools of a run are loaded, in order to check an edited input.
const CHECK_TIMEOUT: Millis = Millis::from_secs(20);

/// Whether an answer closed its gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateAnswerOutcome {
    /// The answer closed the gate. The value is the sequence number of the answer's event in the
    /// journal.
    Closed(Seq),
    /// The vote was recorded, but more approvers must agree. The value is the sequence number of
    /// the vote's event in the journal.
    Voted(Seq),
}

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
    /// Lists the gates that match the filter, newest first. An open gate whose deadline has passed
    /// is returned with the status `Expired`, even if the filter selects open gates.
    pub async fn list_gates(&self, filter: GateFilter) -> Result<Vec<GateRow>> {
        let mut gates = self.services.store.list_gates(filter).await?;
        if gates.iter().any(|gate| gate.status == GateStatus::Open && gate.deadline.is_some()) {
            let now = self.store_time().await?;
            for gate in gates.iter_mut().filter(|gate| gate.is_overdue(now)) {
                gate.status = GateStatus::Expired;
            }
        }
        Ok(gates)
    }

    /// Returns the gate with this id. An open gate whose deadline has passed is returned with the
    /// status `Expired`.
    pub async fn get_gate(&self, gate: GateId) -> Result<GateRow> {
        self.find_gate(gate).await?.ok_or(Error::GateNotFound(gate))
    }

    pub(super) async fn find_gate(&self, gate: GateId) -> Result<Option<GateRow>> {
        let filter = GateFilter { gate: Some(gate), limit: 1, ..GateFilter::default() };
        Ok(self.list_gates(filter).await?.pop())
    }

    /// Answers a gate. If several people answer, the first valid answer wins.
    pub async fn answer_gate(&self, gate: GateId, answer: Answer) -> Result<GateAnswerOutcome> {
        let note = answer.note.as_deref().map_or(0, str::len);
        let payload = answer.payload.as_ref().map_or(0, |json| json.as_str().len());
        check_text_len("the note", note, NOTE_BYTES_MAX)?;
        check_text_len("the payload", payload, PAYLOAD_BYTES_MAX)?;
        match &answer.decision {
            GateDecision::Answer(text) => {
                check_text_len("the answer", text.len(), PAYLOAD_BYTES_MAX)?;
            }
            GateDecision::Edit(edited) => {
                check_text_len("the edit", edited.as_str().len(), PAYLOAD_BYTES_MAX)?;
            }
            GateDecision::Approve | GateDecision::Reject | GateDecision::Complete => {}
        }
        let edited = answer.decision.edit();
        let secret_name = edited.and_then(|edited| self.redaction().secret_name_in_json(edited));
        let answer = self.redact_answer(answer);
        for _ in 0..ATTEMPTS_MAX {
            let outcome = self.try_answer_gate(gate, answer.clone(), secret_name.clone()).await?;
            if let Some(outcome) = outcome {
                return Ok(outcome);
            }
        }
        Err(Error::Contention(self.get_gate(gate).await?.run))
    }

    /// Tries once to answer a gate. `secret` is the name of a secret in the edited input, if there
    /// is one. Returns `None` if another answer was recorded meanwhile and the caller has to try
    /// again.
    async fn try_answer_gate(
        &self,
        gate: GateId,
        answer: Answer,
        secret: Option<String>,
    ) -> Result<Option<GateAnswerOutcome>> {
        let mut row = self.get_gate(gate).await?;
        let run = row.run;
        // A late answer is rejected as late, whatever else is wrong with it.
        if let (GateStatus::Open, Some(edited)) = (row.status, answer.decision.edit()) {
            match (&row.spec.kind, secret) {
                (GateKind::Approval, Some(secret)) => {
                    return invalid_task(secret_in_input_message(&secret));
                }
                (GateKind::Approval, None) => self.check_edited_call_input(&row, edited).await?,
                (GateKind::Result, _) => self.check_edited_result(&row, edited).await?,
                (
                    GateKind::Question | GateKind::Blocked | GateKind::InDoubt | GateKind::Signal,
                    _,
                ) => {}
            }
        }
        let now = self.services.records.now().await?;
        let run_row = self.services.store.get_run(run).await?.ok_or(Error::RunNotFound(run))?;
        let agent = run_row.agent;
        let has_rule = self.rule_exists(&row, &answer, agent.clone()).await?;
        let revoked_votes = self.revoked_votes(&row).await?;
        if row.status == GateStatus::Open && row.spec.approvers.not_submitter {
            row.spec.earlier_submitters = self.current_submitters(run).await?;
        }
        let command = RunCommand::Answer { gate: Box::new(row), answer, agent, has_rule };
        let ctx = DecisionContext { revoked_votes, ..DecisionContext::new(now) };
        let batch = decide_command(run, run_row.status, command, ctx)?;
        let counts = batch.events.iter().any(|event| event.kind() == "gate.voted");
        match self.append_as_outsider(run, batch).await? {
            Ok(seq) if counts => Ok(Some(GateAnswerOutcome::Voted(seq))),
            Ok(seq) => Ok(Some(GateAnswerOutcome::Closed(seq))),
            Err(AppendRefusalReason::GateAnswersChanged | AppendRefusalReason::RuleExists) => {
                Ok(None)
            }
            Err(AppendRefusalReason::RulesFull) => Err(Rejection::RulesFull(RULES_MAX).into()),
            Err(AppendRefusalReason::GateClosed(status, by)) => Err(match status {
                GateStatus::Expired => Rejection::GateExpired(gate),
                GateStatus::Open | GateStatus::Answered | GateStatus::Withdrawn => {
                    let by = by.map(|recorded| (recorded.answer.by, recorded.at));
                    Rejection::GateClosed { gate, status, by }
                }
            }
            .into()),
            Err(AppendRefusalReason::GateNotFound) => Err(Error::GateNotFound(gate)),
            Err(_) => Err(Error::Contention(run)),
        }
    }

    /// Frees the effect key of a call whose outcome is unknown, so that another call with the key is
    /// made, and returns what is recorded about it. Like the rejection of the question about a call
    /// in doubt, it makes no call: the next call needs the approvals of its own rule.
    pub async fn free_effect_key(
        &self,
        holder: EffectKeyHolder,
        note: &str,
        by: &str,
    ) -> Result<LateToolResult, Error> {
        check_text_len("the note", note.len(), NOTE_BYTES_MAX)?;
        let now = self.store_time().await?;
        let note = if note.is_empty() { String::new() } else { format!(": {note}") };
        let text = self.redact(format!("effect key freed by {by} at {now}{note}"));
        let freed = LateToolResult { call: holder.call, text };
        match self.services.records.free_effect_key(holder.run, freed.clone()).await? {
            true => Ok(freed),
            false => Err(Error::KeyNotInDoubt(holder)),
        }
    }

    /// Returns the principals that have added work to a run up to now, also while its gate was
    /// open, or to a run above it, which may have passed it on.
    async fn current_submitters(&self, run: RunId) -> Result<Vec<String>> {
        let (mut names, mut next) = (Vec::new(), Some(run));
        while let Some(id) = next {
            let folded = match replay_run_state(&self.services, id).await {
                Ok((folded, _)) => folded,
                Err(Error::RunNotFound(_)) if id != run => break,
                Err(error) => return Err(error),
            };
            names.extend(folded.submitters().names_except(None));
            next = folded.task().parent;
        }
        Ok(names)
    }

    /// Returns the indices of the votes on a gate whose keys were revoked since.
    async fn revoked_votes(&self, gate: &GateRow) -> Result<Vec<usize>> {
        if gate.answers.is_empty() || gate.spec.approvers.count <= 1 {
            return Ok(Vec::new());
        }
        let keys = self.services.auth.list_api_keys().await?;
        // A name can be used again after its key was revoked: the vote is of the newest older key.
        let is_revoked = |vote: &RecordedAnswer| {
            let name = key_name_of_principal(&vote.answer.by);
            let mut keys = keys.iter().rev().filter(|key| Some(key.name.as_str()) == name);
            let key = keys.find(|key| key.created_at <= vote.at);
            key.is_some_and(|key| key.revoked_at.is_some())
        };
        let votes = gate.answers.iter().enumerate();
        Ok(votes.filter(|(_, vote)| is_revoked(vote)).map(|(index, _)| index).collect())
    }

    /// Returns whether the remembered approval (rule by which later calls are approved) that this
    /// answer would add already exists and is active.
    async fn rule_exists(&self, gate: &GateRow, answer: &Answer, agent: AgentName) -> Result<bool> {
        let (Some(scope), Some(pattern)) =
            (remembered_scope(gate, answer, agent), gate.spec.pattern.clone())
        else {
            return Ok(false);
        };
        let active =
            self.services.records.active_remembered_approvals(vec![scope], vec![pattern]).await?;
        Ok(!active.is_empty())
    }

    /// Returns whether the answer that the run's journal contains at this sequence number closed
    /// its gate.
    pub async fn recorded_answer_outcome(&self, run: RunId, seq: Seq) -> Result<GateAnswerOutcome> {
        let before = Seq(seq.0.saturating_sub(1));
        let found = self.read_run_journal(run, before, 1).await?;
        Ok(match found.first().map(|entry| entry.event.kind()) {
            Some("gate.voted") => GateAnswerOutcome::Voted(seq),
            Some(_) | None => GateAnswerOutcome::Closed(seq),
        })
    }

    /// Checks a tool input that a person edited against the tool's schema and the approval rules.
    async fn check_edited_call_input(&self, gate: &GateRow, edited: &RawJson) -> Result<()> {
        let (run, _) = replay_run(&self.services, gate.run).await?;
        let invalid = |reason: String| Error::from(Rejection::InvalidTask(reason));
        let env = self.load_dependencies_to_check_edit(&run).await?;
        let name = gate.spec.tool.clone().unwrap_or_default();
        let Some(tool) = env.tool(&name) else {
            return Err(invalid(format!(
                "an edit of `{name}` can't be checked: this process does not have the tool"
            )));
        };
        let classification = classify_input(&env, &run, tool, edited).await?;
        if let Some(problem) = &classification.problem {
            return Err(invalid(problem.clone()));
        }
        // The card describes and the digest covers only the references of the original input.
        let is_shown = |new: &OutputReference| {
            gate.spec.outputs.iter().any(|old| old.has_same_place_and_value(new))
        };
        if !classification.outputs.iter().all(is_shown) {
            return Err(invalid(format!(
                "an edit can't add or change a reference to an output: write the value itself instead \
                 of `{OUTPUT_MEMBER}`"
            )));
        }
        if run.effect_key_of_call(gate.spec.call) != classification.key.as_ref() {
            return Err(invalid(
                "the edit changes the effect key of the call: reject the call with a note that says \
                 what to do"
                    .to_owned(),
            ));
        }
        match edit_refusal_reason(run.control(), &classification, gate.spec.approvers) {
            None => Ok(()),
            Some(reason) => Err(invalid(reason)),
        }
    }

    /// Checks a result that a person edited against the output schema of the agent. Does not load
    /// the tools of the run.
    async fn check_edited_result(&self, gate: &GateRow, edited: &RawJson) -> Result<()> {
        let (run, _) = replay_run(&self.services, gate.run).await?;
        let agent = load_run_agent(&self.services, &run).await?;
        let agent = agent.map_err(Rejection::InvalidTask)?;
        let schema = compile_output_schema(&agent)
            .map_err(|blocker| Rejection::InvalidTask(blocker.message))?;
        let Some(schema) = schema else { return Ok(()) };
        let output = output_from_human_edit(edited);
        let text = output.data.as_ref().map_or(output.text.as_str(), RawJson::as_str);
        match schema.validate_answer(text, &*self.services.clock).await {
            OutputCheckResult::Valid(_) => Ok(()),
            OutputCheckResult::Invalid(reason) => {
                invalid_task(format!("the edited result is invalid: {reason}"))
            }
        }
    }

    /// Loads the agent and the tools of a run, to check an edit by a person.
    async fn load_dependencies_to_check_edit(&self, run: &Run) -> Result<RunEnv> {
        let epoch = Epoch::default();
        let clock = &self.services.clock;
        let loaded = tokio::select! {
            biased;
            loaded = RunEnv::load_for_run(&self.services, run, epoch) => loaded,
            () = clock.sleep(CHECK_TIMEOUT) => Ok(Err(RunBlocker::from(format!(
                "an edit can't be checked now: the tools of the run were not available after {} s",
                CHECK_TIMEOUT.0 / 1_000
            )))),
        };
        // The driver of the run has external tools of its own, so these can be released.
        let claim = RunClaimId { run: run.id(), epoch };
        release_external_tools(&self.services, claim).await;
        loaded?.map_err(|blocker| Rejection::InvalidTask(blocker.message).into())
    }

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
                invalid_task(format!("the run waits for {SIGNAL_GATES_MAX} signals, the maximum"))
            }
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
