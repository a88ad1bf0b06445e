//! Takes secrets out of what people and programs say, before anything is kept of it.
//!
//! Never: looks into what only names things, such as keys and labels.

use std::borrow::Cow;
use std::sync::Arc;

use longhaul_core::id::ResourceKey;
use longhaul_core::message::{Block, Message, Part, Reply, ToolCall, Words};
use longhaul_core::note::NewNote;
use longhaul_core::policy::gate::{Answer, Decision};
use longhaul_core::raw::RawJson;
use longhaul_core::time::Timestamp;
use longhaul_run::Refusal;

use crate::error::Error;
use crate::handle::Longhaul;
use crate::task::Task;

impl Longhaul {
    /// A text without secrets.
    pub(super) fn clean(&self, text: String) -> String {
        match self.ports.redact.redact(&text) {
            Cow::Owned(clean) => clean,
            Cow::Borrowed(_) => text,
        }
    }

    fn clean_json(&self, json: &RawJson) -> RawJson {
        self.ports.redact.redact_json(json)
    }

    /// A task without secrets where a model or a tool reads it, or the journal keeps
    /// it. What the caller only wants back stays as it is.
    pub(super) fn clean_task(&self, task: Task) -> Task {
        let context = task.context.iter();
        let context = context.map(|(name, value)| (name.clone(), self.clean_json(value)));
        let history = task.history.into_iter();
        Task {
            input: self.clean_json(&task.input),
            context: context.collect(),
            history: history.map(|message| self.clean_message(message)).collect(),
            actor: task.actor.as_ref().map(|actor| self.clean_json(actor)),
            ..task
        }
    }

    /// An answer without secrets.
    pub(super) fn clean_answer(&self, answer: Answer) -> Answer {
        Answer {
            decision: match answer.decision {
                Decision::Edit(input) => Decision::Edit(self.clean_json(&input)),
                Decision::Answer(words) => Decision::Answer(self.clean(words)),
                plain @ (Decision::Approve | Decision::Reject | Decision::Complete) => plain,
            },
            note: answer.note.map(|note| self.clean(note)),
            payload: answer.payload.as_ref().map(|json| self.clean_json(json)),
            ..answer
        }
    }

    /// A note without secrets.
    pub(super) fn clean_note(&self, of: &ResourceKey, note: NewNote) -> Result<NewNote, Error> {
        let written = note.kept(of, Timestamp::default());
        let text = self.clean(written.text.clone());
        let tags: Vec<String> = written
            .tags
            .iter()
            .map(|tag| self.clean(tag.clone()))
            .collect();
        if text == written.text && tags == written.tags {
            return Ok(note);
        }
        let clean = NewNote::new(note.key(), text, tags, written.run);
        clean.map_err(|bad| Refusal::BadTask(bad.to_string()).into())
    }

    /// A message without secrets.
    pub(super) fn clean_message(&self, message: Message) -> Message {
        match message {
            Message::User(parts) => Message::User(self.clean_parts(parts)),
            Message::Assistant(reply) => {
                let blocks = reply.blocks.iter();
                Message::Assistant(Arc::new(Reply {
                    dialect: reply.dialect.clone(),
                    blocks: blocks.filter_map(|block| self.clean_block(block)).collect(),
                }))
            }
            Message::Results(mut results) => {
                for result in &mut results {
                    result.content = self.clean_parts(std::mem::take(&mut result.content));
                }
                Message::Results(results)
            }
        }
    }

    fn clean_parts(&self, parts: Vec<Part>) -> Vec<Part> {
        let clean = parts.into_iter().map(|part| match part {
            Part::Text(text) => Part::Text(self.clean_words(&text)),
            Part::Image(_) => part,
        });
        clean.collect()
    }

    fn clean_words(&self, text: &Arc<str>) -> Arc<str> {
        match self.ports.redact.redact(text) {
            Cow::Owned(clean) => clean.into(),
            Cow::Borrowed(_) => Arc::clone(text),
        }
    }

    /// None: a thought is sealed, and one that is changed would be refused.
    fn clean_block(&self, block: &Block) -> Option<Block> {
        let extra = |extra: &Option<RawJson>| extra.as_ref().map(|json| self.clean_json(json));
        Some(match block {
            Block::Text(words) => Block::Text(Words {
                text: self.clean_words(&words.text),
                extra: extra(&words.extra),
            }),
            Block::Thinking(thought) => {
                let is_clean = self.clean_words(&thought.text) == thought.text
                    && extra(&thought.extra) == thought.extra;
                return is_clean.then(|| block.clone());
            }
            Block::ToolCall(call) => Block::ToolCall(ToolCall {
                id: call.id.clone(),
                name: call.name.clone(),
                input: self.clean_json(&call.input),
                extra: extra(&call.extra),
            }),
            Block::Other(raw) => Block::Other(self.clean_json(raw)),
        })
    }
}
