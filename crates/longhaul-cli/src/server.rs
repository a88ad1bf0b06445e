//! `longhaul serve` and `longhaul dev`: a server and a worker for a project, in one process. If one of
//! them stops, the other is stopped too. Only `dev` reads `.env` and reloads agents, skills and project
//! rules (`AGENTS.md`) that change.

mod reload;
mod report;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Arc;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use longhaul::project::{ProjectOpenOptions, ProjectRuntime, open_runtime};
use longhaul::project_server_options;
use longhaul_core::port::auth::ApiKeyRef;
use longhaul_core::port::store::StoreError;
use longhaul_engine::secret::{KEY_PREFIX, Secret};
use longhaul_engine::shutdown::Shutdown;
use longhaul_project::assemble::sqlite_store_path;
use longhaul_project::config::secrets;
use longhaul_project::config::settings::Config;
use longhaul_project::config::value::{Setting, SettingOrigin, SettingValue};
use longhaul_project::server_marker::{RunningServerRecord, RunningServerRecordGuard};
use longhaul_project::trust::decisions::TrustDecisions;
use longhaul_project::trust::items;
use longhaul_project::{local_key, server_marker};
use longhaul_server::App;
use longhaul_store::OpenMode;
use tokio::sync::oneshot;

use crate::error::{self, CliError};
use crate::exit::Exit;
use crate::log::{self, LogStyle};
use crate::run_log::RunLifecycleLogger;
use crate::runtime::{InterruptListener, wait_for_parent_exit};
use crate::server::reload::{FileTimesAndSizes, ProjectReloader, read_times_and_sizes};
use crate::server::report::print_banner;
use crate::store_access::store_open_options;
use crate::trust::confirm;
use crate::worker::InboxArgs;
use crate::{environment, runtime};

const SERVE_EXAMPLES: &str = "Examples:
  longhaul serve                              http://127.0.0.1:4180, drives this project's runs
  longhaul serve --listen 0.0.0.0:4180        for other machines: put TLS in front of it
  longhaul keys new ci --role operator        a key for a program
  curl -H \"Authorization: Bearer $LONGHAUL_KEY\" http://127.0.0.1:4180/v1/runs

SIGTERM or Ctrl-C releases every run at its next event; a second one aborts what still runs.
In any case runs continue from their last event when it starts again.
Agents, skills and rules are read once at the start: restart it after a change.";

const DEV_EXAMPLES: &str = "Examples:
  longhaul dev                       http://127.0.0.1:4180; agents are reloaded when saved
  longhaul dev --listen 127.0.0.1:0  any free port
  longhaul run AGENT \"...\"           in another terminal: it finds this server by itself

Reloaded: agents/, .claude/agents/, skills/, .claude/skills/, AGENTS.md and the schemas that
agents name. A run keeps the agent that it started with.

Variables in .env apply unless they are set otherwise.";

/// The commands that run a server.
#[derive(Debug, Subcommand)]
pub(crate) enum ServerCommand {
    /// Runs the server and a worker, and reloads changed agents
    #[command(after_help = DEV_EXAMPLES)]
    Dev(ServeArgs),
    /// Runs the server and a worker for production
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeArgs),
}

impl ServerCommand {
    pub(crate) fn run(&self) -> anyhow::Result<Exit> {
        let (args, is_dev) = match self {
            Self::Dev(args) => (args, true),
            Self::Serve(args) => (args, false),
        };
        let server = PreparedServer::bind_and_open_store(args, is_dev)?;
        runtime::build_multi_thread_tokio()?.block_on(server.serve_until_stopped())
    }
}

/// Command-line options of `longhaul serve` and `longhaul dev`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Address to listen on instead of the configured one; port 0 picks a free port
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    #[command(flatten)]
    inbox: InboxArgs,
    /// Log format; by default for people on a terminal and JSON elsewhere
    #[arg(long, value_enum)]
    log: Option<LogStyle>,
    /// Stop when stdin is closed: for programs that start a server and may crash
    #[arg(long, hide = true)]
    until_eof: bool,
}

/// A server that has opened its store and bound its address, but serves no requests yet.
#[derive(Debug)]
struct PreparedServer<'a> {
    args: &'a ServeArgs,
    /// True for `longhaul dev`: agents, skills and project rules (`AGENTS.md`) are reloaded when
    /// they change, the person at the terminal is asked for trust, and variables of the project's
    /// `.env` apply.
    is_dev: bool,
    // Dropped before the store is released, because the next driver writes its own marker.
    _marker: RunningServerRecordGuard,
    runtime: ProjectRuntime,
    listener: TcpListener,
    address: SocketAddr,
    local_key: Secret,
    /// State of the agent files on disk before they were read, to detect later changes.
    agent_files: FileTimesAndSizes,
    /// True if stderr is a terminal that a person reads.
    is_interactive: bool,
}

