//! What the project here would run, and what its own warden says.
//!
//! Never: asks.

use std::path::Path;
use std::sync::Arc;

use longhaul::assemble::{agents, toolbox};
use longhaul::config::settings::Config;
use longhaul::mcp::file::McpFile;
use longhaul::trust::VARIABLE;
use longhaul::trust::book::BookError;
use longhaul::trust::found::things;
use longhaul::trust::thing::Thing;
use longhaul::trust::warden::Warden;
use longhaul_core::time::Clock;
use longhaul_engine::clock::SystemClock;

use crate::fail::{self, Failure};

/// A project, and what it would run.
#[derive(Debug)]
pub(crate) struct Project {
    pub(crate) warden: Warden,
    pub(crate) things: Vec<Thing>,
}

impl Project {
    /// What the project of these settings would run.
    pub(crate) fn of(config: &Config) -> anyhow::Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let tools = toolbox(config, &clock).map_err(fail::assemble)?;
        let loaded = agents(config, &tools, Path::new(""));
        Ok(Self {
            warden: Warden::of(config),
            things: things(config, &McpFile::of(config), &loaded),
        })
    }

    /// Those of these names.
    pub(crate) fn named(self, names: &[String]) -> anyhow::Result<Self> {
        for name in names {
            if !self.things.iter().any(|thing| thing.name == *name) {
                let words = format!("this project would run nothing called `{name}`");
                return Err(Failure::usage(words)
                    .hint("see what it would run", "longhaul trust ls")
                    .into());
            }
        }
        let things = self.things.into_iter();
        let things = things.filter(|thing| names.contains(&thing.name));
        Ok(Self {
            things: things.collect(),
            ..self
        })
    }
}

/// Trust that can't be looked up or kept.
pub(crate) fn unwritten(error: BookError) -> anyhow::Error {
    let failure = Failure::usage(error.to_string());
    let elsewhere = |failure: Failure| {
        failure
            .hint(
                "or keep it elsewhere",
                "XDG_STATE_HOME=/some/folder longhaul trust",
            )
            .hint(
                "or trust everything, for one command",
                format!("{VARIABLE}=1 longhaul ..."),
            )
    };
    match &error {
        BookError::Io { at, .. } => {
            let folder = at.parent().unwrap_or(at).display();
            elsewhere(failure.hint("look who may write there", format!("ls -ld {folder}")))
        }
        BookError::Homeless => elsewhere(failure),
        BookError::Foreign { at, .. } => {
            elsewhere(failure.hint("look whose it is", format!("ls -l {}", at.display())))
        }
        BookError::Open { at, .. } => {
            failure.hint("keep others out", format!("chmod 600 {}", at.display()))
        }
        BookError::Strange { at } => {
            failure.hint("delete it, and decide anew", format!("rm {}", at.display()))
        }
    }
    .into()
}
