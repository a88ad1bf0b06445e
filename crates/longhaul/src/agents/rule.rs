//! Reads the elements of `approve:` and `effects:`.
//!
//! Never: takes a rule in doubt. One that says two things, or nothing, is a problem.

use longhaul_core::policy::effect::{EffectClass, InDoubt};
use longhaul_core::policy::gate::{Approvers, GATE_TIMEOUT, GateRule, OnTimeout, Verdict};
use longhaul_core::time::Millis;
use longhaul_engine::agent::EffectRule;

use crate::agents::sheet::{Fields, Sheet};
use crate::span;
use crate::written::Entry;

const IN_DOUBT: &[(&str, InDoubt)] = &[
    ("tell", InDoubt::Tell),
    ("ask", InDoubt::Ask),
    ("fail", InDoubt::Fail),
];

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
pub(crate) fn in_doubt(sheet: &mut Sheet, entry: &Entry) -> Option<InDoubt> {
    sheet.word(entry, IN_DOUBT)
}

/// Reads one element of `approve:`.
pub(crate) fn rule(sheet: &mut Sheet, entry: &Entry) -> Option<GateRule> {
    let mut fields = Fields::new(sheet, entry, "tool")?;
    let tool = tool(&mut fields, entry);
    let subject = fields.read("match", Sheet::text);
    let verdict = verdict(&mut fields, entry);
    let always = fields.read("always", Sheet::flag);
    let timeout = fields.read("timeout", Sheet::span);
    let on_timeout = fields.read("on_timeout", |sheet, entry| sheet.word(entry, ON_TIMEOUT));
    let in_doubt = fields.read("in_doubt", in_doubt);
    let approvers = fields.read("approvers", approvers);
    let remind = fields.read("remind", |sheet, entry| {
        remind(sheet, entry, timeout.unwrap_or(GATE_TIMEOUT))
    });
    fields.later(&["paths", "then"]);
    fields.end();
    Some(GateRule {
        tool: tool?,
        subject,
        verdict: verdict?,
        always: always.unwrap_or_default(),
        timeout,
        on_timeout: on_timeout.unwrap_or_default(),
        in_doubt,
        approvers: approvers.unwrap_or_default(),
        remind,
    })
}

fn tool(fields: &mut Fields<'_, '_>, entry: &Entry) -> Option<String> {
    let Some(tool) = fields.get("tool") else {
        let key = &entry.key;
        let message = format!("`{key}` names no tool: write `tool: NAME` or `tool: \"*\"`");
        fields.sheet.fault(entry.place, message);
        return None;
    };
    fields.sheet.text(tool)
}

fn verdict(fields: &mut Fields<'_, '_>, entry: &Entry) -> Option<Verdict> {
    let given = ["ask", "allow", "deny"].map(|key| fields.get(key));
    let sheet = &mut *fields.sheet;
    match given {
        [Some(ask), None, None] => sheet.text(ask).map(Verdict::Ask),
        [None, None, Some(deny)] => sheet.text(deny).map(Verdict::Deny),
        [None, Some(allow), None] => {
            if sheet.flag(allow)? {
                return Some(Verdict::Allow);
            }
            let message = "`allow: false` says nothing: write `deny: \"why\"`";
            sheet.fault(allow.node.place, message);
            None
        }
        [None, None, None] => {
            let message = format!(
                "`{}` decides nothing: write one of `ask: \"...\"`, `allow: true`, `deny: \"...\"`",
                entry.key
            );
            sheet.fault(entry.place, message);
            None
        }
        several => {
            let second = several.into_iter().flatten().nth(1);
            let place = second.map_or(entry.place, |entry| entry.place);
            let message = format!("`{}` says more than one of ask, allow, deny", entry.key);
            sheet.fault(place, message);
            None
        }
    }
}

/// A number of people, or a table that also says who must not be among them.
fn approvers(sheet: &mut Sheet, entry: &Entry) -> Option<Approvers> {
    if entry.node.table().is_none() {
        return sheet.whole(entry, 1).map(|count| Approvers {
            count,
            not_submitter: false,
        });
    }
    let mut fields = Fields::new(sheet, entry, "count")?;
    let count = fields.read("count", |sheet, entry| sheet.whole(entry, 1));
    let not = fields.read("not", |sheet, entry| {
        sheet.word(entry, &[("submitter", ())])
    });
    fields.end();
    Some(Approvers {
        count: count.unwrap_or(Approvers::default().count),
        not_submitter: not.is_some(),
    })
}

fn remind(sheet: &mut Sheet, entry: &Entry, timeout: Millis) -> Option<Millis> {
    let remind = sheet.span(entry)?;
    if remind >= timeout {
        let timeout = span::write(timeout);
        let message = format!("`remind` never comes: the gate ends after {timeout}");
        sheet.fault(entry.node.place, message);
    }
    Some(remind)
}

/// Reads one element of `effects:`.
pub(crate) fn effect(sheet: &mut Sheet, entry: &Entry) -> Option<EffectRule> {
    let mut fields = Fields::new(sheet, entry, "tool")?;
    let tool = tool(&mut fields, entry);
    let subject = fields.read("match", Sheet::text);
    let class = match fields.get("class") {
        Some(class) => fields.sheet.word(class, CLASSES),
        None => {
            let key = &entry.key;
            let message = format!("`{key}` has no `class`: pure, keyed, once or session");
            fields.sheet.fault(entry.place, message);
            None
        }
    };
    fields.later(&["key"]);
    fields.end();
    Some(EffectRule {
        tool: tool?,
        subject,
        class: class?,
    })
}
