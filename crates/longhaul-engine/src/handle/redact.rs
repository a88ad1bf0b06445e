//! Redacts secrets in everything that callers pass to the handle, before it is stored.
//!
//! Names (keys, labels) and inputs of tools are not changed: if they contain a secret, the request
//! is rejected.

use longhaul_api::task::Task;
use longhaul_core::id::ResourceKey;
use longhaul_core::note::NewMemoryNote;
use longhaul_core::policy::gate::{Answer, GateDecision};
use longhaul_core::port::redact::{find_secret_placeholder, secret_name_in_placeholder};
use longhaul_core::time::Timestamp;
use longhaul_run::Rejection;
use longhaul_run::commands::RunCommand;

use crate::agent::Agent;
use crate::error::{Result, invalid_task};
use crate::guard::redaction::Redaction;
use crate::handle::Longhaul;

impl Longhaul {
    pub(super) fn redaction(&self) -> Redaction<'_> {
        Redaction(&*self.services.redact)
    }

    /// Returns the text with secrets redacted.
    pub(super) fn redact(&self, text: impl Into<String>) -> String {
        self.redaction().redact_text(text.into())
    }

    /// Rejects a name that contains a secret: with the secret redacted it would be a different
    /// name.
    pub(super) fn check_no_secret_in_name(&self, label: &str, name: &str) -> Result<()> {
        let Some(secret) = self.redaction().secret_name_in_text(name) else { return Ok(()) };
        invalid_task(format!(
            "{label} holds the secret `{secret}`, and names are stored and shown unredacted: \
             choose another"
        ))
    }

    /// Rejects an agent whose file contains a secret in a field that cannot be redacted.
    pub(super) fn check_no_secret_in_agent(&self, agent: &Agent, definition: &[u8]) -> Result<()> {
        let definition = String::from_utf8_lossy(definition);
        // A template that used a secret inside a tag was replaced by the placeholder as a whole.
        let is_one = |text: &&String| find_secret_placeholder(text) == Some(0..text.len());
        let templates = [&agent.prompt].into_iter().chain(agent.events.values());
        let template_secret =
            || templates.filter(is_one).find_map(|text| secret_name_in_placeholder(text));
        let found = self.redaction().secret_name_in_text(&definition);
        let Some(secret) = found.or_else(|| template_secret().map(str::to_owned)) else {
            return Ok(());
        };
        let name = &agent.name;
        invalid_task(format!(
            "the file of agent `{name}` holds the secret `{secret}` where it can't be redacted, \
             such as in `perception`, `lane`, a name or a template tag: the file is stored \
             with every run, so remove the secret from it"
        ))
    }

    /// Redacts secrets in the fields of a task that are stored or that the model reads. Rejects a
    /// task with a secret in a name, such as the lane.
    pub(super) fn redact_task(&self, mut task: Task) -> Result<Task> {
        let names = [
            ("the thread", task.thread.as_ref().map(|key| key.as_str())),
            ("the resource", task.resource.as_ref().map(|key| key.as_str())),
            ("the lane", task.lane.as_ref().map(|key| key.as_str())),
            ("the inbox", task.inbox.as_ref().map(|name| name.as_str())),
            ("the type", task.task_type()),
            ("the model", task.model.as_deref()),
            ("the idempotency key", task.idempotency_key.as_deref()),
            // The id is part of the idempotency key, and the name of a file in a folder inbox.
            ("the task's id or file name", task.source.as_ref().map(|source| source.id.as_str())),
        ];
        let names = names.into_iter().filter_map(|(label, name)| Some((label, name?)));
        let tags = task.tags.iter().map(|tag| ("a tag", tag.as_str()));
        let context = task.context.keys();
        let context = context.map(|name| ("a name of the context", name.as_str()));
        for (label, name) in names.chain(tags).chain(context) {
            self.check_no_secret_in_name(label, name)?;
        }
        let redaction = self.redaction();
        for (name, value) in &task.context {
            // If the value were redacted, tools would act on a different value.
            if let Some(secret) = redaction.secret_name_in_json(value) {
                return invalid_task(format!(
                    "`{name}` of the context holds the secret `{secret}`, which is not passed to \
                     tools: remove it"
                ));
            }
        }
        let jsons = [&mut task.actor, &mut task.links, &mut task.metadata].into_iter().flatten();
        jsons.chain([&mut task.input]).for_each(|json| redaction.clean_json(json));
        let names = task.submitter.iter_mut().chain(&mut task.charged_to);
        names.chain(&mut task.other_submitters).for_each(|name| redaction.clean(name));
        let history = task.history.into_iter();
        let history = history.map(|message| redaction.redact_message(message)).collect();
        Ok(Task { history, ..task })
    }

    /// Redacts secrets in an answer to a gate.
    pub(super) fn redact_answer(&self, mut answer: Answer) -> Answer {
        let redaction = self.redaction();
        match &mut answer.decision {
            GateDecision::Edit(input) => redaction.clean_json(input),
            GateDecision::Answer(text) => redaction.clean(text),
            GateDecision::Approve | GateDecision::Reject | GateDecision::Complete => {}
        }
        let texts = answer.note.iter_mut().chain([&mut answer.by]);
        texts.for_each(|text| redaction.clean(text));
        answer.payload.iter_mut().for_each(|json| redaction.clean_json(json));
        answer
    }

    /// Redacts secrets in a command to a run, including the name of its author.
    pub(super) fn redact_command(&self, mut command: RunCommand) -> RunCommand {
        let clean = |text: &mut String| self.redaction().clean(text);
        match &mut command {
            RunCommand::Steer(message) | RunCommand::ChangeSteer(message) => {
                clean(&mut message.text);
                clean(&mut message.by);
            }
            RunCommand::Cancel { by, reason } => {
                clean(by);
                clean(reason);
            }
            RunCommand::WithdrawSteer { by, .. }
            | RunCommand::Pause { by }
            | RunCommand::Resume { by, .. }
            | RunCommand::RevokeRule { by, .. } => clean(by),
            // These contain only data that was redacted before.
            RunCommand::Answer { .. }
            | RunCommand::RaiseSignalGate(_)
            | RunCommand::Timer(_)
            | RunCommand::ChildEnded { .. }
            | RunCommand::SurfaceResult(_) => {}
        }
        command
    }

    /// Redacts secrets in the text and tags of a note. Rejects a note whose resource (the person or
    /// thing that it is about) or key contains a secret.
    pub(super) fn redact_note(
        &self,
        resource: &ResourceKey,
        note: NewMemoryNote,
    ) -> Result<NewMemoryNote> {
        self.check_no_secret_in_name("the resource", resource.as_str())?;
        self.check_no_secret_in_name("the note's key", note.note_key())?;
        let unredacted = note.to_stored_note(resource, Timestamp::default());
        let text = self.redact(unredacted.text.clone());
        let tags: Vec<String> = unredacted.tags.iter().map(|tag| self.redact(tag)).collect();
        if text == unredacted.text && tags == unredacted.tags {
            return Ok(note);
        }
        let clean = NewMemoryNote::new(note.note_key(), text, tags, unredacted.run);
        clean.map_err(|error| Rejection::InvalidTask(error).into())
    }
}
