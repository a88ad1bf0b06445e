//! `longhaul agents new`: the file of a new agent, to begin with.
//!
//! Never: writes over a file, or one that would not pass `agents check`.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use clap::Args;
use longhaul::agents::built_in::BUILT_IN_AGENTS;
use longhaul::agents::load::{AGENTS_FOLDER, check_text};
use longhaul::agents::loaded_agents::{AgentError, AgentSource, LoadedAgent};
use longhaul::agents::scaffold::AgentScaffold;
use longhaul::assemble::with_load_context;
use longhaul::skills;
use longhaul_tool::Location;

use crate::agents::project::AgentsProject;
use crate::error::CliError;
use crate::output;

const EXAMPLES: &str = "Examples:
  longhaul agents new tidy                              agents/tidy.md, with a comment for each field
  longhaul agents new tidy --tools read_file,edit_file  with these tools
  longhaul agents new strict --from tidy                a copy of another, also of Claude's";

/// Writes the file of a new agent.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct New {
    /// Its name: letters, digits, `-`, `_` and `.`
    name: String,
    /// Copy this agent
    #[arg(long, value_name = "AGENT")]
    from: Option<String>,
    /// Its tools, parted by commas
    #[arg(long, value_name = "TOOL", value_delimiter = ',')]
    tools: Option<Vec<String>>,
    /// Its model
    #[arg(long)]
    model: Option<String>,
}

impl New {
    pub(crate) fn run(&self, project: &AgentsProject) -> anyhow::Result<()> {
        let wanted = AgentScaffold {
            name: self.name.clone(),
            model: self.model.clone(),
            tools: self.tools.clone(),
        };
        let text = match &self.from {
            None => wanted.render_new(),
            Some(from) => self.copy_text(&wanted, from, project)?,
        };
        let skills = skills::load(&project.config.root, &project.display_root);
        let shelf = (project.display_root.as_path(), &skills);
        let problems = with_load_context(&project.config, &project.tools, shelf, |shelf| {
            check_text(shelf, &self.name, &text)
        });
        if !problems.is_empty() {
            let said: Vec<String> = problems.iter().map(ToString::to_string).collect();
            return Err(CliError::usage(format!("nothing was written:\n{}", said.join("\n")))
                .hint("what there is", "longhaul agents new --help")
                .into());
        }
        self.write(project, &text)?;
        let hidden = project.loaded.find(&self.name).ok();
        if let Some(hidden) = hidden.filter(|one| one.source != AgentSource::Project) {
            output::stderr_line(&format!("it hides {}", hidden.path.display()));
        }
        let name = &self.name;
        output::stderr_line(&format!("edit it, then: longhaul agents check {name}"));
        output::stderr_line(&format!("then try it:   longhaul run {name} \"...\""));
        Ok(())
    }

    fn copy_text(
        &self,
        wanted: &AgentScaffold,
        from: &str,
        project: &AgentsProject,
    ) -> anyhow::Result<String> {
        let one = match project.loaded.find(from) {
            Ok(one) => one,
            Err(AgentError::Unknown(said)) => bail!("{said}\n`longhaul agents` lists them"),
            Err(error @ AgentError::Broken { .. }) => bail!("{error}"),
        };
        match one.source {
            AgentSource::Claude => Ok(wanted.render_from_claude(one)),
            AgentSource::Project => {
                let file = self::agent_file(project, one.agent.name.as_str());
                let text = fs::read_to_string(&file);
                let text = text.with_context(|| format!("`{}` can't be read", one.path.display()));
                Ok(wanted.render_copy(&text?))
            }
            AgentSource::BuiltIn => Ok(wanted.render_copy(built_in_text(one))),
        }
    }

    fn write(&self, project: &AgentsProject, text: &str) -> anyhow::Result<()> {
        let file = agent_file(project, &self.name);
        let said = project.display_root.join(AGENTS_FOLDER).join(format!("{}.md", self.name));
        let said = said.display();
        fs::create_dir_all(project.config.root.join(AGENTS_FOLDER))
            .with_context(|| format!("no folder for `{said}` can be made"))?;
        // A link in a cloned project would have the file written elsewhere.
        if let Some(folder) = Location::below(&project.config.root, Path::new(AGENTS_FOLDER)) {
            let opened = folder.open_folder();
            opened.with_context(|| {
                let why = open_failure_reason(&folder.path());
                format!("`{AGENTS_FOLDER}` {why}, so `{said}` is not written")
            })?;
        }
        let opened = fs::OpenOptions::new().write(true).create_new(true).open(&file);
        let mut opened = match opened {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                return Err(CliError::usage(format!(
                    "`{said}` is there already, and stays as it is"
                ))
                .hint("look at it", format!("longhaul agents show {}", self.name))
                .into());
            }
            opened => opened.with_context(|| format!("`{said}` can't be written"))?,
        };
        opened.write_all(text.as_bytes()).with_context(|| format!("`{said}` can't be written"))?;
        output::stdout_line(&said.to_string())
    }
}

fn agent_file(project: &AgentsProject, name: &str) -> std::path::PathBuf {
    project.config.root.join(AGENTS_FOLDER).join(format!("{name}.md"))
}

/// Why a folder was not opened.
fn open_failure_reason(folder: &Path) -> &'static str {
    match folder.is_symlink() {
        true => "is a link",
        false => "can't be opened",
    }
}

fn built_in_text(one: &LoadedAgent) -> &'static str {
    let mut all = BUILT_IN_AGENTS.iter();
    let found = all.find(|built_in| built_in.name == one.agent.name.as_str());
    found.map_or("", |built_in| built_in.file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_symlink_is_reported_as_a_symlink() {
        let place = tempfile::tempdir().unwrap();
        let link = place.path().join("link");
        std::os::unix::fs::symlink(place.path(), &link).unwrap();
        assert_eq!(open_failure_reason(&link), "is a link");
        assert_eq!(open_failure_reason(place.path()), "can't be opened");
    }
}
