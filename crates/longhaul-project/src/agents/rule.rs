//! Parses the elements of `approve:` and `effects:`. A rule must have exactly one of `ask`, `allow`
//! and `deny`.

use longhaul_core::glob;
use longhaul_core::policy::gate::{
    ApprovalRequirement, EscalationStep, GATE_TIMEOUT_MAX, GateRule, GateRuleAction, GateTimeout,
    GateTimeoutAction, ResultApprovalGate, check_gate_tags,
};
use longhaul_core::time::Millis;
use longhaul_engine::agent::EffectRule;
use longhaul_engine::is_control_tool;
use serde::Deserialize;

use crate::agents::diagnostics::{Diagnostics, FieldReader};
use crate::spanned::TableEntry;
use longhaul_core::duration;
use longhaul_engine::agent::template_check::{AllowedTemplateVariables, LANE_VARIABLES};

/// Maximum number of elements of `then:`, the people or groups that are notified later about a gate
/// (a wait for a person's approval) that is still open.
const ESCALATION_STEPS_MAX: usize = 10;

/// Minimum interval of the reminders about a gate (a wait for a person's approval) that is still
/// open.
const REMIND_MIN: Millis = Millis::from_secs(60);

/// Default question of a result gate, at which a person must approve the result of a run.
const RESULT_GATE_QUESTION: &str = "Is this result good?";

/// The people whose approval does not count.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ExcludedApprovers {
    Submitter,
}

/// Parses one element of `approve:`, a rule that allows certain tool calls, denies them or asks a
/// person about them.
pub(crate) fn parse_gate_rule(
    diagnostics: &mut Diagnostics,
    entry: &TableEntry,
) -> Option<GateRule> {
    let mut fields = FieldReader::for_table_fields(diagnostics, entry, "tool")?;
    let tool = parse_rule_tool_glob(&mut fields, entry);
    let match_glob = fields.parse_field_with("match", parse_glob);
    let verdict = parse_rule_action(&mut fields, entry);
    let always = fields.parse_field_with("always", Diagnostics::parse_boolean);
    let (timeout, on_timeout) = parse_gate_timeout_fields(&mut fields);
    let in_doubt = fields.parse_field_with("in_doubt", Diagnostics::parse_one_of);
    let approvers = fields.parse_field_with("approvers", parse_approvers);
    let remind = fields.parse_field_with("remind", |diagnostics, entry| {
        parse_reminder_delay(diagnostics, entry, timeout)
    });
    let tags = fields.parse_field_with("tags", parse_gate_tags);
    let escalation = fields.parse_field_with("then", |diagnostics, entry| {
        let steps = diagnostics.parse_list_items(entry, |diagnostics, entry| {
            parse_escalation_step(diagnostics, entry, timeout)
        })?;
        if steps.len() > ESCALATION_STEPS_MAX {
            let message = format!("`then` has more than {ESCALATION_STEPS_MAX} steps");
            diagnostics.report_invalid(entry.node.position, message);
        }
        Some(steps)
    });
    fields.report_unsupported_fields(&["paths"]);
    fields.report_unknown_fields();
    Some(GateRule {
        tool: tool?,
        match_glob,
        action: verdict?,
        always: always.unwrap_or_default(),
        timeout,
        on_timeout: on_timeout.unwrap_or_default(),
        in_doubt,
        approvers: approvers.unwrap_or_default(),
        remind,
        escalation: escalation.unwrap_or_default(),
        tags: tags.unwrap_or_default(),
    })
}

/// Parses `approve_result`: a boolean, or a table with the question, timeout, approvers and tags.
/// The inner `None` means `false`: no approval is needed.
pub(crate) fn parse_result_gate(
    diagnostics: &mut Diagnostics,
    entry: &TableEntry,
) -> Option<Option<ResultApprovalGate>> {
    let gate = ResultApprovalGate {
        auto_approve: None,
        ask: RESULT_GATE_QUESTION.to_owned(),
        timeout: None,
        on_timeout: GateTimeoutAction::default(),
        approvers: ApprovalRequirement::default(),
        tags: Vec::new(),
    };
    if entry.node.as_table().is_none() {
        return diagnostics.parse_boolean(entry).map(|is_required| is_required.then_some(gate));
    }
    let mut fields = FieldReader::for_table_fields(diagnostics, entry, "ask")?;
    let ask = fields.parse_field_with("ask", Diagnostics::parse_nonempty_text);
    let (timeout, on_timeout) = parse_gate_timeout_fields(&mut fields);
    let approvers = fields.parse_field_with("approvers", parse_approvers);
    let tags = fields.parse_field_with("tags", parse_gate_tags);
    fields.report_unknown_fields();
    Some(Some(ResultApprovalGate {
        auto_approve: None,
        ask: ask.unwrap_or(gate.ask),
        timeout,
        on_timeout: on_timeout.unwrap_or_default(),
        approvers: approvers.unwrap_or_default(),
        tags: tags.unwrap_or_default(),
    }))
}

