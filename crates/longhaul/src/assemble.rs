//! Puts the program together: the one room that knows the concrete names.
//!
//! Never: a rule. It opens, hands over and names what is missing.

mod adapter;
mod cassettes;
pub mod context;
pub(crate) mod embedded;
mod images;
pub mod mcp_client;
#[cfg(feature = "mcp")]
pub mod mcp_servers;
pub mod mcp_tools;
pub mod model_choice;
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
use longhaul_engine::read_output::ReadOutput;
use longhaul_engine::redaction::Redaction;
#[cfg(feature = "server")]
use longhaul_engine::secret::Secret;
use longhaul_engine::services::{EngineServices, ModelResolver};
use longhaul_engine::sweep::Retention;
use longhaul_engine::tool_registry::{ToolRegistrationError, ToolRegistry};
use longhaul_engine::worker::WorkerOptions;
use longhaul_model::cassette::Recorder;
#[cfg(feature = "server")]
use longhaul_server::{Options as ServerOptions, options::DEFAULT_RATE};
use longhaul_store::options::FatalHook;
use longhaul_store::{OpenMode, SqliteStore, StoreOptions};
use longhaul_tool::{Files, Location, Memory, Shell, Skills, Vault, crash_probe, memory};

use crate::agents::built_in::BUILT_IN_AGENTS;
use crate::agents::load::load;
use crate::agents::load_context::{LoadContext, ServersUnavailable};
use crate::agents::loaded_agents::LoadedAgents;
use crate::assemble::cassettes::RecordingModels;
use crate::assemble::context::ProjectContextProviders;
use crate::assemble::images::StoreImageSource;
use crate::assemble::mcp_tools::McpTools;
use crate::assemble::models::ModelRegistry;
#[cfg(not(feature = "mcp"))]
use crate::assemble::no_mcp_servers as mcp_servers;
use crate::assemble::outbound::OutboundTools;
use crate::assemble::redactor::{ProjectRedactor, build_redactor};
use crate::assemble::registrations::Registrations;
use crate::assemble::trusted_tools::TrustGatedTools;
use crate::config::settings::{Config, StoreUrl};
use crate::mcp::file::McpFile;
use crate::skills;
use crate::trust::items::{SEND_MESSAGE_TOOL, SHELL_TOOL};

