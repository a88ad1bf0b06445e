//! Takes secrets out of what people and programs say, before anything is kept of it.
//!
//! Never: changes what only names things, such as keys and labels, or what tools are
//! given. One that holds a secret is refused.

use longhaul_core::id::ResourceKey;
use longhaul_core::note::NewNote;
use longhaul_core::policy::gate::{Answer, Decision};
use longhaul_core::port::redact::{find_stand_in, named};
use longhaul_core::time::Timestamp;
use longhaul_run::Refusal;
use longhaul_run::outside::Word;

use crate::agent::Agent;
use crate::clean::Cleaner;
use crate::error::Error;
use crate::handle::Longhaul;
use crate::task::Task;

impl Longhaul {
    pub(super) fn cleaner(&self) -> Cleaner<'_> {
        Cleaner(&*self.ports.redact)
    }

    /// A text without secrets.
    pub(super) fn clean(&self, text: impl Into<String>) -> String {
        self.cleaner().text(text.into())
    }

    /// Refuses a name that holds a secret: it would be another name without it.
    pub(super) fn is_no_secret(&self, what: &str, name: &str) -> Result<(), Error> {
        let Some(secret) = self.cleaner().found_in(name) else {
            return Ok(());
        };
        let why = format!(
            "{what} holds the secret `{secret}`, and names are kept and shown as they are: \
             take another"
        );
        Err(Refusal::BadTask(why).into())
    }

    /// Refuses an agent whose file has a secret where it is not only read.
    pub(super) fn agent_is_clean(&self, agent: &Agent, definition: &[u8]) -> Result<(), Error> {
        let definition = String::from_utf8_lossy(definition);
        // What is left of a template that reckoned with one.
        let is_one = |text: &&String| find_stand_in(text) == Some(0..text.len());
        let templates = [&agent.prompt].into_iter().chain(agent.events.values());
        let cut = || templates.filter(is_one).find_map(|text| named(text));
        let found = self.cleaner().found_in(&definition);
        let Some(secret) = found.or_else(|| cut().map(str::to_owned)) else {
            return Ok(());
        };
        let name = &agent.name;
        let why = format!(
            "the file of agent `{name}` holds the secret `{secret}` where it can't be left out, \
             such as in `perception`, `lane`, a name or a tag of a template: the file is kept \
             with every run, so take it out there"
        );
        Err(Refusal::BadTask(why).into())
    }

    /// A task without secrets where anybody reads it or the journal keeps it. One
    /// that has a secret for a name is refused.
    pub(super) fn clean_task(&self, task: Task) -> Result<Task, Error> {
        let names = [
            ("the thread", task.thread.as_ref().map(|key| key.as_str())),
            (
                "the resource",
                task.resource.as_ref().map(|key| key.as_str()),
            ),
            ("the lane", task.lane.as_ref().map(|key| key.as_str())),
            ("the inbox", task.inbox.as_ref().map(|name| name.as_str())),
            ("the type", task.kind.as_deref()),
            ("the model", task.model.as_deref()),
            ("the idempotency key", task.idempotency_key.as_deref()),
        ];
        let names = names
            .into_iter()
            .filter_map(|(what, name)| Some((what, name?)));
        let tags = task.tags.iter().map(|tag| ("a tag", tag.as_str()));
        let context = task.context.keys();
        let context = context.map(|name| ("a name of the context", name.as_str()));
        for (what, name) in names.chain(tags).chain(context) {
            self.is_no_secret(what, name)?;
        }
        self.context_is_clean(&task)?;
        let cleaner = self.cleaner();
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
    fn context_is_clean(&self, task: &Task) -> Result<(), Error> {
        let cleaner = self.cleaner();
        let mut context = task.context.iter();
        let held = context.find_map(|(name, value)| Some((name, cleaner.held_in(value)?)));
        let Some((name, secret)) = held else {
            return Ok(());
        };
        let why = format!(
            "`{name}` of the context holds the secret `{secret}`, which is not handed to tools: \
             write it without"
        );
        Err(Refusal::BadTask(why).into())
    }

    /// An answer without secrets.
    pub(super) fn clean_answer(&self, answer: Answer) -> Answer {
        let cleaner = self.cleaner();
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
    pub(super) fn clean_word(&self, mut word: Word) -> Word {
        let clean = |text: &mut String| *text = self.clean(std::mem::take(text));
        match &mut word {
            Word::Steer(message) | Word::ChangeSteer(message) => {
                clean(&mut message.text);
                clean(&mut message.by);
            }
            Word::Cancel { by, reason } => {
                clean(by);
                clean(reason);
            }
            Word::WithdrawSteer { by, .. }
            | Word::Pause { by }
            | Word::Resume { by, .. }
            | Word::RaiseBudget { by, .. }
            | Word::RevokeRule { by, .. } => clean(by),
            // These say what was kept before, without any.
            Word::Answer { .. } | Word::Timer(_) | Word::ChildEnded { .. } | Word::Surface(_) => {}
        }
        word
    }

    /// A note without secrets.
    pub(super) fn clean_note(&self, of: &ResourceKey, note: NewNote) -> Result<NewNote, Error> {
        self.is_no_secret("the resource", of.as_str())?;
        self.is_no_secret("the note's key", note.key())?;
        let written = note.kept(of, Timestamp::default());
        let text = self.clean(written.text.clone());
        let tags = written.tags.iter().map(|tag| self.clean(tag.clone()));
        let tags: Vec<String> = tags.collect();
        if text == written.text && tags == written.tags {
            return Ok(note);
        }
        let clean = NewNote::new(note.key(), text, tags, written.run);
        clean.map_err(|bad| Refusal::BadTask(bad.to_string()).into())
    }
}
