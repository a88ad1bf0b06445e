//! A task as a program writes it.
//!
//! Never: fails while it is written. What is wrong is said when it is submitted.

use longhaul_core::id::{IdError, InboxName, LaneKey, ResourceKey, ThreadKey};
use longhaul_core::message::Message;
use serde::Serialize;

use crate::error::{Error, SerializeError, to_json};

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
    /// A task for the agent of this name, without an input.
    pub fn new(agent: impl Into<String>) -> Self {
        Self {
            task: longhaul_engine::Task::new(agent, ""),
            name_error: None,
            serialize_error: None,
        }
    }

    /// What the agent is to do: a text, or anything that serializes to JSON.
    #[must_use]
    pub fn input(mut self, input: impl Serialize) -> Self {
        self.task.input = to_json("the input of the task", &input, &mut self.serialize_error);
        self
    }

    /// The same key finds the same run, also after a crash: within 24 hours a task is done once,
    /// however often it is submitted.
    #[must_use]
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.task.idempotency_key = Some(key.into());
        self
    }

    /// Asks this model instead of the agent's own.
    #[must_use]
    pub fn model(mut self, name: impl Into<String>) -> Self {
        self.task.model = Some(name.into());
        self
    }

    /// A conversation that comes before the input.
    #[must_use]
    pub fn history(mut self, messages: Vec<Message>) -> Self {
        self.task.history = messages;
        self
    }

    /// Adds a value for tools, which the model can neither see nor set. The agent lists its name.
    #[must_use]
    pub fn context(mut self, name: impl Into<String>, value: impl Serialize) -> Self {
        let name = name.into();
        let what = format!("the context value `{name}` of the task");
        let value = to_json(&what, &value, &mut self.serialize_error);
        self.task.context.insert(name, value);
        self
    }

    /// Only one run of a lane goes at a time; the others wait in their order.
    #[must_use]
    pub fn lane(mut self, lane: impl AsRef<str>) -> Self {
        self.task.lane = self.valid_name(LaneKey::new(lane.as_ref()));
        self
    }

    /// The conversation that the run belongs to.
    #[must_use]
    pub fn thread(mut self, thread: impl AsRef<str>) -> Self {
        self.task.thread = self.valid_name(ThreadKey::new(thread.as_ref()));
        self
    }

    /// Whom the conversation is about.
    #[must_use]
    pub fn resource(mut self, resource: impl AsRef<str>) -> Self {
        self.task.resource = self.valid_name(ResourceKey::new(resource.as_ref()));
        self
    }

    /// The inbox in which it waits for a worker, instead of `default`.
    #[must_use]
    pub fn inbox(mut self, inbox: impl AsRef<str>) -> Self {
        self.task.inbox = self.valid_name(InboxName::new(inbox.as_ref()));
        self
    }

    /// A higher priority goes first.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.task.priority = priority;
        self
    }

    /// Who submits it, such as `shop:anna`.
    #[must_use]
    pub fn submitter(mut self, submitter: impl Into<String>) -> Self {
        self.task.submitter = Some(submitter.into());
        self
    }

    /// Adds a label to find the run by.
    #[must_use]
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.task.tags.push(tag.into());
        self
    }

    /// The name, if it is one; else the fault is kept until the task is submitted.
    fn valid_name<T>(&mut self, name: Result<T, IdError>) -> Option<T> {
        name.map_err(|bad| self.name_error = Some(bad)).ok()
    }

    /// The task as the engine takes it.
    pub(crate) fn build(self) -> Result<longhaul_engine::Task, Error> {
        match (self.name_error, self.serialize_error) {
            (Some(bad), _) => Err(bad.into()),
            (None, Some(bad)) => Err(bad.into()),
            (None, None) => Ok(self.task),
        }
    }
}
