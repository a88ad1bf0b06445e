//! Submits tasks as new runs: all tasks or none, and idempotently if the tasks have an idempotency
//! key.
//!
//! Invariant: a submit is not acknowledged before the runs are on disk.
//!
//! Batches are runs that are submitted together and execute in parallel or one after another.

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_api::run::RunView;
use longhaul_api::task::{BatchView, Task};
use longhaul_core::change::{Blob, NewRun};
use longhaul_core::id::{BatchId, IdError, InboxName, LaneKey, ResourceKey, RunId, ThreadKey};
use longhaul_core::policy::retry::{DEFAULT_HARD_TIMEOUT, DEFAULT_SOFT_TIMEOUT};
use longhaul_core::port::store::{
    BusyLane, CreateRunsOutcome, CreateRunsRequest, IdempotencyRecord,
};
use longhaul_core::raw::{Hash, RawJson, canonical_json};
use longhaul_core::task::{EarliestStart, RunBatchMode, RunBatchPosition, TaskSource, TaskSpec};
use longhaul_core::time::Millis;
use longhaul_run::Rejection;
use longhaul_run::submit::new_run_from_task;
use serde::Deserialize;
use serde_json::Value;

use crate::agent::Agent;
use crate::error::{Error, Result, invalid_task};
use crate::guard::template;
use crate::handle::{Longhaul, check_text_len};
use crate::prompt::event_text;
use crate::replay::replay_run_state;
use crate::view::created_run_view;

/// Inbox of tasks that do not name an inbox.
pub(super) const DEFAULT_INBOX: &str = "default";

/// How long the idempotency key of a submit is remembered.
pub(super) const IDEMPOTENCY_TTL: Millis = Millis::from_secs(24 * 60 * 60);

/// Caller name (principal) under which the idempotency keys of tasks from external inboxes are
/// stored.
const SOURCE_PRINCIPAL: &str = "longhaul:inbox";

/// Maximum length in bytes of a task's id in an external inbox.
const SOURCE_ID_BYTES_MAX: usize = 1024;

/// Maximum length in bytes of a task's type.
const KIND_BYTES_MAX: usize = 256;

/// Maximum length in bytes of a tag of a task.
const TAG_BYTES_MAX: usize = 256;

/// Maximum length in bytes of the idempotency key of a caller.
const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;

/// Maximum length in bytes of the prefix of an idempotency key that names its caller, so that the
/// keys of different callers do not collide.
const CALLER_PREFIX_BYTES_MAX: usize = 96;

/// Maximum length in bytes of each of the actor, links and metadata of a task.
const EXTRA_BYTES_MAX: usize = 256 * 1024;

/// Maximum number of tasks that can be submitted at once.
const TASKS_MAX: usize = 1_000;

/// Ids of the runs of the submitted tasks, and whether the runs are new.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubmitOutcome {
    Created(Vec<RunId>),
    /// These runs were created by an earlier submit with the same idempotency key.
    Existing(Vec<RunId>),
    /// No run was created: the text of the task was added to this run, because the lane of the task
    /// is busy.
    Added(RunId),
}

impl SubmitOutcome {
    /// Returns the ids of the runs, whether they are new or not.
    pub fn run_ids(&self) -> &[RunId] {
        match self {
            Self::Created(runs) | Self::Existing(runs) => runs,
            Self::Added(run) => std::slice::from_ref(run),
        }
    }
}

impl Longhaul {
    /// Submits a task. Returns the id of its run, which may be an existing run if the lane of the
    /// task is busy.
    pub async fn submit(&self, task: Task) -> Result<RunId> {
        let submitted = self.submit_task(task).await?;
        Ok(submitted.run_ids().first().copied().ok_or(Rejection::Empty("a submit"))?)
    }

    /// Submits a task. If its lane is busy, the `lane_busy` setting of its agent decides what
    /// happens. Returns what happened.
    pub async fn submit_task(&self, task: Task) -> Result<SubmitOutcome> {
        let idempotency = self.idempotency_record(std::slice::from_ref(&task), None);
        let (new, definitions) = self.build_new_run(task, self.new_run_id(), None)?;
        self.create_run_or_add_message(&new, &definitions, idempotency).await
    }

