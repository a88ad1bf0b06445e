//! Parses the front matter and the body of an agent file into an agent, and records every problem.
//!
//! The caller must check the diagnostics before the agent is used.

use longhaul_core::id::AgentName;
use longhaul_core::policy::budget::BudgetRaise;
use longhaul_engine::agent::{Agent, BudgetPatch, RetryPatch};

use crate::agents::diagnostics::{Diagnostics, FieldReader};
use crate::agents::load_context::AgentLoadContext;
use crate::agents::rule;
use crate::agents::shell_check;
use crate::agents::split::{self, AgentFileParts};
use crate::agents::tools;
use crate::agents::{outcome, output, runtime_fields};
use crate::config::settings::{factor_to_percent, fraction_to_percent, usd_to_micros};
use crate::config::value_kind::USD_MIN;
use crate::spanned::{Node, NodeValue, ParseError, Position, TableEntry, yaml};
use longhaul_engine::agent::template_check::{
    self, AllowedTemplateVariables, LANE_VARIABLES, prompt_variable_names,
};

/// Parses a YAML text into a tree, with or without positions.
type YamlParser = fn(&str) -> Result<Node, ParseError>;

/// Parses an agent file; `stem` is the file's name without `.md`. The diagnostics must be empty.
pub(crate) fn parse_project_agent(
    diagnostics: &mut Diagnostics,
    stem: &AgentName,
    bytes: &[u8],
    ctx: &AgentLoadContext<'_>,
) -> Agent {
    let agent = parse_agent_file(diagnostics, stem, bytes, (ctx, yaml::parse_without_positions));
    let Diagnostics { problems, missing, notes, files: _ } = &*diagnostics;
    if problems.is_empty() && missing.is_empty() && notes.is_empty() {
        return agent;
    }
    // Only messages need positions, and finding them takes most of the time.
    *diagnostics = Diagnostics::default();
    parse_agent_file(diagnostics, stem, bytes, (ctx, yaml::parse))
}

