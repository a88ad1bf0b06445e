//! Forks runs: creates runs that go on from a turn of another run.

use std::sync::Arc;

use longhaul_api::fork::{EditedResult, ForkBody, ForkEditBody};
use longhaul_api::task::Task;
use longhaul_core::change::{Blob, NewRun};
use longhaul_core::id::RunId;
use longhaul_core::policy::RunPolicy;
use longhaul_core::policy::budget::{Budget, BudgetPatch};
use longhaul_core::port::store::{CreateRunsRequest, IdempotencyRecord};
use longhaul_core::raw::{Hash, RawJson};
use longhaul_run::Run;
use longhaul_run::fork::{ForkAgent, ForkPoint, ForkRequest, RequestedEdit, fork_run};

use crate::agent::Agent;
use crate::drive::run_env::load_run_agent;
use crate::error::{Error, Result, invalid_task};
use crate::handle::submit::IDEMPOTENCY_TTL;
use crate::handle::{Longhaul, SubmitOutcome, UnpricedModel, check_text_len};
use crate::replay::{replay_journal, replay_run_state};

/// Maximum length of the note of a fork, in bytes.
const NOTE_BYTES_MAX: usize = 4 * 1024;

/// Maximum length of the name of a model, in bytes.
const MODEL_BYTES_MAX: usize = 256;

impl Longhaul {
    /// Creates a run that goes on from the start of a turn of `run`. Nothing before it is repeated
    /// or paid again, and both runs draw on one budget. With an idempotency key, a second call
    /// returns the run of the first one.
    ///
    /// # Errors
    /// The run or the event does not exist, the files of the run's sandbox are not kept, the edit
    /// fits nothing in the conversation, or the agent does not exist.
    pub async fn fork(
        &self,
        run: RunId,
        fork: ForkBody,
        by: &str,
        idempotency_key: Option<String>,
    ) -> Result<SubmitOutcome> {
        check_text_len("the note", fork.note.len(), NOTE_BYTES_MAX)?;
        check_text_len("the model", fork.model.as_ref().map_or(0, String::len), MODEL_BYTES_MAX)?;
        let by = self.redact(by);
        let idempotency = idempotency_key.map(|key| IdempotencyRecord {
            principal: by.clone(),
            key,
            body_hash: Hash::digest(RawJson::from_serialize(&(run, &fork)).as_str().as_bytes()),
            ttl: Some(IDEMPOTENCY_TTL),
        });
        let mut point = ForkPoint::before(fork.before);
        let (origin, _) = replay_journal(&self.services, run, None, |run, entry| {
            point.update_from_entry(run, entry);
            run.apply(entry)
        })
        .await?;
        let agent = fork.agent.as_ref().map(|name| self.agent_of_fork(name)).transpose()?;
        let definition = match &agent {
            Some(agent) => Some(self.checked_definition(agent)?),
            None => {
                let stored = self.services.records.agent_definition(origin.task().definition);
                stored.await?.map(Blob::new)
            }
        };
        let request = self.fork_request(&origin, fork, agent.zip(definition.clone())).await?;
        let new = fork_run(self.new_run_id(), &origin, point, ForkRequest { by, ..request })?;
        let new = NewRun { lane_depth_max: self.services.agents.defaults.lane_depth_max, ..new };
        let blobs = definition.into_iter().collect();
        self.create_runs(CreateRunsRequest { runs: vec![new], blobs, idempotency }).await
    }

    /// Returns the request for a fork, with the policy and the budget account of the origin. `agent`
    /// is the agent that replaces that of the origin, with its definition.
    async fn fork_request(
        &self,
        origin: &Run,
        fork: ForkBody,
        agent: Option<(Arc<Agent>, Blob)>,
    ) -> Result<ForkRequest> {
        let task = origin.task();
        if fork.model.is_some() && agent.is_none() {
            let pinned = load_run_agent(&self.services, origin).await?;
            refuse_handler(&*pinned.or_else(invalid_task)?)?;
        }
        let root_task = match task.root == origin.id() {
            true => task.clone(),
            false => replay_run_state(&self.services, task.root).await?.0.task().clone(),
        };
        let account = self.services.records.budget_account(task.root).await?.unwrap_or_default();
        let (micro_usd, tokens) = (account.cap_micro_usd, account.cap_tokens);
        let budget = Budget { micro_usd, tokens, ..origin.control().budget.caps };
        let policy = match &agent {
            None => task.policy.clone(),
            Some((agent, _)) => {
                agent.run_policy(&self.services.agents.defaults, BudgetPatch::default())
            }
        };
        let edit = fork.edit.map(|edit| match edit {
            ForkEditBody::Message(text) => RequestedEdit::Message(self.redact(text)),
            ForkEditBody::Result(EditedResult { call, text }) => {
                RequestedEdit::Result { call, text: self.redact(text) }
            }
        });
        Ok(ForkRequest {
            by: String::new(),
            model: fork.model,
            agent: agent.map(|(agent, definition)| ForkAgent {
                name: agent.name.clone(),
                definition: definition.hash(),
                has_tools: !agent.tools.is_empty(),
            }),
            edit,
            fresh_files: fork.fresh_files,
            writes_thread: fork.thread,
            note: self.redact(fork.note),
            policy: RunPolicy { budget, ..policy },
            account: root_task.earlier_account().unwrap_or(root_task.root),
        })
    }

    fn agent_of_fork(&self, name: &str) -> Result<Arc<Agent>> {
        let agent = self
            .get_agent(name)
            .map_err(|suggestion| Error::AgentNotFound { name: name.to_owned(), suggestion })?;
        refuse_handler(&agent)?;
        Ok(agent)
    }

    fn checked_definition(&self, agent: &Agent) -> Result<Blob> {
        let definition = agent.definition_blob();
        self.check_no_secret_in_agent(agent, &definition.content)?;
        Ok(definition)
    }

    /// Returns a model of a fork that has no price although a limit in dollars applies.
    pub async fn unpriced_model_of_fork(
        &self,
        run: RunId,
        fork: &ForkBody,
        by: &str,
    ) -> Result<Option<UnpricedModel>> {
        let (origin, _) = replay_run_state(&self.services, run).await?;
        let agent = match &fork.agent {
            Some(name) => self.agent_of_fork(name)?,
            None => match load_run_agent(&self.services, &origin).await? {
                Ok(agent) => agent,
                Err(_) => return Ok(None),
            },
        };
        let own_model = origin.task().model.clone().filter(|_| fork.agent.is_none());
        let mut task = Task {
            model: fork.model.clone().or(own_model),
            submitter: Some(by.to_owned()),
            actor: origin.task().actor.clone(),
            ..Task::new(agent.name.as_str(), RawJson::null())
        };
        let own = agent.run_policy(&self.services.agents.defaults, BudgetPatch::default()).budget;
        let cap = origin.control().budget.caps.micro_usd;
        task.budget.caps.micro_usd = cap.filter(|cap| own.micro_usd != Some(*cap));
        Ok(self.unpriced_model(&[agent], &task))
    }
}

/// Refuses a fork with another agent or model if the agent is a function of a program.
fn refuse_handler(agent: &Agent) -> Result<()> {
    match agent.fixed_model {
        false => Ok(()),
        true => invalid_task(format!(
            "the agent `{}` is called as a function by a program: it accepts no model, and no \
             conversation of another agent",
            agent.name
        )),
    }
}
