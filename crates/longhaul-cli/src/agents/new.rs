//! `longhaul agents new`: the file of a new agent, to begin with.
//!
//! Never: writes over a file, or one that would not pass `agents check`.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use clap::Args;
use longhaul::agents::draft::Wanted;
use longhaul::agents::load::{OWN, try_text};
use longhaul::agents::loaded::{AgentError, LoadedAgent, Source};
use longhaul::agents::shipped::SHIPPED;
use longhaul::assemble::on_shelf;
use longhaul::skills;
use longhaul_tool::Location;

use crate::agents::project::Project;
use crate::error::CliError;
use crate::say;

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
    pub(crate) fn run(&self, project: &Project) -> anyhow::Result<()> {
        let wanted = Wanted {
            name: self.name.clone(),
            model: self.model.clone(),
            tools: self.tools.clone(),
        };
        let text = match &self.from {
            None => wanted.fresh(),
            Some(from) => self.copied(&wanted, from, project)?,
        };
        let skills = skills::load(&project.config.root, &project.said);
        let shelf = (project.said.as_path(), &skills);
        let problems = on_shelf(&project.config, &project.tools, shelf, |shelf| {
            try_text(shelf, &self.name, &text)
        });
        if !problems.is_empty() {
            let said: Vec<String> = problems.iter().map(ToString::to_string).collect();
            return Err(
                CliError::usage(format!("nothing was written:\n{}", said.join("\n")))
                    .hint("what there is", "longhaul agents new --help")
                    .into(),
            );
        }
        self.write(project, &text)?;
        let hidden = project.loaded.find(&self.name).ok();
        if let Some(hidden) = hidden.filter(|one| one.source != Source::Project) {
            say::talk(&format!("it hides {}", hidden.path.display()));
        }
        let name = &self.name;
        say::talk(&format!("edit it, then: longhaul agents check {name}"));
        say::talk(&format!("then try it:   longhaul run {name} \"...\""));
        Ok(())
    }

    fn copied(&self, wanted: &Wanted, from: &str, project: &Project) -> anyhow::Result<String> {
        let one = match project.loaded.find(from) {
            Ok(one) => one,
            Err(AgentError::Unknown(said)) => bail!("{said}\n`longhaul agents` lists them"),
            Err(error @ AgentError::Broken { .. }) => bail!("{error}"),
        };
        match one.source {
            Source::Claude => Ok(wanted.translated(one)),
            Source::Project => {
                let file = self::file(project, one.agent.name.as_str());
                let text = fs::read_to_string(&file);
                let text = text.with_context(|| format!("`{}` can't be read", one.path.display()));
                Ok(wanted.copied(&text?))
            }
            Source::BuiltIn => Ok(wanted.copied(built_in(one))),
        }
    }

    fn write(&self, project: &Project, text: &str) -> anyhow::Result<()> {
        let file = file(project, &self.name);
        let said = project.said.join(OWN).join(format!("{}.md", self.name));
        let said = said.display();
        fs::create_dir_all(project.config.root.join(OWN))
            .with_context(|| format!("no folder for `{said}` can be made"))?;
        // A link in a cloned project would have the file written elsewhere.
        if let Some(folder) = Location::below(&project.config.root, Path::new(OWN)) {
            let opened = folder.open_folder();
            opened.with_context(|| {
                let why = unopened(&folder.path());
                format!("`{OWN}` {why}, so `{said}` is not written")
            })?;
        }
        let opened = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&file);
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
        opened
            .write_all(text.as_bytes())
            .with_context(|| format!("`{said}` can't be written"))?;
        say::data(&said.to_string())
    }
}

fn file(project: &Project, name: &str) -> std::path::PathBuf {
    project.config.root.join(OWN).join(format!("{name}.md"))
}

/// Why a folder was not opened.
fn unopened(folder: &Path) -> &'static str {
    match folder.is_symlink() {
        true => "is a link",
        false => "can't be opened",
    }
}

fn built_in(one: &LoadedAgent) -> &'static str {
    let mut all = SHIPPED.iter();
    let found = all.find(|built_in| built_in.name == one.agent.name.as_str());
    found.map_or("", |built_in| built_in.file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_link_is_called_a_link() {
        let place = tempfile::tempdir().unwrap();
        let link = place.path().join("link");
        std::os::unix::fs::symlink(place.path(), &link).unwrap();
        assert_eq!(unopened(&link), "is a link");
        assert_eq!(unopened(place.path()), "can't be opened");
    }
}
