//! Tasks as programs write them. The builder methods never fail: an invalid value is reported when
//! the task is submitted.

use std::time::SystemTime;

use longhaul_api::task::ChainChoice;
use longhaul_core::id::{InboxName, LaneKey, ResourceKey, ThreadKey};
use longhaul_core::message::Message;
use longhaul_core::repo::RepoSource;
use longhaul_core::task::EarliestStart;
use longhaul_core::time::Timestamp;
use serde::Serialize;

use crate::error::{Draft, to_json};

/// A unit of work for an agent or a handler.
///
/// ```
/// use longhaul::Task;
///
/// let task = Task::new("helper").input("Oslo to Bergen").idempotency_key("order-7");
/// ```
#[must_use = "a task is not executed until it is submitted"]
#[derive(Debug, Clone)]
pub struct Task(pub(crate) Draft<longhaul_engine::Task>);

impl Task {
    /// Creates a task for the agent with this name, without an input.
    pub fn new(agent: impl Into<String>) -> Self {
        Self(Draft(Ok(longhaul_engine::Task::new(agent, ""))))
    }

    /// Creates a task that runs all steps of a chain, without an input. `chain` is the name of a
    /// chain of the project, or a chain that the program defines.
    ///
    /// ```
    /// use longhaul::{ChainSpec, ChainStepSpec, Task};
    ///
    /// let named = Task::chain("full-pipeline").input("Add a flag --dry-run");
    /// let steps = vec![ChainStepSpec::new("writer"), ChainStepSpec::new("critic")];
    /// let given = Task::chain(ChainSpec { steps, ..ChainSpec::default() }).input("A haiku");
    /// ```
    pub fn chain(chain: impl Into<ChainChoice>) -> Self {
        Self(Draft(Ok(longhaul_engine::Task::for_chain(chain, ""))))
    }

    /// Runs only the step with this name. Has no effect unless the task is for a chain.
    pub fn step(self, step_name: impl Into<String>) -> Self {
        Self(self.0.with(|task| task.step = Some(step_name.into())))
    }

    /// Sets the input for the agent: a text, or any value that serializes to JSON.
    pub fn input(self, input: impl Serialize) -> Self {
        Self(self.0.set(to_json("the input of the task", &input), |task, json| task.input = json))
    }

    /// Sets the idempotency key. Within 24 hours, tasks with the same key are executed once: later
    /// submissions return the existing run, also after a crash.
    pub fn idempotency_key(self, key: impl Into<String>) -> Self {
        Self(self.0.with(|task| task.idempotency_key = Some(key.into())))
    }

    /// Sets the git repository that the sandbox of the run contains a clone of: its URL, or its
    /// absolute path. The agent needs a sandbox.
    ///
    /// ```
    /// use longhaul::Task;
    ///
    /// let task = Task::chain("full-pipeline").input("Add a flag").repo("https://github.com/o/r");
    /// ```
    pub fn repo(self, url: impl Into<String>) -> Self {
        let url = url.into();
        Self(self.0.with(|task| {
            let rev = task.repo.take().and_then(|repo| repo.rev);
            task.repo = Some(RepoSource { url, rev });
        }))
    }

    /// Sets the branch, tag or commit of the repository that the work begins with. Default: the
    /// default branch.
    pub fn rev(self, rev: impl Into<String>) -> Self {
        Self(self.0.with(|task| {
            task.repo.get_or_insert_with(|| RepoSource::new("")).rev = Some(rev.into());
        }))
    }

    /// Sets the model that is used instead of the agent's models.
    pub fn model(self, model_name: impl Into<String>) -> Self {
        Self(self.0.with(|task| task.model = Some(model_name.into())))
    }

    /// Sets the conversation that precedes the input.
    pub fn history(self, messages: Vec<Message>) -> Self {
        Self(self.0.with(|task| task.history = messages))
    }

