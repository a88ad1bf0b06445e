//! Reads `approve:` and `effects:`.
//!
//! Never: takes a rule in doubt. One that says two things, or nothing, is a problem.

use longhaul_core::policy::effect::{EffectClass, InDoubt};
use longhaul_core::policy::gate::{Approvers, GATE_TIMEOUT, GateRule, OnTimeout, Verdict};
use longhaul_engine::agent::EffectRule;

use crate::agents::sheet::{Fields, Sheet};
use crate::written::{Content, Entry};

/// What `in_doubt` may say.
pub(crate) const IN_DOUBT: &[(&str, InDoubt)] = &[
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

const RULE_KEYS: &[&str] = &[
    "tool",
    "match",
    "paths",
    "ask",
    "allow",
    "deny",
    "always",
    "timeout",
    "on_timeout",
    "in_doubt",
    "approvers",
    "remind",
    "then",
];

/// Reads `approve:`.
pub(crate) fn rules(sheet: &mut Sheet, entry: &Entry) -> Vec<GateRule> {
    let rules = sheet.list(entry);
    rules
        .iter()
        .filter_map(|entry| rule(sheet, entry))
        .collect()
}

fn rule(sheet: &mut Sheet, entry: &Entry) -> Option<GateRule> {
    let fields = sheet.table(entry, RULE_KEYS)?;
    sheet.all_later(&fields, &["paths", "then"]);
    let tool = tool(sheet, entry, &fields);
    let verdict = verdict(sheet, entry, &fields);
    let timeout = fields.get("timeout").and_then(|entry| sheet.span(entry));
    let on_timeout = fields.get("on_timeout");
    let on_timeout = on_timeout.and_then(|entry| sheet.word(entry, ON_TIMEOUT));
    let in_doubt = fields.get("in_doubt");
    let approvers = fields.get("approvers");
    let approvers = approvers.and_then(|entry| self::approvers(sheet, entry));
    let rule = GateRule {
        subject: fields.get("match").and_then(|entry| sheet.text(entry)),
        always: fields
            .get("always")
            .and_then(|entry| sheet.flag(entry))
            .unwrap_or_default(),
        timeout,
        on_timeout: on_timeout.unwrap_or_default(),
        in_doubt: in_doubt.and_then(|entry| sheet.word(entry, IN_DOUBT)),
        approvers: approvers.unwrap_or_default(),
        remind: remind(sheet, &fields, timeout.unwrap_or(GATE_TIMEOUT)),
        tool: tool?,
        verdict: verdict?,
    };
    Some(rule)
}

fn tool(sheet: &mut Sheet, entry: &Entry, fields: &Fields<'_>) -> Option<String> {
    let Some(tool) = fields.get("tool") else {
        let message = format!(
            "`{}` names no tool: write `tool: NAME` or `tool: \"*\"`",
            entry.key
        );
        sheet.fault(entry.place, message);
        return None;
    };
    sheet.text(tool)
}

fn verdict(sheet: &mut Sheet, entry: &Entry, fields: &Fields<'_>) -> Option<Verdict> {
    let given = ["ask", "allow", "deny"].map(|key| fields.get(key));
    match given {
        [Some(ask), None, None] => sheet.text(ask).map(Verdict::Ask),
        [None, Some(allow), None] => match sheet.flag(allow)? {
            true => Some(Verdict::Allow),
            false => {
                let message = "`allow: false` says nothing: write `deny: \"why\"`";
                sheet.fault(allow.node.place, message);
                None
            }
        },
        [None, None, Some(deny)] => sheet.text(deny).map(Verdict::Deny),
        [None, None, None] => {
            let message = format!(
                "`{}` decides nothing: write one of `ask: \"...\"`, `allow: true`, `deny: \"...\"`",
                entry.key
            );
            sheet.fault(entry.place, message);
            None
        }
        [first, second, third] => {
            let second = [first, second, third].into_iter().flatten().nth(1);
            let place = second.map_or(entry.place, |entry| entry.place);
            let message = format!("`{}` says more than one of ask, allow, deny", entry.key);
            sheet.fault(place, message);
            None
        }
    }
}

fn approvers(sheet: &mut Sheet, entry: &Entry) -> Option<Approvers> {
    if !matches!(entry.node.content, Content::Table(_)) {
        return sheet.whole(entry, 1).map(|count| Approvers {
            count,
            not_submitter: false,
        });
    }
    let fields = sheet.table(entry, &["count", "not"])?;
    let not = fields.get("not");
    let not = not.and_then(|entry| sheet.word(entry, &[("submitter", ())]));
    let count = match fields.get("count") {
        Some(count) => sheet.whole(count, 1)?,
        None => Approvers::default().count,
    };
    Some(Approvers {
        count,
        not_submitter: not.is_some(),
    })
}

fn remind(
    sheet: &mut Sheet,
    fields: &Fields<'_>,
    timeout: longhaul_core::time::Millis,
) -> Option<longhaul_core::time::Millis> {
    let entry = fields.get("remind")?;
    let remind = sheet.span(entry)?;
    if remind >= timeout {
        let timeout = crate::span::write(timeout);
        let message = format!("`remind` never comes: the gate ends after {timeout}");
        sheet.fault(entry.node.place, message);
    }
    Some(remind)
}

/// Reads `effects:`.
pub(crate) fn effects(sheet: &mut Sheet, entry: &Entry) -> Vec<EffectRule> {
    let effects = sheet.list(entry);
    effects
        .iter()
        .filter_map(|entry| effect(sheet, entry))
        .collect()
}

fn effect(sheet: &mut Sheet, entry: &Entry) -> Option<EffectRule> {
    let fields = sheet.table(entry, &["tool", "match", "class", "key"])?;
    sheet.all_later(&fields, &["key"]);
    let tool = tool(sheet, entry, &fields);
    let subject = fields.get("match").and_then(|entry| sheet.text(entry));
    let Some(class) = fields.get("class") else {
        let message = format!(
            "`{}` has no `class`: pure, keyed, once or session",
            entry.key
        );
        sheet.fault(entry.place, message);
        return None;
    };
    let class = sheet.word(class, CLASSES)?;
    Some(EffectRule {
        tool: tool?,
        subject,
        class,
    })
}
