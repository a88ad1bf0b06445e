//! Parses the fields of an agent file that configure its runs: `skills`, `guards`,
//! `children`, `compaction`, `perception`, `events`, `output` and `outcome`.
//!
//! Invariant: references of an output schema to other documents are not fetched, and a schema that
//! can't be used for validation is rejected.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use longhaul_core::event::run::CompactionPolicy;
use longhaul_core::policy::ChildCancelPolicy;
use longhaul_core::raw::RawJson;
use longhaul_core::slug::slugify;
use longhaul_core::suggest;
use longhaul_engine::agent::check::{
    rubric_error, schema_as_canonical_json, validate_output_schema,
};
use longhaul_engine::agent::config::{
    ChildRunsConfig, GradingConfig, LoopGuardConfig, PerceptionConfig, PerceptionInterval,
    PerceptionSource, Skill,
};
use serde::Deserialize;
use serde_json::Value;

use crate::agents::diagnostics::{Diagnostics, Fields, integer, number};
use crate::agents::load_context::AgentLoadContext;
use crate::config::settings::fraction_to_percent;
use crate::project_file;
use crate::spanned::{Position, TableEntry};

/// Value of `skills` that means all skills of the project.
const ALL_SKILLS: &str = "*";

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

impl Diagnostics<'_> {
    /// Parses the names of skills into the project's skills.
    pub(crate) fn parse_skills(&mut self, entry: &TableEntry) -> Option<Vec<Skill>> {
        let ctx = self.ctx;
        if entry.node.as_text() == Some(ALL_SKILLS) {
            return Some(ctx.skills.to_vec());
        }
        let names = self.texts_with_positions(entry);
        if names.iter().any(|(_, name)| name == ALL_SKILLS) {
            return Some(ctx.skills.to_vec());
        }
        let skills =
            names.into_iter().filter_map(|(position, name)| match find_skill(&name, &ctx) {
                Ok(skill) => Some(skill),
                Err(message) => self.reject(position, message),
            });
        Some(skills.collect())
    }

    pub(crate) fn parse_loop_guards(&mut self, entry: &TableEntry) -> Option<LoopGuardConfig> {
        if entry.node.as_text().is_some() {
            return self.one_of(entry).map(|OffValue::Off| LoopGuardConfig::OFF);
        }
        let mut fields = Fields::new(self, entry, "identical_calls")?;
        let mut guards = LoopGuardConfig::default();
        fields.set("identical_calls", &mut guards.identical_calls, Diagnostics::parse_limit_or_off);
        fields.set("no_progress", &mut guards.no_progress, Diagnostics::parse_limit_or_off);
        fields.set("repeated_text", &mut guards.repeated_text, Diagnostics::parse_limit_or_off);
        fields.set("compactions", &mut guards.compactions, Diagnostics::parse_limit_or_off);
        if !fields.has_any_requested() {
            let message = "`guards` is empty: write `identical_calls: 16`, or `guards: off`";
            fields.diagnostics.report_invalid(entry.node.position, message);
        }
        Some(guards)
    }

    /// Parses a loop guard (a limit on how often a run may repeat itself): a number, or `off`. The
    /// inner `None` means `off`; the outer `None` means that the value is invalid.
    fn parse_limit_or_off(&mut self, entry: &TableEntry) -> Option<Option<u32>> {
        match entry.node.as_text() {
            Some(_) => self.one_of(entry).map(|OffValue::Off| None),
            None => integer(2)(self, entry).map(Some),
        }
    }

    pub(crate) fn parse_children_config(&mut self, entry: &TableEntry) -> Option<ChildRunsConfig> {
        let mut fields = Fields::new(self, entry, "agents")?;
        let mut children = ChildRunsConfig::default();
        fields.set("agents", &mut children.agents, |diagnostics, entry| {
            let agents = diagnostics.unique_texts(entry)?;
            if agents.is_empty() {
                let message =
                    "`agents` is empty: name an agent, or remove `run_agent` from `tools`";
                diagnostics.report_invalid(entry.node.position, message);
            }
            Some(agents)
        });
        fields.set("on_cancel", &mut children.on_cancel, Diagnostics::one_of::<ChildCancelPolicy>);
        Some(children)
    }

    pub(crate) fn parse_compaction(&mut self, entry: &TableEntry) -> Option<CompactionPolicy> {
        let mut fields = Fields::new(self, entry, "keep")?;
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
        Some(CompactionPolicy { at_percent: at.map(fraction_to_percent), keep })
    }

    /// Parses `perception`: the command or URL that describes the outside world to the agent.
    pub(crate) fn parse_perception(&mut self, entry: &TableEntry) -> Option<PerceptionConfig> {
        let mut fields = Fields::new(self, entry, "command")?;
        let source = match (fields.get("command"), fields.get("url")) {
            (Some(entry), None) => fields.diagnostics.parse_perception_command(entry),
            (None, Some(entry)) => fields.diagnostics.parse_perception_url(entry),
            (None, None) | (Some(_), Some(_)) => {
                let message = "`perception` needs one of `command` and `url`";
                fields.diagnostics.reject(entry.position, message)
            }
        };
        let every = fields.parse("every", Diagnostics::one_of::<PerceptionInterval>);
        Some(PerceptionConfig { source: source?, every: every.unwrap_or_default() })
    }

    fn parse_perception_command(&mut self, entry: &TableEntry) -> Option<PerceptionSource> {
        let elements = self.list_entries(entry)?;
        // All elements are parsed before an invalid one returns, so that every problem is reported.
        let texts: Vec<Option<String>> =
            elements.iter().map(|element| self.text(element)).collect();
        let command: Vec<String> = texts.into_iter().collect::<Option<_>>()?;
        let (Some(first), Some(program)) = (elements.first(), command.first()) else {
            let message = "`command` is empty: write `command: [./look]`";
            return self.reject(entry.node.position, message);
        };
        self.check_program_executable(first.position, program);
        Some(PerceptionSource::Command(command))
    }

    fn parse_perception_url(&mut self, entry: &TableEntry) -> Option<PerceptionSource> {
        let text = self.text(entry)?;
        let is_http_url =
            |url: reqwest::Url| matches!(url.scheme(), "http" | "https") && url.has_host();
        if !reqwest::Url::parse(&text).is_ok_and(is_http_url) {
            let message = "`url` is not valid: write one that starts with http:// or https://";
            return self.reject(entry.node.position, message);
        }
        Some(PerceptionSource::Url(text))
    }

    /// Parses `events`: for each kind of event, the template of the text that the model reads.
    pub(crate) fn parse_events(&mut self, entry: &TableEntry) -> Option<BTreeMap<String, String>> {
        const EXPECTED_FORM: &str = "write `KIND: \"text for the model\"`";
        let Some(events) = entry.node.as_table() else {
            let message = format!("`events` must be a table: {EXPECTED_FORM}");
            return self.reject(entry.node.position, message);
        };
        let templates = events.iter().filter_map(|event| {
            if event.key.trim().is_empty() {
                let message = format!("an event has no kind: {EXPECTED_FORM}");
                return self.reject(event.position, message);
            }
            Some((event.key.clone(), self.template(event, None)?))
        });
        Some(templates.collect())
    }
}