    /// Submits tasks as new runs: all of them or none. The idempotency key of the first task covers
    /// all of them. Runs of a busy lane wait, whatever the `lane_busy` policy of their agent.
    pub async fn submit_all(&self, tasks: Vec<Task>) -> Result<SubmitOutcome> {
        check_task_count(tasks.len())?;
        let idempotency = self.idempotency_record(&tasks, None);
        let built = tasks.into_iter().map(|task| self.build_new_run(task, self.new_run_id(), None));
        self.create_runs(run_creation_request(built.collect::<Result<_, _>>()?, idempotency)).await
    }

    pub(super) fn new_run_id(&self) -> RunId {
        RunId::from_bits(self.services.ids.next_id_bits())
    }

    /// Submits a task and returns the view of its run. If a new run can't be read back, the view is
    /// built from what was written: after an error the caller would submit the task again.
    pub async fn submit_and_view_run(&self, task: Task) -> Result<RunView> {
        let idempotency = self.idempotency_record(std::slice::from_ref(&task), None);
        let (new, definitions) = self.build_new_run(task, self.new_run_id(), None)?;
        let submitted = self.create_run_or_add_message(&new, &definitions, idempotency).await?;
        let run = submitted.run_ids().first().copied().unwrap_or(new.id);
        let is_created = matches!(submitted, SubmitOutcome::Created(_));
        let added = matches!(submitted, SubmitOutcome::Added(_));
        match self.get_run(run).await {
            Err(error) if is_created => {
                tracing::warn!(%run, %error, "the run was created, but could not be read back");
                created_run_view(&new, self.services.clock.now())
            }
            view => Ok(RunView { added, ..view? }),
        }
    }

    /// Creates the runs of a request. They are on disk when this returns.
    pub(super) async fn create_runs(&self, request: CreateRunsRequest) -> Result<SubmitOutcome> {
        let request = self.add_cap_reservations(request).await?;
        self.to_submit_outcome(self.services.store.create_runs(request).await?)
    }

    /// Converts the store's response to a request to create runs into a result for the submitter,
    /// and notifies workers.
    pub(super) fn to_submit_outcome(&self, outcome: CreateRunsOutcome) -> Result<SubmitOutcome> {
        let submitted = match outcome {
            CreateRunsOutcome::Created(runs) => SubmitOutcome::Created(runs),
            CreateRunsOutcome::Existing(runs) => SubmitOutcome::Existing(runs),
            CreateRunsOutcome::KeyReused => return Err(Error::IdempotencyKeyReused),
            CreateRunsOutcome::LaneFull(lane) => return Err(Error::LaneFull(lane)),
            CreateRunsOutcome::LaneBusy(busy) => return Err(lane_busy_error(busy)),
            CreateRunsOutcome::OverCap(refusal) => return Err(self.over_cap_error(*refusal)),
        };
        self.services.notifier.notify_runs_ready();
        Ok(submitted)
    }

    /// Builds the new run of a task. Also returns the definitions of the task's agents, to be
    /// stored.
    pub(super) fn build_new_run(
        &self,
        task: Task,
        id: RunId,
        batch: Option<RunBatchPosition>,
    ) -> Result<(NewRun, Vec<Blob>)> {
        if task.chain.is_some() {
            return self.build_chain_run(task, id, batch);
        }
        let (mut spec, agent, definition) = self.build_task_spec(task, id, batch)?;
        check_sandbox_for_repo(&spec, [&*agent])?;
        spec.lane = resolve_lane(&agent, &spec)?;
        let lane_depth_max = self.services.agents.defaults.lane_depth_max;
        Ok((NewRun { lane_depth_max, ..new_run_from_task(id, spec)? }, vec![definition]))
    }

    /// Returns the specification that the run of a task would have. Nothing is submitted.
    ///
    /// # Errors
    /// The task can't be submitted.
    pub fn preview_task(&self, task: Task) -> Result<TaskSpec> {
        let (new, _) = self.build_new_run(task, self.new_run_id(), None)?;
        Ok(new.task)
    }

    /// Builds the specification of a task, with the lane that the task names. Also returns the
    /// task's agent and its definition, to be stored.
    pub(super) fn build_task_spec(
        &self,
        task: Task,
        id: RunId,
        batch: Option<RunBatchPosition>,
    ) -> Result<(TaskSpec, Arc<Agent>, Blob)> {
        check_task_field_sizes(&task)?;
        let task = self.redact_task(set_thread_and_resource_from_metadata(task)?)?;
        let name = task.agent.clone().unwrap_or_default();
        let agent = self.get_agent(&name);
        let agent = agent.map_err(|suggestion| Error::AgentNotFound { name, suggestion })?;
        let (spec, definition) = self.build_task_spec_of_agent(task, &agent, id)?;
        Ok((TaskSpec { batch, ..spec }, agent, definition))
    }

