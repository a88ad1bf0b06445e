//! Parses the fields `skills`, `sandbox`, `guards`, `children`, `compaction`, `perception` and
//! `events` of an agent file. Whether an agent may run shell commands without a sandbox is checked
//! in `shell_check`.

use std::collections::BTreeMap;

use longhaul_core::event::run::CompactionPolicy;
use longhaul_core::policy::ChildCancelPolicy;
use longhaul_core::suggest;
use longhaul_engine::agent::Agent;
use longhaul_engine::agent::config::{
    ChildRunsConfig, IsolationLevel, LoopGuardConfig, PerceptionConfig, PerceptionInterval,
    PerceptionSource, SandboxConfig, Skill,
};
use serde::Deserialize;

use crate::agents::diagnostics::{Diagnostics, FieldReader};
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

/// Parses the fields `skills`, `sandbox`, `guards`, `children`, `compaction`, `perception` and `events`.
pub(crate) fn parse_execution_fields(
    fields: &mut FieldReader<'_, '_>,
    agent: &mut Agent,
    ctx: &AgentLoadContext<'_>,
) {
    agent.skills = fields
        .parse_field_with("skills", |diagnostics, entry| {
            Some(parse_skills(diagnostics, entry, ctx))
        })
        .unwrap_or_default();
    agent.sandbox = fields.parse_field_with("sandbox", parse_sandbox);
    agent.guards = fields.parse_field_with("guards", parse_loop_guards);
    agent.children = fields.parse_field_with("children", parse_children_config).unwrap_or_default();
    agent.compaction = fields.parse_field_with("compaction", parse_compaction_policy);
    agent.perception = fields.parse_field_with("perception", |diagnostics, entry| {
        parse_perception_config(diagnostics, entry, ctx)
    });
    agent.events = fields.parse_field_with("events", parse_event_templates).unwrap_or_default();
}

fn parse_skills(
    diagnostics: &mut Diagnostics,
    entry: &TableEntry,
    ctx: &AgentLoadContext<'_>,
) -> Vec<Skill> {
    if entry.node.as_text() == Some(ALL_SKILLS) {
        return ctx.skills.to_vec();
    }
    let names = diagnostics.parse_texts_with_positions(entry);
    if names.iter().any(|(_, name)| name == ALL_SKILLS) {
        return ctx.skills.to_vec();
    }
    let mut skills = Vec::new();
    for (position, name) in names {
        match find_skill(&name, ctx) {
            Ok(skill) => skills.push(skill),
            Err(message) => diagnostics.report_invalid(position, message),
        }
    }
    skills
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
    diagnostics: &mut Diagnostics,
    entry: &TableEntry,
) -> Option<SandboxConfig> {
    let mut fields = FieldReader::for_table_fields(diagnostics, entry, "isolation")?;
    let isolation = fields.parse_field_with("isolation", parse_isolation_level);
    fields.report_unsupported_fields(UNSUPPORTED_SANDBOX_FIELDS);
    fields.report_unknown_fields();
    Some(SandboxConfig { isolation: isolation.unwrap_or_default(), ..SandboxConfig::default() })
}

fn parse_isolation_level(
    diagnostics: &mut Diagnostics,
    entry: &TableEntry,
) -> Option<IsolationLevel> {
    let text = diagnostics.parse_nonempty_text(entry)?;
    if text == "none" {
        return Some(IsolationLevel::None);
    }
    let message = format!(
        "`isolation: {text}` is not valid: leave it out for a sandbox, or write `none` to run unsandboxed"
    );
    diagnostics.report_invalid(entry.node.position, message);
    None
}

fn parse_loop_guards(diagnostics: &mut Diagnostics, entry: &TableEntry) -> Option<LoopGuardConfig> {
    if entry.node.as_text().is_some() {
        return diagnostics.parse_one_of(entry).map(|OffValue::Off| LoopGuardConfig::OFF);
    }
    let mut fields = FieldReader::for_table_fields(diagnostics, entry, "identical_calls")?;
    let default = LoopGuardConfig::default();
    let keys = ["identical_calls", "no_progress", "repeated_text", "compactions"];
    if !keys.into_iter().any(|key| fields.get(key).is_some()) {
        let message = "`guards` is empty: write `identical_calls: 16`, or `guards: off`";
        fields.diagnostics.report_invalid(entry.node.position, message);
        fields.report_unknown_fields();
        return None;
    }
    let [identical_calls, no_progress, repeated_text, compactions] =
        keys.map(|key| fields.parse_field_with(key, parse_loop_guard_limit_or_off));
    fields.report_unknown_fields();
    Some(LoopGuardConfig {
        identical_calls: identical_calls.unwrap_or(default.identical_calls),
        no_progress: no_progress.unwrap_or(default.no_progress),
        repeated_text: repeated_text.unwrap_or(default.repeated_text),
        compactions: compactions.unwrap_or(default.compactions),
    })
}

/// Parses a loop guard (a limit on how often a run may repeat itself): a number, or `off`. The
/// inner `None` means `off`; the outer `None` means that the value is invalid.
fn parse_loop_guard_limit_or_off(
    diagnostics: &mut Diagnostics,
    entry: &TableEntry,
) -> Option<Option<u32>> {
    match entry.node.as_text() {
        Some(_) => diagnostics.parse_one_of(entry).map(|OffValue::Off| None),
        None => diagnostics.parse_integer(entry, 2).map(Some),
    }
}

