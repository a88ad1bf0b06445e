//! A server and a worker in one process. If one of them stops, the other is stopped too.

mod banner;
mod lifecycle;
mod reload;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Arc;

use clap::Args;
use longhaul::inbox::{
    Inbox, InboxWorker, ProjectInboxes, add_inbox_names, project_folder_inboxes, serve_inboxes,
};
use longhaul::project::{ProjectOpenOptions, ProjectRuntime, open_runtime};
use longhaul::project_server_options;
use longhaul_core::port::auth::ApiKeyRef;
use longhaul_core::port::store::StoreError;
use longhaul_engine::secret::{KEY_PREFIX, Secret};
use longhaul_engine::shutdown::Shutdown;
use longhaul_engine::worker::Worker;
use longhaul_model::providers::built_in::BUILT_IN_PROVIDERS;
use longhaul_project::assemble::sqlite_store_path;
use longhaul_project::config::process_env::ProcessEnv;
use longhaul_project::config::secrets;
use longhaul_project::config::settings::Config;
use longhaul_project::config::value::{Setting, SettingOrigin, SettingValue};
use longhaul_project::server_marker::{RunningServerRecord, RunningServerRecordGuard};
use longhaul_project::trust::decisions::TrustDecisions;
use longhaul_project::trust::egress;
use longhaul_project::{local_key, server_marker};
use longhaul_server::App;
use longhaul_store::OpenMode;
use tokio::sync::oneshot;

use crate::error::{self, CliError};
use crate::exit::Exit;
use crate::inbox_args::InboxArgs;
use crate::interrupts::{InterruptListener, wait_for_parent_exit};
use crate::log::{self, LogStyle};
use crate::server::banner::print_banner;
use crate::server::lifecycle::RunLifecycleLogger;
use crate::server::reload::{FileTimesAndSizes, ProjectReloader};
use crate::store_access::store_open_options;
use crate::trust::confirm;
use crate::{environment, runtime};

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

/// Whether a project is served for production or for development.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServeMode {
    /// Serves the project for production.
    Serve,
    /// Serves the project for development: agents, skills and project rules (`AGENTS.md`) are
    /// reloaded when they change, the person at the terminal is asked for trust, and variables of
    /// the project's `.env` apply.
    Dev,
}

impl ServeMode {
    const fn command(self) -> &'static str {
        match self {
            Self::Serve => "serve",
            Self::Dev => "dev",
        }
    }
}

/// A server that has opened its store and bound its address, but serves no requests yet.
#[derive(Debug)]
pub(crate) struct PreparedServer {
    // Dropped before the store is released, because the next driver writes its own marker.
    _marker: RunningServerRecordGuard,
    runtime: ProjectRuntime,
    listener: TcpListener,
    address: SocketAddr,
    local_key: Secret,
    /// State of the agent files on disk before they were read, to detect later changes.
    agent_files: FileTimesAndSizes,
    mode: ServeMode,
    inbox: InboxArgs,
    until_eof: bool,
    /// True if stderr is a terminal that a person reads.
    is_interactive: bool,
}

impl PreparedServer {
    /// Binds the address, opens the store and reads the local API key, in this order, so that a
    /// failure leaves nothing changed.
    pub(crate) fn bind_and_open_store(
        args: &ServeArgs,
        process_env: ProcessEnv,
        mode: ServeMode,
    ) -> anyhow::Result<Self> {
        let config = load_config_and_init_log(args, process_env, mode)?;
        let is_interactive =
            LogStyle::for_stderr() == LogStyle::Human && args.log != Some(LogStyle::Json);
        let unattended = mode == ServeMode::Serve || !is_interactive;
        let agent_files = FileTimesAndSizes::read_times_and_sizes(&config, &[]);
        let agents = environment::load_agents(&config)?;
        let untrusted = confirm::ask_for_trust_before_run((&config, &agents), None, unattended)?;
        check_server_settings_trusted(&config)?;
        for warning in untrusted {
            tracing::warn!("{warning}");
        }
        raise_open_file_limit();
        let (listener, address) = bind_listener(&config, mode)?;
        let url = local_url(address);
        let options = ProjectOpenOptions {
            holder: format!("longhaul {} at {url}", mode.command()),
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
        let marker = RunningServerRecordGuard::create(RunningServerRecord { url, pid, store })
            .map_err(|error| {
                CliError::usage_error(format!(
                    "the file with the server's URL can't be written: {error}"
                ))
            })?;
        Ok(Self {
            runtime,
            listener,
            address,
            local_key,
            agent_files,
            mode,
            inbox: args.inbox.clone(),
            until_eof: args.until_eof,
            is_interactive,
            _marker: marker,
        })
    }

    /// Serves requests and drives runs until the process is asked to stop.
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        runtime::build_multi_thread_tokio()?.block_on(self.serve_until_stopped())
    }

