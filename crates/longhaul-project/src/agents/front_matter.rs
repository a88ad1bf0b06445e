//! Parses the front matter and the body of an agent file into an agent, and records every problem.
//!
//! The caller must check the diagnostics before the agent is used.

use longhaul_core::id::AgentName;
use longhaul_core::policy::effect::InDoubtPolicy;
use longhaul_core::policy::{LaneBusyPolicy, ParkedLanePolicy};
use longhaul_engine::agent::check::missing_sandbox_error;
use longhaul_engine::agent::{Agent, BudgetPatch, RetryPatch};

use crate::agents::diagnostics::{Diagnostics, Fields, integer, number};
use crate::agents::files::{self, AgentFileParts};
use crate::config::settings::{factor_to_percent, fraction_to_percent, usd_to_micros};
use crate::config::value_kind::USD_MIN;
use crate::spanned::{Node, NodeValue, ParseError, Position, TableEntry, yaml};
use longhaul_engine::agent::template_check::{self, LANE_VARIABLES, prompt_variable_names};

/// Parses a YAML text into a tree, with or without positions.
type YamlParser = fn(&str) -> Result<Node, ParseError>;

/// Parses an agent file; `stem` is the file's name without `.md`. The diagnostics must be empty.
pub(crate) fn parse(diagnostics: &mut Diagnostics<'_>, stem: &AgentName, bytes: &[u8]) -> Agent {
    let agent = diagnostics.parse_agent_file(stem, bytes, yaml::parse_without_positions);
    if diagnostics.problems.is_empty() && diagnostics.notes.is_empty() {
        return agent;
    }
    // Only messages need positions, and finding them takes most of the time.
    diagnostics.clear();
    diagnostics.parse_agent_file(stem, bytes, yaml::parse)
}