    /// Builds the specification of a task whose fields are checked and redacted. Also returns the
    /// definition of its agent, to be stored.
    pub(super) fn build_task_spec_of_agent(
        &self,
        task: Task,
        agent: &Agent,
        id: RunId,
    ) -> Result<(TaskSpec, Blob)> {
        if agent.fixed_model && task.model.is_some() {
            let name = &agent.name;
            return invalid_task(format!(
                "the agent `{name}` is called as a function by a program and accepts no model"
            ));
        }
        let definition = agent.definition_blob();
        self.check_no_secret_in_agent(agent, &definition.content)?;
        let invalid = |error: longhaul_core::id::IdError| Rejection::InvalidTask(error.to_string());
        let source_inbox = task.source.as_ref().map(|source| source.inbox.clone());
        let inbox = match source_inbox.or_else(|| task.inbox.clone()) {
            Some(inbox) => inbox,
            None => InboxName::new(DEFAULT_INBOX).map_err(invalid)?,
        };
        let mut policy = agent.run_policy(&self.services.agents.defaults, task.budget);
        let is_event = event_text::is_event_task(agent, task.task_type(), task.event.is_some());
        if is_event {
            policy.max_turns.get_or_insert(event_text::EVENT_TURNS_MAX);
        }
        // Only handlers have a fixed model.
        if is_event || agent.fixed_model {
            policy.retry.soft_timeout.get_or_insert(DEFAULT_SOFT_TIMEOUT);
            policy.retry.hard_timeout.get_or_insert(DEFAULT_HARD_TIMEOUT);
        }
        let spec = TaskSpec {
            definition: definition.hash(),
            policy,
            event: task.event.is_some(),
            context: task.context,
            history: task.history,
            model: task.model,
            kind: task.event.or(task.kind),
            priority: task.priority,
            lane: task.lane,
            thread: task.thread,
            resource: task.resource,
            start: task.start,
            submitter: task.submitter,
            earlier_submitters: task.other_submitters,
            charged_to: task.charged_to,
            actor: task.actor,
            links: task.links,
            tags: task.tags,
            metadata: task.metadata,
            source: task.source,
            repo: task.repo,
            ..TaskSpec::new(id, agent.name.clone(), task.input, inbox)
        };
        Ok((spec, definition))
    }

    /// Returns the idempotency key of a submit, with the hash of its tasks and of its batch mode.
    /// `None` if the first task has no key.
    pub(super) fn idempotency_record(
        &self,
        tasks: &[Task],
        mode: Option<RunBatchMode>,
    ) -> Option<IdempotencyRecord> {
        let first = tasks.first()?;
        if let Some(source) = &first.source {
            // The key alone identifies the task: after a crash the task may be claimed again with
            // another default agent, and it is still the same task.
            let key =
                format!("{}:{}", TaskSource::outbox_endpoint_of_inbox(&source.inbox), source.id);
            return Some(IdempotencyRecord {
                principal: SOURCE_PRINCIPAL.to_owned(),
                body_hash: Hash::digest(key.as_bytes()),
                key,
                ttl: None,
            });
        }
        // JSON that is nested too deeply for `serde_json::Value` is hashed as written.
        let mut text_to_hash = match serde_json::to_value(tasks) {
            Ok(value) => canonical_json(&value),
            Err(_) => serde_json::to_string(tasks).unwrap_or_default(),
        };
        if let Some(mode) = mode {
            text_to_hash.push_str(mode.as_str());
        }
        Some(IdempotencyRecord {
            principal: self.redact(first.submitter.clone().unwrap_or_default()),
            key: first.idempotency_key.clone()?,
            body_hash: Hash::digest(text_to_hash.as_bytes()),
            ttl: Some(IDEMPOTENCY_TTL),
        })
    }

