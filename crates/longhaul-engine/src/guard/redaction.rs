//! Redacts secrets in everything that is stored: texts, JSON, messages, model output and agent
//! files.
//!
//! Names and tool inputs are not changed. Callers reject a name or tool input that contains a
//! secret.

use std::borrow::Cow;
use std::sync::Arc;

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::message::{
    Block, Message, Part, Reply, StopReason, TextBlock, ThinkingBlock, ToolCall,
};
use longhaul_core::policy::gate::GateRuleAction;
use longhaul_core::port::context::Perception;
use longhaul_core::port::model::ModelResponse;
use longhaul_core::port::redact::{
    Redact, find_secret_placeholder, secret_name_in_placeholder, secret_placeholder,
};
use longhaul_core::raw::RawJson;
use longhaul_core::status::RunOutput;

use crate::agent::{Agent, AgentRegistry};
use crate::guard::template;

/// Returns the name of the first secret that was redacted from `text`. Placeholders that `text`
/// already contained are not counted.
fn redacted_secret_name(text: &str, redacted: &str) -> String {
    let mut rest = redacted;
    while let Some(found) = find_secret_placeholder(rest) {
        let marker = &rest[found.clone()];
        if redacted.matches(marker).count() > text.matches(marker).count() {
            return secret_name_in_placeholder(marker).unwrap_or(UNNAMED_SECRET).to_owned();
        }
        rest = &rest[found.end..];
    }
    UNNAMED_SECRET.to_owned()
}

/// Name that messages use for a secret without a name.
const UNNAMED_SECRET: &str = "(unnamed)";

/// Redacts secrets in the types of the engine, such as messages and agents.
#[derive(Debug, Clone, Copy)]
pub struct Redaction<'a>(pub &'a dyn Redact);

