//! Tasks become runs, all of them or none, once however often they are sent.
//!
//! Never: acknowledges what is not on disk.

use longhaul_core::change::{Blob, NewRun};
use longhaul_core::id::{InboxName, LaneKey, RunId};
use longhaul_core::port::store::{Idempotency, OpenOutcome, OpenRequest};
use longhaul_core::raw::{Hash, canonical_json};
use longhaul_core::task::TaskSpec;
use longhaul_core::time::Millis;
use longhaul_run::Rejection;
use longhaul_run::submit::submit;

use crate::agent::{Agent, BudgetPatch};
use crate::error::Error;
use crate::event_text;
use crate::handle::{Longhaul, check_len};
use crate::task::Task;
use crate::template;
use crate::view::created_run_view;
use longhaul_api::run::RunView;

/// Where a task queues that names no inbox.
const DEFAULT_INBOX: &str = "default";

/// How long an idempotency key is remembered.
const IDEMPOTENCY_TTL: Millis = Millis::from_secs(24 * 60 * 60);

/// So long may a task's type be, and whatever else comes with it.
const KIND_BYTES_MAX: usize = 256;
const EXTRA_BYTES_MAX: usize = 256 * 1024;

/// So many tasks are submitted at once.
const TASKS_MAX: usize = 1_000;

/// What a submit gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubmitOutcome {
    /// These runs are new.
    Created(Vec<RunId>),
    /// The same request made these before.
    Existing(Vec<RunId>),
}

impl SubmitOutcome {
    /// The runs, new or not.
    pub fn runs(&self) -> &[RunId] {
        match self {
            Self::Created(runs) | Self::Existing(runs) => runs,
        }
    }
}

impl Longhaul {
    /// Submits a task.
    pub async fn submit(&self, task: Task) -> Result<RunId, Error> {
        let submitted = self.submit_all(vec![task]).await?;
        let first = submitted.runs().first().copied();
        first.ok_or_else(|| Rejection::Empty("a submit").into())
    }

    /// Submits tasks: all of them or none. The key of the first stands for all.
    pub async fn submit_all(&self, tasks: Vec<Task>) -> Result<SubmitOutcome, Error> {
        if tasks.is_empty() || tasks.len() > TASKS_MAX {
            let why = format!("1 to {TASKS_MAX} tasks are submitted at once");
            return Err(Rejection::InvalidTask(why).into());
        }
        let idempotency = self.idempotency(&tasks);
        let mut runs = Vec::new();
        let mut blobs: Vec<Blob> = Vec::new();
        for task in tasks {
            let (run, definition) = self.prepare(task)?;
            if !blobs.iter().any(|known| known.blob_ref == definition.blob_ref) {
                blobs.push(definition);
            }
            runs.push(run);
        }
        self.open_runs(OpenRequest { runs, blobs, idempotency }).await
    }

    /// Submits a task and shows its run. A new run that can't be read now is shown as
    /// it was created: it stands, whatever the reading met.
    pub async fn submit_and_show(&self, task: Task) -> Result<RunView, Error> {
        let idempotency = self.idempotency(std::slice::from_ref(&task));
        let (new, definition) = self.prepare(task)?;
        let submitted = self
            .open_runs(OpenRequest {
                runs: vec![new.clone()],
                blobs: vec![definition],
                idempotency,
            })
            .await?;
        let run = submitted.runs().first().copied().unwrap_or(new.id);
        match (self.show(run).await, submitted) {
            (Ok(view), _) => Ok(view),
            (Err(error), SubmitOutcome::Existing(_)) => Err(error),
            (Err(error), SubmitOutcome::Created(_)) => {
                tracing::warn!(%run, %error, "a run was opened, but could not be read");
                created_run_view(&new, self.services.clock.now())
            }
        }
    }

    async fn open_runs(&self, ask: OpenRequest) -> Result<SubmitOutcome, Error> {
        let submitted = match self.services.store.open_runs(ask).await? {
            OpenOutcome::Created(runs) => SubmitOutcome::Created(runs),
            OpenOutcome::Existing(runs) => SubmitOutcome::Existing(runs),
            OpenOutcome::KeyReused => return Err(Error::IdempotencyKeyReused),
            OpenOutcome::LaneFull(lane) => return Err(Error::LaneFull(lane)),
        };
        self.services.notifier.work_available();
        Ok(submitted)
    }

