//! Reloads agents, chains, skills and project rules (`AGENTS.md`) when their files change. A run
//! that has started keeps the agent it started with.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use longhaul::project::ProjectRuntime;
use longhaul_core::time::Millis;
use longhaul_model::providers::built_in::SCRIPTED_PROVIDER;
use longhaul_project::agents::diff::compare_agents;
use longhaul_project::agents::load::{RULES_FILES, agent_file_paths};
use longhaul_project::agents::loaded_agents::LoadedAgents;
use longhaul_project::assemble::{load_agents, load_model_script};
use longhaul_project::chains::{LoadedChain, LoadedChains, chain_file_paths};
use longhaul_project::config::process_env::CONFIG_FILE_NAME;
use longhaul_project::config::settings::Config;
use longhaul_project::mcp::file::McpFile;
use longhaul_project::mcp::name::FILE_NAME;
use longhaul_project::skills;

/// Interval between checks whether files have changed. Polling is cheap and works on every file
/// system.
const POLL_INTERVAL: Millis = Millis(500);

/// Age of a change, in microseconds, below which a file may change again without a new timestamp,
/// because some file systems have coarse timestamps.
const RECENT_MICROS: i64 = 3_000_000;

/// Folder of the project with the scripts, which contain the replies of scripted models.
const SCRIPTS_FOLDER: &str = "scripts";

/// Modification times and sizes of files, by path. A time is `None` if it is unknown.
pub(crate) type FileTimesAndSizes = BTreeMap<PathBuf, (Option<SystemTime>, u64)>;

/// Reads the modification times and sizes of the project's agent, chain, skill and script files, of
/// of the project rules, and of the further files that agents name.
pub(crate) fn read_times_and_sizes(config: &Config, named_files: &[PathBuf]) -> FileTimesAndSizes {
    let root = &config.root;
    let mut files: Vec<PathBuf> = RULES_FILES.map(|file| root.join(file)).to_vec();
    files.extend_from_slice(named_files);
    files.extend(agent_file_paths(root));
    files.extend(chain_file_paths(root));
    files.extend(list_folder_entries(&root.join(SCRIPTS_FOLDER)));
    for folder in skills::SKILL_FOLDERS {
        let skills = list_folder_entries(&root.join(folder));
        files.extend(skills.map(|skill| skill.join(skills::SKILL_FILE)));
    }
    let entries = files.into_iter().filter_map(|file| {
        let metadata = fs::metadata(&file).ok()?;
        Some((file, (metadata.modified().ok(), metadata.len())))
    });
    entries.collect()
}

/// Returns whether a file has a timestamp less than `RECENT_MICROS` before or after `now_micros`,
/// or an unknown one.
fn has_recently_changed_file(files: &FileTimesAndSizes, now_micros: i64) -> bool {
    files.values().any(|(modified, _)| {
        let age = modified.and_then(|modified| modified.duration_since(UNIX_EPOCH).ok());
        let micros = age.and_then(|since_epoch| i64::try_from(since_epoch.as_micros()).ok());
        micros.is_none_or(|micros| (now_micros - micros).abs() < RECENT_MICROS)
    })
}

fn list_folder_entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let files = fs::read_dir(folder).into_iter().flatten();
    files.flatten().map(|file| file.path())
}

/// Describes each removed agent file whose agent is now defined by another file, or that was
/// invalid. Removed agents that no other file defines are reported elsewhere.
fn removed_agent_file_messages<'a>(
    old_agents: &'a LoadedAgents,
    new_agents: &'a LoadedAgents,
) -> Vec<String> {
    let files = |agents: &'a LoadedAgents| {
        let ready = agents.agents.iter().map(|one| (one.agent.name.as_str(), &one.path, true));
        ready.chain(agents.broken.iter().map(|one| (one.name.as_str(), &one.path, false)))
    };
    let hidden = new_agents.hidden.iter().map(|one| (one.name.as_str(), &one.path, false));
    let new_files: Vec<_> = files(new_agents).chain(hidden).collect();
    let mut messages = Vec::new();
    for (name, path, was_ready) in files(old_agents) {
        if new_files.iter().any(|(_, file, _)| *file == path) {
            continue;
        }
        let path = path.display();
        match new_files.iter().find(|(agent, ..)| *agent == name) {
            Some((_, replacement, _)) => messages.push(format!(
                "{path} was removed: new runs of `{name}` use {}; existing runs keep the old version",
                replacement.display()
            )),
            None if was_ready => {}
            None => messages.push(format!("{path} was removed")),
        }
    }
    messages
}

/// Describes which chains were added, changed or removed between two loads, and the problems of
/// chain files that are new.
fn describe_chain_changes(old: &LoadedChains, new: &LoadedChains) -> Vec<String> {
    let find = |chains: &LoadedChains, name: &str| {
        chains.chains.iter().find(|one| one.name == name).map(|one| one.spec.clone())
    };
    let change = |LoadedChain { name, spec, .. }: &LoadedChain| match find(old, name) {
        None => Some(format!("the chain `{name}` was added")),
        Some(old_spec) if old_spec == *spec => None,
        Some(_) => Some(format!("the chain `{name}` has changed: new runs use it")),
    };
    let mut messages: Vec<String> = new.chains.iter().filter_map(change).collect();
    let removed = old.chains.iter().filter(|chain| find(new, &chain.name).is_none());
    messages
        .extend(removed.map(|chain| format!("the chain `{}` can't be used any more", chain.name)));
    let new_problems = new.problems.iter().filter(|problem| !old.problems.contains(problem));
    messages.extend(new_problems.map(ToString::to_string));
    messages
}