fn parse_children_config(
    diagnostics: &mut Diagnostics,
    entry: &TableEntry,
) -> Option<ChildRunsConfig> {
    let mut fields = FieldReader::for_table_fields(diagnostics, entry, "agents")?;
    let agents = fields.parse_field_with("agents", |diagnostics, entry| {
        let agents = diagnostics.parse_unique_texts(entry)?;
        if agents.is_empty() {
            let message = "`agents` is empty: name an agent, or remove `run_agent` from `tools`";
            diagnostics.report_invalid(entry.node.position, message);
        }
        Some(agents)
    });
    let on_cancel: Option<ChildCancelPolicy> =
        fields.parse_field_with("on_cancel", Diagnostics::parse_one_of);
    fields.report_unknown_fields();
    let (agents, on_cancel) = (agents.unwrap_or_default(), on_cancel.unwrap_or_default());
    Some(ChildRunsConfig { agents, on_cancel })
}

fn parse_compaction_policy(
    diagnostics: &mut Diagnostics,
    entry: &TableEntry,
) -> Option<CompactionPolicy> {
    let mut fields = FieldReader::for_table_fields(diagnostics, entry, "keep")?;
    let at = fields.parse_field_with("at", |diagnostics, entry| {
        diagnostics.parse_number(entry, COMPACTION_AT_MIN, COMPACTION_AT_MAX)
    });
    let keep = fields.parse_field_with("keep", |diagnostics, entry| {
        let keep = diagnostics.parse_nonempty_text(entry)?;
        if keep.len() > COMPACTION_KEEP_BYTES_MAX {
            let message =
                format!("`keep` is longer than {COMPACTION_KEEP_BYTES_MAX} bytes: shorten it");
            diagnostics.report_invalid(entry.node.position, message);
            return None;
        }
        Some(keep)
    });
    fields.report_unknown_fields();
    Some(CompactionPolicy { at_percent: at.map(fraction_to_percent), keep })
}

/// Parses `perception`: the command or URL that describes the outside world to the agent.
fn parse_perception_config(
    diagnostics: &mut Diagnostics,
    entry: &TableEntry,
    ctx: &AgentLoadContext<'_>,
) -> Option<PerceptionConfig> {
    let mut fields = FieldReader::for_table_fields(diagnostics, entry, "command")?;
    let source = match (fields.get("command"), fields.get("url")) {
        (Some(entry), None) => parse_perception_command(fields.diagnostics, entry, ctx),
        (None, Some(entry)) => parse_perception_url(fields.diagnostics, entry),
        (None, None) | (Some(_), Some(_)) => {
            let message = "`perception` needs one of `command` and `url`";
            fields.diagnostics.report_invalid(entry.position, message);
            None
        }
    };
    let every: Option<PerceptionInterval> =
        fields.parse_field_with("every", Diagnostics::parse_one_of);
    fields.report_unknown_fields();
    Some(PerceptionConfig { source: source?, every: every.unwrap_or_default() })
}

fn parse_perception_command(
    diagnostics: &mut Diagnostics,
    entry: &TableEntry,
    ctx: &AgentLoadContext<'_>,
) -> Option<PerceptionSource> {
    let elements = diagnostics.parse_list_entries(entry)?;
    // All elements are parsed before an invalid one returns, so that every problem is reported.
    let texts: Vec<Option<String>> =
        elements.iter().map(|element| diagnostics.parse_nonempty_text(element)).collect();
    let command: Vec<String> = texts.into_iter().collect::<Option<_>>()?;
    let (Some(first), Some(program)) = (elements.first(), command.first()) else {
        let message = "`command` is empty: write `command: [./look]`";
        diagnostics.report_invalid(entry.node.position, message);
        return None;
    };
    executable::check_program_executable(diagnostics, first.position, program, ctx.root);
    Some(PerceptionSource::Command(command))
}

fn parse_perception_url(
    diagnostics: &mut Diagnostics,
    entry: &TableEntry,
) -> Option<PerceptionSource> {
    let text = diagnostics.parse_nonempty_text(entry)?;
    let url = reqwest::Url::parse(&text).ok();
    let is_http_url =
        |url: &reqwest::Url| matches!(url.scheme(), "http" | "https") && url.has_host();
    if !url.as_ref().is_some_and(is_http_url) {
        let message = "`url` is not valid: write one that starts with http:// or https://";
        diagnostics.report_invalid(entry.node.position, message);
        return None;
    }
    Some(PerceptionSource::Url(text))
}

/// Parses `events`: for each kind of event, the template of the text that the model reads.
fn parse_event_templates(
    diagnostics: &mut Diagnostics,
    entry: &TableEntry,
) -> Option<BTreeMap<String, String>> {
    const EXPECTED_FORM: &str = "write `KIND: \"text for the model\"`";
    let Some(events) = entry.node.as_table() else {
        diagnostics.report_invalid(
            entry.node.position,
            format!("`events` must be a table: {EXPECTED_FORM}"),
        );
        return None;
    };
    let mut templates = BTreeMap::new();
    for event in events {
        if event.key.trim().is_empty() {
            diagnostics
                .report_invalid(event.position, format!("an event has no kind: {EXPECTED_FORM}"));
        } else if let Some(text) = diagnostics.parse_template(event, AllowedTemplateVariables::Any)
        {
            templates.insert(event.key.clone(), text);
        }
    }
    Some(templates)
}