/// Parses `timeout`, the time within which a gate must be answered, and `on_timeout`, the action
/// that is taken if it is not answered.
fn parse_gate_timeout_fields(
    fields: &mut FieldReader<'_, '_>,
) -> (Option<GateTimeout>, Option<GateTimeoutAction>) {
    let timeout = fields.parse_field_with("timeout", parse_gate_timeout);
    let on_timeout = fields.parse_field_with("on_timeout", |diagnostics, entry| {
        let action = diagnostics.parse_one_of(entry);
        if timeout == Some(GateTimeout::Never) {
            let message = "`on_timeout` has no effect: the gate never expires";
            diagnostics.report_invalid(entry.position, message);
        }
        action
    });
    (timeout, on_timeout)
}

/// Parses `ask_human`: the time within which questions, requests for help and signals of the agent
/// must be answered.
pub(crate) fn parse_question_timeout(
    diagnostics: &mut Diagnostics,
    entry: &TableEntry,
) -> Option<GateTimeout> {
    let mut fields = FieldReader::for_table_fields(diagnostics, entry, "timeout")?;
    let timeout = fields.parse_field_with("timeout", parse_gate_timeout);
    if fields.get("timeout").is_none() {
        let message = "`ask_human` is empty: write `ask_human: { timeout: never }`";
        fields.diagnostics.report_invalid(entry.node.position, message);
    }
    fields.report_unknown_fields();
    timeout
}

/// Parses the time within which a gate must be answered: a duration, or `never`.
fn parse_gate_timeout(diagnostics: &mut Diagnostics, entry: &TableEntry) -> Option<GateTimeout> {
    match entry.node.as_text() == Some("never") {
        true => Some(GateTimeout::Never),
        false => parse_duration_within_gate_max(diagnostics, entry).map(GateTimeout::After),
    }
}

/// Parses a duration in the settings of a gate, and reports it if it is longer than
/// `GATE_TIMEOUT_MAX`.
fn parse_duration_within_gate_max(
    diagnostics: &mut Diagnostics,
    entry: &TableEntry,
) -> Option<Millis> {
    let duration = diagnostics.parse_duration(entry)?;
    if duration > GATE_TIMEOUT_MAX {
        let max = duration::format_duration(GATE_TIMEOUT_MAX);
        let never_hint = if entry.key == "timeout" { ", or `never`" } else { "" };
        let message = format!("`{}` must be at most {max}{never_hint}", entry.key);
        diagnostics.report_invalid(entry.node.position, message);
    }
    Some(duration)
}

/// Parses a time after which people are notified about a gate that is still open.
fn parse_gate_notification_delay(
    diagnostics: &mut Diagnostics,
    entry: &TableEntry,
    timeout: Option<GateTimeout>,
) -> Option<Millis> {
    let delay = parse_duration_within_gate_max(diagnostics, entry)?;
    // `agents check` compares it with the default timeout of the project.
    let timeout = timeout.and_then(GateTimeout::duration);
    if let Some(timeout) = timeout.filter(|timeout| delay >= *timeout) {
        let timeout = duration::format_duration(timeout);
        let message = format!("`{}` never fires: the gate expires after {timeout}", entry.key);
        diagnostics.report_invalid(entry.node.position, message);
    }
    Some(delay)
}

/// Parses one element of `then:`, a person or group that is notified if the gate is still open
/// after some time.
fn parse_escalation_step(
    diagnostics: &mut Diagnostics,
    entry: &TableEntry,
    timeout: Option<GateTimeout>,
) -> Option<EscalationStep> {
    let mut fields = FieldReader::for_table_fields(diagnostics, entry, "to")?;
    let after = fields.parse_field_with("after", |diagnostics, entry| {
        parse_gate_notification_delay(diagnostics, entry, timeout)
    });
    let to = fields.parse_field_with("to", Diagnostics::parse_nonempty_text);
    fields.report_unknown_fields();
    if after.is_none() || to.is_none() {
        let message = format!("`{}` must be written as {{ after: 6h, to: NAME }}", entry.key);
        diagnostics.report_invalid(entry.position, message);
    }
    Some(EscalationStep { after: after?, to: to? })
}

/// Parses the tags of a gate, by which people can search for the gate.
fn parse_gate_tags(diagnostics: &mut Diagnostics, entry: &TableEntry) -> Option<Vec<String>> {
    let tags = diagnostics.parse_list_items(entry, Diagnostics::parse_nonempty_text)?;
    if let Err(message) = check_gate_tags(&tags) {
        diagnostics.report_invalid(entry.node.position, message);
    }
    Some(tags)
}

fn parse_rule_tool_glob(fields: &mut FieldReader<'_, '_>, entry: &TableEntry) -> Option<String> {
    let Some(tool) = fields.get("tool") else {
        let key = &entry.key;
        let message = format!("`{key}` names no tool: write `tool: NAME` or `tool: \"*\"`");
        fields.diagnostics.report_invalid(entry.position, message);
        return None;
    };
    parse_glob(fields.diagnostics, tool)
}

