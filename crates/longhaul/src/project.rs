//! Opens the runtime and the folder inboxes (folders whose files become tasks) of a project, for
//! programs and for the `longhaul` binary.

use std::path::Path;
use std::sync::Arc;

use longhaul_core::id::InboxName;
use longhaul_core::time::Clock;
use longhaul_engine::Longhaul;
use longhaul_engine::clock::SystemClock;
use longhaul_engine::handle::quote_toml_key;
use longhaul_engine::services::{Services, StorePorts};
use longhaul_engine::worker::WorkerOptions;
use longhaul_model::cassette::CassetteRecorder;
use longhaul_project::agents::loaded_agents::LoadedAgents;
use longhaul_project::assemble::cassettes::RecordingModelResolver;
use longhaul_project::assemble::mcp_tools::McpTools;
use longhaul_project::assemble::sandboxes::sandbox_registry;
use longhaul_project::assemble::{self, ProjectAssembly, sqlite_store_path};
use longhaul_project::config::inbox_folders::{INBOX_FOLDER, inbox_folders};
use longhaul_project::config::load::{self, SettingOverride};
use longhaul_project::config::settings::Config;
use longhaul_project::process::process_env_in_folder;
use longhaul_project::trust::decisions::TrustDecisions;
use longhaul_project::trust::items;
use longhaul_store::options::FatalHook;
use longhaul_store::{OpenMode, SqliteStore, StoreOptions};
use longhaul_tool::FileLocation;
use tokio::sync::watch;

use crate::assemble::registrations::RuntimeRegistrations;
use crate::assemble::settings::Settings;
use crate::assemble::{IN_MEMORY_URL, RuntimeBase, holder};
use crate::error::Error;
use crate::inbox::{FolderInbox, Inbox};
use crate::runtime_state::RuntimeState;

/// A project's runtime: one store, connected with models, tools, agents and MCP servers.
#[derive(Debug)]
pub struct ProjectRuntime {
    /// Handle that submits tasks and queries runs.
    pub longhaul: Longhaul,
    /// The agents of the project, and the problems of their files.
    pub loaded: LoadedAgents,
    /// The effective settings of the project.
    pub config: Config,
    /// The store of the project, for callers that check, acquire or release the lock of the one
    /// process that may execute its runs.
    pub store: Arc<SqliteStore>,
    /// The tools of the project's MCP servers. Must be closed at shutdown.
    pub mcp_tools: Arc<McpTools>,
}

/// Options for opening the runtime of a project.
#[derive(Clone)]
pub struct ProjectOpenOptions {
    /// Whether this process drives runs, or only reads the store and submits tasks.
    pub mode: OpenMode,
    /// Description of this process, shown to another process that wants to drive the same store.
    pub holder: String,
    /// Called after a fatal error of the store, when it is unknown which changes are on disk.
    pub on_fatal: Option<FatalHook>,
    /// Records requests to models and their responses. `None` means that nothing is recorded.
    pub recorder: Option<Arc<CassetteRecorder>>,
    /// The agents of the project, if this process has already loaded them. `None` means that they
    /// are loaded from their files.
    pub loaded_agents: Option<LoadedAgents>,
}

impl std::fmt::Debug for ProjectOpenOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProjectOpenOptions")
            .field("mode", &self.mode)
            .field("holder", &self.holder)
            .finish_non_exhaustive()
    }
}

/// Opens the runtime with the project's store.
///
/// # Errors
/// The store can't be opened, or a tool, a name or a setting is invalid.
pub fn open_runtime(config: Config, options: ProjectOpenOptions) -> Result<ProjectRuntime, Error> {
    let url = store_url(&config)?;
    let registered = RuntimeRegistrations::default();
    open_runtime_with_store_url(url, config, options, registered).map(|(runtime, _)| runtime)
}

/// Opens the runtime with a store in memory: nothing is written to disk.
///
/// # Errors
/// The store can't be opened, or a tool, a name or a setting is invalid.
pub fn open_runtime_in_memory(
    config: Config,
    options: ProjectOpenOptions,
) -> Result<ProjectRuntime, Error> {
    let registered = RuntimeRegistrations::default();
    let url = IN_MEMORY_URL.to_owned();
    open_runtime_with_store_url(url, config, options, registered).map(|(runtime, _)| runtime)
}

/// Returns the URL of the project's store.
fn store_url(config: &Config) -> Result<String, Error> {
    Ok(format!("sqlite:{}", sqlite_store_path(config)?.display()))
}