impl<'a> PreparedServer<'a> {
    /// Binds the address, opens the store and reads the local API key, in this order, so that a
    /// failure leaves nothing changed.
    fn bind_and_open_store(args: &'a ServeArgs, is_dev: bool) -> anyhow::Result<Self> {
        let command = if is_dev { "dev" } else { "serve" };
        let config = load_config_and_init_log(args, is_dev)?;
        let is_interactive =
            LogStyle::for_stderr() == LogStyle::Human && args.log != Some(LogStyle::Json);
        let unattended = !is_dev || !is_interactive;
        let agent_files = read_times_and_sizes(&config, &[]);
        let agents = environment::load_agents(&config)?;
        let untrusted = confirm::ask_for_trust_before_run((&config, &agents), None, unattended)?;
        check_server_settings_trusted(&config)?;
        for warning in untrusted {
            tracing::warn!("{warning}");
        }
        raise_open_file_limit();
        let (listener, address) = bind_listener(&config.server_settings().listen, command)
            .map_err(|failure| {
                let is_busy = failure.exit == Exit::Busy;
                let server = is_busy.then(|| server_already_running_error(&config)).flatten();
                server.unwrap_or(failure)
            })?;
        let url = local_url(address);
        let options = ProjectOpenOptions {
            holder: format!("longhaul {command} at {url}"),
            loaded_agents: Some(agents),
            ..store_open_options(OpenMode::Driver)
        };
        let runtime = open_runtime(config, options)?;
        let new_key = runtime.longhaul.generate_secret(KEY_PREFIX)?;
        let key_path = local_key::local_key_path(&runtime.config);
        let local_key = local_key::load_or_create_local_key(&key_path, &new_key)
            .map_err(|error| error::from_local_key_error(&error, &key_path))?;
        let store = sqlite_store_path(&runtime.config)?;
        let pid = std::process::id();
        let marker = RunningServerRecordGuard::create(RunningServerRecord { url, pid, store });
        let marker = marker.context("the file with the server's URL can't be written")?;
        Ok(Self {
            args,
            is_dev,
            _marker: marker,
            runtime,
            listener,
            address,
            local_key,
            agent_files,
            is_interactive,
        })
    }

    /// Serves requests and drives runs until the process is asked to stop.
    async fn serve_until_stopped(self) -> anyhow::Result<Exit> {
        let mut interrupts = InterruptListener::listen()?;
        let worker = self.args.inbox.project_worker(&self.runtime)?;
        for problem in &worker.problems {
            tracing::warn!("{problem}");
        }
        let options = project_server_options(&self.runtime.config, self.local_key.clone());
        let app = App::new(self.runtime.longhaul.clone(), options, self.address);
        self.listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(self.listener.try_clone()?)?;
        let stop = Shutdown::new();
        let (close_sender, close_receiver) = oneshot::channel::<()>();
        let mut server = std::pin::pin!(longhaul_server::serve(listener, app.clone(), async {
            _ = close_receiver.await;
        }));
        let longhaul = self.runtime.longhaul.clone();
        let style = self.args.log.unwrap_or_else(LogStyle::for_stderr);
        let logger = Arc::new(RunLifecycleLogger { longhaul, style });
        let mut worker_run = std::pin::pin!(worker.run(Some(logger), &stop));
        let mut reload = std::pin::pin!(async {
            if self.is_dev {
                let reloader = ProjectReloader::new(&self.runtime, self.agent_files.clone());
                reloader.watch_and_reload().await
            }
            std::future::pending::<()>().await;
        });
        let mut parent = std::pin::pin!(wait_for_parent_exit(self.args.until_eof));
        self.announce_address().await?;
        loop {
            tokio::select! {
                biased;
                worker_result = worker_run.as_mut() => {
                    if !stop.is_draining() {
                        tracing::error!("the worker stopped unexpectedly");
                    }
                    // Pending responses are sent before the server closes.
                    drop(close_sender);
                    let server_result = server.as_mut().await;
                    self.runtime.mcp_tools.close_mcp_clients().await;
                    worker_result?;
                    server_result?;
                    tracing::info!("server stopped");
                    return Ok(if stop.is_draining() { Exit::Done } else { Exit::Busy });
                }
                result = server.as_mut() => {
                    stop.request_drain();
                    let worker_result = worker_run.as_mut().await;
                    self.runtime.mcp_tools.close_mcp_clients().await;
                    worker_result?;
                    result?;
                    return Ok(Exit::Busy);
                }
                () = reload.as_mut() => {}
                () = interrupts.next_signal() => drain_or_abort_server(&stop, &app),
                () = parent.as_mut(), if !stop.is_draining() => drain_or_abort_server(&stop, &app),
            }
        }
    }

