//! Parses the elements of `approve:` and `effects:`. A rule must have exactly one of `ask`, `allow`
//! and `deny`.

use longhaul_core::policy::gate::{
    ApprovalRequirement, EscalationStep, GATE_TIMEOUT_MAX, GateRule, GateRuleAction, GateTimeout,
    GateTimeoutAction, ResultApprovalGate, check_gate_tags,
};
use longhaul_core::time::Millis;
use longhaul_core::{duration, glob};
use longhaul_engine::agent::EffectRule;
use longhaul_engine::is_control_tool;
use serde::Deserialize;

use crate::agents::diagnostics::{Diagnostics, Fields, integer};
use crate::spanned::TableEntry;
use longhaul_engine::agent::template_check::LANE_VARIABLES;

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

impl Diagnostics<'_> {
    /// Parses one element of `approve:`, a rule that allows certain tool calls, denies them or asks a
    /// person about them.
    pub(crate) fn parse_gate_rule(&mut self, entry: &TableEntry) -> Option<GateRule> {
        let mut fields = Fields::new(self, entry, "tool")?;
        let tool = parse_rule_tool_glob(&mut fields, entry);
        let action = parse_action(&mut fields, entry);
        let match_glob = fields.parse("match", Diagnostics::parse_glob);
        let always = fields.parse("always", Diagnostics::boolean).unwrap_or_default();
        let (timeout, on_timeout) = parse_gate_timeout_fields(&mut fields);
        let escalation = fields.parse("then", |diagnostics, entry| {
            let steps = diagnostics.list_items(entry, |diagnostics, entry| {
                diagnostics.parse_escalation_step(entry, timeout)
            })?;
            if steps.len() > ESCALATION_STEPS_MAX {
                let message = format!("`then` has more than {ESCALATION_STEPS_MAX} steps");
                diagnostics.report_invalid(entry.node.position, message);
            }
            Some(steps)
        });
        fields.report_unsupported_fields(&["paths"]);
        Some(GateRule {
            match_glob,
            always,
            timeout,
            on_timeout: on_timeout.unwrap_or_default(),
            in_doubt: fields.parse("in_doubt", Diagnostics::one_of),
            approvers: fields.parse("approvers", Diagnostics::parse_approvers).unwrap_or_default(),
            remind: fields
                .parse("remind", |diagnostics, entry| diagnostics.reminder_delay(entry, timeout)),
            escalation: escalation.unwrap_or_default(),
            tags: fields.parse("tags", Diagnostics::parse_gate_tags).unwrap_or_default(),
            tool: tool?,
            action: action?,
        })
    }

    /// Parses `approve_result`: a boolean, or a table with the question, timeout, approvers and tags.
    /// The inner `None` means `false`: no approval is needed.
    pub(crate) fn result_gate(&mut self, entry: &TableEntry) -> Option<Option<ResultApprovalGate>> {
        let mut gate = ResultApprovalGate {
            auto_approve: None,
            ask: RESULT_GATE_QUESTION.to_owned(),
            timeout: None,
            on_timeout: GateTimeoutAction::default(),
            approvers: ApprovalRequirement::default(),
            tags: Vec::new(),
        };
        if entry.node.as_table().is_none() {
            return self.boolean(entry).map(|is_required| is_required.then_some(gate));
        }
        let mut fields = Fields::new(self, entry, "ask")?;
        fields.set("ask", &mut gate.ask, Diagnostics::text);
        let (timeout, on_timeout) = parse_gate_timeout_fields(&mut fields);
        gate.timeout = timeout;
        gate.on_timeout = on_timeout.unwrap_or_default();
        fields.set("approvers", &mut gate.approvers, Diagnostics::parse_approvers);
        fields.set("tags", &mut gate.tags, Diagnostics::parse_gate_tags);
        Some(Some(gate))
    }

    /// Parses `ask_human`: the time within which questions, requests for help and signals of the agent
    /// must be answered.
    pub(crate) fn parse_question_timeout(&mut self, entry: &TableEntry) -> Option<GateTimeout> {
        let mut fields = Fields::new(self, entry, "timeout")?;
        let timeout = fields.parse("timeout", Diagnostics::parse_gate_timeout);
        if fields.get("timeout").is_none() {
            let message = "`ask_human` is empty: write `ask_human: { timeout: never }`";
            fields.diagnostics.report_invalid(entry.node.position, message);
        }
        timeout
    }

    /// Parses the time within which a gate must be answered: a duration, or `never`.
    fn parse_gate_timeout(&mut self, entry: &TableEntry) -> Option<GateTimeout> {
        match entry.node.as_text() == Some("never") {
            true => Some(GateTimeout::Never),
            false => self.parse_bounded_duration(entry).map(GateTimeout::After),
        }
    }

    /// Parses a duration in the settings of a gate, and reports it if it is longer than
    /// `GATE_TIMEOUT_MAX`.
    fn parse_bounded_duration(&mut self, entry: &TableEntry) -> Option<Millis> {
        let duration = self.duration(entry)?;
        if duration > GATE_TIMEOUT_MAX {
            let max = duration::format_duration(GATE_TIMEOUT_MAX);
            let never_hint = if entry.key == "timeout" { ", or `never`" } else { "" };
            let message = format!("`{}` must be at most {max}{never_hint}", entry.key);
            self.report_invalid(entry.node.position, message);
        }
        Some(duration)
    }

    /// Parses a time after which people are notified about a gate that is still open.
    fn notice_delay(&mut self, entry: &TableEntry, timeout: Option<GateTimeout>) -> Option<Millis> {
        let delay = self.parse_bounded_duration(entry)?;
        // `agents check` compares it with the default timeout of the project.
        let timeout = timeout.and_then(GateTimeout::duration);
        if let Some(timeout) = timeout.filter(|timeout| delay >= *timeout) {
            let timeout = duration::format_duration(timeout);
            let message = format!("`{}` never fires: the gate expires after {timeout}", entry.key);
            self.report_invalid(entry.node.position, message);
        }
        Some(delay)
    }

    /// Parses one element of `then:`, a person or group that is notified if the gate is still open
    /// after some time.
    fn parse_escalation_step(
        &mut self,
        entry: &TableEntry,
        timeout: Option<GateTimeout>,
    ) -> Option<EscalationStep> {
        let mut fields = Fields::new(self, entry, "to")?;
        let after =
            fields.parse("after", |diagnostics, entry| diagnostics.notice_delay(entry, timeout));
        let to = fields.parse("to", Diagnostics::text);
        drop(fields);
        if after.is_none() || to.is_none() {
            let message = format!("`{}` must be written as {{ after: 6h, to: NAME }}", entry.key);
            self.report_invalid(entry.position, message);
        }
        Some(EscalationStep { after: after?, to: to? })
    }

    /// Parses the tags of a gate, by which people can search for the gate.
    fn parse_gate_tags(&mut self, entry: &TableEntry) -> Option<Vec<String>> {
        let tags = self.list_items(entry, Diagnostics::text)?;
        if let Err(message) = check_gate_tags(&tags) {
            self.report_invalid(entry.node.position, message);
        }
        Some(tags)
    }

    /// Parses a glob of limited length.
    fn parse_glob(&mut self, entry: &TableEntry) -> Option<String> {
        let text = self.text(entry)?;
        if let Err(reason) = glob::check_length(&text) {
            self.report_invalid(entry.node.position, format!("`{}`: {reason}", entry.key));
        }
        Some(text)
    }

    /// Parses the required number of approvers, or a table that can also exclude the task's submitter.
    fn parse_approvers(&mut self, entry: &TableEntry) -> Option<ApprovalRequirement> {
        let mut approvers = ApprovalRequirement::default();
        if entry.node.as_table().is_none() {
            approvers.count = integer(1)(self, entry)?;
            return Some(approvers);
        }
        let mut fields = Fields::new(self, entry, "count")?;
        fields.set("count", &mut approvers.count, integer::<u16>(1));
        let excluded = fields.parse("not", Diagnostics::one_of::<ExcludedApprovers>);
        approvers.not_submitter = excluded.is_some();
        Some(approvers)
    }

    fn reminder_delay(
        &mut self,
        entry: &TableEntry,
        timeout: Option<GateTimeout>,
    ) -> Option<Millis> {
        let remind = self.notice_delay(entry, timeout)?;
        if remind < REMIND_MIN {
            let min = duration::format_duration(REMIND_MIN);
            let message = format!("`remind` must be at least {min}");
            self.report_invalid(entry.node.position, message);
        }
        Some(remind)
    }

    /// Parses one element of `effects:`. It declares whether calls of a tool may be repeated, and the
    /// template of a key: calls with the same key take effect only once.
    pub(crate) fn parse_effect_rule(&mut self, entry: &TableEntry) -> Option<EffectRule> {
        let mut fields = Fields::new(self, entry, "tool")?;
        let tool = parse_rule_tool_glob(&mut fields, entry);
        let match_glob = fields.parse("match", Diagnostics::parse_glob);
        let names = Some(LANE_VARIABLES);
        let (has_class, has_key) = (fields.get("class").is_some(), fields.get("key").is_some());
        let class = fields.parse("class", Diagnostics::one_of);
        let key = fields.parse("key", |diagnostics, entry| diagnostics.template(entry, names));
        if !has_class && !has_key {
            let name = &entry.key;
            let message = format!(
                "`{name}` has no `class` and no `key`: write pure, keyed, once or session as the class, or \
                 a template such as \"invoice:{{{{ input.id }}}}\" as the key"
            );
            fields.diagnostics.report_invalid(entry.position, message);
        }
        if let Some(tool) = tool.as_deref().filter(|tool| has_key && is_control_tool(tool)) {
            let message = format!(
                "`key` is not possible for `{tool}`: the runtime handles its calls itself. Remove the key"
            );
            fields.diagnostics.report_invalid(entry.position, message);
        }
        Some(EffectRule { tool: tool?, match_glob, class, key })
    }
}

