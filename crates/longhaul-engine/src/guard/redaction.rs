//! Redacts secrets in everything that is stored: texts, JSON, messages, model output and agent
//! files.
//!
//! Names and tool inputs are not changed. Callers reject a name or tool input that contains a
//! secret.

use std::borrow::Cow;
use std::sync::Arc;

use longhaul_core::event::tool::ToolOutput;
use longhaul_core::failure::Failure;
use longhaul_core::message::{Block, Message, Part, Reply, TextBlock, ToolCall};
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

/// Whether a template tag (`{{` or `{%`) is still open at the end of this text.
fn ends_inside_template_tag(text: &str) -> bool {
    let opened = text.rfind("{{").max(text.rfind("{%"));
    let closed = text.rfind("}}").max(text.rfind("%}"));
    opened > closed
}

/// Redacts secrets in the types of the engine, such as messages and agents.
#[derive(Debug, Clone, Copy)]
pub struct Redaction<'a>(pub &'a dyn Redact);

impl Redaction<'_> {
    /// Redacts secrets in a text.
    pub(crate) fn redact_text(self, text: String) -> String {
        match self.0.redact(&text) {
            Cow::Owned(clean) => clean,
            Cow::Borrowed(_) => text,
        }
    }

    /// Redacts secrets in the strings, keys and numbers of a JSON value.
    pub(crate) fn redact_json(self, json: &RawJson) -> RawJson {
        self.0.redact_json(json)
    }

    fn redact_optional_json(self, extra: Option<&RawJson>) -> Option<RawJson> {
        extra.map(|json| self.redact_json(json))
    }

    /// Redacts secrets in a shared text.
    pub(crate) fn redact_shared_text(self, text: &Arc<str>) -> Arc<str> {
        match self.0.redact(text) {
            Cow::Owned(clean) => clean.into(),
            Cow::Borrowed(_) => Arc::clone(text),
        }
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

    /// Returns, for each tool call of a reply, the name of a secret in the input of the call. Such
    /// calls are not made, because with the secret redacted they would be different calls.
    pub(crate) fn secret_names_in_calls(self, reply: &Reply) -> Vec<Option<String>> {
        reply.tool_calls().map(|call| self.secret_name_in_json(&call.input)).collect()
    }

    /// Redacts secrets in a template. The placeholder looks like a template tag, so it is inserted
    /// as a string literal. If a secret is part of a tag, the whole template becomes the
    /// placeholder, and new runs of the agent are rejected.
    fn redact_template(self, source: String) -> String {
        let Cow::Owned(clean) = self.0.redact(&source) else {
            return source;
        };
        let mut text = String::with_capacity(clean.len());
        let mut rest = clean.as_str();
        while let Some(found) = find_secret_placeholder(rest) {
            text.push_str(&rest[..found.start]);
            if ends_inside_template_tag(&text) {
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
    pub(crate) fn redact_message(self, message: Message) -> Message {
        match message {
            Message::User(parts) => Message::User(self.redact_parts(parts)),
            Message::Assistant(reply) => Message::Assistant(self.redact_reply(&reply)),
            Message::Results(mut results) => {
                for result in &mut results {
                    result.content = self.redact_parts(std::mem::take(&mut result.content));
                }
                Message::Results(results)
            }
        }
    }

    fn redact_parts(self, parts: Vec<Part>) -> Vec<Part> {
        let clean = parts.into_iter().map(|part| match part {
            Part::Text(text) => Part::Text(self.redact_shared_text(&text)),
            Part::Image(_) => part,
        });
        clean.collect()
    }

    /// Redacts secrets in the output of a tool call.
    pub(crate) fn redact_tool_output(self, mut output: ToolOutput) -> ToolOutput {
        output.content = self.redact_parts(output.content);
        for json in output.artifacts.iter_mut().chain(&mut output.loaded_tools) {
            *json = self.redact_json(json);
        }
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
        Some(match block {
            Block::Text(text_block) => Block::Text(TextBlock {
                text: self.redact_shared_text(&text_block.text),
                extra: self.redact_optional_json(text_block.extra.as_ref()),
            }),
            Block::Thinking(thought) => {
                let is_clean = self.redact_shared_text(&thought.text) == thought.text
                    && self.redact_optional_json(thought.extra.as_ref()) == thought.extra;
                return is_clean.then(|| block.clone());
            }
            Block::ToolCall(call) => Block::ToolCall(ToolCall {
                id: call.id.clone(),
                name: self.redact_text(call.name.clone()),
                input: self.redact_json(&call.input),
                extra: self.redact_optional_json(call.extra.as_ref()),
            }),
            Block::Other(raw) => Block::Other(self.redact_json(raw)),
        })
    }

    /// Redacts secrets in the response of a model, which is untrusted.
    pub(crate) fn redact_response(self, response: ModelResponse) -> ModelResponse {
        ModelResponse {
            reply: self.redact_reply(&response.reply),
            stop: response.stop.map_unknown_stop_reason(|text| self.redact_text(text)),
            model: self.redact_text(response.model),
            output: response.output.map(|output| self.redact_run_output(output)),
            ..response
        }
    }

    fn redact_run_output(self, output: RunOutput) -> RunOutput {
        let artifacts = output.artifacts.iter();
        RunOutput {
            text: self.redact_text(output.text),
            data: self.redact_optional_json(output.data.as_ref()),
            confidence: output.confidence,
            artifacts: artifacts.map(|artifact| self.redact_json(artifact)).collect(),
            // Only a person's answer to the run's gate sets this field, never a model.
            answer: None,
        }
    }

    /// Redacts secrets in the description of a failure.
    pub(crate) fn redact_failure(self, failure: Failure) -> Failure {
        Failure {
            message: self.redact_text(failure.message),
            request_id: failure.request_id.map(|id| self.redact_text(id)),
            ..failure
        }
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
            match &mut rule.action {
                GateRuleAction::Ask(message) | GateRuleAction::Deny(message) => {
                    *message = self.redact_text(std::mem::take(message));
                }
                GateRuleAction::Allow => {}
            }
        }
        if let Some(gate) = &mut agent.result_gate {
            gate.ask = self.redact_text(std::mem::take(&mut gate.ask));
        }
        for skill in &mut agent.skills {
            skill.description = self.redact_text(std::mem::take(&mut skill.description));
        }
        for template in agent.events.values_mut() {
            *template = self.redact_template(std::mem::take(template));
        }
        Agent {
            description: self.redact_text(agent.description),
            output: agent.output.as_ref().map(|schema| self.redact_json(schema)),
            project_rules: self.redact_text(agent.project_rules),
            prompt: self.redact_template(agent.prompt),
            ..agent
        }
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
