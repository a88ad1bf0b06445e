//! Builds the parts of a runtime that the files and settings of a project define: tools, agents,
//! models, context providers and MCP servers. `longhaul` opens the store and connects the parts.
//!
//! No other module of this crate names the concrete implementations. This module contains no
//! business rules.

pub mod cassettes;
pub mod context;
#[cfg(feature = "mcp")]
pub mod mcp_servers;
pub mod mcp_tools;
pub mod models;
#[cfg(not(feature = "mcp"))]
mod no_mcp_servers;
pub mod redactor;
pub mod sandboxes;
pub mod trusted_tools;

use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_core::id::{IdError, InboxName};
use longhaul_core::port::records::RecordStore;
use longhaul_core::port::redact::Redact;
use longhaul_core::port::repositories::Repositories;
use longhaul_core::port::tool::Tool;
use longhaul_core::time::Clock;
use longhaul_engine::agent::check::SHELL_TOOL;
use longhaul_engine::background::sweep::RunRetention;
use longhaul_engine::guard::redaction::Redaction;
use longhaul_engine::services::{ContextProviders, ExternalToolSource, ModelResolver};
use longhaul_engine::tools::registry::{ToolRegistrationError, ToolRegistry};
use longhaul_engine::worker::WorkerOptions;
use longhaul_model::image_source::StoreImageSource;
use longhaul_tool::git::{GITHUB_TOKEN, GitPushTool, GitRepositories, OpenPullRequestTool};
use longhaul_tool::{
    FileLocation, ShellTool, crash_probe, file_tools, memory, read_skill_tool, vault_tools,
};

use crate::agents::built_in::BUILT_IN_AGENTS;
use crate::agents::load::load_all_agents;
use crate::agents::load_context::{AgentLoadContext, McpUnavailableReason};
use crate::agents::loaded_agents::LoadedAgents;
use crate::agents::tools::tool_problem;
use crate::assemble::context::ProjectContextProviders;
use crate::assemble::mcp_tools::McpTools;
use crate::assemble::models::{ModelRegistry, ProjectModelNames};
#[cfg(not(feature = "mcp"))]
use crate::assemble::no_mcp_servers as mcp_servers;
use crate::assemble::redactor::{ProjectRedactor, build_redactor};
use crate::assemble::trusted_tools::{OutboundTools, TrustCheckedTools};
use crate::chains::load_chains;
use crate::config::schema::SANDBOX_PROVIDERS;
use crate::config::settings::{Config, StoreUrl};
use crate::mcp::file::McpFile;
use crate::skills;
use crate::trust::items::SEND_MESSAGE_TOOL;

pub use crate::assemble::cassettes::{
    cassette_file_path, cassette_folder, prepare_cassette_replay_model,
};
pub use crate::assemble::models::{load_model_script, model_selector};