/// Parses a glob of limited length.
fn parse_glob(diagnostics: &mut Diagnostics, entry: &TableEntry) -> Option<String> {
    let text = diagnostics.parse_nonempty_text(entry)?;
    if let Err(reason) = glob::check_length(&text) {
        diagnostics.report_invalid(entry.node.position, format!("`{}`: {reason}", entry.key));
    }
    Some(text)
}

fn parse_rule_action(
    fields: &mut FieldReader<'_, '_>,
    entry: &TableEntry,
) -> Option<GateRuleAction> {
    let actions = ["ask", "allow", "deny"].map(|key| fields.get(key));
    let diagnostics = &mut *fields.diagnostics;
    match actions {
        [Some(ask), None, None] => diagnostics.parse_nonempty_text(ask).map(GateRuleAction::Ask),
        [None, None, Some(deny)] => diagnostics.parse_nonempty_text(deny).map(GateRuleAction::Deny),
        [None, Some(allow), None] => {
            if diagnostics.parse_boolean(allow)? {
                return Some(GateRuleAction::Allow);
            }
            let message = "`allow: false` is not valid: write `deny: \"reason\"`";
            diagnostics.report_invalid(allow.node.position, message);
            None
        }
        [None, None, None] => {
            let message = format!(
                "`{}` has no decision: write one of `ask: \"...\"`, `allow: true`, `deny: \"...\"`",
                entry.key
            );
            diagnostics.report_invalid(entry.position, message);
            None
        }
        several => {
            let second = several.into_iter().flatten().nth(1);
            let position = second.map_or(entry.position, |entry| entry.position);
            let message =
                format!("`{}` has more than one of `ask`, `allow` and `deny`: keep one", entry.key);
            diagnostics.report_invalid(position, message);
            None
        }
    }
}

/// Parses the required number of approvers, or a table that can also exclude the task's submitter.
fn parse_approvers(
    diagnostics: &mut Diagnostics,
    entry: &TableEntry,
) -> Option<ApprovalRequirement> {
    if entry.node.as_table().is_none() {
        return diagnostics
            .parse_integer(entry, 1)
            .map(|count| ApprovalRequirement { count, not_submitter: false });
    }
    let mut fields = FieldReader::for_table_fields(diagnostics, entry, "count")?;
    let count =
        fields.parse_field_with("count", |diagnostics, entry| diagnostics.parse_integer(entry, 1));
    let excluded: Option<ExcludedApprovers> =
        fields.parse_field_with("not", Diagnostics::parse_one_of);
    fields.report_unknown_fields();
    Some(ApprovalRequirement {
        count: count.unwrap_or(ApprovalRequirement::default().count),
        not_submitter: excluded.is_some(),
    })
}

fn parse_reminder_delay(
    diagnostics: &mut Diagnostics,
    entry: &TableEntry,
    timeout: Option<GateTimeout>,
) -> Option<Millis> {
    let remind = parse_gate_notification_delay(diagnostics, entry, timeout)?;
    if remind < REMIND_MIN {
        let min = duration::format_duration(REMIND_MIN);
        let message = format!("`remind` must be at least {min}");
        diagnostics.report_invalid(entry.node.position, message);
    }
    Some(remind)
}

/// Parses one element of `effects:`. It declares whether calls of a tool may be repeated, and the
/// template of a key: calls with the same key take effect only once.
pub(crate) fn parse_effect_rule(
    diagnostics: &mut Diagnostics,
    entry: &TableEntry,
) -> Option<EffectRule> {
    let mut fields = FieldReader::for_table_fields(diagnostics, entry, "tool")?;
    let tool = parse_rule_tool_glob(&mut fields, entry);
    let match_glob = fields.parse_field_with("match", parse_glob);
    let class = fields.get("class");
    let class = class.map(|class| fields.diagnostics.parse_one_of(class));
    let key = fields.get("key");
    let names = AllowedTemplateVariables::Only(LANE_VARIABLES);
    let key = key.map(|key| fields.diagnostics.parse_template(key, names));
    if class.is_none() && key.is_none() {
        let name = &entry.key;
        let message = format!(
            "`{name}` has no `class` and no `key`: write pure, keyed, once or session as the class, or \
             a template such as \"invoice:{{{{ input.id }}}}\" as the key"
        );
        fields.diagnostics.report_invalid(entry.position, message);
    }
    if let Some(tool) = tool.as_deref().filter(|tool| key.is_some() && is_control_tool(tool)) {
        let message = format!(
            "`key` is not possible for `{tool}`: the runtime handles its calls itself. Remove the key"
        );
        fields.diagnostics.report_invalid(entry.position, message);
    }
    fields.report_unknown_fields();
    let class = class.map_or(Some(None), |class| class.map(Some));
    let key = key.map_or(Some(None), |key| key.map(Some));
    Some(EffectRule { tool: tool?, match_glob, class: class?, key: key? })
}
