//! Parses the fields `skills`, `sandbox`, `guards`, `children`, `compaction`, `perception` and
//! `events` of an agent file. Whether an agent may run shell commands without a sandbox is checked
//! in `shell_check`.

use std::collections::BTreeMap;

use longhaul_core::event::run::CompactionPolicy;
use longhaul_core::policy::ChildCancelPolicy;
use longhaul_core::suggest;
use longhaul_engine::agent::config::{
    ChildRunsConfig, IsolationLevel, LoopGuardConfig, PerceptionConfig, PerceptionInterval,
    PerceptionSource, SandboxConfig, Skill,
};
use serde::Deserialize;

use crate::agents::diagnostics::{Diagnostics, Fields, integer, number};
use crate::agents::executable;
use crate::agents::load_context::AgentLoadContext;
use crate::config::settings::fraction_to_percent;
use crate::spanned::TableEntry;
use longhaul_engine::agent::template_check::AllowedTemplateVariables;

/// Value of `skills` that means all skills of the project.
const ALL_SKILLS: &str = "*";

/// Sandbox fields that this build does not support, since it has no sandbox.
const UNSUPPORTED_SANDBOX_FIELDS: &[&str] = &[
    "provider",
    "image",
    "network",
    "cache",
    "min_isolation",
    "idle_stop",
    "auto_stop",
    "keep",
    "volume",
    "env_file",
];

/// Minimum of `compaction: at`, the share of the context window at which a conversation is
/// compacted.
const COMPACTION_AT_MIN: f64 = 0.1;
/// Maximum of `compaction: at`. With a larger share, the provider might reject the conversation
/// before it is compacted.
const COMPACTION_AT_MAX: f64 = 0.95;

/// Maximum size in bytes of `compaction: keep`, the instruction about what a summary must keep.
const COMPACTION_KEEP_BYTES_MAX: usize = 4_096;

/// Value that disables a loop guard (a limit on how often a run may repeat itself).
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum OffValue {
    Off,
}

/// Parses the names of skills into the project's skills.
pub(crate) fn parse_skills(
    diagnostics: &mut Diagnostics<'_>,
    entry: &TableEntry,
) -> Option<Vec<Skill>> {
    let ctx = diagnostics.ctx;
    if entry.node.as_text() == Some(ALL_SKILLS) {
        return Some(ctx.skills.to_vec());
    }
    let names = diagnostics.texts_with_positions(entry);
    if names.iter().any(|(_, name)| name == ALL_SKILLS) {
        return Some(ctx.skills.to_vec());
    }
    let skills = names.into_iter().filter_map(|(position, name)| match find_skill(&name, &ctx) {
        Ok(skill) => Some(skill),
        Err(message) => diagnostics.reject(position, message),
    });
    Some(skills.collect())
}

/// Returns the project's skill with this name. The error says that the skill is unknown or invalid.
pub(crate) fn find_skill(name: &str, ctx: &AgentLoadContext<'_>) -> Result<Skill, String> {
    if let Some(skill) = ctx.skills.iter().find(|skill| skill.name == name) {
        return Ok(skill.clone());
    }
    if ctx.broken_skills.iter().any(|broken| broken == name) {
        return Err(format!("the skill `{name}` can't be used: fix its SKILL.md first"));
    }
    let names = ctx.skills.iter().map(|skill| skill.name.as_str());
    let names: Vec<&str> = names.collect();
    let hint = match names.is_empty() {
        true => format!(": create the skill in skills/{name}/SKILL.md"),
        false => String::new(),
    };
    Err(format!("{}{hint}", suggest::unknown_name_message("skill", name, &names)))
}

/// Parses the field `sandbox` of an agent file.
pub(crate) fn parse_sandbox(
    diagnostics: &mut Diagnostics<'_>,
    entry: &TableEntry,
) -> Option<SandboxConfig> {
    let mut fields = Fields::new(diagnostics, entry, "isolation")?;
    let isolation = fields.parse("isolation", parse_isolation_level);
    fields.report_unsupported_fields(UNSUPPORTED_SANDBOX_FIELDS);
    fields.finish();
    Some(SandboxConfig { isolation: isolation.unwrap_or_default(), ..SandboxConfig::default() })
}

fn parse_isolation_level(
    diagnostics: &mut Diagnostics<'_>,
    entry: &TableEntry,
) -> Option<IsolationLevel> {
    let text = diagnostics.text(entry)?;
    if text == "none" {
        return Some(IsolationLevel::None);
    }
    let message = format!(
        "`isolation: {text}` is not valid: leave it out for a sandbox, or write `none` to run unsandboxed"
    );
    diagnostics.reject(entry.node.position, message)
}

pub(crate) fn parse_loop_guards(
    diagnostics: &mut Diagnostics<'_>,
    entry: &TableEntry,
) -> Option<LoopGuardConfig> {
    if entry.node.as_text().is_some() {
        return diagnostics.one_of(entry).map(|OffValue::Off| LoopGuardConfig::OFF);
    }
    let mut fields = Fields::new(diagnostics, entry, "identical_calls")?;
    let mut guards = LoopGuardConfig::default();
    fields.set("identical_calls", &mut guards.identical_calls, parse_limit_or_off);
    fields.set("no_progress", &mut guards.no_progress, parse_limit_or_off);
    fields.set("repeated_text", &mut guards.repeated_text, parse_limit_or_off);
    fields.set("compactions", &mut guards.compactions, parse_limit_or_off);
    if !fields.has_any_requested() {
        let message = "`guards` is empty: write `identical_calls: 16`, or `guards: off`";
        fields.diagnostics.report_invalid(entry.node.position, message);
    }
    fields.finish();
    Some(guards)
}