/// Parses `timeout`, the time within which a gate must be answered, and `on_timeout`, the action
/// that is taken if it is not answered.
fn parse_gate_timeout_fields(
    fields: &mut Fields<'_, '_, '_>,
) -> (Option<GateTimeout>, Option<GateTimeoutAction>) {
    let timeout = fields.parse("timeout", Diagnostics::parse_gate_timeout);
    let on_timeout = fields.parse("on_timeout", |diagnostics, entry| {
        if timeout == Some(GateTimeout::Never) {
            let message = "`on_timeout` has no effect: the gate never expires";
            diagnostics.report_invalid(entry.position, message);
        }
        diagnostics.one_of(entry)
    });
    (timeout, on_timeout)
}

fn parse_rule_tool_glob(fields: &mut Fields<'_, '_, '_>, entry: &TableEntry) -> Option<String> {
    if fields.get("tool").is_none() {
        let key = &entry.key;
        let message = format!("`{key}` names no tool: write `tool: NAME` or `tool: \"*\"`");
        fields.diagnostics.report_invalid(entry.position, message);
    }
    fields.parse("tool", Diagnostics::parse_glob)
}

fn parse_action(fields: &mut Fields<'_, '_, '_>, entry: &TableEntry) -> Option<GateRuleAction> {
    let actions = ["ask", "allow", "deny"].map(|key| fields.get(key));
    let diagnostics = &mut *fields.diagnostics;
    match actions {
        [Some(ask), None, None] => diagnostics.text(ask).map(GateRuleAction::Ask),
        [None, None, Some(deny)] => diagnostics.text(deny).map(GateRuleAction::Deny),
        [None, Some(allow), None] => {
            if diagnostics.boolean(allow)? {
                return Some(GateRuleAction::Allow);
            }
            let message = "`allow: false` is not valid: write `deny: \"reason\"`";
            diagnostics.reject(allow.node.position, message)
        }
        [None, None, None] => {
            let message = format!(
                "`{}` has no decision: write one of `ask: \"...\"`, `allow: true`, `deny: \"...\"`",
                entry.key
            );
            diagnostics.reject(entry.position, message)
        }
        several => {
            let second = several.into_iter().flatten().nth(1);
            let position = second.map_or(entry.position, |entry| entry.position);
            let message =
                format!("`{}` has more than one of `ask`, `allow` and `deny`: keep one", entry.key);
            diagnostics.reject(position, message)
        }
    }
}
