//! Puts the program together: the one room that knows the concrete names.
//!
//! Never: a rule. It opens, hands over and names what is missing.

mod adapter;
mod album;
mod cassettes;
#[cfg(feature = "mcp")]
pub mod clients;
pub mod eyes;
mod host;
pub mod line;
pub mod menu;
mod models;
#[cfg(not(feature = "mcp"))]
mod no_clients;
mod ollama;
pub mod out;
pub(crate) mod program;
pub mod providers;
pub mod redactor;
pub(crate) mod registered;
pub mod sender;
pub mod slow;
pub mod supplies;

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_core::id::{BadId, InboxName};
use longhaul_core::port::shelves::Shelves;
use longhaul_core::port::store::StoreError;
use longhaul_core::port::tool::Tool;
use longhaul_core::time::Clock;
use longhaul_engine::Longhaul;
use longhaul_engine::clean::Cleaner;
use longhaul_engine::clock::SystemClock;
use longhaul_engine::ports::{Models, Ports};
use longhaul_engine::read_output::ReadOutput;
#[cfg(feature = "server")]
use longhaul_engine::secret::Secret;
use longhaul_engine::sweep::Retention;
use longhaul_engine::toolbox::{BadTool, Toolbox};
use longhaul_engine::worker::WorkerOptions;
use longhaul_model::cassette::Recorder;
#[cfg(feature = "server")]
use longhaul_server::{Options as ServerOptions, options::RATE};
use longhaul_store::options::Fatal;
use longhaul_store::{Options, Role, SqliteStore};
use longhaul_tool::{Files, Location, Memory, Shell, Skills, Vault, memory, witness};

use crate::agents::load::load;
use crate::agents::loaded::Loaded;
use crate::agents::shelf::{Shelf, Unserved};
use crate::agents::shipped::SHIPPED;
use crate::assemble::album::Album;
use crate::assemble::cassettes::Listened;
use crate::assemble::eyes::Lookouts;
use crate::assemble::models::ModelShelf;
#[cfg(not(feature = "mcp"))]
use crate::assemble::no_clients as clients;
use crate::assemble::out::Out;
use crate::assemble::redactor::{ProjectRedactor, known_secrets};
use crate::assemble::registered::Registered;
use crate::assemble::sender::Withheld;
use crate::assemble::supplies::Served;
use crate::config::settings::{Config, StoreUrl};
use crate::mcp::file::McpFile;
use crate::skills;
use crate::trust::items::{SENDER, SHELL};

