//! Takes secrets out of whatever is about to be kept: texts, data, messages, the
//! words of models and of agents' files.
//!
//! Never: changes a name that something is found by, or what a program is told.
//! Whoever sees a secret there refuses it.

use std::borrow::Cow;
use std::sync::Arc;

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::failure::Failure;
use longhaul_core::message::{Block, Message, Part, Reply, TextBlock, ToolCall};
use longhaul_core::policy::gate::RuleAction;
use longhaul_core::port::context::Perception;
use longhaul_core::port::model::ModelResponse;
use longhaul_core::port::redact::{Redact, find_placeholder, placeholder, placeholder_name};
use longhaul_core::raw::RawJson;

use crate::agent::{Agent, AgentRegistry};
use crate::template;

/// What the first secret is called that stands in a text no more. A text may speak
/// of what stands for another.
fn removed_secret_name(text: &str, clean: &str) -> String {
    let mut rest = clean;
    while let Some(found) = find_placeholder(rest) {
        let stands = &rest[found.clone()];
        if clean.matches(stands).count() > text.matches(stands).count() {
            return placeholder_name(stands).unwrap_or(UNNAMED_SECRET).to_owned();
        }
        rest = &rest[found.end..];
    }
    UNNAMED_SECRET.to_owned()
}

/// What a secret is called that nobody named.
const UNNAMED_SECRET: &str = "of this project";

/// Whether a tag of a template is open at the end of this.
fn is_in_tag(before: &str) -> bool {
    let opened = before.rfind("{{").max(before.rfind("{%"));
    let closed = before.rfind("}}").max(before.rfind("%}"));
    opened > closed
}

/// Whoever knows the secrets, at work.
#[derive(Debug, Clone, Copy)]
pub struct Redaction<'a>(pub &'a dyn Redact);

