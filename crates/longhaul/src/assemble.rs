//! Builds the runtime of a project: opens the store and connects it with models, tools, agents and
//! MCP servers.
//!
//! No other module names the concrete implementations. This module contains no business rules.

mod adapter;
mod cassettes;
pub mod context;
pub(crate) mod embedded;
mod images;
pub mod mcp_client;
#[cfg(feature = "mcp")]
pub mod mcp_servers;
#[cfg(feature = "mcp")]
mod mcp_start_check;
pub mod mcp_tools;
mod mcp_tools_with_reload;
pub mod model_choice;
pub mod model_names;
mod models;
#[cfg(not(feature = "mcp"))]
mod no_mcp_servers;
mod ollama;
mod ollama_host;
pub mod outbound;
pub mod providers;
pub mod redactor;
pub(crate) mod registrations;
pub mod slow_notice;
pub mod trusted_tools;

use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_core::id::{IdError, InboxName};
use longhaul_core::port::records::RecordStore;
use longhaul_core::port::store::StoreError;
use longhaul_core::port::tool::Tool;
use longhaul_core::time::Clock;
use longhaul_engine::Longhaul;
use longhaul_engine::clock::SystemClock;
use longhaul_engine::counters::EngineCounters;
use longhaul_engine::read_output::ReadOutputTool;
use longhaul_engine::redaction::Redaction;
#[cfg(feature = "server")]
use longhaul_engine::secret::Secret;
use longhaul_engine::services::{EngineServices, ModelResolver};
use longhaul_engine::spend_caps::SpendCaps;
use longhaul_engine::sweep::RunRetention;
use longhaul_engine::tool_registry::{ToolRegistrationError, ToolRegistry};
use longhaul_engine::worker::WorkerOptions;
use longhaul_model::cassette::CassetteRecorder;
#[cfg(feature = "server")]
use longhaul_server::{ServerOptions, options::DEFAULT_RATE};
use longhaul_store::options::FatalHook;
use longhaul_store::{OpenMode, SqliteStore, StoreOptions};
use longhaul_tool::{
    FileLocation, FileTools, MemoryTools, ShellTool, SkillFolders, VaultTools, crash_probe, memory,
};

use crate::agents::built_in::BUILT_IN_AGENTS;
use crate::agents::load::load_all_agents;
use crate::agents::load_context::{AgentLoadContext, McpUnavailableReason};
use crate::agents::loaded_agents::LoadedAgents;
use crate::assemble::cassettes::RecordingModelResolver;
use crate::assemble::context::ProjectContextProviders;
use crate::assemble::images::StoreImageSource;
use crate::assemble::mcp_tools::McpTools;
use crate::assemble::model_names::ProjectModelNames;
use crate::assemble::models::ModelRegistry;
#[cfg(not(feature = "mcp"))]
use crate::assemble::no_mcp_servers as mcp_servers;
use crate::assemble::outbound::OutboundTools;
use crate::assemble::redactor::{ProjectRedactor, build_redactor};
use crate::assemble::registrations::RuntimeRegistrations;
use crate::assemble::trusted_tools::TrustCheckedTools;
use crate::chains::load_chains;
use crate::config::settings::{Config, StoreUrl};
use crate::handler::threads::HandlerThreadRunner;
use crate::mcp::file::McpFile;
use crate::skills;
use crate::trust::items::{SEND_MESSAGE_TOOL, SHELL_TOOL};