    async fn serve_until_stopped(self) -> anyhow::Result<Exit> {
        let mut interrupts = InterruptListener::listen()?;
        let ProjectInboxes { inboxes, problems } =
            project_folder_inboxes(&self.runtime.config, &self.inbox.inboxes);
        for problem in problems {
            tracing::warn!("{problem}");
        }
        let (worker, types) = self.build_worker_with_task_types(&inboxes)?;
        let served_worker = InboxWorker::new(types, worker.intake());
        let options = project_server_options(&self.runtime.config, self.local_key.clone());
        let app = App::new(self.runtime.longhaul.clone(), options, self.address);
        self.listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(self.listener.try_clone()?)?;
        let stop = Shutdown::new();
        let (close_sender, close_receiver) = oneshot::channel::<()>();
        let mut server = std::pin::pin!(longhaul_server::serve(listener, app.clone(), async {
            _ = close_receiver.await;
        }));
        let mut worker_run = std::pin::pin!(async {
            let serve_folders = async {
                serve_inboxes(&self.runtime.longhaul, &inboxes, &served_worker, &stop).await;
                std::future::pending().await
            };
            tokio::select! {
                biased;
                result = worker.run(stop.clone()) => result,
                never = serve_folders => never,
            }
        });
        let mut reload = std::pin::pin!(self.reload_files_in_dev_mode());
        let mut parent = std::pin::pin!(wait_for_parent_exit(self.until_eof));
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

    /// Returns the worker, and the types of the tasks that it takes. An empty list means all types.
    fn build_worker_with_task_types(
        &self,
        inboxes: &[Arc<dyn Inbox>],
    ) -> anyhow::Result<(Worker, Vec<String>)> {
        let mut options = self.inbox.worker_options(&self.runtime.config)?;
        add_inbox_names(&mut options, inboxes)?;
        let types = options.types.clone();
        let longhaul = &self.runtime.longhaul;
        let worker = Worker::new(longhaul.services(), options).with_schedules(longhaul);
        Ok((worker.with_hooks(Arc::new(RunLifecycleLogger)), types))
    }

    async fn reload_files_in_dev_mode(&self) {
        match self.mode {
            ServeMode::Dev => {
                ProjectReloader::new(&self.runtime, self.agent_files.clone())
                    .watch_and_reload()
                    .await
            }
            ServeMode::Serve => std::future::pending().await,
        }
    }

    /// Prints or logs the server's address, and logs warnings about problems and about insecure
    /// access.
    async fn announce_address(&self) -> anyhow::Result<()> {
        let url = local_url(self.address);
        // The banner contains a login link, so it must not go to a log file.
        if self.is_interactive {
            let ticket = self
                .runtime
                .longhaul
                .create_login_ticket(ApiKeyRef::Local, self.local_key.hash())
                .await?;
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
    match local_address {
        SocketAddr::V4(_) if local_address.ip().is_unspecified() => {
            local_address.set_ip(Ipv4Addr::LOCALHOST.into())
        }
        SocketAddr::V6(_) if local_address.ip().is_unspecified() => {
            local_address.set_ip(Ipv6Addr::LOCALHOST.into())
        }
        SocketAddr::V4(_) | SocketAddr::V6(_) => {}
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

/// Returns the secrets to redact in the log, each with the name of its variable.
fn secrets_to_redact(config: &Config) -> Vec<(String, String)> {
    let mut names = config.secret_names();
    let key_names = BUILT_IN_PROVIDERS.iter().flat_map(|provider| provider.key_env);
    names.extend(key_names.map(|name| (*name).to_owned()));
    for (path, setting) in config.settings_below("providers") {
        if path.ends_with("key_env") {
            names.extend(setting.value.to_text_list());
        }
    }
    let variables = names.iter().flat_map(|name| {
        let values = config.env.values_to_redact(name).into_iter();
        values.map(move |value| (name.clone(), value.to_owned()))
    });
    // A header may hold a key too.
    let headers = config.settings_below("providers").filter_map(|(path, setting)| {
        let SettingValue::Secret(value) = &setting.value else {
            return None;
        };
        Some((path.to_owned(), value.reveal().to_owned()))
    });
    variables.chain(headers).collect()
}

/// Loads the configuration and sets up the log.
fn load_config_and_init_log(
    args: &ServeArgs,
    process_env: ProcessEnv,
    mode: ServeMode,
) -> anyhow::Result<Config> {
    let style = args.log.unwrap_or_else(LogStyle::for_stderr);
    let load = || {
        let process_env = match mode {
            ServeMode::Dev => environment::add_dotenv_variables(process_env)?,
            ServeMode::Serve => process_env,
        };
        let mut config = environment::load_config_quietly(&process_env)?;
        if let Some(listen) = &args.listen {
            let setting = Setting {
                value: SettingValue::Text(listen.clone()),
                origin: SettingOrigin::Flag("--listen".to_owned()),
            };
            config.settings.insert("server.listen".to_owned(), setting);
        }
        let log_secrets = secrets_to_redact(&config);
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
    let Some(item) = egress::server_trust_item(config) else {
        return Ok(());
    };
    TrustDecisions::new(config).check_trusted(&item).map_err(|reason| {
        CliError::usage_error(format!(
            "{reason} With these settings the server {}.",
            item.lines.join("; ")
        ))
        .with_exit_code(Exit::NotAllowed)
        .with_hint("review it and decide", "longhaul trust")
        .into()
    })
}

fn bind_listener(config: &Config, mode: ServeMode) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let listen_address = config.server_settings().listen;
    let result = TcpListener::bind(&listen_address).and_then(|listener| {
        let address = listener.local_addr()?;
        Ok((listener, address))
    });
    result.map_err(|error| {
        let command = mode.command();
        let failure = CliError::usage_error(format!("can't listen on {listen_address}: {error}"))
            .with_hint("use any free port", format!("longhaul {command} --listen 127.0.0.1:0"));
        match error.kind() == std::io::ErrorKind::AddrInUse {
            true => server_already_running_error(config)
                .unwrap_or(failure)
                .with_exit_code(Exit::Busy)
                .into(),
            false => failure.into(),
        }
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