impl Redaction<'_> {
    /// A text without secrets.
    pub(crate) fn text(self, text: String) -> String {
        match self.0.redact(&text) {
            Cow::Owned(clean) => clean,
            Cow::Borrowed(_) => text,
        }
    }

    /// Data without secrets.
    pub(crate) fn json(self, json: &RawJson) -> RawJson {
        self.0.redact_json(json)
    }

    fn extra(self, extra: Option<&RawJson>) -> Option<RawJson> {
        extra.map(|json| self.json(json))
    }

    /// The words that stand in a message without secrets.
    pub(crate) fn shared_text(self, text: &Arc<str>) -> Arc<str> {
        match self.0.redact(text) {
            Cow::Owned(clean) => clean.into(),
            Cow::Borrowed(_) => Arc::clone(text),
        }
    }

    /// The secret that a name holds; none: it holds none. What it is called, never
    /// what it is.
    pub(crate) fn secret_in_text(self, name: &str) -> Option<String> {
        match self.0.redact(name) {
            Cow::Borrowed(_) => None,
            Cow::Owned(clean) => Some(removed_secret_name(name, &clean)),
        }
    }

    /// The secret that data hold; none: they hold none.
    pub(crate) fn secret_in_json(self, json: &RawJson) -> Option<String> {
        let clean = self.json(json);
        (clean != *json).then(|| removed_secret_name(json.as_str(), clean.as_str()))
    }

    /// The secret in the input of each call of a reply. Without it that would be
    /// another call, which nobody asked for.
    pub(crate) fn secrets_in_calls(self, reply: &Reply) -> Vec<Option<String>> {
        reply.calls().map(|call| self.secret_in_json(&call.input)).collect()
    }

    /// A template without secrets. What stands for one looks like a template
    /// itself, so that it is written as the text that it is. Where the template
    /// reckons with a secret, only what stands for that is left of the whole: it is
    /// no template, and whoever would begin a run with it is refused.
    fn template(self, source: String) -> String {
        let Cow::Owned(clean) = self.0.redact(&source) else {
            return source;
        };
        let mut written = String::with_capacity(clean.len());
        let mut rest = clean.as_str();
        while let Some(found) = find_placeholder(rest) {
            written.push_str(&rest[..found.start]);
            if is_in_tag(&written) {
                return placeholder(&removed_secret_name(&source, &clean));
            }
            written.push_str(&format!("{{{{ \"{}\" }}}}", &rest[found.clone()]));
            rest = &rest[found.end..];
        }
        written.push_str(rest);
        match template::compiles(&written) {
            true => written,
            false => placeholder(&removed_secret_name(&source, &clean)),
        }
    }

    /// A message without secrets.
    pub(crate) fn message(self, message: Message) -> Message {
        match message {
            Message::User(parts) => Message::User(self.parts(parts)),
            Message::Assistant(reply) => Message::Assistant(self.reply(&reply)),
            Message::Results(mut results) => {
                for result in &mut results {
                    result.content = self.parts(std::mem::take(&mut result.content));
                }
                Message::Results(results)
            }
        }
    }

    fn parts(self, parts: Vec<Part>) -> Vec<Part> {
        let clean = parts.into_iter().map(|part| match part {
            Part::Text(text) => Part::Text(self.shared_text(&text)),
            Part::Image(_) => part,
        });
        clean.collect()
    }

    /// The output of a call without secrets.
    pub(crate) fn output(self, mut output: ToolOutput) -> ToolOutput {
        output.content = self.parts(output.content);
        output
    }

    fn reply(self, reply: &Arc<Reply>) -> Arc<Reply> {
        let blocks = reply.blocks.iter();
        let blocks: Vec<Block> = blocks.filter_map(|block| self.block(block)).collect();
        if blocks == reply.blocks {
            return Arc::clone(reply);
        }
        Arc::new(Reply { api: reply.api.clone(), blocks })
    }

    /// None: a thought is sealed, and one that is changed would be refused.
    fn block(self, block: &Block) -> Option<Block> {
        Some(match block {
            Block::Text(words) => Block::Text(TextBlock {
                text: self.shared_text(&words.text),
                extra: self.extra(words.extra.as_ref()),
            }),
            Block::Thinking(thought) => {
                let is_clean = self.shared_text(&thought.text) == thought.text
                    && self.extra(thought.extra.as_ref()) == thought.extra;
                return is_clean.then(|| block.clone());
            }
            Block::ToolCall(call) => Block::ToolCall(ToolCall {
                id: call.id.clone(),
                name: self.text(call.name.clone()),
                input: self.json(&call.input),
                extra: self.extra(call.extra.as_ref()),
            }),
            Block::Other(raw) => Block::Other(self.json(raw)),
        })
    }

    /// What a model answered, without secrets: whoever answers for it is a stranger.
    pub(crate) fn response(self, answered: ModelResponse) -> ModelResponse {
        ModelResponse {
            reply: self.reply(&answered.reply),
            stop: answered.stop.map_text(|words| self.text(words)),
            model: self.text(answered.model),
            ..answered
        }
    }

    /// A failure without secrets.
    pub(crate) fn failure(self, failure: Failure) -> Failure {
        Failure {
            message: self.text(failure.message),
            request_id: failure.request_id.map(|id| self.text(id)),
            ..failure
        }
    }

    /// What was seen, without secrets: it is journaled, and the model reads it.
    pub(crate) fn perception(self, seen: Perception) -> Perception {
        let context = seen.context.into_iter();
        let context = context.map(|(name, value)| (self.text(name), self.json(&value)));
        Perception { world: self.json(&seen.world), context: context.collect() }
    }

    /// An agent without secrets in what is read of its file, by models or people.
    pub fn agent(self, mut agent: Agent) -> Agent {
        for rule in &mut agent.rules {
            match &mut rule.action {
                RuleAction::Ask(words) | RuleAction::Deny(words) => {
                    *words = self.text(std::mem::take(words));
                }
                RuleAction::Allow => {}
            }
        }
        if let Some(gate) = &mut agent.result_gate {
            gate.ask = self.text(std::mem::take(&mut gate.ask));
        }
        for skill in &mut agent.skills {
            skill.description = self.text(std::mem::take(&mut skill.description));
        }
        for written in agent.events.values_mut() {
            *written = self.template(std::mem::take(written));
        }
        Agent {
            description: self.text(agent.description),
            output: agent.output.as_ref().map(|schema| self.json(schema)),
            project_rules: self.text(agent.project_rules),
            prompt: self.template(agent.prompt),
            ..agent
        }
    }

    /// All agents, each without secrets.
    pub(crate) fn agents(self, roster: &AgentRegistry) -> AgentRegistry {
        let mut clean = AgentRegistry::default();
        for agent in roster.all() {
            clean.register(self.agent(Agent::clone(agent)));
        }
        clean
    }
}