/// Why the program can't be put together.
#[derive(Debug, thiserror::Error)]
pub enum AssembleError {
    /// The store can't be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A tool can't be taken in.
    #[error(transparent)]
    Tool(#[from] ToolRegistrationError),
    /// A built-in tool is no tool.
    #[error(transparent)]
    BuiltInTool(#[from] longhaul_tool::typed::TypedToolError),
    /// A name of ours is none.
    #[error(transparent)]
    InvalidId(#[from] IdError),
    /// A setting does not fit.
    #[error("{0}")]
    Setting(String),
    /// What this build can't do yet.
    #[error("{0}")]
    Unsupported(String),
    /// An agent that a program wrote in Rust can't be used.
    #[error("the agent `{name}` can't be used:\n{}", .problems.join("\n"))]
    Agent {
        /// Its name.
        name: String,
        /// Everything that is wrong with it.
        problems: Vec<String>,
    },
}

impl From<(String, Vec<String>)> for AssembleError {
    fn from((name, problems): (String, Vec<String>)) -> Self {
        Self::Agent { name, problems }
    }
}

pub use crate::assemble::cassettes::{cassette_file, cassette_folder, replay_model_name};
pub use crate::assemble::models::load_script;

/// A store that nobody finds again.
pub(crate) const IN_MEMORY_URL: &str = "sqlite::memory:";

/// The whole program over one store.
#[derive(Debug)]
pub struct ProjectRuntime {
    /// What people and programs ask.
    pub longhaul: Longhaul,
    /// The agents, and what is wrong with them.
    pub loaded: LoadedAgents,
    /// What is set.
    pub config: Config,
    /// The store itself, for those who count its commits.
    pub store: Arc<SqliteStore>,
    /// The servers of tools, to be closed when everything ends.
    pub mcp_tools: Arc<McpTools>,
}

impl ProjectRuntime {
    /// Closes the servers of tools; the future returns when they are closed. Whoever needs one
    /// from now on has it started again.
    pub(crate) fn restart_servers(&self) -> impl Future<Output = ()> + use<> {
        let file = self.mcp_tools.file();
        let clock = &self.longhaul.services().clock;
        let line = mcp_servers::client(&self.config, &file, clock);
        self.mcp_tools.restart(file, line)
    }
}

/// How the store is opened.
#[derive(Clone)]
pub struct OpenOptions {
    /// Whether this process drives.
    pub mode: OpenMode,
    /// What a second driver is told about this one.
    pub holder: String,
    /// Called when nothing is known any more.
    pub on_fatal: Option<FatalHook>,
    /// Who listens to what models are asked, if somebody does.
    pub recorder: Option<Arc<Recorder>>,
}

impl std::fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenOptions")
            .field("mode", &self.mode)
            .field("holder", &self.holder)
            .finish_non_exhaustive()
    }
}

/// The file that holds the runs.
///
/// # Errors
/// The runs are not kept in SQLite.
pub fn store_file(config: &Config) -> Result<PathBuf, AssembleError> {
    match config.store_url() {
        StoreUrl::Sqlite(file) => Ok(file.path()),
        StoreUrl::Postgres(_) => Err(AssembleError::Unsupported(
            "this build keeps runs in SQLite only; set `[store] url` to `sqlite:PATH`".into(),
        )),
    }
}

/// Opens everything.
///
/// # Errors
/// The store can't be opened, or a tool, a name or a setting can't be used.
pub fn open(config: Config, opening: OpenOptions) -> Result<ProjectRuntime, AssembleError> {
    let url = store_url(&config)?;
    open_at(url, config, opening, Registrations::default())
}

/// The same over a store that is forgotten: nothing is made on disk.
///
/// # Errors
/// The same.
pub fn open_in_memory(
    config: Config,
    opening: OpenOptions,
) -> Result<ProjectRuntime, AssembleError> {
    open_at(IN_MEMORY_URL.to_owned(), config, opening, Registrations::default())
}

/// The URL of the store that the settings name.
fn store_url(config: &Config) -> Result<String, AssembleError> {
    Ok(format!("sqlite:{}", store_file(config)?.display()))
}

fn open_at(
    url: String,
    config: Config,
    opening: OpenOptions,
    registered: Registrations,
) -> Result<ProjectRuntime, AssembleError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    if let Location::Below { .. } = config.data_location() {
        make_private(&config.data_folder(), 0o700);
        make_private(&config.data_folder().join("longhaul.db"), 0o600);
    }
    let store = Arc::new(longhaul_store::open(StoreOptions {
        holder: opening.holder,
        on_fatal: opening.on_fatal,
        ..StoreOptions::new(url, opening.mode, clock.clone())
    })?);
    let out = OutboundTools::new(&config, &clock).map_err(AssembleError::Setting)?;
    let tools = with_store_tools(build_tools(&config, &clock, &out)?, &store)?;
    let mut registered = registered.with_handlers(&store)?;
    let tools = registered.tool_registry(tools)?;
    with_load_context(
        &config,
        &tools,
        (Path::new(""), &skills::LoadedSkills::default()),
        |shelf| registered.check(&config, shelf),
    )?;
    let loaded = load_agents(&config, &tools, Path::new(""));
    let album = StoreImageSource(Arc::clone(&store) as Arc<dyn RecordStore>);
    let shelf = ModelRegistry::new(&config, Arc::clone(&clock)).with_images(Arc::new(album));
    let shelf: Arc<dyn ModelResolver> = Arc::new(shelf);
    let models = match opening.recorder {
        Some(recorder) => Arc::new(RecordingModels { models: shelf, recorder }),
        None => shelf,
    };
    let file = McpFile::load(&config);
    let line = mcp_servers::client(&config, &file, &clock);
    let served = Arc::new(McpTools::new(&config, file, line));
    let shell = shell_tool(&config, &clock)?;
    let withheld = TrustGatedTools::new(&config, Arc::clone(&served), out.sender, shell);
    let eyes = ProjectContextProviders::new(&config, out.client, Arc::clone(&clock));
    let models = registered.model_resolver(models);
    let ports = EngineServices {
        tool_source: Arc::new(withheld),
        context_providers: registered.context_providers(Arc::new(eyes)),
        redact: Arc::new(ProjectRedactor(build_redactor(&config))),
        ..EngineServices::minimal(Arc::clone(&store), clock, models, tools)
    };
    let roster = registered.agent_registry(loaded.registry());
    Ok(ProjectRuntime {
        longhaul: Longhaul::new(ports, roster, config.defaults()),
        loaded,
        config,
        store,
        mcp_tools: served,
    })
}