/// Why the program can't be put together.
#[derive(Debug, thiserror::Error)]
pub enum AssembleError {
    /// The store can't be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A tool can't be taken in.
    #[error(transparent)]
    Tool(#[from] BadTool),
    /// A built-in tool is no tool.
    #[error(transparent)]
    BuiltIn(#[from] longhaul_tool::typed::BadTool),
    /// A name of ours is none.
    #[error(transparent)]
    Name(#[from] BadId),
    /// A setting does not fit.
    #[error("{0}")]
    Setting(String),
    /// What this build can't do yet.
    #[error("{0}")]
    NotYet(String),
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

pub use crate::assemble::cassettes::{cassette_file, cassette_folder, replay};
pub use crate::assemble::models::script;

/// A store that nobody finds again.
pub(crate) const FORGOTTEN: &str = "sqlite::memory:";

/// The whole program over one store.
#[derive(Debug)]
pub struct House {
    /// What people and programs ask.
    pub longhaul: Longhaul,
    /// The agents, and what is wrong with them.
    pub loaded: Loaded,
    /// What is set.
    pub config: Config,
    /// The store itself, for those who count its commits.
    pub store: Arc<SqliteStore>,
    /// The servers of tools, to be closed when everything ends.
    pub served: Arc<Served>,
}

impl House {
    /// Closes the servers of tools; the future returns when they are closed. Whoever needs one
    /// from now on has it started again.
    pub(crate) fn restart_servers(&self) -> impl Future<Output = ()> + use<> {
        let file = self.served.file();
        let clock = &self.longhaul.ports().clock;
        let line = clients::line(&self.config, &file, clock);
        self.served.restart(file, line)
    }
}

/// How the store is opened.
#[derive(Clone)]
pub struct Opening {
    /// Whether this process drives.
    pub role: Role,
    /// What a second driver is told about this one.
    pub holder: String,
    /// Called when nothing is known any more.
    pub fatal: Option<Fatal>,
    /// Who listens to what models are asked, if somebody does.
    pub recorder: Option<Arc<Recorder>>,
}

impl std::fmt::Debug for Opening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opening")
            .field("role", &self.role)
            .field("holder", &self.holder)
            .finish_non_exhaustive()
    }
}

/// The file that holds the runs.
///
/// # Errors
/// The runs are not kept in SQLite.
pub fn store_file(config: &Config) -> Result<PathBuf, AssembleError> {
    match config.store() {
        StoreUrl::Sqlite(file) => Ok(file.path()),
        StoreUrl::Postgres(_) => Err(AssembleError::NotYet(
            "this build keeps runs in SQLite only; set `[store] url` to `sqlite:PATH`".into(),
        )),
    }
}

/// Opens everything.
///
/// # Errors
/// The store can't be opened, or a tool, a name or a setting can't be used.
pub fn open(config: Config, opening: Opening) -> Result<House, AssembleError> {
    let url = store_url(&config)?;
    open_at(url, config, opening, Registered::default())
}

/// The same over a store that is forgotten: nothing is made on disk.
///
/// # Errors
/// The same.
pub fn open_forgetting(config: Config, opening: Opening) -> Result<House, AssembleError> {
    open_at(FORGOTTEN.to_owned(), config, opening, Registered::default())
}

/// The URL of the store that the settings name.
fn store_url(config: &Config) -> Result<String, AssembleError> {
    Ok(format!("sqlite:{}", store_file(config)?.display()))
}

fn open_at(
    url: String,
    config: Config,
    opening: Opening,
    registered: Registered,
) -> Result<House, AssembleError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    if let Location::Below { .. } = config.data_location() {
        make_private(&config.data(), 0o700);
        make_private(&config.data().join("longhaul.db"), 0o600);
    }
    let store = Arc::new(longhaul_store::open(Options {
        holder: opening.holder,
        fatal: opening.fatal,
        ..Options::new(url, opening.role, clock.clone())
    })?);
    let out = Out::new(&config, &clock).map_err(AssembleError::Setting)?;
    let tools = with_store_tools(equipped(&config, &clock, &out)?, &store)?;
    let mut registered = registered.with_handlers(&store)?;
    let tools = registered.toolbox(tools)?;
    on_shelf(
        &config,
        &tools,
        (Path::new(""), &skills::Skills::default()),
        |shelf| registered.check(&config, shelf),
    )?;
    let loaded = agents(&config, &tools, Path::new(""));
    let album = Album(Arc::clone(&store) as Arc<dyn Shelves>);
    let shelf = ModelShelf::new(&config, Arc::clone(&clock)).with_pictures(Arc::new(album));
    let shelf: Arc<dyn Models> = Arc::new(shelf);
    let models = match opening.recorder {
        Some(recorder) => Arc::new(Listened {
            models: shelf,
            recorder,
        }),
        None => shelf,
    };
    let file = McpFile::of(&config);
    let line = clients::line(&config, &file, &clock);
    let served = Arc::new(Served::new(&config, file, line));
    let shell = shell(&config, &clock)?;
    let withheld = Withheld::new(&config, Arc::clone(&served), out.sender, shell);
    let eyes = Lookouts::new(&config, out.guarded, Arc::clone(&clock));
    let models = registered.models(models);
    let ports = Ports {
        supplies: Arc::new(withheld),
        eyes: registered.context_providers(Arc::new(eyes)),
        redact: Arc::new(ProjectRedactor(known_secrets(&config))),
        ..Ports::plain(Arc::clone(&store), clock, models, tools)
    };
    let roster = registered.roster(loaded.roster());
    Ok(House {
        longhaul: Longhaul::new(ports, roster, config.defaults()),
        loaded,
        config,
        store,
        served,
    })
}

/// These tools, and those that need nothing but a store.
fn with_store_tools(tools: Toolbox, store: &Arc<SqliteStore>) -> Result<Toolbox, AssembleError> {
    let paging = ReadOutput::new(store.clone(), store.clone())?;
    let mut tools = tools.with(Arc::new(paging))?;
    for tool in Memory::new(store.clone()).tools()? {
        tools = tools.with(tool)?;
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
pub fn models(config: &Config, clock: &Arc<dyn Clock>) -> Arc<dyn Models> {
    Arc::new(ModelShelf::new(config, Arc::clone(clock)))
}

/// The tools of this build, but those that need a store, and the one that sends
/// messages where it needs trust. Who drives has the one that runs commands apart.
///
/// # Errors
/// A tool can't be made, or a setting does not fit.
pub fn toolbox(config: &Config, clock: &Arc<dyn Clock>) -> Result<Toolbox, AssembleError> {
    let out = Out::new(config, clock).map_err(AssembleError::Setting)?;
    Ok(equipped(config, clock, &out)?.with(shell(config, clock)?)?)
}

/// The tool that runs commands.
fn shell(config: &Config, clock: &Arc<dyn Clock>) -> Result<Arc<dyn Tool>, AssembleError> {
    let shell = Shell::new(&config.root, own(config), clock.clone())?;
    Ok(Arc::new(shell))
}

fn equipped(config: &Config, clock: &Arc<dyn Clock>, out: &Out) -> Result<Toolbox, AssembleError> {
    let mut tools: Vec<Arc<dyn Tool>> =
        Vault::new(config.data_location().join("vault"), clock.clone()).tools()?;
    let files = Files::new(&config.root, clock.clone()).without(own(config));
    tools.extend(files.tools()?);
    let taught = Skills::new(&config.root, skills::FOLDERS).without(own(config));
    tools.push(taught.tool()?);
    tools.extend(out.tools.iter().cloned());
    if let Some(file) = config.witness_file() {
        tools.extend(witness::tools(file, clock)?);
    }
    Ok(Toolbox::new(tools)?)
}

/// What is the runtime's own, wherever the settings put it: no agent's file
/// tools open it.
fn own(config: &Config) -> Vec<PathBuf> {
    let mut own = vec![config.data()];
    if let StoreUrl::Sqlite(store) = config.store() {
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
pub fn agents(config: &Config, tools: &Toolbox, said: &Path) -> Loaded {
    let skills = skills::load(&config.root, said);
    let mut loaded = on_shelf(config, tools, (said, &skills), load);
    loaded.problems.extend(skills.problems);
    loaded.notes.extend(skills.notes);
    // Known everywhere as what runs are pinned to: without secrets.
    let redactor = ProjectRedactor(known_secrets(config));
    for one in &mut loaded.agents {
        one.agent = Cleaner(&redactor).agent(one.agent.clone());
    }
    loaded
}

/// Does something with all that an agent's file may name.
pub fn on_shelf<T>(
    config: &Config,
    tools: &Toolbox,
    (said, skills): (&Path, &skills::Skills),
    work: impl FnOnce(&Shelf<'_>) -> T,
) -> T {
    let mut names: Vec<&str> = tools.all().map(|tool| tool.card().name.as_str()).collect();
    // What needs a store or trust is there whenever a run is.
    for name in ["read_output", SENDER, SHELL]
        .into_iter()
        .chain(memory::NAMES)
    {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let file = McpFile::of(config);
    let servers: Vec<&str> = file.servers.iter().map(|one| one.name.as_str()).collect();
    let lack = file.lack();
    let unserved = lack.as_deref().map(|lack| match file.unusable() {
        Some(_) => Unserved::Broken(lack),
        None => Unserved::Unnamed(lack),
    });
    let models = config.models().names;
    let short_names: Vec<&str> = models.keys().map(String::as_str).collect();
    work(&Shelf {
        root: &config.root,
        said,
        built_in: SHIPPED,
        tools: &names,
        servers: &servers,
        unserved,
        skills: &skills.skills,
        broken_skills: &skills.broken,
        short_names: &short_names,
    })
}

/// How the server of this project behaves.
#[cfg(feature = "server")]
pub fn server_options(config: &Config, local_key: Secret) -> ServerOptions {
    let server = config.server();
    ServerOptions {
        hosts: server.hosts,
        open_loopback: server.open_loopback,
        rate: server.rate.unwrap_or(RATE),
        inboxes: config.inboxes(),
        ..ServerOptions::new(local_key)
    }
}

/// How this project's worker works.
///
/// # Errors
/// The name of an inbox can't be one.
pub fn worker_options(config: &Config) -> Result<WorkerOptions, BadId> {
    let worker = config.worker();
    let inboxes: Vec<InboxName> = worker
        .inboxes
        .iter()
        .map(InboxName::new)
        .collect::<Result<_, _>>()?;
    let runs = config.retention();
    Ok(WorkerOptions {
        inboxes,
        concurrency: worker.concurrency,
        lease: worker.lease,
        poll: worker.poll,
        crash_limit: Some(worker.crash_limit),
        retention: Retention {
            runs: (runs.0 > 0).then_some(runs),
        },
        ..WorkerOptions::new(InboxName::new("default")?)
    })
}