impl Diagnostics<'_> {
    fn parse_agent_file(&mut self, stem: &AgentName, bytes: &[u8], parse: YamlParser) -> Agent {
        let mut agent = Agent::new(stem.clone());
        let parts = match files::split_agent_file(bytes) {
            Ok(parts) => parts,
            Err((position, message)) => {
                self.report_invalid(position, message);
                return agent;
            }
        };
        let has_perception = match parse(&parts.front_matter) {
            Ok(node) => self.parse_agent_fields(&mut agent, node),
            Err(error) => {
                self.report_invalid(error.position, error.message);
                true
            }
        };
        self.parse_prompt_body(&mut agent, parts, &prompt_variable_names(has_perception));
        agent
    }

    /// Parses all fields of the front matter into `agent`. Returns whether the front matter has the
    /// field `perception` (a source of data about the outside world).
    fn parse_agent_fields(&mut self, agent: &mut Agent, node: Node) -> bool {
        if node.value == NodeValue::Null {
            return false;
        }
        let root_entry =
            TableEntry { key: "front matter".to_owned(), position: node.position, node };
        let Some(mut fields) = Fields::new(self, &root_entry, "name") else {
            return false;
        };
        check_name(&mut fields, agent);
        fields.set("description", &mut agent.description, Diagnostics::text);
        fields.set("model", &mut agent.models, Diagnostics::parse_models);
        fields.set("idle_model", &mut agent.idle_models, Diagnostics::parse_models);
        fields.set("context", &mut agent.context, Diagnostics::unique_texts);
        if let Some(lists) = fields.parse("tools", Diagnostics::parse_tools) {
            (agent.tools, agent.deferred_tools) = lists;
        }
        parse_max_turns(&mut fields, agent);
        fields.set("budget", &mut agent.budget, Diagnostics::parse_budget);
        fields.set("retry", &mut agent.retry, Diagnostics::parse_retry_patch);
        fields.set("keep_open", &mut agent.keep_open, Diagnostics::duration);
        fields.set("approve", &mut agent.rules, |diagnostics, entry| {
            diagnostics.list_items(entry, Diagnostics::parse_gate_rule)
        });
        fields.set("effects", &mut agent.effects, |diagnostics, entry| {
            diagnostics.list_items(entry, Diagnostics::parse_effect_rule)
        });
        fields.set("in_doubt", &mut agent.in_doubt, Diagnostics::one_of::<InDoubtPolicy>);
        fields.set("ask_human", &mut agent.question_timeout, Diagnostics::parse_question_timeout);
        fields.set("approve_result", &mut agent.result_gate, Diagnostics::result_gate);
        fields.set("lane", &mut agent.lane, |diagnostics, entry| {
            diagnostics.template(entry, Some(LANE_VARIABLES))
        });
        fields.set(
            "lane_on_park",
            &mut agent.lane_on_park,
            Diagnostics::one_of::<ParkedLanePolicy>,
        );
        fields.set("lane_busy", &mut agent.lane_busy, Diagnostics::one_of::<LaneBusyPolicy>);
        fields.set("skills", &mut agent.skills, Diagnostics::parse_skills);
        fields.set("sandbox", &mut agent.sandbox, Diagnostics::parse_sandbox);
        fields.set("guards", &mut agent.guards, Diagnostics::parse_loop_guards);
        fields.set("children", &mut agent.children, Diagnostics::parse_children_config);
        fields.set("compaction", &mut agent.compaction, Diagnostics::parse_compaction);
        fields.set("perception", &mut agent.perception, Diagnostics::parse_perception);
        fields.set("events", &mut agent.events, Diagnostics::parse_events);
        fields.set("output", &mut agent.output, Diagnostics::parse_output_field);
        fields.set("outcome", &mut agent.outcome, Diagnostics::parse_outcome_field);
        // Without a sandbox, an agent with the shell tool must declare that its commands run unsandboxed.
        let commands = fields.get("sandbox").or_else(|| fields.get("tools"));
        if let (Some(entry), Some(message)) = (commands, missing_sandbox_error(agent)) {
            fields.diagnostics.report_unsupported(entry.position, message);
        }
        fields.get("perception").is_some()
    }

    /// Parses one model, or a list of models in the order in which they are tried.
    fn parse_models(&mut self, entry: &TableEntry) -> Option<Vec<String>> {
        let models = match entry.node.as_list() {
            None => vec![(entry.node.position, self.text(entry)?)],
            Some(_) => self.texts_with_positions(entry),
        };
        if entry.node.as_list().is_some_and(<[Node]>::is_empty) {
            let message = format!("`{}` is empty: name a model, or remove the line", entry.key);
            self.report_invalid(entry.node.position, message);
        }
        for (position, model) in &models {
            self.report_unusable_model(*position, model);
        }
        Some(models.into_iter().map(|(_, model)| model).collect())
    }

    fn parse_budget(&mut self, entry: &TableEntry) -> Option<BudgetPatch> {
        let mut fields = Fields::new(self, entry, "usd")?;
        let mut budget = BudgetPatch::default();
        budget.caps.micro_usd = fields.parse("usd", number(USD_MIN, 1e9)).map(usd_to_micros);
        fields.set("active_time", &mut budget.caps.active, Diagnostics::duration);
        fields.set("turns", &mut budget.caps.turns, integer::<u32>(1));
        fields.set("tokens", &mut budget.caps.tokens, integer::<u64>(1));
        budget.warn_percent = fields.parse("warn_at", number(0.0, 1.0)).map(fraction_to_percent);
        Some(budget)
    }

    fn parse_retry_patch(&mut self, entry: &TableEntry) -> Option<RetryPatch> {
        let mut fields = Fields::new(self, entry, "max_retries")?;
        Some(RetryPatch {
            max_retries: fields.parse("max_retries", integer(0)),
            initial_delay: fields.parse("initial_delay", Diagnostics::duration),
            max_delay: fields.parse("max_delay", Diagnostics::duration),
            multiplier_percent: fields.parse("multiplier", number(1.0, 1e3)).map(factor_to_percent),
            soft_timeout: fields.parse("soft_timeout", Diagnostics::duration),
            hard_timeout: fields.parse("hard_timeout", Diagnostics::duration),
            outage: fields.parse("outage", Diagnostics::duration_or_zero),
        })
    }

    fn parse_prompt_body(&mut self, agent: &mut Agent, parts: AgentFileParts, names: &[&str]) {
        if let Some(error) = template_check::find_template_error(&parts.body, Some(names)) {
            let position =
                Position { line: parts.body_line + error.position.line - 1, ..error.position };
            self.report_invalid(position, error.message);
        }
        agent.prompt = parts.body;
    }
}

/// Checks that the field `name`, if there is one, is the name of the file.
fn check_name(fields: &mut Fields<'_, '_, '_>, agent: &Agent) {
    if let Some(entry) = fields.get("name")
        && let Some(name) = fields.diagnostics.text(entry)
        && name != agent.name.as_str()
    {
        let message = format!(
            "the name `{name}` differs from the file name: rename the file to `{name}.md` or write `name: {}`",
            agent.name
        );
        fields.diagnostics.report_invalid(entry.node.position, message);
    }
}

fn parse_max_turns(fields: &mut Fields<'_, '_, '_>, agent: &mut Agent) {
    let turns = (fields.get("max_turns"), fields.get("maxTurns"));
    if let (Some(_), Some(second)) = turns {
        fields.diagnostics.report_invalid(
            second.position,
            "`max_turns` and `maxTurns` are the same: write one of them",
        );
    }
    if let Some(entry) = turns.0.or(turns.1) {
        agent.max_turns = integer(1)(fields.diagnostics, entry);
    }
}