    /// Adds a context value that tools receive. The model can neither see nor set it. The agent's
    /// definition must list the name of the value.
    pub fn context(self, value_name: impl Into<String>, value: impl Serialize) -> Self {
        let name = value_name.into();
        let json = to_json(&format!("the context value `{name}` of the task"), &value);
        Self(self.0.set(json, |task, json| _ = task.context.insert(name, json)))
    }

    /// Sets the lane. Only one run of a lane is active at a time; the others wait in order.
    pub fn lane(self, lane: impl AsRef<str>) -> Self {
        Self(self.0.set(LaneKey::new(lane.as_ref()), |task, key| task.lane = Some(key)))
    }

    /// Sets the conversation thread that the run belongs to: a sequence of runs with a common
    /// memory.
    pub fn thread(self, conversation: impl AsRef<str>) -> Self {
        let key = ThreadKey::new(conversation.as_ref());
        Self(self.0.set(key, |task, key| task.thread = Some(key)))
    }

    /// Sets the resource: the person or thing that the conversation is about.
    pub fn resource(self, resource_key: impl AsRef<str>) -> Self {
        let key = ResourceKey::new(resource_key.as_ref());
        Self(self.0.set(key, |task, key| task.resource = Some(key)))
    }

    /// Sets the inbox in which the task waits for a worker. Default: `default`.
    pub fn inbox(self, inbox: impl AsRef<str>) -> Self {
        Self(self.0.set(InboxName::new(inbox.as_ref()), |task, name| task.inbox = Some(name)))
    }

    /// Sets the type of the task, by which workers select tasks.
    pub fn kind(self, task_type: impl Into<String>) -> Self {
        Self(self.0.with(|task| task.kind = Some(task_type.into())))
    }

    /// Sets arbitrary data that is returned with the run.
    pub fn metadata(self, metadata: impl Serialize) -> Self {
        let json = to_json("the metadata of the task", &metadata);
        Self(self.0.set(json, |task, json| task.metadata = Some(json)))
    }

    /// Sets the priority. Runs with a higher priority are started first.
    pub fn priority(self, priority: i32) -> Self {
        Self(self.0.with(|task| task.priority = priority))
    }

    /// Sets the earliest time at which the run may start.
    ///
    /// ```
    /// use longhaul::Task;
    /// use std::time::{Duration, SystemTime};
    ///
    /// let tomorrow = SystemTime::now() + Duration::from_secs(24 * 60 * 60);
    /// let task = Task::new("helper").input("Water the plants.").start_at(tomorrow);
    /// ```
    pub fn start_at(self, time: SystemTime) -> Self {
        // A time before 1970 is in the past, and so is 1970.
        let since_1970 = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let micros = i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX);
        let start = EarliestStart::At(Timestamp::from_micros(micros));
        Self(self.0.with(|task| task.start = start))
    }

    /// Sets the name of the person or program that submits the task, such as `shop:anna`.
    pub fn submitter(self, submitter: impl Into<String>) -> Self {
        Self(self.0.with(|task| task.submitter = Some(submitter.into())))
    }

    /// Sets the person or system on whose behalf the run acts, such as
    /// `serde_json::json!({ "name": "Ada" })`.
    pub fn actor(self, actor: impl Serialize) -> Self {
        let json = to_json("the actor of the task", &actor);
        Self(self.0.set(json, |task, json| task.actor = Some(json)))
    }

    /// Sets the references to related objects in other systems. They are returned with the run.
    pub fn links(self, links: impl Serialize) -> Self {
        let json = to_json("the links of the task", &links);
        Self(self.0.set(json, |task, json| task.links = Some(json)))
    }

    /// Makes the task an event of this kind. The agent reads a text about the event instead of the
    /// plain input.
    pub(crate) fn event(self, event_kind: impl Into<String>) -> Self {
        Self(self.0.with(|task| task.event = Some(event_kind.into())))
    }

    /// Adds a tag by which the run can be found.
    pub fn tag(self, tag: impl Into<String>) -> Self {
        Self(self.0.with(|task| task.tags.push(tag.into())))
    }
}