/// Returns the errors in the scripts (files with replies of scripted models) of these agents. A run
/// reads its script only when the run needs it, so the errors are reported earlier here.
fn agent_script_errors(root: &Path, loaded: &LoadedAgents) -> Vec<String> {
    let models = loaded.agents.iter().flat_map(|one| &one.agent.models);
    let names = models.filter_map(|model| model.strip_prefix(SCRIPTED_PROVIDER)?.strip_prefix('/'));
    let names: BTreeSet<&str> = names.collect();
    let scripts = names.into_iter().filter_map(|name| load_model_script(root, name));
    scripts.filter_map(Result::err).collect()
}

/// Returns the content of the project's settings file. `None` means that the file can't be read,
/// for example because it is missing.
fn read_settings_file(config: &Config) -> Option<Vec<u8>> {
    fs::read(config.root.join(CONFIG_FILE_NAME)).ok()
}

/// Watches the project's files and reloads agents and MCP servers when they change.
#[derive(Debug)]
pub(crate) struct ProjectReloader<'a> {
    runtime: &'a ProjectRuntime,
    loaded: LoadedAgents,
    snapshot: FileTimesAndSizes,
    /// The `.mcp.json` that the agents were last loaded with.
    mcp_file: McpFile,
    /// Reason why the current `.mcp.json` is not used, as last logged. `None` if the file is used.
    rejection_reason: Option<String>,
    /// Errors in scripts (files with replies of scripted models) that were logged already.
    reported_script_errors: Vec<String>,
    /// Content of the settings file when the file was last read. `None` if it could not be read,
    /// for example because it was missing.
    settings: Option<Vec<u8>>,
}

impl<'a> ProjectReloader<'a> {
    /// Creates a reloader. `snapshot` must have been taken before the files were read, so that a
    /// change in between is noticed.
    pub(crate) fn new(runtime: &'a ProjectRuntime, snapshot: FileTimesAndSizes) -> Self {
        Self {
            runtime,
            loaded: runtime.loaded.clone(),
            snapshot,
            mcp_file: runtime.mcp_tools.current_mcp_file(),
            rejection_reason: None,
            reported_script_errors: Vec::new(),
            settings: read_settings_file(&runtime.config),
        }
    }

    /// Polls the files for changes until the future is dropped.
    pub(crate) async fn watch_and_reload(mut self) {
        let services = self.runtime.longhaul.services();
        loop {
            services.clock.sleep(POLL_INTERVAL).await;
            let now = read_times_and_sizes(&self.runtime.config, &self.loaded.files);
            let now_micros = services.clock.now().as_micros();
            if now != self.snapshot || has_recently_changed_file(&now, now_micros) {
                self.snapshot = now;
                self.reload_agents();
            }
            self.reload_mcp_servers();
            let settings = read_settings_file(&self.runtime.config);
            if settings != self.settings {
                self.settings = settings;
                // Anything new that the settings open or send must be trusted first.
                tracing::warn!(
                    "{CONFIG_FILE_NAME} has changed; the previous settings stay in effect until this process is \
                     restarted; anything new that they open or send must be trusted first"
                );
            }
        }
    }

    /// Applies a changed `.mcp.json` to new runs if the file is trusted. If the file becomes
    /// trusted later, it is applied then.
    fn reload_mcp_servers(&mut self) {
        let mcp_tools = &self.runtime.mcp_tools;
        let rejection = mcp_tools.apply_changed_mcp_file().err();
        // A run that starts may have applied the file already.
        let mcp_file = mcp_tools.current_mcp_file();
        if mcp_file != self.mcp_file {
            self.mcp_file = mcp_file;
            self.reload_agents();
        }
        if rejection != self.rejection_reason
            && let Some(reason) = &rejection
        {
            tracing::warn!(
                "{FILE_NAME} has changed; the previous version stays in effect: {reason}"
            );
        }
        self.rejection_reason = rejection;
    }

    fn reload_agents(&mut self) {
        let tools = &self.runtime.longhaul.services().tools;
        let loaded = load_agents(&self.runtime.config, tools, Path::new(""));
        let changes = compare_agents(&self.loaded, &loaded);
        let chain_changes = describe_chain_changes(&self.loaded.chains, &loaded.chains);
        self.runtime.longhaul.replace_agents(loaded.to_agent_registry());
        self.runtime.longhaul.replace_chains(loaded.chains.to_chain_registry());
        let removed_messages = removed_agent_file_messages(&self.loaded, &loaded);
        self.loaded = loaded;
        for message in removed_messages.into_iter().chain(changes.messages).chain(chain_changes) {
            tracing::info!("{message}");
        }
        let script_errors = agent_script_errors(&self.runtime.config.root, &self.loaded);
        for error in
            script_errors.iter().filter(|error| !self.reported_script_errors.contains(error))
        {
            tracing::warn!("{error}");
        }
        self.reported_script_errors = script_errors;
        for problem in changes.problems {
            tracing::warn!("{problem}");
        }
    }
}