    /// Submits tasks as a batch: all of them or none. The idempotency key of the first task covers
    /// the whole batch.
    pub async fn submit_batch(&self, tasks: Vec<Task>, mode: RunBatchMode) -> Result<BatchView> {
        check_task_count(tasks.len())?;
        let idempotency = self.idempotency_record(&tasks, Some(mode));
        let id = BatchId::from_bits(self.services.ids.next_id_bits());
        let ids: Vec<RunId> = tasks.iter().map(|_| self.new_run_id()).collect();
        let mut built = Vec::with_capacity(tasks.len());
        for (index, (mut task, run)) in tasks.into_iter().zip(ids.iter().copied()).enumerate() {
            let mut position = RunBatchPosition { id, mode, next: None };
            if mode == RunBatchMode::Sequential {
                position.next = ids.get(index + 1).copied();
                task.start = start_in_sequence(index, task.start)?;
            }
            built.push(self.build_new_run(task, run, Some(position))?);
        }
        let views = built.iter().map(|(run, _)| created_run_view(run, self.services.clock.now()));
        let runs = views.collect::<Result<_, _>>()?;
        match self.create_runs(run_creation_request(built, idempotency)).await? {
            SubmitOutcome::Created(_) => Ok(BatchView { id, mode, runs }),
            SubmitOutcome::Existing(runs) => {
                let first = runs.first().ok_or(Error::BatchNotFound(id))?;
                let (first, _) = replay_run_state(&self.services, *first).await?;
                let existing = first.task().batch.ok_or(Error::IdempotencyKeyReused)?;
                self.batch(existing.id).await
            }
            // Tasks of a batch are never added to other runs.
            SubmitOutcome::Added(_) => Err(Error::BatchNotFound(id)),
        }
    }

    /// Returns a batch with its runs, in the order in which they were submitted.
    pub async fn batch(&self, batch: BatchId) -> Result<BatchView> {
        let ids = self.services.records.runs_of_batch(batch).await?;
        let first = ids.first().ok_or(Error::BatchNotFound(batch))?;
        let (first, _) = replay_run_state(&self.services, *first).await?;
        let mode = first.task().batch.map_or(RunBatchMode::default(), |position| position.mode);
        let mut runs = Vec::with_capacity(ids.len());
        let mut workers = None;
        for run in ids {
            runs.push(self.get_run_with_worker_cache(run, &mut workers).await?);
        }
        Ok(BatchView { id: batch, mode, runs })
    }
}

/// Returns the error for a task that is refused because its lane is busy.
pub(super) fn lane_busy_error(busy: BusyLane) -> Error {
    Error::LaneBusy { run: busy.holder.unwrap_or(busy.last), lane: busy.lane }
}

/// Checks the number of tasks that are submitted at once.
pub(super) fn check_task_count(count: usize) -> Result<()> {
    match (1..=TASKS_MAX).contains(&count) {
        true => Ok(()),
        false => invalid_task(format!(
            "a submit must have 1 to {TASKS_MAX} tasks, and this one has {count}"
        )),
    }
}

/// Returns the request that creates these runs, with the definitions of their agents.
pub(super) fn run_creation_request(
    built: Vec<(NewRun, Vec<Blob>)>,
    idempotency: Option<IdempotencyRecord>,
) -> CreateRunsRequest {
    let (runs, definitions): (Vec<_>, Vec<_>) = built.into_iter().unzip();
    let blobs = definitions.into_iter().flatten().map(|blob| (blob.hash(), blob));
    let blobs = blobs.collect::<BTreeMap<_, _>>().into_values().collect();
    CreateRunsRequest { runs, blobs, idempotency }
}

/// Checks the task's type, and the lengths of its tags, source id, idempotency key, actor, links
/// and metadata.
fn check_task_field_sizes(task: &Task) -> Result<()> {
    if task.event.as_deref() == Some("") {
        return Err(Rejection::Empty("the kind of an event").into());
    }
    let tag_bytes = task.tags.iter().map(String::len).max().unwrap_or_default();
    check_text_len("a tag", tag_bytes, TAG_BYTES_MAX)?;
    let id_bytes = task.source.as_ref().map_or(0, |source| source.id.len());
    check_text_len("the id in the external inbox", id_bytes, SOURCE_ID_BYTES_MAX)?;
    let kind = task.task_type().unwrap_or("-");
    check_text_len("the type", kind.len(), KIND_BYTES_MAX)?;
    if kind.is_empty() || kind.chars().any(char::is_control) {
        return invalid_task(format!(
            "the type of the task must have 1 to {KIND_BYTES_MAX} bytes and no control characters"
        ));
    }
    if let Some(key) = &task.idempotency_key {
        check_printable_key(key, IDEMPOTENCY_KEY_BYTES_MAX + CALLER_PREFIX_BYTES_MAX)?;
    }
    if let Some(repo) = &task.repo {
        repo.check().map_err(|error| Rejection::InvalidTask(error.to_string()))?;
    }
    for (label, json) in
        [("the actor", &task.actor), ("the links", &task.links), ("the metadata", &task.metadata)]
    {
        let bytes = json.as_ref().map_or(0, |json| json.as_str().len());
        check_text_len(label, bytes, EXTRA_BYTES_MAX)?;
    }
    Ok(())
}