/// Returns the project's skill with this name. The error says that the skill is unknown or invalid.
pub(crate) fn find_skill(name: &str, ctx: &AgentLoadContext<'_>) -> Result<Skill, String> {
    let slug = slugify(name);
    let mut skills = ctx.skills.iter();
    if let Some(skill) = skills.find(|skill| skill.name == name || skill.name == slug) {
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

impl Diagnostics<'_> {
    /// Parses the field `outcome` of an agent file: how the results of the agent are graded.
    pub(crate) fn parse_outcome_field(&mut self, entry: &TableEntry) -> Option<GradingConfig> {
        let mut fields = Fields::new(self, entry, "rubric")?;
        if fields.get("rubric").is_none() {
            let message = "`outcome` needs a `rubric`: the path of a file such as ./rubric.md, or the \
                text itself";
            fields.diagnostics.report_invalid(entry.position, message);
        }
        let rubric = fields.parse("rubric", Diagnostics::parse_rubric);
        let grader = fields.parse("grader", |diagnostics, entry| {
            let grader = diagnostics.text(entry)?;
            diagnostics.report_unusable_model(entry.node.position, &grader);
            Some(grader)
        });
        let mut max_rounds = GradingConfig::MAX_ROUNDS_DEFAULT;
        fields.set("max_rounds", &mut max_rounds, |diagnostics, entry| {
            let rounds: u32 = integer(1)(diagnostics, entry)?;
            if rounds > GradingConfig::MAX_ROUNDS_MAX {
                let message = format!("`max_rounds` is above {}", GradingConfig::MAX_ROUNDS_MAX);
                return diagnostics.reject(entry.node.position, message);
            }
            Some(rounds)
        });
        Some(GradingConfig { rubric: rubric?, grader, max_rounds })
    }

    /// Parses a rubric (the criteria for grading a result): its text, or the path of the file that
    /// contains the text.
    fn parse_rubric(&mut self, entry: &TableEntry) -> Option<String> {
        let text = self.text(entry)?;
        let rubric = match is_rubric_file_path(&text) {
            true => {
                let bytes = self.read_file("rubric", &text, GradingConfig::RUBRIC_BYTES_MAX);
                bytes.and_then(|bytes| match String::from_utf8(bytes) {
                    Ok(rubric) => Ok(rubric.trim_end().to_owned()),
                    Err(_) => Err(format!("the rubric `{text}` can't be used: it is not UTF-8")),
                })
            }
            false => Ok(text),
        };
        let rubric = rubric.and_then(|rubric| rubric_error(&rubric).map_or(Ok(rubric), Err));
        rubric.map_or_else(|message| self.reject(entry.node.position, message), Some)
    }
}

/// Returns whether a rubric is a path: it is one word that starts with `./` or ends with `.md` or
/// `.txt`.
fn is_rubric_file_path(rubric: &str) -> bool {
    let is_word = !rubric.contains(char::is_whitespace);
    let has_text_ending = [".md", ".txt"].iter().any(|ending| rubric.ends_with(ending));
    is_word && (rubric.starts_with("./") || has_text_ending)
}

/// Maximum size of an output schema in bytes.
const SCHEMA_BYTES_MAX: usize = 256 << 10;

impl Diagnostics<'_> {
    /// Parses the field `output` of an agent file: the JSON Schema of the agent's result.
    pub(crate) fn parse_output_field(&mut self, entry: &TableEntry) -> Option<RawJson> {
        let mut fields = Fields::new(self, entry, "schema")?;
        let schema = fields.get("schema");
        drop(fields);
        let Some(schema) = schema else {
            let message = "`output` needs a `schema`: the path of a file, or the schema itself";
            return self.reject(entry.position, message);
        };
        let result = if schema.node.as_table().is_some() && self.ctx.is_built_in {
            schema_as_canonical_json(&schema.node.to_json())
        } else if schema.node.as_table().is_some() {
            validate_output_schema(schema.node.to_json())
                .map_err(|reason| format!("`schema`: {reason}"))
        } else {
            let name = self.text(schema)?;
            self.load_schema_file(&name)
        };
        result.map_or_else(|message| self.reject(schema.node.position, message), Some)
    }

    fn load_schema_file(&mut self, file_name: &str) -> Result<RawJson, String> {
        let bytes = self.read_file("schema", file_name, SCHEMA_BYTES_MAX)?;
        let value: Value = serde_json::from_slice(&bytes).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            format!("the schema `{file_name}` is not valid JSON: {file_name}:{line}:{column}")
        })?;
        validate_output_schema(value)
            .map_err(|reason| format!("the schema `{file_name}` can't be used: {reason}"))
    }

    /// Reads a file of the project that the agent file names, without its byte order mark, and
    /// records that it was read. `noun` says in an error what the file is.
    fn read_file(&mut self, noun: &str, name: &str, bytes_max: usize) -> Result<Vec<u8>, String> {
        let components = Path::new(name).components().filter(|part| *part != Component::CurDir);
        self.files.push(self.ctx.root.join(components.collect::<PathBuf>()));
        let bytes = project_file::read_file_in_project(self.ctx.root, Path::new(name), bytes_max);
        let bytes = bytes.map_err(|error| format!("the {noun} `{name}` can't be used: {error}"))?;
        Ok(match bytes.strip_prefix(b"\xef\xbb\xbf") {
            Some(rest) => rest.to_vec(),
            None => bytes,
        })
    }

    /// Checks that a program exists and can be executed. If not, a program whose path is relative to
    /// the project is reported as missing. Any other program is only mentioned in a note, since it may
    /// exist on the machine that runs the agent.
    pub(crate) fn check_program_executable(&mut self, position: Position, program: &str) {
        let program_path = Path::new(program);
        if !program.contains('/') {
            let path = std::env::var_os("PATH").unwrap_or_default();
            let mut folders = std::env::split_paths(&path);
            if folders.all(|folder| not_executable_reason(&folder.join(program_path)).is_some()) {
                self.add_note(format!(
                    "at {position}: `{program}` was not found in PATH on this machine; \
                     write a program of the project with its path, such as `./{program}`"
                ));
            }
            return;
        }
        let Some(problem) = not_executable_reason(&self.ctx.root.join(program_path)) else {
            return;
        };
        match program_path.is_absolute() {
            true => self.add_note(format!("at {position}: `{program}` {problem} on this machine")),
            false => self.report_missing(
                position,
                format!("`{program}` {problem}, relative to the project root"),
            ),
        }
    }
}

/// Returns why the file at `path` can't be executed, as the rest of a sentence that starts with the
/// file, such as "does not exist". `None` means that it can be executed.
fn not_executable_reason(path: &Path) -> Option<&'static str> {
    match fs::metadata(path) {
        Err(_) => Some("does not exist"),
        Ok(metadata) if !metadata.is_file() => Some("is not a regular file"),
        Ok(metadata) if metadata.permissions().mode() & 0o111 == 0 => {
            Some("is not executable (run chmod +x)")
        }
        Ok(_) => None,
    }
}