impl Redaction<'_> {
    /// Redacts secrets in a text.
    pub(crate) fn redact_text(self, mut text: String) -> String {
        self.clean(&mut text);
        text
    }

    /// Redacts secrets in a text in place.
    pub(crate) fn clean(self, text: &mut String) {
        if let Cow::Owned(clean) = self.0.redact(text) {
            *text = clean;
        }
    }

    /// Redacts secrets in a shared text in place.
    pub(crate) fn clean_shared(self, text: &mut Arc<str>) {
        if let Cow::Owned(clean) = self.0.redact(text) {
            *text = clean.into();
        }
    }

    /// Redacts secrets in the strings, keys and numbers of a JSON value.
    pub(crate) fn redact_json(self, json: &RawJson) -> RawJson {
        self.0.redact_json(json)
    }

    /// Redacts secrets in the strings, keys and numbers of a JSON value in place.
    pub(crate) fn clean_json(self, json: &mut RawJson) {
        *json = self.redact_json(json);
    }

    /// Returns the name (never the value) of a secret that the text contains. `None` if the text
    /// contains no secret.
    pub(crate) fn secret_name_in_text(self, text: &str) -> Option<String> {
        match self.0.redact(text) {
            Cow::Borrowed(_) => None,
            Cow::Owned(clean) => Some(redacted_secret_name(text, &clean)),
        }
    }

    /// Returns the name of a secret that the JSON value contains. `None` if it contains no secret.
    pub(crate) fn secret_name_in_json(self, json: &RawJson) -> Option<String> {
        let clean = self.redact_json(json);
        (clean != *json).then(|| redacted_secret_name(json.as_str(), clean.as_str()))
    }

    /// Redacts secrets in a template. The placeholder looks like a template tag, so it is inserted
    /// as a string literal. If a secret is part of a tag, the whole template becomes the
    /// placeholder, and new runs of the agent are rejected.
    fn redact_template(self, source: String) -> String {
        let Cow::Owned(clean) = self.0.redact(&source) else { return source };
        let mut text = String::with_capacity(clean.len());
        let mut rest = clean.as_str();
        while let Some(found) = find_secret_placeholder(rest) {
            text.push_str(&rest[..found.start]);
            // A template tag (`{{` or `{%`) is still open here.
            if text.rfind("{{").max(text.rfind("{%")) > text.rfind("}}").max(text.rfind("%}")) {
                return secret_placeholder(&redacted_secret_name(&source, &clean));
            }
            text.push_str(&format!("{{{{ \"{}\" }}}}", &rest[found.clone()]));
            rest = &rest[found.end..];
        }
        text.push_str(rest);
        match template::is_valid_template(&text) {
            true => text,
            false => secret_placeholder(&redacted_secret_name(&source, &clean)),
        }
    }

    /// Redacts secrets in a message of a conversation.
    pub(crate) fn redact_message(self, mut message: Message) -> Message {
        match &mut message {
            Message::User(parts) => self.clean_parts(parts),
            Message::Assistant(reply) => *reply = self.redact_reply(reply),
            Message::Results(results) => {
                results.iter_mut().for_each(|result| self.clean_parts(&mut result.content));
            }
        }
        message
    }

    fn clean_parts(self, parts: &mut [Part]) {
        for part in parts {
            if let Part::Text(text) = part {
                self.clean_shared(text);
            }
        }
    }

    /// Redacts secrets in the output of a tool call.
    pub(crate) fn redact_tool_output(self, mut output: ToolOutput) -> ToolOutput {
        self.clean_parts(&mut output.content);
        let jsons = output.artifacts.iter_mut().chain(&mut output.loaded_tools);
        jsons.for_each(|json| self.clean_json(json));
        output
    }

    fn redact_reply(self, reply: &Arc<Reply>) -> Arc<Reply> {
        let blocks = reply.blocks.iter();
        let blocks: Vec<Block> =
            blocks.filter_map(|block| self.redact_or_drop_block(block)).collect();
        if blocks == reply.blocks {
            return Arc::clone(reply);
        }
        Arc::new(Reply { api: reply.api.clone(), blocks })
    }

    /// Redacts secrets in a block of a reply. `None` drops a thinking block with a secret: the
    /// block is signed, and providers reject a changed block.
    fn redact_or_drop_block(self, block: &Block) -> Option<Block> {
        let mut clean = block.clone();
        let extra = match &mut clean {
            Block::Text(TextBlock { text, extra }) => {
                self.clean_shared(text);
                extra.as_mut()
            }
            Block::Thinking(ThinkingBlock { text, extra, .. }) => {
                self.clean_shared(text);
                extra.as_mut()
            }
            Block::ToolCall(ToolCall { name, input, extra, .. }) => {
                self.clean(name);
                self.clean_json(input);
                extra.as_mut()
            }
            Block::Other(raw) => Some(raw),
        };
        extra.into_iter().for_each(|json| self.clean_json(json));
        let is_signed = matches!(block, Block::Thinking(_));
        (!is_signed || clean == *block).then_some(clean)
    }

    /// Redacts secrets in the response of a model, which is untrusted.
    pub(crate) fn redact_response(self, mut response: ModelResponse) -> ModelResponse {
        response.reply = self.redact_reply(&response.reply);
        if let StopReason::Other(reason) = &mut response.stop {
            self.clean(reason);
        }
        self.clean(&mut response.model);
        if let Some(RunOutput { text, data, artifacts, answer, .. }) = &mut response.output {
            self.clean(text);
            data.iter_mut().chain(artifacts).for_each(|json| self.clean_json(json));
            // Only a person's answer to the run's gate sets this field, never a model.
            *answer = None;
        }
        response
    }

    /// Redacts secrets in a perception (the state of the world), which is journaled and which the
    /// model reads.
    pub(crate) fn redact_perception(self, perception: Perception) -> Perception {
        let context = perception.context.into_iter();
        let context =
            context.map(|(name, value)| (self.redact_text(name), self.redact_json(&value)));
        Perception { world: self.redact_json(&perception.world), context: context.collect() }
    }

    /// Redacts secrets in those parts of an agent's definition that models or people read.
    pub fn redact_agent(self, mut agent: Agent) -> Agent {
        for rule in &mut agent.rules {
            if let GateRuleAction::Ask(message) | GateRuleAction::Deny(message) = &mut rule.action {
                self.clean(message);
            }
        }
        let texts = agent.result_gate.iter_mut().map(|gate| &mut gate.ask);
        let texts = texts.chain(agent.skills.iter_mut().map(|skill| &mut skill.description));
        let texts = texts.chain([&mut agent.description, &mut agent.project_rules]);
        texts.for_each(|text| self.clean(text));
        agent.output.iter_mut().for_each(|schema| self.clean_json(schema));
        for template in agent.events.values_mut().chain([&mut agent.prompt]) {
            *template = self.redact_template(std::mem::take(template));
        }
        agent
    }

    /// Redacts secrets in the definitions of all agents.
    pub(crate) fn redact_agents(self, agents: &AgentRegistry) -> AgentRegistry {
        let mut clean = AgentRegistry::default();
        for agent in agents.agents() {
            clean.register(self.redact_agent(Agent::clone(agent)));
        }
        clean
    }
}