/// Checks that an agent has a sandbox if the task has a repository, which only sandboxes contain.
pub(super) fn check_sandbox_for_repo<'a>(
    task: &TaskSpec,
    agents: impl IntoIterator<Item = &'a Agent>,
) -> Result<()> {
    if task.repo.is_none() || agents.into_iter().any(|agent| agent.sandbox_config().is_some()) {
        return Ok(());
    }
    let agent = &task.agent;
    invalid_task(format!(
        "a task with a repository needs an agent with a sandbox, and `{agent}` has none: write \
         `sandbox: {{ provider: local }}` into its file"
    ))
}

/// Checks an idempotency key as its caller gives it: 1 to 255 printable ASCII characters.
pub fn check_idempotency_key(key: &str) -> Result<()> {
    check_printable_key(key, IDEMPOTENCY_KEY_BYTES_MAX)
}

fn check_printable_key(key: &str, max_bytes: usize) -> Result<()> {
    let is_printable = |c: char| matches!(c, ' '..='~');
    if !key.trim().is_empty() && key.len() <= max_bytes && key.chars().all(is_printable) {
        return Ok(());
    }
    invalid_task(format!(
        "an idempotency key must have 1 to {IDEMPOTENCY_KEY_BYTES_MAX} printable ASCII characters"
    ))
}

/// Fields of a task's metadata that name its thread (conversation) and its resource (the person or
/// thing that the thread is about).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ThreadMetadata {
    #[serde(rename = "threadId")]
    thread: Option<Value>,
    #[serde(rename = "resourceId")]
    resource: Option<Value>,
}

/// Sets the thread (conversation) and the resource (person or thing) of a task from the fields
/// `threadId` and `resourceId` of its metadata, unless the task names them.
fn set_thread_and_resource_from_metadata(mut task: Task) -> Result<Task> {
    let metadata = task.metadata.as_ref().map_or("", RawJson::as_str);
    if !metadata.contains("threadId") && !metadata.contains("resourceId") {
        return Ok(task);
    }
    // Metadata that is not an object names neither.
    let thread_metadata: ThreadMetadata = serde_json::from_str(metadata).unwrap_or_default();
    if task.thread.is_none() {
        task.thread = parse_metadata_name("threadId", thread_metadata.thread, ThreadKey::new)?;
    }
    if task.resource.is_none() {
        task.resource =
            parse_metadata_name("resourceId", thread_metadata.resource, ResourceKey::new)?;
    }
    Ok(task)
}

fn parse_metadata_name<T>(
    field: &str,
    value: Option<Value>,
    parse: impl Fn(String) -> Result<T, IdError>,
) -> Result<Option<T>> {
    let invalid =
        |reason: String| Rejection::InvalidTask(format!("`metadata.{field}` is invalid: {reason}"));
    match value {
        None => Ok(None),
        Some(Value::String(name)) => {
            parse(name).map(Some).map_err(|error| invalid(error.to_string()).into())
        }
        Some(_) => Err(invalid("it must be a text".to_owned()).into()),
    }
}

/// Returns the lane of the task, or the rendered lane template of the agent.
pub(super) fn resolve_lane(agent: &Agent, task: &TaskSpec) -> Result<Option<LaneKey>> {
    let (None, Some(template)) = (&task.lane, &agent.lane) else { return Ok(task.lane.clone()) };
    let template_error = |reason: String| Error::Template {
        agent: agent.name.to_string(),
        template_name: "the lane",
        reason,
    };
    let values = template::template_values(&task.input, &task.context);
    let lane_name = template::render_template(template, &values).map_err(template_error)?;
    let lane = LaneKey::new(lane_name).map_err(|error| template_error(error.to_string()))?;
    Ok(Some(lane))
}

/// Returns the start condition of a task in a sequential batch: each task but the first starts
/// after the one before it. Fails if a task other than the first has a start time.
fn start_in_sequence(index: usize, start: EarliestStart) -> Result<EarliestStart> {
    match (index, start) {
        (0, start) => Ok(start),
        (_, EarliestStart::Now | EarliestStart::AfterBatch) => Ok(EarliestStart::AfterBatch),
        (_, EarliestStart::At(_)) => {
            let reason = "only the first task of a sequential batch can have a start time";
            Err(Rejection::InvalidTask(reason.to_owned()).into())
        }
    }
}