fn parse_agent_file(
    diagnostics: &mut Diagnostics,
    stem: &AgentName,
    bytes: &[u8],
    (ctx, parse_yaml): (&AgentLoadContext<'_>, YamlParser),
) -> Agent {
    let mut agent = Agent::new(stem.clone());
    let parts = match split::split_agent_file(bytes) {
        Ok(parts) => parts,
        Err((position, message)) => {
            diagnostics.report_invalid(position, message);
            return agent;
        }
    };
    let has_perception = match parse_yaml(&parts.front_matter) {
        Ok(node) => parse_agent_fields(diagnostics, &mut agent, node, ctx),
        Err(error) => {
            diagnostics.report_invalid(error.position, error.message);
            true
        }
    };
    parse_prompt_body(diagnostics, &mut agent, parts, &prompt_variable_names(has_perception));
    agent
}

/// Parses all fields of the front matter into `agent`. Returns whether the front matter has the
/// field `perception` (a source of data about the outside world).
fn parse_agent_fields(
    diagnostics: &mut Diagnostics,
    agent: &mut Agent,
    node: Node,
    ctx: &AgentLoadContext<'_>,
) -> bool {
    if node.value == NodeValue::Null {
        return false;
    }
    let root_entry = TableEntry { key: "front matter".to_owned(), position: node.position, node };
    let Some(mut fields) = FieldReader::for_table_fields(diagnostics, &root_entry, "name") else {
        return false;
    };
    parse_name_and_models(&mut fields, agent, ctx);
    (agent.tools, agent.deferred_tools) = fields
        .parse_field_with("tools", |diagnostics, entry| {
            tools::parse_tools_field(diagnostics, entry, ctx)
        })
        .unwrap_or_default();
    parse_limit_fields(&mut fields, agent);
    parse_approval_rules(&mut fields, agent);
    parse_lane_fields(&mut fields, agent);
    runtime_fields::parse_execution_fields(&mut fields, agent, ctx);
    agent.output = fields.parse_field_with("output", |diagnostics, entry| {
        output::parse_output_field(diagnostics, entry, ctx)
    });
    agent.outcome = fields.parse_field_with("outcome", |diagnostics, entry| {
        outcome::parse_outcome_field(diagnostics, entry, ctx)
    });
    let commands = fields.get("sandbox").or_else(|| fields.get("tools"));
    shell_check::check_shell_is_declared_unsandboxed(fields.diagnostics, agent, commands);
    let has_perception = fields.get("perception").is_some();
    fields.report_unknown_fields();
    has_perception
}

fn parse_name_and_models(
    fields: &mut FieldReader<'_, '_>,
    agent: &mut Agent,
    ctx: &AgentLoadContext<'_>,
) {
    if let Some(entry) = fields.get("name")
        && let Some(name) = fields.diagnostics.parse_nonempty_text(entry)
        && name != agent.name.as_str()
    {
        let message = format!(
            "the name `{name}` differs from the file name: rename the file to `{name}.md` or write `name: {}`",
            agent.name
        );
        fields.diagnostics.report_invalid(entry.node.position, message);
    }
    agent.description = fields
        .parse_field_with("description", Diagnostics::parse_nonempty_text)
        .unwrap_or_default();
    let models =
        |diagnostics: &mut Diagnostics, entry: &TableEntry| parse_models(diagnostics, entry, ctx);
    agent.models = fields.parse_field_with("model", models).unwrap_or_default();
    agent.idle_models = fields.parse_field_with("idle_model", models).unwrap_or_default();
    agent.context =
        fields.parse_field_with("context", Diagnostics::parse_unique_texts).unwrap_or_default();
}

/// Parses one model, or a list of models in the order in which they are tried.
fn parse_models(
    diagnostics: &mut Diagnostics,
    entry: &TableEntry,
    ctx: &AgentLoadContext<'_>,
) -> Option<Vec<String>> {
    let Some(list) = entry.node.as_list() else {
        let model = diagnostics.parse_nonempty_text(entry)?;
        diagnostics.report_unusable_model(entry.node.position, &model, ctx);
        return Some(vec![model]);
    };
    if list.is_empty() {
        let key = &entry.key;
        let message = format!("`{key}` is empty: name a model, or remove the line");
        diagnostics.report_invalid(entry.node.position, message);
    }
    let models = diagnostics.parse_texts_with_positions(entry);
    for (position, model) in &models {
        diagnostics.report_unusable_model(*position, model, ctx);
    }
    Some(models.into_iter().map(|(_, model)| model).collect())
}

fn parse_limit_fields(fields: &mut FieldReader<'_, '_>, agent: &mut Agent) {
    let turns = (fields.get("max_turns"), fields.get("maxTurns"));
    if let (Some(_), Some(second)) = turns {
        fields.diagnostics.report_invalid(
            second.position,
            "`max_turns` and `maxTurns` are the same: write one of them",
        );
    }
    if let Some(entry) = turns.0.or(turns.1) {
        agent.max_turns = fields.diagnostics.parse_integer(entry, 1);
    }
    agent.budget = fields.parse_field_with("budget", parse_budget).unwrap_or_default();
    agent.retry = fields.parse_field_with("retry", parse_retry_patch).unwrap_or_default();
    agent.keep_open = fields.parse_field_with("keep_open", Diagnostics::parse_duration);
}

fn parse_budget(diagnostics: &mut Diagnostics, entry: &TableEntry) -> Option<BudgetPatch> {
    let mut fields = FieldReader::for_table_fields(diagnostics, entry, "usd")?;
    let usd = fields.parse_field_with("usd", |diagnostics, entry| {
        diagnostics.parse_number(entry, USD_MIN, 1e9)
    });
    let active = fields.parse_field_with("active_time", Diagnostics::parse_duration);
    let turns =
        fields.parse_field_with("turns", |diagnostics, entry| diagnostics.parse_integer(entry, 1));
    let tokens =
        fields.parse_field_with("tokens", |diagnostics, entry| diagnostics.parse_integer(entry, 1));
    let warn = fields.parse_field_with("warn_at", |diagnostics, entry| {
        diagnostics.parse_number(entry, 0.0, 1.0)
    });
    fields.report_unknown_fields();
    Some(BudgetPatch {
        caps: BudgetRaise { micro_usd: usd.map(usd_to_micros), tokens, turns, active },
        warn_percent: warn.map(fraction_to_percent),
    })
}

fn parse_retry_patch(diagnostics: &mut Diagnostics, entry: &TableEntry) -> Option<RetryPatch> {
    let mut fields = FieldReader::for_table_fields(diagnostics, entry, "max_retries")?;
    let multiplier = |diagnostics: &mut Diagnostics, entry: &TableEntry| {
        diagnostics.parse_number(entry, 1.0, 1_000.0)
    };
    let retry = RetryPatch {
        max_retries: fields.parse_field_with("max_retries", |diagnostics, entry| {
            diagnostics.parse_integer(entry, 0)
        }),
        initial_delay: fields.parse_field_with("initial_delay", Diagnostics::parse_duration),
        max_delay: fields.parse_field_with("max_delay", Diagnostics::parse_duration),
        multiplier_percent: fields
            .parse_field_with("multiplier", multiplier)
            .map(factor_to_percent),
        soft_timeout: fields.parse_field_with("soft_timeout", Diagnostics::parse_duration),
        hard_timeout: fields.parse_field_with("hard_timeout", Diagnostics::parse_duration),
        outage: fields.parse_field_with("outage", Diagnostics::parse_duration_or_zero),
    };
    fields.report_unknown_fields();
    Some(retry)
}

fn parse_approval_rules(fields: &mut FieldReader<'_, '_>, agent: &mut Agent) {
    let rules = |diagnostics: &mut Diagnostics, entry: &TableEntry| {
        diagnostics.parse_list_items(entry, rule::parse_gate_rule)
    };
    agent.rules = fields.parse_field_with("approve", rules).unwrap_or_default();
    let effects = |diagnostics: &mut Diagnostics, entry: &TableEntry| {
        diagnostics.parse_list_items(entry, rule::parse_effect_rule)
    };
    agent.effects = fields.parse_field_with("effects", effects).unwrap_or_default();
    agent.in_doubt = fields.parse_field_with("in_doubt", Diagnostics::parse_one_of);
    agent.question_timeout = fields.parse_field_with("ask_human", rule::parse_question_timeout);
    let result_gate = fields.parse_field_with("approve_result", rule::parse_result_gate);
    agent.result_gate = result_gate.flatten();
}

fn parse_lane_fields(fields: &mut FieldReader<'_, '_>, agent: &mut Agent) {
    agent.lane = fields.parse_field_with("lane", |diagnostics, entry| {
        diagnostics.parse_template(entry, AllowedTemplateVariables::Only(LANE_VARIABLES))
    });
    let on_park = fields.parse_field_with("lane_on_park", Diagnostics::parse_one_of);
    agent.lane_on_park = on_park.unwrap_or_default();
    let when_busy = fields.parse_field_with("lane_busy", Diagnostics::parse_one_of);
    agent.lane_busy = when_busy.unwrap_or_default();
}

fn parse_prompt_body(
    diagnostics: &mut Diagnostics,
    agent: &mut Agent,
    parts: AgentFileParts,
    names: &[&str],
) {
    if let Some(error) =
        template_check::find_template_error(&parts.body, AllowedTemplateVariables::Only(names))
    {
        let position =
            Position { line: parts.body_line + error.position.line - 1, ..error.position };
        diagnostics.report_invalid(position, error.message);
    }
    agent.prompt = parts.body;
}