    /// Whether these caps allow more than the agent's own do.
    pub fn exceeds_budget(&self, agent: &Agent, asked: BudgetPatch) -> bool {
        let own = agent.policy(&self.defaults, BudgetPatch::default()).budget;
        let caps = asked.caps;
        // An own cap that is none is above every other.
        let above = |asked: Option<u64>, own: Option<u64>| match (asked, own) {
            (Some(asked), Some(own)) => asked > own,
            (None, _) | (_, None) => false,
        };
        above(caps.micro_usd.map(|m| m.0), own.micro_usd.map(|m| m.0))
            || above(caps.tokens, own.tokens)
            || above(caps.turns.map(u64::from), own.turns.map(u64::from))
            || above(caps.active.map(|m| m.0), own.active.map(|m| m.0))
    }

    /// The run that a task would become, and its agent's definition.
    fn prepare(&self, task: Task) -> Result<(NewRun, Blob), Error> {
        check_sizes(&task)?;
        let task = self.redact_task(task)?;
        let agent = self
            .agent(&task.agent)
            .map_err(|like| Error::AgentNotFound { name: task.agent.clone(), suggestion: like })?;
        if agent.fixed_model && task.model.is_some() {
            let name = &agent.name;
            let why = format!("the agent `{name}` is a function of a program: it takes no model");
            return Err(Rejection::InvalidTask(why).into());
        }
        let definition = agent.definition();
        self.check_agent_secrets(&agent, &definition.content)?;
        let id = RunId::from_bits(self.services.ids.next_bits());
        let bad = |bad: longhaul_core::id::IdError| Rejection::InvalidTask(bad.to_string());
        let inbox = match task.inbox.clone() {
            Some(inbox) => inbox,
            None => InboxName::new(DEFAULT_INBOX).map_err(bad)?,
        };
        let lane = resolve_lane(&agent, &task)?;
        let mut policy = agent.policy(&self.defaults, task.budget);
        if event_text::is_event(&agent, task.kind.as_deref(), task.event) {
            policy.max_turns.get_or_insert(event_text::EVENT_TURNS_MAX);
        }
        let spec = TaskSpec {
            definition: definition.hash(),
            policy,
            event: task.event,
            context: task.context,
            history: task.history,
            model: task.model,
            kind: task.kind,
            priority: task.priority,
            lane,
            thread: task.thread,
            resource: task.resource,
            start: task.start,
            submitter: task.submitter,
            actor: task.actor,
            links: task.links,
            tags: task.tags,
            metadata: task.metadata,
            ..TaskSpec::new(id, agent.name.clone(), task.input, inbox)
        };
        Ok((submit(id, spec)?, definition))
    }

    /// The key under which these tasks count once.
    fn idempotency(&self, tasks: &[Task]) -> Option<Idempotency> {
        let first = tasks.first()?;
        // What is nested too deep for a value counts as it was written.
        let body = match serde_json::to_value(tasks) {
            Ok(body) => canonical_json(&body),
            Err(_) => serde_json::to_string(tasks).unwrap_or_default(),
        };
        Some(Idempotency {
            principal: self.redact(first.submitter.clone().unwrap_or_default()),
            key: first.idempotency_key.clone()?,
            body_hash: Hash::digest(body.as_bytes()),
            ttl: IDEMPOTENCY_TTL,
        })
    }
}

/// Holds what is only kept to a bound; what the model reads has its own.
fn check_sizes(task: &Task) -> Result<(), Error> {
    check_len("the type", task.kind.as_deref().map_or(0, str::len), KIND_BYTES_MAX)?;
    for (what, json) in
        [("the actor", &task.actor), ("the links", &task.links), ("the metadata", &task.metadata)]
    {
        let bytes = json.as_ref().map_or(0, |json| json.as_str().len());
        check_len(what, bytes, EXTRA_BYTES_MAX)?;
    }
    Ok(())
}

/// The lane that the caller names, or the agent's file.
fn resolve_lane(agent: &Agent, task: &Task) -> Result<Option<LaneKey>, Error> {
    let (None, Some(written)) = (&task.lane, &agent.lane) else {
        return Ok(task.lane.clone());
    };
    let wrong = |why: String| Error::Template {
        agent: agent.name.to_string(),
        what: "the lane",
        reason: why,
    };
    let values = template::template_values(&task.input, &task.context);
    let filled = template::render_template(written, &values).map_err(wrong)?;
    let lane = LaneKey::new(filled).map_err(|bad| wrong(bad.to_string()))?;
    Ok(Some(lane))
}