/// These tools, and those that need nothing but a store.
fn with_store_tools(
    tools: ToolRegistry,
    store: &Arc<SqliteStore>,
) -> Result<ToolRegistry, AssembleError> {
    let paging = ReadOutput::new(store.clone(), store.clone())?;
    let mut tools = tools.with_tool(Arc::new(paging))?;
    for tool in Memory::new(store.clone()).tools()? {
        tools = tools.with_tool(tool)?;
    }
    Ok(tools)
}

/// Takes the permissions of others away from a file or folder of the user's own. Where that is not
/// possible it stays as it is.
fn make_private(path: &Path, mode: u32) {
    let found = std::fs::symlink_metadata(path);
    let is_open = |found: &std::fs::Metadata| !found.is_symlink() && found.mode() & 0o077 != 0;
    if found.is_ok_and(|found| is_open(&found)) {
        _ = std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode));
    }
}

/// The models that this project can ask.
pub fn model_resolver(config: &Config, clock: &Arc<dyn Clock>) -> Arc<dyn ModelResolver> {
    Arc::new(ModelRegistry::new(config, Arc::clone(clock)))
}

/// The tools of this build, but those that need a store, and the one that sends
/// messages where it needs trust. Who drives has the one that runs commands apart.
///
/// # Errors
/// A tool can't be made, or a setting does not fit.
pub fn tool_registry(
    config: &Config,
    clock: &Arc<dyn Clock>,
) -> Result<ToolRegistry, AssembleError> {
    let out = OutboundTools::new(config, clock).map_err(AssembleError::Setting)?;
    Ok(build_tools(config, clock, &out)?.with_tool(shell_tool(config, clock)?)?)
}

/// The tool that runs commands.
fn shell_tool(config: &Config, clock: &Arc<dyn Clock>) -> Result<Arc<dyn Tool>, AssembleError> {
    let shell = Shell::new(&config.root, protected_paths(config), clock.clone())?;
    Ok(Arc::new(shell))
}

fn build_tools(
    config: &Config,
    clock: &Arc<dyn Clock>,
    out: &OutboundTools,
) -> Result<ToolRegistry, AssembleError> {
    let mut tools: Vec<Arc<dyn Tool>> =
        Vault::new(config.data_location().join("vault"), clock.clone()).tools()?;
    let files = Files::new(&config.root, clock.clone()).with_protected(protected_paths(config));
    tools.extend(files.tools()?);
    let taught =
        Skills::new(&config.root, skills::SKILL_FOLDERS).with_protected(protected_paths(config));
    tools.push(taught.tool()?);
    tools.extend(out.tools.iter().cloned());
    if let Some(file) = config.crash_probe_file() {
        tools.extend(crash_probe::tools(file, clock)?);
    }
    Ok(ToolRegistry::new(tools)?)
}

