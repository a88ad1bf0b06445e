//! Tasks as programs write them. The builder methods never fail: an invalid value is reported when
//! the task is submitted.

use std::time::SystemTime;

use longhaul_api::task::ChainChoice;
use longhaul_core::id::{IdError, InboxName, LaneKey, ResourceKey, ThreadKey};
use longhaul_core::message::Message;
use longhaul_core::task::EarliestStart;
use longhaul_core::time::Timestamp;
use serde::Serialize;

use crate::error::{Error, SerializeError, serialize_or_record_error};

/// A unit of work for an agent or a handler.
///
/// ```
/// use longhaul::Task;
///
/// let task = Task::new("helper").input("Oslo to Bergen").idempotency_key("order-7");
/// ```
#[derive(Debug, Clone)]
pub struct Task {
    task: longhaul_engine::Task,
    name_error: Option<IdError>,
    serialize_error: Option<SerializeError>,
}

impl Task {
    /// Creates a task for the agent with this name, without an input.
    pub fn new(agent: impl Into<String>) -> Self {
        Self {
            task: longhaul_engine::Task::new(agent, ""),
            name_error: None,
            serialize_error: None,
        }
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
        Self { task: longhaul_engine::Task::for_chain(chain, ""), ..Self::new("") }
    }

    /// Runs only the step with this name. Has no effect unless the task is for a chain.
    #[must_use]
    pub fn step(mut self, step_name: impl Into<String>) -> Self {
        self.task.step = Some(step_name.into());
        self
    }

    /// Sets the input for the agent: a text, or any value that serializes to JSON.
    #[must_use]
    pub fn input(mut self, input: impl Serialize) -> Self {
        self.task.input =
            serialize_or_record_error("the input of the task", &input, &mut self.serialize_error);
        self
    }

    /// Sets the idempotency key. Within 24 hours, tasks with the same key are executed once: later
    /// submissions return the existing run, also after a crash.
    #[must_use]
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.task.idempotency_key = Some(key.into());
        self
    }

    /// Sets the model that is used instead of the agent's models.
    #[must_use]
    pub fn model(mut self, model_name: impl Into<String>) -> Self {
        self.task.model = Some(model_name.into());
        self
    }

    /// Sets the conversation that precedes the input.
    #[must_use]
    pub fn history(mut self, messages: Vec<Message>) -> Self {
        self.task.history = messages;
        self
    }

    /// Adds a context value that tools receive. The model can neither see nor set it. The agent's
    /// definition must list the name of the value.
    #[must_use]
    pub fn context(mut self, value_name: impl Into<String>, value: impl Serialize) -> Self {
        let name = value_name.into();
        let value_name = format!("the context value `{name}` of the task");
        let value = serialize_or_record_error(&value_name, &value, &mut self.serialize_error);
        self.task.context.insert(name, value);
        self
    }

    /// Sets the lane. Only one run of a lane is active at a time; the others wait in order.
    #[must_use]
    pub fn lane(mut self, lane: impl AsRef<str>) -> Self {
        self.task.lane = self.id_or_record_error(LaneKey::new(lane.as_ref()));
        self
    }

    /// Sets the conversation thread that the run belongs to: a sequence of runs with a common
    /// memory.
    #[must_use]
    pub fn thread(mut self, conversation: impl AsRef<str>) -> Self {
        self.task.thread = self.id_or_record_error(ThreadKey::new(conversation.as_ref()));
        self
    }

    /// Sets the resource: the person or thing that the conversation is about.
    #[must_use]
    pub fn resource(mut self, resource_key: impl AsRef<str>) -> Self {
        self.task.resource = self.id_or_record_error(ResourceKey::new(resource_key.as_ref()));
        self
    }

    /// Sets the inbox in which the task waits for a worker. Default: `default`.
    #[must_use]
    pub fn inbox(mut self, inbox: impl AsRef<str>) -> Self {
        self.task.inbox = self.id_or_record_error(InboxName::new(inbox.as_ref()));
        self
    }

    /// Sets the type of the task, by which workers select tasks.
    #[must_use]
    pub fn kind(mut self, task_type: impl Into<String>) -> Self {
        self.task.kind = Some(task_type.into());
        self
    }

    /// Sets arbitrary data that is returned with the run.
    #[must_use]
    pub fn metadata(mut self, metadata: impl Serialize) -> Self {
        let value_name = "the metadata of the task";
        self.task.metadata =
            Some(serialize_or_record_error(value_name, &metadata, &mut self.serialize_error));
        self
    }

    /// Sets the priority. Runs with a higher priority are started first.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.task.priority = priority;
        self
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
    #[must_use]
    pub fn start_at(mut self, time: SystemTime) -> Self {
        // A time before 1970 is in the past, and so is 1970.
        let since_1970 = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let micros = i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX);
        self.task.start = EarliestStart::At(Timestamp::from_micros(micros));
        self
    }

    /// Sets the name of the person or program that submits the task, such as `shop:anna`.
    #[must_use]
    pub fn submitter(mut self, submitter: impl Into<String>) -> Self {
        self.task.submitter = Some(submitter.into());
        self
    }

    /// Sets the person or system on whose behalf the run acts, such as
    /// `serde_json::json!({ "name": "Ada" })`.
    #[must_use]
    pub fn actor(mut self, actor: impl Serialize) -> Self {
        self.task.actor = Some(serialize_or_record_error(
            "the actor of the task",
            &actor,
            &mut self.serialize_error,
        ));
        self
    }

    /// Sets the references to related objects in other systems. They are returned with the run.
    #[must_use]
    pub fn links(mut self, links: impl Serialize) -> Self {
        self.task.links = Some(serialize_or_record_error(
            "the links of the task",
            &links,
            &mut self.serialize_error,
        ));
        self
    }

    /// Makes the task an event of this kind. The agent reads a text about the event instead of the
    /// plain input.
    pub(crate) fn event(mut self, event_kind: impl Into<String>) -> Self {
        self.task.event = Some(event_kind.into());
        self
    }

    /// Adds a tag by which the run can be found.
    #[must_use]
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.task.tags.push(tag.into());
        self
    }

    /// Returns the id if it is valid. Otherwise stores the error, which is reported when the task
    /// is submitted.
    fn id_or_record_error<T>(&mut self, checked_id: Result<T, IdError>) -> Option<T> {
        checked_id.map_err(|error| self.name_error = Some(error)).ok()
    }

    /// Returns the type of the task. `None` if it has no type.
    pub(crate) fn task_type(&self) -> Option<&str> {
        self.task.task_type()
    }

    /// Returns the task in the engine's format, or the error of an invalid value.
    pub(crate) fn build(self) -> Result<longhaul_engine::Task, Error> {
        match (self.name_error, self.serialize_error) {
            (Some(error), _) => Err(error.into()),
            (None, Some(error)) => Err(error.into()),
            (None, None) => Ok(self.task),
        }
    }
}