/// Reason why the parts of a project can't be built.
#[derive(Debug, thiserror::Error)]
pub enum AssembleError {
    /// A tool can't be registered.
    #[error(transparent)]
    Tool(#[from] ToolRegistrationError),
    /// The definition of a built-in tool is invalid.
    #[error(transparent)]
    BuiltInTool(#[from] longhaul_tool::typed::TypedToolError),
    /// A name, such as that of an inbox, is not a valid id.
    #[error(transparent)]
    InvalidId(#[from] IdError),
    /// A setting is invalid or not supported by this build. The text is the complete message.
    #[error("{0}")]
    Setting(String),
}

/// The parts of a runtime that a project defines.
#[derive(Debug)]
pub struct ProjectParts {
    /// The agents of the project, and the problems of their files.
    pub loaded: LoadedAgents,
    /// The built-in tools, and those that the caller has added.
    pub tools: ToolRegistry,
    /// The models of the project.
    pub models: Arc<dyn ModelResolver>,
    /// The tools that a person must trust before an agent uses them.
    pub tool_source: Arc<dyn ExternalToolSource>,
    /// The context providers of the project.
    pub context_providers: Arc<dyn ContextProviders>,
    /// Access to git repositories with the credentials of this machine.
    pub repositories: Arc<dyn Repositories>,
    /// The tools of the project's MCP servers. Must be closed at shutdown.
    pub mcp_tools: Arc<McpTools>,
}

/// Builds the parts of a project in two steps, so that the caller can add tools in between.
#[derive(Debug)]
pub struct ProjectAssembly {
    /// The tools that need no trust. The caller adds its own.
    pub tools: ToolRegistry,
    /// Names of the sandbox providers that the caller adds to those of this build.
    pub sandbox_providers: Vec<String>,
    config: Config,
    clock: Arc<dyn Clock>,
    outbound: OutboundTools,
    repositories: Arc<GitRepositories>,
}

impl ProjectAssembly {
    /// Builds the built-in tools of a project.
    ///
    /// # Errors
    /// A tool can't be created, or a setting is invalid.
    pub fn new(config: &Config, clock: &Arc<dyn Clock>) -> Result<Self, AssembleError> {
        let outbound = OutboundTools::new(config, clock).map_err(AssembleError::Setting)?;
        let repositories = git_repositories(config, clock);
        let tools = build_tools_without_shell(config, clock, (&outbound, &repositories))?;
        let (config, clock) = (config.clone(), Arc::clone(clock));
        Ok(Self { tools, sandbox_providers: Vec::new(), config, clock, outbound, repositories })
    }

    /// Returns the first problem of a tool name in an agent that the program defines.
    pub fn tool_problem(&self, tool: &str) -> Option<String> {
        with_agent_load_context(
            &self.config,
            &self.tools,
            (Path::new(""), &skills::LoadedSkills::default()),
            |ctx| tool_problem(tool, ctx),
        )
    }

    /// Loads the agents of the project and builds all parts. Models load the images of
    /// conversations from `records`. `loaded` has the agents if they are already loaded.
    ///
    /// # Errors
    /// A tool can't be created.
    pub fn build(
        self,
        records: Arc<dyn RecordStore>,
        loaded: Option<LoadedAgents>,
    ) -> Result<ProjectParts, AssembleError> {
        let Self { tools, sandbox_providers, config, clock, outbound, repositories } = self;
        let file = McpFile::load(&config);
        // The MCP servers may have been edited while a person was asked for trust.
        let has_current_servers = |loaded: &LoadedAgents| {
            loaded.mcp_servers.iter().eq(file.servers.iter().map(|server| &server.name))
        };
        let loaded = match loaded.filter(has_current_servers) {
            Some(loaded) => loaded,
            None => load_agents_with(&config, &tools, &sandbox_providers, Path::new("")),
        };
        let images = Arc::new(StoreImageSource(records));
        let mcp_tools = create_mcp_tools(&config, file, &clock);
        let shell = shell_tool(&config, &clock)?;
        let trusted_tools =
            TrustCheckedTools::new(&config, Arc::clone(&mcp_tools), outbound.sender, shell);
        Ok(ProjectParts {
            loaded,
            tools,
            models: Arc::new(ModelRegistry::new(&config, Arc::clone(&clock), Some(images))),
            tool_source: Arc::new(trusted_tools),
            context_providers: Arc::new(ProjectContextProviders::from_config(
                &config,
                outbound.client,
                clock,
            )),
            repositories,
            mcp_tools,
        })
    }
}

/// Returns the redactor for the secrets of a project.
pub fn project_redactor(config: &Config) -> Arc<dyn Redact> {
    Arc::new(ProjectRedactor(build_redactor(config)))
}

/// Returns the models of a project, without images.
pub fn project_model_resolver(config: &Config, clock: &Arc<dyn Clock>) -> Arc<dyn ModelResolver> {
    Arc::new(ModelRegistry::new(config, Arc::clone(clock), None))
}

/// Returns the path of the store's SQLite file.
///
/// # Errors
/// The store is not SQLite.
pub fn sqlite_store_path(config: &Config) -> Result<PathBuf, AssembleError> {
    match config.store_url() {
        StoreUrl::Sqlite(file) => Ok(file.path()),
        StoreUrl::Postgres(_) => Err(AssembleError::Setting(
            "this build supports only SQLite stores; set `[store] url` to `sqlite:PATH`".into(),
        )),
    }
}

/// Removes the access of other users to the data folder, if it is in the project. Returns whether
/// only the runtime uses the folder: it has the default name, or does not exist yet.
pub fn protect_data_folder(config: &Config) -> bool {
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
pub fn hide_folder_from_git(folder: &Path) {
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
    let repositories = git_repositories(config, clock);
    Ok(build_tools_without_shell(config, clock, (&outbound, &repositories))?
        .with_built_in_tool(shell_tool(config, clock)?)?)
}

/// Creates the tools of the MCP servers in this file, and in later versions of it.
fn create_mcp_tools(config: &Config, file: McpFile, clock: &Arc<dyn Clock>) -> Arc<McpTools> {
    let client = mcp_servers::new_client(config, &file, clock);
    let (config_of_clients, clock) = (config.clone(), Arc::clone(clock));
    let create_client =
        move |file: &McpFile| mcp_servers::new_client(&config_of_clients, file, &clock);
    Arc::new(McpTools::new(config, file, client).with_client_factory(create_client))
}

/// Returns the tool that runs shell commands.
fn shell_tool(config: &Config, clock: &Arc<dyn Clock>) -> Result<Arc<dyn Tool>, AssembleError> {
    let shell = ShellTool::new(&config.root, paths_denied_to_file_tools(config), clock.clone())?;
    Ok(Arc::new(shell))
}

/// Returns the access to git repositories. Only the user's own environment and `[secrets]` can set
/// the token, because the repository of a project may be somebody else's.
fn git_repositories(config: &Config, clock: &Arc<dyn Clock>) -> Arc<GitRepositories> {
    let folder = config.data_folder().join("repositories");
    Arc::new(GitRepositories::new(folder, github_token(config), Arc::clone(clock)))
}

fn github_token(config: &Config) -> Option<String> {
    let is_listed = config.secret_names().iter().any(|name| name == GITHUB_TOKEN);
    let own = config.env.process_var(GITHUB_TOKEN);
    own.or_else(|| config.env.var(GITHUB_TOKEN).filter(|_| is_listed)).map(str::to_owned)
}

fn build_tools_without_shell(
    config: &Config,
    clock: &Arc<dyn Clock>,
    (outbound, repositories): (&OutboundTools, &Arc<GitRepositories>),
) -> Result<ToolRegistry, AssembleError> {
    let denied = paths_denied_to_file_tools(config);
    let mut tools = vault_tools(config.data_folder_location().join("vault"), clock.clone())?;
    tools.extend(file_tools(&config.root, denied.clone(), clock.clone())?);
    tools.push(read_skill_tool(&config.root, skills::SKILL_FOLDERS, denied)?);
    tools.extend(outbound.tools.iter().cloned());
    tools.push(Arc::new(GitPushTool::new(Arc::clone(repositories))?));
    let client = Arc::clone(&outbound.client);
    tools.push(Arc::new(OpenPullRequestTool::new(client, github_token(config))?));
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
    load_agents_with(config, tools, &[], display_root)
}

/// Loads the agents of a project in a program that adds these sandbox providers.
fn load_agents_with(
    config: &Config,
    tools: &ToolRegistry,
    own_providers: &[String],
    display_root: &Path,
) -> LoadedAgents {
    let skills = skills::load_skills(&config.root, display_root);
    let own_providers = own_providers.iter().map(String::as_str);
    let sandbox_providers: Vec<&str> = SANDBOX_PROVIDERS.into_iter().chain(own_providers).collect();
    let mut loaded = with_agent_load_context(config, tools, (display_root, &skills), |ctx| {
        load_all_agents(&AgentLoadContext { sandbox_providers: &sandbox_providers, ..*ctx })
    });
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
pub fn with_agent_load_context<T>(
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
        sandbox_providers: &SANDBOX_PROVIDERS,
        models: Some(&ProjectModelNames::new(config)),
        is_built_in: false,
    })
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