/// What is the runtime's own, wherever the settings put it: no agent's file
/// tools open it.
fn protected_paths(config: &Config) -> Vec<PathBuf> {
    let mut own = vec![config.data_folder()];
    if let StoreUrl::Sqlite(store) = config.store_url() {
        let store = store.path();
        let beside = ["-wal", "-shm", "-journal"].map(|end| {
            let mut file = store.clone().into_os_string();
            file.push(end);
            PathBuf::from(file)
        });
        own.extend(beside);
        // A new file in the place of the lock would let in a second driver.
        own.push(store.with_file_name("driver.lock"));
        own.push(store);
    }
    own
}

/// The agents of this project, checked against the tools that there are, and
/// what is wrong with its skills. `said` is how people are told of the project.
pub fn load_agents(config: &Config, tools: &ToolRegistry, said: &Path) -> LoadedAgents {
    let skills = skills::load(&config.root, said);
    let mut loaded = with_load_context(config, tools, (said, &skills), load);
    loaded.problems.extend(skills.problems);
    loaded.notes.extend(skills.notes);
    // Known everywhere as what runs are pinned to: without secrets.
    let redactor = ProjectRedactor(build_redactor(config));
    for one in &mut loaded.agents {
        one.agent = Redaction(&redactor).agent(one.agent.clone());
    }
    loaded
}

/// Does something with all that an agent's file may name.
pub fn with_load_context<T>(
    config: &Config,
    tools: &ToolRegistry,
    (said, skills): (&Path, &skills::LoadedSkills),
    work: impl FnOnce(&LoadContext<'_>) -> T,
) -> T {
    let mut names: Vec<&str> = tools.all().map(|tool| tool.spec().name.as_str()).collect();
    // What needs a store or trust is there whenever a run is.
    for name in ["read_output", SEND_MESSAGE_TOOL, SHELL_TOOL].into_iter().chain(memory::NAMES) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let file = McpFile::load(config);
    let servers: Vec<&str> = file.servers.iter().map(|one| one.name.as_str()).collect();
    let lack = file.no_servers_reason();
    let unserved = lack.as_deref().map(|lack| match file.unusable() {
        Some(_) => ServersUnavailable::Invalid(lack),
        None => ServersUnavailable::NotConfigured(lack),
    });
    let models = config.model_aliases().aliases;
    let short_names: Vec<&str> = models.keys().map(String::as_str).collect();
    work(&LoadContext {
        root: &config.root,
        display_root: said,
        built_in: BUILT_IN_AGENTS,
        tools: &names,
        servers: &servers,
        servers_unavailable: unserved,
        skills: &skills.skills,
        broken_skills: &skills.broken_names,
        short_names: &short_names,
    })
}

/// How the server of this project behaves.
#[cfg(feature = "server")]
pub fn server_options(config: &Config, local_key: Secret) -> ServerOptions {
    let server = config.server_settings();
    ServerOptions {
        hosts: server.hosts,
        open_loopback: server.open_loopback,
        rate: server.rate.unwrap_or(DEFAULT_RATE),
        inboxes: config.inbox_agents(),
        ..ServerOptions::new(local_key)
    }
}

/// How this project's worker works.
///
/// # Errors
/// The name of an inbox can't be one.
pub fn worker_options(config: &Config) -> Result<WorkerOptions, IdError> {
    let worker = config.worker_settings();
    let inboxes: Vec<InboxName> =
        worker.inboxes.iter().map(InboxName::new).collect::<Result<_, _>>()?;
    let runs = config.retention();
    Ok(WorkerOptions {
        inboxes,
        concurrency: worker.concurrency,
        lease: worker.lease,
        poll: worker.poll,
        crash_limit: Some(worker.crash_limit),
        retention: Retention { runs: (runs.0 > 0).then_some(runs) },
        ..WorkerOptions::new(InboxName::new("default")?)
    })
}
