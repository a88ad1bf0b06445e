//! Reads the elements of `approve:` and `effects:`.
//!
//! Never: takes a rule in doubt. One that says two things, or nothing, is a problem.

use longhaul_core::policy::effect::{EffectClass, InDoubtPolicy};
use longhaul_core::policy::gate::{Approvers, GATE_TIMEOUT, GateRule, OnTimeout, RuleAction};
use longhaul_core::time::Millis;
use longhaul_engine::agent::EffectRule;

use crate::agents::diagnostics::{Diagnostics, FieldReader};
use crate::duration;
use crate::spanned::TableEntry;

const IN_DOUBT: &[(&str, InDoubtPolicy)] =
    &[("tell", InDoubtPolicy::Tell), ("ask", InDoubtPolicy::Ask), ("fail", InDoubtPolicy::Fail)];

const ON_TIMEOUT: &[(&str, OnTimeout)] = &[
    ("reject", OnTimeout::Reject),
    ("approve", OnTimeout::Approve),
    ("fail", OnTimeout::Fail),
    ("pause", OnTimeout::Pause),
];

const CLASSES: &[(&str, EffectClass)] = &[
    ("pure", EffectClass::Pure),
    ("keyed", EffectClass::Keyed),
    ("once", EffectClass::Once),
    ("session", EffectClass::Session),
];

/// Reads `in_doubt:` of an agent or a rule.
pub(crate) fn parse_in_doubt(sheet: &mut Diagnostics, entry: &TableEntry) -> Option<InDoubtPolicy> {
    sheet.one_of(entry, IN_DOUBT)
}

/// Reads one element of `approve:`.
pub(crate) fn parse_rule(sheet: &mut Diagnostics, entry: &TableEntry) -> Option<GateRule> {
    let mut fields = FieldReader::new(sheet, entry, "tool")?;
    let tool = parse_tool(&mut fields, entry);
    let subject = fields.parse("match", Diagnostics::text);
    let verdict = parse_action(&mut fields, entry);
    let always = fields.parse("always", Diagnostics::boolean);
    let timeout = fields.parse("timeout", Diagnostics::duration);
    let on_timeout = fields.parse("on_timeout", |sheet, entry| sheet.one_of(entry, ON_TIMEOUT));
    let in_doubt = fields.parse("in_doubt", parse_in_doubt);
    let approvers = fields.parse("approvers", parse_approvers);
    let remind = fields.parse("remind", |sheet, entry| {
        parse_remind(sheet, entry, timeout.unwrap_or(GATE_TIMEOUT))
    });
    fields.unsupported(&["paths", "then"]);
    fields.finish();
    Some(GateRule {
        tool: tool?,
        subject,
        action: verdict?,
        always: always.unwrap_or_default(),
        timeout,
        on_timeout: on_timeout.unwrap_or_default(),
        in_doubt,
        approvers: approvers.unwrap_or_default(),
        remind,
    })
}

fn parse_tool(fields: &mut FieldReader<'_, '_>, entry: &TableEntry) -> Option<String> {
    let Some(tool) = fields.get("tool") else {
        let key = &entry.key;
        let message = format!("`{key}` names no tool: write `tool: NAME` or `tool: \"*\"`");
        fields.diagnostics.invalid(entry.position, message);
        return None;
    };
    fields.diagnostics.text(tool)
}

fn parse_action(fields: &mut FieldReader<'_, '_>, entry: &TableEntry) -> Option<RuleAction> {
    let given = ["ask", "allow", "deny"].map(|key| fields.get(key));
    let sheet = &mut *fields.diagnostics;
    match given {
        [Some(ask), None, None] => sheet.text(ask).map(RuleAction::Ask),
        [None, None, Some(deny)] => sheet.text(deny).map(RuleAction::Deny),
        [None, Some(allow), None] => {
            if sheet.boolean(allow)? {
                return Some(RuleAction::Allow);
            }
            let message = "`allow: false` says nothing: write `deny: \"why\"`";
            sheet.invalid(allow.node.position, message);
            None
        }
        [None, None, None] => {
            let message = format!(
                "`{}` decides nothing: write one of `ask: \"...\"`, `allow: true`, `deny: \"...\"`",
                entry.key
            );
            sheet.invalid(entry.position, message);
            None
        }
        several => {
            let second = several.into_iter().flatten().nth(1);
            let place = second.map_or(entry.position, |entry| entry.position);
            let message = format!("`{}` says more than one of ask, allow, deny", entry.key);
            sheet.invalid(place, message);
            None
        }
    }
}

/// A number of people, or a table that also says who must not be among them.
fn parse_approvers(sheet: &mut Diagnostics, entry: &TableEntry) -> Option<Approvers> {
    if entry.node.table().is_none() {
        return sheet.integer(entry, 1).map(|count| Approvers { count, not_submitter: false });
    }
    let mut fields = FieldReader::new(sheet, entry, "count")?;
    let count = fields.parse("count", |sheet, entry| sheet.integer(entry, 1));
    let not = fields.parse("not", |sheet, entry| sheet.one_of(entry, &[("submitter", ())]));
    fields.finish();
    Some(Approvers {
        count: count.unwrap_or(Approvers::default().count),
        not_submitter: not.is_some(),
    })
}

fn parse_remind(sheet: &mut Diagnostics, entry: &TableEntry, timeout: Millis) -> Option<Millis> {
    let remind = sheet.duration(entry)?;
    if remind >= timeout {
        let timeout = duration::format(timeout);
        let message = format!("`remind` never comes: the gate ends after {timeout}");
        sheet.invalid(entry.node.position, message);
    }
    Some(remind)
}

/// Reads one element of `effects:`.
pub(crate) fn parse_effect(sheet: &mut Diagnostics, entry: &TableEntry) -> Option<EffectRule> {
    let mut fields = FieldReader::new(sheet, entry, "tool")?;
    let tool = parse_tool(&mut fields, entry);
    let subject = fields.parse("match", Diagnostics::text);
    let class = match fields.get("class") {
        Some(class) => fields.diagnostics.one_of(class, CLASSES),
        None => {
            let key = &entry.key;
            let message = format!("`{key}` has no `class`: pure, keyed, once or session");
            fields.diagnostics.invalid(entry.position, message);
            None
        }
    };
    fields.unsupported(&["key"]);
    fields.finish();
    Some(EffectRule { tool: tool?, subject, class: class? })
}
