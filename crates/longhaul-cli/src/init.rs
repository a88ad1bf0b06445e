//! `longhaul init`: makes a project that runs at once, and says what it found in the folder.
//!
//! Invariant: no existing file is changed, and nothing that the folder brings along is started.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use longhaul_project::agents::load::RULES_FILES;
use longhaul_project::agents::loaded_agents::{AgentSource, LoadedAgents};
use longhaul_project::assemble::model_selector;
use longhaul_project::config::process_env::ProcessEnv;
use longhaul_project::config::settings::Config;
use longhaul_project::mcp::file::McpFile;
use longhaul_project::mcp::name::FILE_NAME;
use longhaul_project::process;
use longhaul_project::skills;
use longhaul_tool::FileLocation;
use serde::Serialize;

use crate::error::CliError;
use crate::format::count_with_noun;
use crate::{environment, output, sanitize};

pub(crate) const EXAMPLES: &str = "Examples:
  longhaul init                  makes this folder a project, with an agent to begin with
  longhaul init my-project       the same for another folder, which is created
  longhaul run helper \"What is in this folder?\"

Without an API key, the agent's model is a script, so that it runs at once. Agents, skills and MCP
servers of Claude Code in .claude/ and .mcp.json are found and used as they are.";

/// Name of the agent of a new project.
const AGENT: &str = "helper";

/// Files of a new project, as path and content.
const SETTINGS_FILE: (&str, &str) = ("longhaul.toml", include_str!("../init/longhaul.toml"));
const AGENT_FILE: (&str, &str) = ("agents/helper.md", include_str!("../init/helper.md"));
const SCRIPT_FILE: (&str, &str) = ("scripts/helper.yaml", include_str!("../init/helper.yaml"));

/// Line of the agent's file if no model was found.
const SCRIPTED_MODEL: &str =
    "model: scripted/helper       # no API key was found; remove this line when one is set";

/// Line of the agent's file if a model was found.
const DEFAULT_MODEL: &str =
    "# model: anthropic/claude-sonnet-5-5   # default: that of [models], or of the first key";

/// Arguments of `longhaul init`.
#[derive(Debug, Args)]
pub(crate) struct InitCommand {
    /// Folder of the project, which is created if necessary; default: the current folder
    folder: Option<PathBuf>,
    /// Print what was created and found as one JSON object
    #[arg(long)]
    json: bool,
}

/// What was created and found.
#[derive(Debug, Serialize)]
struct InitReport {
    folder: PathBuf,
    created: Vec<String>,
    /// What the folder already had, each a line.
    found: Vec<String>,
    /// Commands to run next.
    next: Vec<String>,
}

impl InitCommand {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let cwd = environment::current_process_env()?.cwd;
        let folder = self.folder.as_ref().map_or_else(|| cwd.clone(), |folder| cwd.join(folder));
        fs::create_dir_all(&folder)
            .with_context(|| format!("the folder {} can't be created", folder.display()))?;
        let folder = fs::canonicalize(&folder)?;
        let process_env = process::process_env_in_folder(folder.clone());
        if process_env.home.as_ref() == Some(&folder) {
            let message =
                "your home folder as a project would give agents access to all your files";
            let error = CliError::usage_error(message);
            return Err(error
                .with_hint("use a folder of its own", "longhaul init my-project")
                .into());
        }
        // Invalid settings are reported before anything is written.
        environment::load_config_quietly(&process_env)?;
        let mut created = create_files(&folder, &[SETTINGS_FILE])?;
        let config = load_config_with_dotenv(&process_env)?;
        let own_agents = own_agent_names(&environment::load_agents(&config)?);
        let model = find_model(&config)?;
        if own_agents.is_empty() {
            let line = if model.is_some() { DEFAULT_MODEL } else { SCRIPTED_MODEL };
            let agent = AGENT_FILE.1.replacen("MODEL", line, 1);
            created.extend(create_files(&folder, &[(AGENT_FILE.0, &agent), SCRIPT_FILE])?);
        }
        let report = InitReport {
            next: next_commands((cwd.as_path(), folder.as_path()), &config, &own_agents),
            found: findings(&config, own_agents, model),
            folder,
            created,
        };
        output::show(self.json, &report, print_report)
    }
}

fn print_report(report: &InitReport) -> anyhow::Result<()> {
    for file in &report.created {
        output::print_line(&format!("created {file}"))?;
    }
    for line in &report.found {
        output::print_line(&sanitize::sanitize_line(line))?;
    }
    output::print_line("\nNext:")?;
    report.next.iter().try_for_each(|command| output::print_line(&format!("  {command}")))
}

