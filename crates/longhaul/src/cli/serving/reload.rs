//! Reads agents again when their files have changed.
//!
//! Never: changes a run that has begun. A run is pinned to the agent it began with.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use longhaul::assemble::{House, agents};
use longhaul::config::settings::Config;
use longhaul_core::time::Millis;

/// How often the folder is looked at: cheap, and it works on every file system.
const LOOK_EVERY: Millis = Millis(500);

/// Files, and when each was changed last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen(BTreeMap<PathBuf, (Option<SystemTime>, u64)>);

impl Seen {
    /// How the agents of this project stand now.
    pub(crate) fn now(config: &Config) -> Self {
        look(&folder(config))
    }
}

/// Somebody who looks at the agents' folder.
#[derive(Debug)]
pub(crate) struct Reload<'a> {
    house: &'a House,
    folder: PathBuf,
    seen: Seen,
}

impl<'a> Reload<'a> {
    /// `seen` was there before they were read: what changes in between is new.
    pub(crate) fn new(house: &'a House, seen: Seen) -> Self {
        Self {
            house,
            folder: folder(&house.config),
            seen,
        }
    }

    /// Looks until it is dropped.
    pub(crate) async fn run(mut self) {
        let ports = self.house.longhaul.ports();
        loop {
            let soon = ports.clock.now().plus(LOOK_EVERY);
            ports.clock.sleep_until(soon).await;
            let now = look(&self.folder);
            if now != self.seen {
                self.seen = now;
                self.read();
            }
        }
    }

    fn read(&self) {
        let tools = &self.house.longhaul.ports().tools;
        let loaded = agents(&self.house.config, tools, Path::new("agents"));
        let count = loaded.agents.len();
        self.house.longhaul.replace_agents(loaded.roster());
        tracing::info!(agents = count as u64, "agents were read again");
        for problem in &loaded.problems {
            tracing::warn!("{problem}");
        }
    }
}

fn folder(config: &Config) -> PathBuf {
    config.root.join("agents")
}

fn look(folder: &Path) -> Seen {
    let files = fs::read_dir(folder).into_iter().flatten();
    let seen = files.flatten().filter_map(|file| {
        let found = file.metadata().ok()?;
        Some((file.path(), (found.modified().ok(), found.len())))
    });
    Seen(seen.collect())
}