/// Parses a loop guard (a limit on how often a run may repeat itself): a number, or `off`. The
/// inner `None` means `off`; the outer `None` means that the value is invalid.
fn parse_limit_or_off(
    diagnostics: &mut Diagnostics<'_>,
    entry: &TableEntry,
) -> Option<Option<u32>> {
    match entry.node.as_text() {
        Some(_) => diagnostics.one_of(entry).map(|OffValue::Off| None),
        None => integer(2)(diagnostics, entry).map(Some),
    }
}

pub(crate) fn parse_children_config(
    diagnostics: &mut Diagnostics<'_>,
    entry: &TableEntry,
) -> Option<ChildRunsConfig> {
    let mut fields = Fields::new(diagnostics, entry, "agents")?;
    let mut children = ChildRunsConfig::default();
    fields.set("agents", &mut children.agents, |diagnostics, entry| {
        let agents = diagnostics.unique_texts(entry)?;
        if agents.is_empty() {
            let message = "`agents` is empty: name an agent, or remove `run_agent` from `tools`";
            diagnostics.report_invalid(entry.node.position, message);
        }
        Some(agents)
    });
    fields.set("on_cancel", &mut children.on_cancel, Diagnostics::one_of::<ChildCancelPolicy>);
    fields.finish();
    Some(children)
}

pub(crate) fn parse_compaction_policy(
    diagnostics: &mut Diagnostics<'_>,
    entry: &TableEntry,
) -> Option<CompactionPolicy> {
    let mut fields = Fields::new(diagnostics, entry, "keep")?;
    let at = fields.parse("at", number(COMPACTION_AT_MIN, COMPACTION_AT_MAX));
    let keep = fields.parse("keep", |diagnostics, entry| {
        let keep = diagnostics.text(entry)?;
        if keep.len() > COMPACTION_KEEP_BYTES_MAX {
            let message =
                format!("`keep` is longer than {COMPACTION_KEEP_BYTES_MAX} bytes: shorten it");
            return diagnostics.reject(entry.node.position, message);
        }
        Some(keep)
    });
    fields.finish();
    Some(CompactionPolicy { at_percent: at.map(fraction_to_percent), keep })
}

/// Parses `perception`: the command or URL that describes the outside world to the agent.
pub(crate) fn parse_perception_config(
    diagnostics: &mut Diagnostics<'_>,
    entry: &TableEntry,
) -> Option<PerceptionConfig> {
    let mut fields = Fields::new(diagnostics, entry, "command")?;
    let source = match (fields.get("command"), fields.get("url")) {
        (Some(entry), None) => parse_perception_command(fields.diagnostics, entry),
        (None, Some(entry)) => parse_perception_url(fields.diagnostics, entry),
        (None, None) | (Some(_), Some(_)) => {
            let message = "`perception` needs one of `command` and `url`";
            fields.diagnostics.reject(entry.position, message)
        }
    };
    let every = fields.parse("every", Diagnostics::one_of::<PerceptionInterval>);
    fields.finish();
    Some(PerceptionConfig { source: source?, every: every.unwrap_or_default() })
}

fn parse_perception_command(
    diagnostics: &mut Diagnostics<'_>,
    entry: &TableEntry,
) -> Option<PerceptionSource> {
    let elements = diagnostics.list_entries(entry)?;
    // All elements are parsed before an invalid one returns, so that every problem is reported.
    let texts: Vec<Option<String>> =
        elements.iter().map(|element| diagnostics.text(element)).collect();
    let command: Vec<String> = texts.into_iter().collect::<Option<_>>()?;
    let (Some(first), Some(program)) = (elements.first(), command.first()) else {
        let message = "`command` is empty: write `command: [./look]`";
        return diagnostics.reject(entry.node.position, message);
    };
    executable::check_program_executable(diagnostics, first.position, program);
    Some(PerceptionSource::Command(command))
}

fn parse_perception_url(
    diagnostics: &mut Diagnostics<'_>,
    entry: &TableEntry,
) -> Option<PerceptionSource> {
    let text = diagnostics.text(entry)?;
    let is_http_url =
        |url: reqwest::Url| matches!(url.scheme(), "http" | "https") && url.has_host();
    if !reqwest::Url::parse(&text).is_ok_and(is_http_url) {
        let message = "`url` is not valid: write one that starts with http:// or https://";
        return diagnostics.reject(entry.node.position, message);
    }
    Some(PerceptionSource::Url(text))
}

/// Parses `events`: for each kind of event, the template of the text that the model reads.
pub(crate) fn parse_event_templates(
    diagnostics: &mut Diagnostics<'_>,
    entry: &TableEntry,
) -> Option<BTreeMap<String, String>> {
    const EXPECTED_FORM: &str = "write `KIND: \"text for the model\"`";
    let Some(events) = entry.node.as_table() else {
        let message = format!("`events` must be a table: {EXPECTED_FORM}");
        return diagnostics.reject(entry.node.position, message);
    };
    let templates = events.iter().filter_map(|event| {
        if event.key.trim().is_empty() {
            let message = format!("an event has no kind: {EXPECTED_FORM}");
            return diagnostics.reject(event.position, message);
        }
        Some((event.key.clone(), diagnostics.template(event, AllowedTemplateVariables::Any)?))
    });
    Some(templates.collect())
}