/// Creates those of these files that do not exist, and returns their paths.
fn create_files(root: &Path, files: &[(&str, &str)]) -> anyhow::Result<Vec<String>> {
    let mut created = Vec::new();
    for (path, text) in files {
        let Some(file) = FileLocation::below_root(root, Path::new(path)) else {
            continue;
        };
        let is_new = environment::write_new_file(&file, text)
            .with_context(|| format!("{} can't be written", file.path().display()))?;
        created.extend(is_new.then(|| (*path).to_owned()));
    }
    Ok(created)
}

/// Loads the settings of the new project, with the variables of its `.env`.
fn load_config_with_dotenv(process_env: &ProcessEnv) -> anyhow::Result<Config> {
    let process_env = environment::add_dotenv_variables_if_valid(process_env.clone());
    environment::load_config(&process_env)
}

fn own_agent_names(loaded: &LoadedAgents) -> Vec<String> {
    let usable = loaded.agents.iter().map(|one| (one.source, one.agent.name.to_string()));
    let broken = loaded.broken.iter().map(|one| (one.source, one.name.clone()));
    let own = usable.chain(broken).filter(|(source, _)| *source != AgentSource::BuiltIn);
    own.map(|(_, name)| name).collect()
}

/// Returns the project's default model and why it is chosen. `None` means that no key and no
/// default is set.
fn find_model(config: &Config) -> anyhow::Result<Option<String>> {
    let selector = model_selector(config).map_err(CliError::usage_error)?;
    // Ollama is not contacted here.
    Ok(selector.choose_model(None, |_| None).ok().map(|choice| choice.name))
}

/// Returns what the folder has, each as a line.
fn findings(config: &Config, own_agents: Vec<String>, model: Option<String>) -> Vec<String> {
    let mut found = vec![match &model {
        Some(model) => format!("model: {model} (`longhaul models` shows why)"),
        None => {
            "no API key: set one such as ANTHROPIC_API_KEY, in the environment or in .env, for a \
                 real model (`longhaul models` lists all)"
                .to_owned()
        }
    }];
    if !own_agents.is_empty() {
        let count = count_with_noun(own_agents.len(), "agent");
        found.push(format!("{count}: {}", own_agents.join(", ")));
    }
    let skills = skills::load_skills(&config.root, Path::new("")).skills;
    if !skills.is_empty() {
        let names: Vec<&str> = skills.iter().map(|skill| skill.name.as_str()).collect();
        found.push(format!("{}: {}", count_with_noun(names.len(), "skill"), names.join(", ")));
    }
    let file = McpFile::load(config);
    if file.exists() {
        let names: Vec<&str> = file.servers.iter().map(|server| server.name.as_str()).collect();
        let count = count_with_noun(names.len(), "MCP server");
        found.push(format!("{count} in {FILE_NAME}: {}", names.join(", ")));
    }
    let rules = RULES_FILES.iter().find(|file| config.root.join(file).exists());
    found.extend(rules.map(|file| format!("rules for every agent: {file}")));
    found
}

/// Returns a text as one argument of a shell, which executes nothing in it.
fn shell_quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    match text.chars().all(is_plain) && !text.starts_with('-') {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

fn next_commands(
    (cwd, folder): (&Path, &Path),
    config: &Config,
    own_agents: &[String],
) -> Vec<String> {
    let mut next = Vec::new();
    if cwd != folder {
        let folder = folder.strip_prefix(cwd).unwrap_or(folder).display().to_string();
        next.push(format!("cd {}", shell_quoted(&folder)));
    }
    if McpFile::load(config).exists() {
        next.push("longhaul trust             # MCP servers start only after that".to_owned());
    }
    match own_agents.first() {
        None => next.push(format!("longhaul run {AGENT} \"What is in this folder?\"")),
        Some(agent) => {
            next.push("longhaul agents check".to_owned());
            next.push(format!("longhaul run {agent} \"...\""));
        }
    }
    next.push("longhaul agents new NAME   # an agent of your own".to_owned());
    next.push("longhaul tools             # what agents can use".to_owned());
    next
}

#[cfg(test)]
mod tests {
    use super::shell_quoted;

    #[test]
    fn a_shell_executes_nothing_in_a_folder() {
        for (folder, expected) in [
            ("my-project", "my-project"),
            ("new $(x) dir", "'new $(x) dir'"),
            ("it's", r"'it'\''s'"),
            ("-rf", "'-rf'"),
        ] {
            assert_eq!(shell_quoted(folder), expected);
        }
    }
}