    /// Prints or logs the server's address, and logs warnings about problems and about insecure
    /// access.
    async fn announce_address(&self) -> anyhow::Result<()> {
        let url = local_url(self.address);
        // The banner contains a login link, so it must not go to a log file.
        if self.is_interactive {
            let longhaul = &self.runtime.longhaul;
            let ticket =
                longhaul.create_login_ticket(ApiKeyRef::Local, self.local_key.hash()).await?;
            print_banner(&self.runtime, &url, &ticket);
        }
        for problem in &self.runtime.loaded.problems {
            tracing::warn!("{problem}");
        }
        if !self.address.ip().is_loopback() {
            tracing::warn!(
                "other machines can reach this server without TLS: put a proxy with TLS in front of it, and its name into `[server] hosts`"
            );
        }
        if self.runtime.config.server_settings().open_loopback {
            tracing::warn!(
                "`[server] open_loopback` is on: every program on this machine may submit and steer without a key"
            );
        }
        let pid = std::process::id();
        tracing::info!(url, pid, version = env!("CARGO_PKG_VERSION"), "ready");
        Ok(())
    }
}

/// Returns the URL at which this machine reaches a server that listens on this address.
pub(crate) fn local_url(address: SocketAddr) -> String {
    let mut local_address = address;
    if address.ip().is_unspecified() {
        local_address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    format!("http://{local_address}")
}

fn drain_or_abort_server(stop: &Shutdown, app: &App) {
    match stop.is_draining() {
        false => {
            tracing::info!("shutting down: runs are released at their next event");
            app.begin_shutdown();
            stop.request_drain();
        }
        true => stop.request_abort(),
    }
}

/// Loads the configuration and sets up the log.
fn load_config_and_init_log(args: &ServeArgs, is_dev: bool) -> anyhow::Result<Config> {
    let style = args.log.unwrap_or_else(LogStyle::for_stderr);
    let load = || {
        let process_env = environment::current_process_env()?;
        let process_env = match is_dev {
            true => environment::add_dotenv_variables(process_env)?,
            false => process_env,
        };
        let mut config = environment::load_config_quietly(&process_env)?;
        if let Some(listen) = &args.listen {
            let setting = Setting {
                value: SettingValue::Json(listen.clone().into()),
                origin: SettingOrigin::Flag("--listen".to_owned()),
            };
            config.settings.insert("server.listen".to_owned(), setting);
        }
        let log_secrets = log::secrets_to_redact(&config);
        anyhow::Ok((config, log_secrets))
    };
    match load() {
        Ok((config, log_secrets)) => {
            log::init_server_log(style, log_secrets);
            for note in config.notes.iter().chain(&secrets::unredactable_secret_warnings(&config)) {
                tracing::warn!("{note}");
            }
            Ok(config)
        }
        Err(error) => {
            log::init_server_log(style, Vec::new());
            Err(error)
        }
    }
}

/// Fails if the project's own settings expose the server more than the defaults do and are not
/// trusted.
fn check_server_settings_trusted(config: &Config) -> anyhow::Result<()> {
    let Some(item) = items::server_trust_item(config) else {
        return Ok(());
    };
    TrustDecisions::new(config).check_trusted(&item).map_err(|reason| {
        let lines = item.lines.join("; ");
        CliError::not_trusted(format!("{reason} With these settings the server {lines}.")).into()
    })
}

/// Binds the address of a server. The error says how the command uses any free port instead.
pub(crate) fn bind_listener(
    listen_address: &str,
    command: &str,
) -> Result<(TcpListener, SocketAddr), CliError> {
    let listener = TcpListener::bind(listen_address);
    let bound = listener.and_then(|listener| listener.local_addr().map(|bound| (listener, bound)));
    bound.map_err(|error| {
        let is_in_use = error.kind() == std::io::ErrorKind::AddrInUse;
        CliError::usage_error(format!("can't listen on {listen_address}: {error}"))
            .with_exit_code(if is_in_use { Exit::Busy } else { Exit::Usage })
            .with_hint("use any free port", format!("longhaul {command} --listen 127.0.0.1:0"))
    })
}

/// Returns the error for starting a second server on the same store, if one is running. Another
/// port would not help, because the first server drives the runs of the store.
fn server_already_running_error(config: &Config) -> Option<CliError> {
    let store = sqlite_store_path(config).ok()?;
    let RunningServerRecord { url, pid, .. } = server_marker::load_running_server_record(&store)?;
    let has_driver = longhaul_store::store_has_driver_process(&store).unwrap_or(false);
    has_driver.then(|| {
        error::from_store_error(&StoreError::AlreadyDriven {
            location: store.display().to_string(),
            holder: format!("pid {pid}, a server at {url}"),
        })
    })
}

/// Raises this process's limit of open files to the allowed maximum, because each connection is an
/// open file.
pub(crate) fn raise_open_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let limit = Rlimit { current: now.maximum, maximum: now.maximum };
    // If that is not allowed, the old limit stays, and connections beyond it are refused.
    _ = setrlimit(Resource::Nofile, limit);
}