/// Opens the runtime, and returns the options of its workers too.
fn open_runtime_with_store_url(
    url: String,
    config: Config,
    options: ProjectOpenOptions,
    registered: RuntimeRegistrations,
) -> Result<(ProjectRuntime, WorkerOptions), Error> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let has_own_data_folder = assemble::protect_data_folder(&config);
    let store = Arc::new(longhaul_store::open_sqlite_store(StoreOptions {
        holder: options.holder,
        on_fatal: options.on_fatal,
        ..StoreOptions::new(url, options.mode, Arc::clone(&clock))
    })?);
    if has_own_data_folder {
        assemble::hide_folder_from_git(&config.data_folder());
    }
    let settings = Settings::from_config(config)?;
    let config = &settings.config;
    let mut assembly = ProjectAssembly::new(config, &clock)?;
    let ports = StorePorts::new(Arc::clone(&store));
    let mut base = RuntimeBase::new(ports, Arc::clone(&clock), registered)?;
    assembly.tools = base.add_tools(assembly.tools)?;
    assembly.sandbox_providers = base.registered.sandboxes.keys().cloned().collect();
    let selector = settings.selector.as_ref();
    base.registered.check_registered_agents(selector, &|tool| assembly.tool_problem(tool))?;
    let parts = assembly.build(Arc::clone(&store) as _, options.loaded_agents)?;
    let models = match options.recorder {
        Some(recorder) => Arc::new(RecordingModelResolver { models: parts.models, recorder }),
        None => parts.models,
    };
    let services = Services {
        tool_source: parts.tool_source,
        context_providers: parts.context_providers,
        sandboxes: sandbox_registry(config, &clock),
        repositories: parts.repositories,
        ..base.services(models, parts.tools)
    };
    let longhaul = base.connect(services, parts.loaded.to_agent_registry(), &settings);
    longhaul.replace_chains(parts.loaded.chains.to_chain_registry());
    let (loaded, mcp_tools) = (parts.loaded, parts.mcp_tools);
    let Settings { config, worker, .. } = settings;
    Ok((ProjectRuntime { longhaul, loaded, config, store, mcp_tools }, worker))
}

/// Opens a runtime with the agents, tools and models that the program registered, and with the
/// files of the project in `root`. `store` is a URL that overrides the URL of the project's store.
pub(crate) fn open(
    root: &Path,
    store: Option<String>,
    registered: RuntimeRegistrations,
) -> Result<RuntimeState, Error> {
    // Passed as a setting, so that agents' tools can't access the store's files.
    let store_override = store.as_deref().map(store_url_override).transpose()?.flatten();
    let process_env = process_env_in_folder(root.to_owned());
    let config =
        load::load(&process_env, store_override.as_slice()).map_err(Error::invalid_settings)?;
    let url = match store {
        Some(url) if url == IN_MEMORY_URL => url,
        Some(_) | None => store_url(&config)?,
    };
    let options = ProjectOpenOptions {
        mode: OpenMode::Driver,
        holder: holder(),
        on_fatal: None,
        recorder: None,
        loaded_agents: None,
    };
    let (runtime, worker) = open_runtime_with_store_url(url, config, options, registered)?;
    let loaded = runtime.loaded;
    for problem in loaded.problems.iter().chain(&loaded.missing_references) {
        tracing::warn!("{problem}");
    }
    Ok(RuntimeState {
        longhaul: runtime.longhaul,
        worker,
        #[cfg(feature = "server")]
        config: runtime.config,
        project: Some((loaded, runtime.mcp_tools)),
        workers: watch::Sender::default(),
    })
}

/// Converts the store URL that the program sets to an override of the setting `store.url`. `None`
/// means a store in memory. A relative path is resolved against the program's working directory,
/// not the project's folder.
fn store_url_override(url: &str) -> Result<Option<SettingOverride>, Error> {
    let value = match url.strip_prefix("sqlite:") {
        Some(_) if url == IN_MEMORY_URL => return Ok(None),
        Some(file) => {
            let file = file.strip_prefix("//").unwrap_or(file);
            let invalid_path_error = |error| {
                Error::Settings(format!("the path in the store URL `{url}` is invalid: {error}"))
            };
            let file = std::path::absolute(file).map_err(invalid_path_error)?;
            format!("sqlite:{}", file.display())
        }
        None => url.to_owned(),
    };
    Ok(Some(SettingOverride {
        name: ".store(..)".to_owned(),
        setting_path: "store.url".to_owned(),
        value,
    }))
}

/// Folder inboxes (folders whose files become tasks) of a project.
#[derive(Debug, Default)]
pub struct ProjectInboxes {
    /// Inboxes whose files can become tasks.
    pub inboxes: Vec<Arc<dyn Inbox>>,
    /// Reasons why folders in `inbox/` are not served.
    pub problems: Vec<String>,
}

/// Opens the folder inboxes of a project with these names, or all if `names` is empty. A folder is
/// served only if its inbox has a default agent and a person trusts the folder, because each file
/// in it starts a run without a command of the user. Folders that are not trusted are left out.
pub fn project_folder_inboxes(config: &Config, names: &[InboxName]) -> ProjectInboxes {
    let mut found = ProjectInboxes::default();
    for folder in inbox_folders(config) {
        let name = &folder.name;
        if !names.is_empty() && !names.contains(name) {
            continue;
        }
        let Some(agent) = folder.agent.as_deref() else {
            let key = quote_toml_key(name.as_str());
            found.problems.push(format!(
                "the folder {INBOX_FOLDER}/{name} is not served: set `[inboxes.{key}] agent` in \
                 longhaul.toml"
            ));
            continue;
        };
        let item = items::folder_inbox_trust_item(name.as_str(), agent);
        // The commands that serve folder inboxes say what is not trusted.
        if TrustDecisions::new(config).check_trusted(&item).is_err() {
            continue;
        }
        // Symbolic links in the project are not followed.
        let relative = Path::new(INBOX_FOLDER).join(name.as_str());
        let location = FileLocation::Below { root: config.root.clone(), relative };
        match FolderInbox::open_at(name.as_str(), location, agent) {
            Ok(inbox) => found.inboxes.push(Arc::new(inbox)),
            Err(error) => found
                .problems
                .push(format!("the folder {INBOX_FOLDER}/{name} can't be served: {error}")),
        }
    }
    found
}
