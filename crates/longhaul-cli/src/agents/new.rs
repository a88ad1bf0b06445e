//! `longhaul agents new`: creates the file of a new agent.
//!
//! Invariant: the command never overwrites a file, and never writes an agent that fails `agents
//! check`.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use clap::Args;
use longhaul_project::agents::built_in::BUILT_IN_AGENTS;
use longhaul_project::agents::load::{AGENTS_FOLDER, text_problems};
use longhaul_project::agents::loaded_agents::{AgentSource, LoadedAgent};
use longhaul_project::agents::scaffold::AgentScaffold;
use longhaul_project::assemble::with_agent_load_context;
use longhaul_project::skills;
use longhaul_tool::FileLocation;

use crate::agents::project::ProjectWithAgents;
use crate::error::fail;
use crate::output;

const EXAMPLES: &str = "Examples:
  longhaul agents new tidy                              agents/tidy.md, every field with a comment
  longhaul agents new tidy --tools read_file,edit_file  with these tools
  longhaul agents new strict --from tidy                a copy of another agent";

/// Arguments of `longhaul agents new`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct NewAgentCommand {
    /// Name of the new agent: letters, digits, `-`, `_` and `.`
    name: String,
    /// Copy the existing agent with this name
    #[arg(long, value_name = "AGENT")]
    from: Option<String>,
    /// Tools of the new agent, separated by commas
    #[arg(long, value_name = "TOOL", value_delimiter = ',')]
    tools: Option<Vec<String>>,
    /// Model of the new agent
    #[arg(long)]
    model: Option<String>,
}

impl NewAgentCommand {
    pub(crate) fn run(&self, project: &ProjectWithAgents) -> anyhow::Result<()> {
        let scaffold = AgentScaffold {
            name: self.name.clone(),
            model: self.model.clone(),
            tools: self.tools.clone(),
        };
        let text = match &self.from {
            None => scaffold.render_new_agent(),
            Some(from) => self.copied_agent_text(&scaffold, from, project)?,
        };
        let skills = skills::load_skills(&project.config.root, &project.display_root);
        let location = (project.display_root.as_path(), &skills);
        let problems =
            with_agent_load_context(&project.config, &project.tools, location, |location| {
                text_problems(location, &self.name, &text)
            });
        if !problems.is_empty() {
            let messages: Vec<String> = problems.iter().map(ToString::to_string).collect();
            let message = format!("no agent was created:\n{}", messages.join("\n"));
            return fail(message, "see the options", "longhaul agents new --help");
        }
        self.write_agent_file(project, &text)?;
        let earlier_agent = project.loaded.find_loaded_agent(&self.name).ok();
        if let Some(replaced_agent) =
            earlier_agent.filter(|agent| agent.source != AgentSource::Project)
        {
            output::eprint_line(&format!(
                "the new agent is used instead of {}",
                replaced_agent.path.display()
            ));
        }
        let name = &self.name;
        output::eprint_line(&format!("edit the file, then check it: longhaul agents check {name}"));
        output::eprint_line(&format!("then try the agent:          longhaul run {name} \"...\""));
        Ok(())
    }

    fn copied_agent_text(
        &self,
        scaffold: &AgentScaffold,
        from: &str,
        project: &ProjectWithAgents,
    ) -> anyhow::Result<String> {
        let LoadedAgent { agent, source, path, .. } = project.find_agent(from)?;
        let text = match source {
            AgentSource::Claude => {
                return Ok(scaffold.render_claude_agent(project.find_agent(from)?));
            }
            AgentSource::Project => {
                fs::read_to_string(agent_file_path(project, agent.name.as_str()))
                    .with_context(|| format!("`{}` can't be read", path.display()))?
            }
            AgentSource::BuiltIn => {
                let mut built_in = BUILT_IN_AGENTS.iter();
                let found = built_in.find(|one| one.name == agent.name.as_str());
                found.map_or("", |built_in| built_in.file).to_owned()
            }
        };
        Ok(scaffold.render_agent_copy(&text))
    }

    fn write_agent_file(&self, project: &ProjectWithAgents, text: &str) -> anyhow::Result<()> {
        let file = agent_file_path(project, &self.name);
        let display_path =
            project.display_root.join(AGENTS_FOLDER).join(format!("{}.md", self.name));
        let display_path = display_path.display();
        fs::create_dir_all(project.config.root.join(AGENTS_FOLDER))
            .with_context(|| format!("the folder for `{display_path}` can't be created"))?;
        // Through a symlink in a cloned project the file would be written elsewhere.
        if let Some(folder) =
            FileLocation::below_root(&project.config.root, Path::new(AGENTS_FOLDER))
        {
            let result = folder.open_folder();
            result.with_context(|| {
                let problem = folder_open_error_text(&folder.path());
                format!("`{AGENTS_FOLDER}` {problem}, so `{display_path}` is not written")
            })?;
        }
        let result = fs::OpenOptions::new().write(true).create_new(true).open(&file);
        if let Err(error) = &result
            && error.kind() == std::io::ErrorKind::AlreadyExists
        {
            let message = format!("`{display_path}` already exists and was not changed");
            return fail(message, "show the agent", format!("longhaul agents show {}", self.name));
        }
        result
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .with_context(|| format!("`{display_path}` can't be written"))?;
        output::print_line(&display_path.to_string())
    }
}

fn agent_file_path(project: &ProjectWithAgents, name: &str) -> std::path::PathBuf {
    project.config.root.join(AGENTS_FOLDER).join(format!("{name}.md"))
}

/// Returns why the agents folder could not be opened, as the rest of a sentence that starts with
/// the folder.
fn folder_open_error_text(folder: &Path) -> &'static str {
    match folder.is_symlink() {
        true => "is a link",
        false => "can't be opened",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_symlink_is_reported_as_a_symlink() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        assert_eq!(folder_open_error_text(&link), "is a link");
        assert_eq!(folder_open_error_text(dir.path()), "can't be opened");
    }
}
