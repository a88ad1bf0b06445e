//! Reads agents, skills and rules again when their files have changed.
//!
//! Never: changes a run that has begun. A run is pinned to the agent it began with.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use longhaul::agents::change::changes;
use longhaul::agents::load::places;
use longhaul::agents::loaded::Loaded;
use longhaul::assemble::{House, agents, clients, script};
use longhaul::config::known::SCRIPTED;
use longhaul::config::settings::Config;
use longhaul::config::surroundings::FILE_NAME as SETTINGS;
use longhaul::mcp::name::FILE_NAME;
use longhaul::skills;
use longhaul_core::time::Millis;

/// How often the files are looked at: cheap, and it works on every file system.
const LOOK_EVERY: Millis = Millis(500);

/// A file that was changed so lately may have been changed again without another
/// date: some systems count in steps.
const FRESH_MICROS: i64 = 3_000_000;

/// What scripted models play, for each a file.
const SCRIPTS: &str = "scripts";

/// Files, and when each was changed last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen(BTreeMap<PathBuf, (Option<SystemTime>, u64)>);

impl Seen {
    /// How the definitions of this project stand now; `named` are files that
    /// agents name.
    pub(crate) fn now(config: &Config, named: &[PathBuf]) -> Self {
        let root = &config.root;
        let mut files: Vec<PathBuf> = vec![root.join("AGENTS.md")];
        files.extend_from_slice(named);
        files.extend(places(root));
        files.extend(inside(&root.join(SCRIPTS)));
        for folder in skills::FOLDERS {
            let skills = inside(&root.join(folder));
            files.extend(skills.map(|skill| skill.join(skills::FILE)));
        }
        let seen = files.into_iter().filter_map(|file| {
            let found = fs::metadata(&file).ok()?;
            Some((file, (found.modified().ok(), found.len())))
        });
        Self(seen.collect())
    }

    /// Whether one of them was changed just now, or will have been.
    fn is_fresh(&self, now_micros: i64) -> bool {
        self.0.values().any(|(changed, _)| {
            let since = changed.and_then(|changed| changed.duration_since(UNIX_EPOCH).ok());
            let micros = since.and_then(|since| i64::try_from(since.as_micros()).ok());
            micros.is_none_or(|micros| (now_micros - micros).abs() < FRESH_MICROS)
        })
    }
}

fn inside(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let files = fs::read_dir(folder).into_iter().flatten();
    files.flatten().map(|file| file.path())
}

/// What took the place of files that are no more, and which of those that were of
/// no use are no more; that others are is among the changes.
fn gone(before: &Loaded, now: &Loaded) -> Vec<String> {
    let old = before.agents.iter();
    let old = old.map(|one| (one.agent.name.as_str(), &one.path, true));
    let broken = before.broken.iter();
    let broken = broken.map(|one| (one.name.as_str(), &one.path, false));
    let mut told = Vec::new();
    for (name, path, was_ready) in old.chain(broken) {
        let ready = now.agents.iter();
        let ready = ready.map(|one| (one.agent.name.as_str(), &one.path));
        let broken = now.broken.iter().map(|one| (one.name.as_str(), &one.path));
        let hidden = now.hidden.iter().map(|one| (one.name.as_str(), &one.path));
        let mut files = ready.chain(broken).chain(hidden);
        if files.clone().any(|(_, file)| file == path) {
            continue;
        }
        let (path, next) = (path.display(), files.find(|(other, _)| *other == name));
        match next {
            Some((_, next)) => told.push(format!(
                "{path} is gone: new runs of `{name}` are those of {}; runs under way keep theirs",
                next.display()
            )),
            None if was_ready => {}
            None => told.push(format!("{path} is gone")),
        }
    }
    told
}

/// What is wrong with the scripts of these agents. A run reads its script when it
/// needs it; here is only said what it will find.
fn scripts(root: &Path, loaded: &Loaded) -> Vec<String> {
    let models = loaded.agents.iter().flat_map(|one| &one.agent.models);
    let names = models.filter_map(|model| model.strip_prefix(SCRIPTED)?.strip_prefix('/'));
    let names: BTreeSet<&str> = names.collect();
    let read = names.into_iter().filter_map(|name| script(root, name));
    read.filter_map(Result::err).collect()
}

/// The bytes of the project's settings; none: it has no such file.
fn settings(config: &Config) -> Option<Vec<u8>> {
    fs::read(config.root.join(SETTINGS)).ok()
}

/// Somebody who looks at the files of agents.
#[derive(Debug)]
pub(crate) struct Reload<'a> {
    house: &'a House,
    loaded: Loaded,
    seen: Seen,
    /// Why `.mcp.json` as it stands is not taken, where that was said.
    refused: Option<String>,
    /// What is wrong with scripts, and was said.
    scripts: Vec<String>,
    /// The project's settings, as they were read last.
    settings: Option<Vec<u8>>,
}

impl<'a> Reload<'a> {
    /// `seen` was there before they were read: what changes in between is new.
    pub(crate) fn new(house: &'a House, seen: Seen) -> Self {
        Self {
            house,
            loaded: house.loaded.clone(),
            seen,
            refused: None,
            scripts: Vec::new(),
            settings: settings(&house.config),
        }
    }

    /// Looks until it is dropped.
    pub(crate) async fn run(mut self) {
        let ports = self.house.longhaul.ports();
        loop {
            ports.clock.sleep(LOOK_EVERY).await;
            let now = Seen::now(&self.house.config, &self.loaded.files);
            if now != self.seen || now.is_fresh(ports.clock.now().as_micros()) {
                self.seen = now;
                self.read();
            }
            self.servers();
            self.settings();
        }
    }

    /// Says once that settings have changed. They count when this process starts:
    /// whatever they would open is asked about then.
    fn settings(&mut self) {
        let now = settings(&self.house.config);
        if now == self.settings {
            return;
        }
        self.settings = now;
        tracing::warn!(
            "{SETTINGS} has changed, and the settings of before are kept until this process is \
             started again; what it opens or sends anew has to be trusted first"
        );
    }

    /// Runs that begin from now on have the servers that are named now, if they
    /// are trusted; what is trusted later is taken then.
    fn servers(&mut self) {
        let served = &self.house.served;
        let refused = match served.news() {
            None => None,
            Some(Err(why)) => Some(why),
            Some(Ok(file)) => {
                let servers = file.servers.len() as u64;
                let line = clients::line(
                    &self.house.config,
                    &file,
                    &self.house.longhaul.ports().clock,
                );
                served.take(file, line);
                tracing::info!(servers, "{FILE_NAME} was read again");
                self.read();
                None
            }
        };
        if refused != self.refused
            && let Some(why) = &refused
        {
            tracing::warn!("{FILE_NAME} has changed, and the one of before is kept: {why}");
        }
        self.refused = refused;
    }

    fn read(&mut self) {
        let tools = &self.house.longhaul.ports().tools;
        let loaded = agents(&self.house.config, tools, Path::new(""));
        let changes = changes(&self.loaded, &loaded);
        self.house.longhaul.replace_agents(loaded.roster());
        let gone = gone(&self.loaded, &loaded);
        self.loaded = loaded;
        for told in gone.into_iter().chain(changes.told) {
            tracing::info!("{told}");
        }
        let scripts = scripts(&self.house.config.root, &self.loaded);
        for wrong in scripts.iter().filter(|wrong| !self.scripts.contains(wrong)) {
            tracing::warn!("{wrong}");
        }
        self.scripts = scripts;
        for problem in changes.problems {
            tracing::warn!("{problem}");
        }
    }
}
