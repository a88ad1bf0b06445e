//! What the project here would run, and what its own warden says.
//!
//! Never: asks.

use std::path::Path;
use std::sync::Arc;

use longhaul::assemble::{agents, toolbox};
use longhaul::config::settings::Config;
use longhaul::mcp::file::McpFile;
use longhaul::trust::book::BookError;
use longhaul::trust::found::things;
use longhaul::trust::thing::Thing;
use longhaul::trust::warden::Warden;
use longhaul_core::time::Clock;
use longhaul_engine::clock::SystemClock;

use crate::cli::fail::{self, Failure};

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

/// Trust that can't be kept.
pub(crate) fn unwritten(error: BookError) -> anyhow::Error {
    let failure = Failure::usage(match std::error::Error::source(&error) {
        Some(why) => format!("{error}: {why}"),
        None => error.to_string(),
    });
    match &error {
        BookError::Io { .. } | BookError::Homeless => failure,
        BookError::Open { at, .. } => {
            failure.hint("keep others out", format!("chmod 600 {}", at.display()))
        }
        BookError::Strange { at } => {
            failure.hint("delete it, and decide anew", format!("rm {}", at.display()))
        }
    }
    .into()
}
