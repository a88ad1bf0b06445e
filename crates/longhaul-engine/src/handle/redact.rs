//! Takes secrets out of what people and programs say, before anything is kept of it.
//!
//! Never: changes what only names things, such as keys and labels, or what tools are
//! given. One that holds a secret is refused.

use longhaul_core::id::ResourceKey;
use longhaul_core::note::NewNote;
use longhaul_core::policy::gate::{Answer, Decision};
use longhaul_core::port::redact::{find_placeholder, placeholder_name};
use longhaul_core::time::Timestamp;
use longhaul_run::Rejection;
use longhaul_run::commands::RunCommand;

use crate::agent::Agent;
use crate::error::Error;
use crate::handle::Longhaul;
use crate::redaction::Redaction;
use crate::task::Task;

impl Longhaul {
    pub(super) fn redaction(&self) -> Redaction<'_> {
        Redaction(&*self.services.redact)
    }

    /// A text without secrets.
    pub(super) fn redact(&self, text: impl Into<String>) -> String {
        self.redaction().text(text.into())
    }

    /// Refuses a name that holds a secret: it would be another name without it.
    pub(super) fn check_no_secret(&self, what: &str, name: &str) -> Result<(), Error> {
        let Some(secret) = self.redaction().secret_in_text(name) else {
            return Ok(());
        };
        let why = format!(
            "{what} holds the secret `{secret}`, and names are kept and shown as they are: \
             take another"
        );
        Err(Rejection::InvalidTask(why).into())
    }

    /// Refuses an agent whose file has a secret where it is not only read.
    pub(super) fn check_agent_secrets(
        &self,
        agent: &Agent,
        definition: &[u8],
    ) -> Result<(), Error> {
        let definition = String::from_utf8_lossy(definition);
        // What is left of a template that reckoned with one.
        let is_one = |text: &&String| find_placeholder(text) == Some(0..text.len());
        let templates = [&agent.prompt].into_iter().chain(agent.events.values());
        let cut = || templates.filter(is_one).find_map(|text| placeholder_name(text));
        let found = self.redaction().secret_in_text(&definition);
        let Some(secret) = found.or_else(|| cut().map(str::to_owned)) else {
            return Ok(());
        };
        let name = &agent.name;
        let why = format!(
            "the file of agent `{name}` holds the secret `{secret}` where it can't be left out, \
             such as in `perception`, `lane`, a name or a tag of a template: the file is kept \
             with every run, so take it out there"
        );
        Err(Rejection::InvalidTask(why).into())
    }

    /// A task without secrets where anybody reads it or the journal keeps it. One
    /// that has a secret for a name is refused.
    pub(super) fn redact_task(&self, task: Task) -> Result<Task, Error> {
        let names = [
            ("the thread", task.thread.as_ref().map(|key| key.as_str())),
            ("the resource", task.resource.as_ref().map(|key| key.as_str())),
            ("the lane", task.lane.as_ref().map(|key| key.as_str())),
            ("the inbox", task.inbox.as_ref().map(|name| name.as_str())),
            ("the type", task.kind.as_deref()),
            ("the model", task.model.as_deref()),
            ("the idempotency key", task.idempotency_key.as_deref()),
        ];
        let names = names.into_iter().filter_map(|(what, name)| Some((what, name?)));
        let tags = task.tags.iter().map(|tag| ("a tag", tag.as_str()));
        let context = task.context.keys();
        let context = context.map(|name| ("a name of the context", name.as_str()));
        for (what, name) in names.chain(tags).chain(context) {
            self.check_no_secret(what, name)?;
        }
        self.check_context_secrets(&task)?;
        let cleaner = self.redaction();
        let history = task.history.into_iter();
        Ok(Task {
            input: cleaner.json(&task.input),
            history: history.map(|message| cleaner.message(message)).collect(),
            submitter: task.submitter.map(|name| cleaner.text(name)),
            actor: task.actor.as_ref().map(|actor| cleaner.json(actor)),
            links: task.links.as_ref().map(|links| cleaner.json(links)),
            metadata: task.metadata.as_ref().map(|data| cleaner.json(data)),
            ..task
        })
    }

    /// Refuses a value of the context that holds a secret: tools would be given
    /// another one without it, and act on that.
    fn check_context_secrets(&self, task: &Task) -> Result<(), Error> {
        let cleaner = self.redaction();
        let mut context = task.context.iter();
        let held = context.find_map(|(name, value)| Some((name, cleaner.secret_in_json(value)?)));
        let Some((name, secret)) = held else {
            return Ok(());
        };
        let why = format!(
            "`{name}` of the context holds the secret `{secret}`, which is not handed to tools: \
             write it without"
        );
        Err(Rejection::InvalidTask(why).into())
    }

    /// An answer without secrets.
    pub(super) fn redact_answer(&self, answer: Answer) -> Answer {
        let cleaner = self.redaction();
        Answer {
            decision: match answer.decision {
                Decision::Edit(input) => Decision::Edit(cleaner.json(&input)),
                Decision::Answer(words) => Decision::Answer(cleaner.text(words)),
                plain @ (Decision::Approve | Decision::Reject | Decision::Complete) => plain,
            },
            by: cleaner.text(answer.by),
            note: answer.note.map(|note| cleaner.text(note)),
            payload: answer.payload.as_ref().map(|json| cleaner.json(json)),
            ..answer
        }
    }

    /// A word to a run without secrets, and without one in its speaker's name.
    pub(super) fn redact_command(&self, mut word: RunCommand) -> RunCommand {
        let clean = |text: &mut String| *text = self.redact(std::mem::take(text));
        match &mut word {
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
            | RunCommand::RaiseBudget { by, .. }
            | RunCommand::RevokeRule { by, .. } => clean(by),
            // These say what was kept before, without any.
            RunCommand::Answer { .. }
            | RunCommand::Timer(_)
            | RunCommand::ChildEnded { .. }
            | RunCommand::SurfaceResult(_) => {}
        }
        word
    }

    /// A note without secrets.
    pub(super) fn redact_note(&self, of: &ResourceKey, note: NewNote) -> Result<NewNote, Error> {
        self.check_no_secret("the resource", of.as_str())?;
        self.check_no_secret("the note's key", note.key())?;
        let written = note.to_note(of, Timestamp::default());
        let text = self.redact(written.text.clone());
        let tags = written.tags.iter().map(|tag| self.redact(tag.clone()));
        let tags: Vec<String> = tags.collect();
        if text == written.text && tags == written.tags {
            return Ok(note);
        }
        let clean = NewNote::new(note.key(), text, tags, written.run);
        clean.map_err(|bad| Rejection::InvalidTask(bad.to_string()).into())
    }
}