/// Reason why the runtime of a project can't be built.
#[derive(Debug, thiserror::Error)]
pub enum AssembleError {
    /// The store can't be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A tool can't be registered.
    #[error(transparent)]
    Tool(#[from] ToolRegistrationError),
    /// The definition of a built-in tool is invalid.
    #[error(transparent)]
    BuiltInTool(#[from] longhaul_tool::typed::TypedToolError),
    /// A name, such as that of an inbox, is not a valid id.
    #[error(transparent)]
    InvalidId(#[from] IdError),
    /// A setting is invalid. The text is the complete message.
    #[error("{0}")]
    Setting(String),
    /// This build does not support a requested feature. The text is the complete message.
    #[error("{0}")]
    Unsupported(String),
    /// An agent that a program defines in Rust can't be used.
    #[error("the agent `{name}` can't be used:\n{}", .problems.join("\n"))]
    Agent {
        /// Name of the invalid agent.
        name: String,
        /// All problems of the invalid agent.
        problems: Vec<String>,
    },
}

impl From<(String, Vec<String>)> for AssembleError {
    fn from((agent_name, problems): (String, Vec<String>)) -> Self {
        Self::Agent { name: agent_name, problems }
    }
}

pub use crate::assemble::cassettes::{
    cassette_file_path, cassette_folder, prepare_cassette_replay_model,
};
pub use crate::assemble::models::load_model_script;

/// URL of a store in memory, whose content is lost when the process ends.
pub(crate) const IN_MEMORY_URL: &str = "sqlite::memory:";

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

impl ProjectRuntime {
    /// Closes the connections to all MCP servers. The returned future completes when they are
    /// closed. A server that is needed afterwards is started again.
    pub(crate) fn restart_mcp_servers(&self) -> impl Future<Output = ()> + use<> {
        let file = self.mcp_tools.current_mcp_file();
        let clock = &self.longhaul.services().clock;
        let client = mcp_servers::create_mcp_client(&self.config, &file, clock);
        self.mcp_tools.restart_servers(file, client)
    }
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

/// Returns the path of the store's SQLite file.
///
/// # Errors
/// The store is not SQLite.
pub fn sqlite_store_path(config: &Config) -> Result<PathBuf, AssembleError> {
    match config.store_url() {
        StoreUrl::Sqlite(file) => Ok(file.path()),
        StoreUrl::Postgres(_) => Err(AssembleError::Unsupported(
            "this build supports only SQLite stores; set `[store] url` to `sqlite:PATH`".into(),
        )),
    }
}

/// Opens the runtime with the project's store.
///
/// # Errors
/// The store can't be opened, or a tool, a name or a setting is invalid.
pub fn open_runtime(
    config: Config,
    options: ProjectOpenOptions,
) -> Result<ProjectRuntime, AssembleError> {
    let url = store_url(&config)?;
    open_runtime_with_store_url(url, config, options, RuntimeRegistrations::default())
}

/// Opens the runtime with a store in memory: nothing is written to disk.
///
/// # Errors
/// The store can't be opened, or a tool, a name or a setting is invalid.
pub fn open_runtime_in_memory(
    config: Config,
    options: ProjectOpenOptions,
) -> Result<ProjectRuntime, AssembleError> {
    open_runtime_with_store_url(
        IN_MEMORY_URL.to_owned(),
        config,
        options,
        RuntimeRegistrations::default(),
    )
}

/// Returns the URL of the project's store.
fn store_url(config: &Config) -> Result<String, AssembleError> {
    Ok(format!("sqlite:{}", sqlite_store_path(config)?.display()))
}

fn open_runtime_with_store_url(
    url: String,
    config: Config,
    options: ProjectOpenOptions,
    registered: RuntimeRegistrations,
) -> Result<ProjectRuntime, AssembleError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let has_own_data_folder = protect_data_folder(&config);
    let store = Arc::new(longhaul_store::open_sqlite_store(StoreOptions {
        holder: options.holder,
        on_fatal: options.on_fatal,
        ..StoreOptions::new(url, options.mode, clock.clone())
    })?);
    if has_own_data_folder {
        hide_folder_from_git(&config.data_folder());
    }
    let outbound = OutboundTools::new(&config, &clock).map_err(AssembleError::Setting)?;
    let tools = register_store_backed_tools(
        build_tools_without_shell(&config, &clock, &outbound)?,
        &store,
    )?;
    let counters = EngineCounters::default();
    let handler_threads = HandlerThreadRunner::new(Arc::clone(&clock), counters.clone());
    let mut registered = registered.convert_handlers_to_agents(&store, &handler_threads)?;
    let tools = registered.extend_tool_registry(tools)?;
    call_with_agent_load_context(
        &config,
        &tools,
        (Path::new(""), &skills::LoadedSkills::default()),
        |registry| registered.check_registered_agents(&config, registry),
    )?;
    let file = McpFile::load(&config);
    // The MCP servers may have been edited while a person was asked for trust.
    let has_current_servers = |loaded: &LoadedAgents| {
        loaded.mcp_servers.iter().eq(file.servers.iter().map(|server| &server.name))
    };
    let loaded = match options.loaded_agents.filter(has_current_servers) {
        Some(loaded) => loaded,
        None => load_agents(&config, &tools, Path::new("")),
    };
    let images = StoreImageSource(Arc::clone(&store) as Arc<dyn RecordStore>);
    let registry =
        ModelRegistry::new(&config, Arc::clone(&clock)).with_image_source(Arc::new(images));
    let registry: Arc<dyn ModelResolver> = Arc::new(registry);
    let models = match options.recorder {
        Some(recorder) => Arc::new(RecordingModelResolver { models: registry, recorder }),
        None => registry,
    };
    let mcp_tools = mcp_tools_with_reload::create_mcp_tools(&config, file, &clock);
    let shell = create_shell_tool(&config, &clock)?;
    let trusted_tools =
        TrustCheckedTools::new(&config, Arc::clone(&mcp_tools), outbound.sender, shell);
    let context_providers =
        ProjectContextProviders::from_config(&config, outbound.client, Arc::clone(&clock));
    let models = registered.model_resolver_with_fallback(models);
    let services = EngineServices {
        tool_source: Arc::new(trusted_tools),
        context_providers: registered.context_providers_with_fallback(Arc::new(context_providers)),
        redact: Arc::new(ProjectRedactor(build_redactor(&config))),
        counters,
        caps: SpendCaps::new(config.spend_caps()).map_err(AssembleError::Setting)?,
        ..EngineServices::from_single_store(Arc::clone(&store), clock, models, tools)
    };
    let agents = registered.extend_agent_registry(loaded.to_agent_registry());
    let longhaul = Longhaul::new(services, agents, config.run_policy_defaults());
    longhaul.replace_chains(loaded.chains.to_chain_registry());
    Ok(ProjectRuntime { longhaul, loaded, config, store, mcp_tools })
}

/// Adds the tools that access the store to a registry.
fn register_store_backed_tools(
    tools: ToolRegistry,
    store: &Arc<SqliteStore>,
) -> Result<ToolRegistry, AssembleError> {
    let paging = ReadOutputTool::new(store.clone(), store.clone())?;
    let mut tools = tools.with_built_in_tool(Arc::new(paging))?;
    for tool in MemoryTools::new(store.clone()).tools()? {
        tools = tools.with_built_in_tool(tool)?;
    }
    Ok(tools)
}

/// Removes the access of other users to the data folder, if it is in the project. Returns whether
/// only the runtime uses the folder: it has the default name, or does not exist yet.
fn protect_data_folder(config: &Config) -> bool {
    let FileLocation::Below { .. } = config.data_folder_location() else {
        return false;
    };
    let folder = config.data_folder();
    restrict_path_permissions(&folder, 0o700);
    restrict_path_permissions(&folder.join("longhaul.db"), 0o600);
    folder.file_name().is_some_and(|name| name == ".longhaul") || folder.symlink_metadata().is_err()
}

/// Makes git ignore everything in a folder, unless the folder does not exist or has a `.gitignore`
/// already. Errors are ignored.
fn hide_folder_from_git(folder: &Path) {
    let mut options = std::fs::OpenOptions::new();
    // An existing file or symbolic link is left alone.
    let file = options.write(true).create_new(true).open(folder.join(".gitignore"));
    _ = file.and_then(|mut file| file.write_all(b"*\n"));
}

/// Sets the permissions of a file or folder to `mode` if other users have access to it. Symbolic
/// links are left alone, and errors are ignored.
fn restrict_path_permissions(path: &Path, mode: u32) {
    let metadata = std::fs::symlink_metadata(path);
    let is_open =
        |metadata: &std::fs::Metadata| !metadata.is_symlink() && metadata.mode() & 0o077 != 0;
    if metadata.is_ok_and(|metadata| is_open(&metadata)) {
        _ = std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode));
    }
}

pub fn project_model_resolver(config: &Config, clock: &Arc<dyn Clock>) -> Arc<dyn ModelResolver> {
    Arc::new(ModelRegistry::new(config, Arc::clone(clock)))
}

/// Returns the built-in tools, including the shell tool, but without the tools that need a store
/// and without a message tool that needs trust.
///
/// # Errors
/// A tool can't be created, or a setting is invalid.
pub fn built_in_tool_registry(
    config: &Config,
    clock: &Arc<dyn Clock>,
) -> Result<ToolRegistry, AssembleError> {
    let outbound = OutboundTools::new(config, clock).map_err(AssembleError::Setting)?;
    Ok(build_tools_without_shell(config, clock, &outbound)?
        .with_built_in_tool(create_shell_tool(config, clock)?)?)
}

/// Returns the tool that runs shell commands.
fn create_shell_tool(
    config: &Config,
    clock: &Arc<dyn Clock>,
) -> Result<Arc<dyn Tool>, AssembleError> {
    let shell = ShellTool::new(&config.root, paths_denied_to_file_tools(config), clock.clone())?;
    Ok(Arc::new(shell))
}

fn build_tools_without_shell(
    config: &Config,
    clock: &Arc<dyn Clock>,
    outbound: &OutboundTools,
) -> Result<ToolRegistry, AssembleError> {
    let mut tools: Vec<Arc<dyn Tool>> =
        VaultTools::new(config.data_folder_location().join("vault"), clock.clone()).tools()?;
    let files = FileTools::new(&config.root, clock.clone())
        .with_protected_paths(paths_denied_to_file_tools(config));
    tools.extend(files.tools()?);
    let skill_folders = SkillFolders::new(&config.root, skills::SKILL_FOLDERS)
        .with_protected_paths(paths_denied_to_file_tools(config));
    tools.push(skill_folders.into_read_skill_tool()?);
    tools.extend(outbound.tools.iter().cloned());
    if let Some(file) = config.crash_test_effect_log_path() {
        tools.extend(crash_probe::crash_test_tools(file, clock)?);
    }
    Ok(ToolRegistry::of_built_in_tools(tools)?)
}

/// Returns the paths of the runtime's own files, which the file tools of agents must not open.
fn paths_denied_to_file_tools(config: &Config) -> Vec<PathBuf> {
    let mut paths = vec![config.data_folder()];
    if let StoreUrl::Sqlite(store) = config.store_url() {
        let store = store.path();
        let sqlite_files = ["-wal", "-shm", "-journal"].map(|end| {
            let mut file = store.clone().into_os_string();
            file.push(end);
            PathBuf::from(file)
        });
        paths.extend(sqlite_files);
        // Protected because a replaced lock file would let a second driver start.
        paths.push(store.with_file_name("driver.lock"));
        paths.push(store);
    }
    paths
}

/// Loads the agents and skills of a project, and checks that the tools of the agents exist.
/// `display_root` is the project's path as shown to people.
pub fn load_agents(config: &Config, tools: &ToolRegistry, display_root: &Path) -> LoadedAgents {
    let skills = skills::load_skills(&config.root, display_root);
    let mut loaded =
        call_with_agent_load_context(config, tools, (display_root, &skills), load_all_agents);
    loaded.problems.extend(skills.problems);
    loaded.notes.extend(skills.notes);
    // Redacted here because runs are pinned to this definition, which is shown in many places.
    let redactor = ProjectRedactor(build_redactor(config));
    for one in &mut loaded.agents {
        one.agent = Redaction(&redactor).redact_agent(one.agent.clone());
    }
    loaded.chains = load_chains(&config.root, display_root, &loaded.agent_names());
    loaded
}

/// Collects the names of tools, MCP servers, skills and models that an agent file may refer to, and
/// calls `work` with them.
pub fn call_with_agent_load_context<T>(
    config: &Config,
    tools: &ToolRegistry,
    (display_root, skills): (&Path, &skills::LoadedSkills),
    work: impl FnOnce(&AgentLoadContext<'_>) -> T,
) -> T {
    let mut names: Vec<&str> = tools.tools().map(|tool| tool.spec().name.as_str()).collect();
    // Tools that need a store or trust are available in every run.
    for name in ["read_output", SEND_MESSAGE_TOOL, SHELL_TOOL].into_iter().chain(memory::NAMES) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let file = McpFile::load(config);
    let servers: Vec<&str> = file.servers.iter().map(|one| one.name.as_str()).collect();
    let reason = file.no_servers_reason();
    let unavailable_reason = reason.as_deref().map(|reason| match file.unusable_reason() {
        Some(_) => McpUnavailableReason::Invalid(reason),
        None => McpUnavailableReason::NotConfigured(reason),
    });
    let models = config.model_aliases().aliases;
    let short_names: Vec<&str> = models.keys().map(String::as_str).collect();
    work(&AgentLoadContext {
        root: &config.root,
        display_root,
        built_in: BUILT_IN_AGENTS,
        tools: &names,
        servers: &servers,
        broken_servers: &file.broken_servers(),
        servers_unavailable: unavailable_reason,
        skills: &skills.skills,
        broken_skills: &skills.broken_names,
        short_names: &short_names,
        models: Some(&ProjectModelNames::new(config)),
        is_built_in: false,
    })
}

/// Returns the options for the HTTP server of a project.
#[cfg(feature = "server")]
pub fn server_options(config: &Config, local_key: Secret) -> ServerOptions {
    let server = config.server_settings();
    ServerOptions {
        hosts: server.hosts,
        open_loopback: server.open_loopback,
        rate: server.rate.unwrap_or(DEFAULT_RATE),
        inboxes: config.default_agents_by_inbox(),
        ..ServerOptions::new(local_key)
    }
}

/// Returns the options for a worker of a project.
///
/// # Errors
/// The name of an inbox is invalid.
pub fn worker_options(config: &Config) -> Result<WorkerOptions, IdError> {
    let worker = config.worker_settings();
    let inboxes: Vec<InboxName> =
        worker.inboxes.iter().map(InboxName::new).collect::<Result<_, _>>()?;
    let runs = config.run_retention();
    Ok(WorkerOptions {
        inboxes,
        concurrency: worker.concurrency,
        lease: worker.lease,
        poll: worker.poll,
        crash_limit: Some(worker.crash_limit),
        retention: RunRetention { runs: (runs.0 > 0).then_some(runs) },
        ..WorkerOptions::new(InboxName::new("default")?)
    })
}
