//! Reads agents, skills and rules again when their files have changed.
//!
//! Never: changes a run that has begun. A run is pinned to the agent it began with.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use longhaul::agents::diff::changes;
use longhaul::agents::load::file_paths;
use longhaul::agents::loaded_agents::LoadedAgents;
use longhaul::assemble::{ProjectRuntime, load_agents, load_script, mcp_servers};
use longhaul::config::built_in_providers::SCRIPTED_PROVIDER;
use longhaul::config::process_env::CONFIG_FILE_NAME;
use longhaul::config::settings::Config;
use longhaul::mcp::name::FILE_NAME;
use longhaul::skills;
use longhaul_core::time::Millis;

/// How often the files are looked at: cheap, and it works on every file system.
const POLL_INTERVAL: Millis = Millis(500);

/// A file that was changed so lately may have been changed again without another
/// date: some systems count in steps.
const RECENT_MICROS: i64 = 3_000_000;

/// What scripted models play, for each a file.
const SCRIPTS_FOLDER: &str = "scripts";

/// Files, and when each was changed last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileSnapshot(BTreeMap<PathBuf, (Option<SystemTime>, u64)>);

impl FileSnapshot {
    /// How the definitions of this project stand now; `named` are files that
    /// agents name.
    pub(crate) fn take(config: &Config, named: &[PathBuf]) -> Self {
        let root = &config.root;
        let mut files: Vec<PathBuf> = vec![root.join("AGENTS.md")];
        files.extend_from_slice(named);
        files.extend(file_paths(root));
        files.extend(list_entries(&root.join(SCRIPTS_FOLDER)));
        for folder in skills::SKILL_FOLDERS {
            let skills = list_entries(&root.join(folder));
            files.extend(skills.map(|skill| skill.join(skills::SKILL_FILE)));
        }
        let seen = files.into_iter().filter_map(|file| {
            let found = fs::metadata(&file).ok()?;
            Some((file, (found.modified().ok(), found.len())))
        });
        Self(seen.collect())
    }

    /// Whether one of them was changed just now, or will have been.
    fn has_recent_change(&self, now_micros: i64) -> bool {
        self.0.values().any(|(changed, _)| {
            let since = changed.and_then(|changed| changed.duration_since(UNIX_EPOCH).ok());
            let micros = since.and_then(|since| i64::try_from(since.as_micros()).ok());
            micros.is_none_or(|micros| (now_micros - micros).abs() < RECENT_MICROS)
        })
    }
}

fn list_entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let files = fs::read_dir(folder).into_iter().flatten();
    files.flatten().map(|file| file.path())
}

/// What took the place of files that are no more, and which of those that were of
/// no use are no more; that others are is among the changes.
fn removed_messages(before: &LoadedAgents, now: &LoadedAgents) -> Vec<String> {
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
fn script_errors(root: &Path, loaded: &LoadedAgents) -> Vec<String> {
    let models = loaded.agents.iter().flat_map(|one| &one.agent.models);
    let names = models.filter_map(|model| model.strip_prefix(SCRIPTED_PROVIDER)?.strip_prefix('/'));
    let names: BTreeSet<&str> = names.collect();
    let read = names.into_iter().filter_map(|name| load_script(root, name));
    read.filter_map(Result::err).collect()
}

/// The bytes of the project's settings; none: it has no such file.
fn read_settings(config: &Config) -> Option<Vec<u8>> {
    fs::read(config.root.join(CONFIG_FILE_NAME)).ok()
}

/// Somebody who looks at the files of agents.
#[derive(Debug)]
pub(crate) struct Reloader<'a> {
    runtime: &'a ProjectRuntime,
    loaded: LoadedAgents,
    snapshot: FileSnapshot,
    /// Why `.mcp.json` as it stands is not taken, where that was said.
    rejection_reason: Option<String>,
    /// What is wrong with scripts, and was said.
    reported_script_errors: Vec<String>,
    /// The project's settings, as they were read last.
    settings: Option<Vec<u8>>,
}

impl<'a> Reloader<'a> {
    /// `seen` was there before they were read: what changes in between is new.
    pub(crate) fn new(house: &'a ProjectRuntime, seen: FileSnapshot) -> Self {
        Self {
            runtime: house,
            loaded: house.loaded.clone(),
            snapshot: seen,
            rejection_reason: None,
            reported_script_errors: Vec::new(),
            settings: read_settings(&house.config),
        }
    }

    /// Looks until it is dropped.
    pub(crate) async fn run(mut self) {
        let ports = self.runtime.longhaul.services();
        loop {
            ports.clock.sleep(POLL_INTERVAL).await;
            let now = FileSnapshot::take(&self.runtime.config, &self.loaded.files);
            if now != self.snapshot || now.has_recent_change(ports.clock.now().as_micros()) {
                self.snapshot = now;
                self.reload_agents();
            }
            self.reload_servers();
            self.check_settings();
        }
    }

    /// Says once that settings have changed. They count when this process starts:
    /// whatever they would open is asked about then.
    fn check_settings(&mut self) {
        let now = read_settings(&self.runtime.config);
        if now == self.settings {
            return;
        }
        self.settings = now;
        tracing::warn!(
            "{CONFIG_FILE_NAME} has changed, and the settings of before are kept until this process is \
             started again; what it opens or sends anew has to be trusted first"
        );
    }

    /// Runs that begin from now on have the servers that are named now, if they
    /// are trusted; what is trusted later is taken then.
    fn reload_servers(&mut self) {
        let served = &self.runtime.mcp_tools;
        let refused = match served.changed_file() {
            None => None,
            Some(Err(why)) => Some(why),
            Some(Ok(file)) => {
                let servers = file.servers.len() as u64;
                let line = mcp_servers::client(
                    &self.runtime.config,
                    &file,
                    &self.runtime.longhaul.services().clock,
                );
                served.replace(file, line);
                tracing::info!(servers, "{FILE_NAME} was read again");
                self.reload_agents();
                None
            }
        };
        if refused != self.rejection_reason
            && let Some(why) = &refused
        {
            tracing::warn!("{FILE_NAME} has changed, and the one of before is kept: {why}");
        }
        self.rejection_reason = refused;
    }

    fn reload_agents(&mut self) {
        let tools = &self.runtime.longhaul.services().tools;
        let loaded = load_agents(&self.runtime.config, tools, Path::new(""));
        let changes = changes(&self.loaded, &loaded);
        self.runtime.longhaul.replace_agents(loaded.registry());
        let gone = removed_messages(&self.loaded, &loaded);
        self.loaded = loaded;
        for told in gone.into_iter().chain(changes.messages) {
            tracing::info!("{told}");
        }
        let scripts = script_errors(&self.runtime.config.root, &self.loaded);
        for wrong in scripts.iter().filter(|wrong| !self.reported_script_errors.contains(wrong)) {
            tracing::warn!("{wrong}");
        }
        self.reported_script_errors = scripts;
        for problem in changes.problems {
            tracing::warn!("{problem}");
        }
    }
}
