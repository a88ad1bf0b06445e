//! A server and a driver in one process, from the first line to the last.
//!
//! Never: a server without its driver, or one that goes on when the other broke.

mod banner;
mod lifecycle;
mod reload;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Arc;

use clap::Args;
use longhaul::assemble::{
    OpenOptions, ProjectRuntime, open, server_options, store_file, worker_options,
};
use longhaul::config::built_in_providers::BUILT_IN_PROVIDERS;
use longhaul::config::process_env::ProcessEnv;
use longhaul::config::secrets;
use longhaul::config::settings::Config;
use longhaul::config::value::{Origin, Setting, Value};
use longhaul::server_marker::{MarkerGuard, ServerMarker};
use longhaul::trust::decisions::Decisions;
use longhaul::trust::egress;
use longhaul::{local_key, server_marker};
use longhaul_core::port::auth::KeyRef;
use longhaul_core::port::store::StoreError;
use longhaul_engine::secret::{KEY_PREFIX, Secret};
use longhaul_engine::shutdown::Shutdown;
use longhaul_engine::worker::Worker;
use longhaul_server::App;
use longhaul_store::OpenMode;
use tokio::sync::oneshot;

use crate::error::{self, CliError};
use crate::exit::Exit;
use crate::interrupts::Interrupts;
use crate::log::{self, LogStyle};
use crate::parent_watch::parent_gone;
use crate::server::banner::print_banner;
use crate::server::lifecycle::LifecycleLog;
use crate::server::reload::{FileSnapshot, Reloader};
use crate::store_access::open_options;
use crate::trust::confirm;
use crate::{environment, runtime};

/// How a server is started.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Where to listen, in the place of what is set; port 0 takes any that is free
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// How the log looks; unless it is said, for people on a terminal and JSON elsewhere
    #[arg(long, value_enum)]
    log: Option<LogStyle>,
    /// Stop when stdin is closed: for programs that start a server and may die
    #[arg(long, hide = true)]
    until_eof: bool,
}

/// How a project is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServeMode {
    /// For production.
    Serve,
    /// For writing agents: definitions are read again when they change, the person at the terminal
    /// is asked what is to be trusted, and variables of the project's `.env` count as well.
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

/// A server about to run.
#[derive(Debug)]
pub(crate) struct ServeSession {
    // It goes before the store is let go of: whoever takes that leaves another.
    _marker: MarkerGuard,
    runtime: ProjectRuntime,
    listener: TcpListener,
    address: SocketAddr,
    local_key: Secret,
    /// How the agents' files stood before they were read.
    agent_files: FileSnapshot,
    mode: ServeMode,
    until_eof: bool,
    /// Somebody at a terminal reads along.
    is_interactive: bool,
}

impl ServeSession {
    /// Takes the address, the store and the key, in this order: whoever can't
    /// have one has changed nothing.
    pub(crate) fn open(
        args: &ServeArgs,
        here: ProcessEnv,
        mode: ServeMode,
    ) -> anyhow::Result<Self> {
        let config = load_settings(args, here, mode)?;
        let is_seen =
            LogStyle::from_terminal() == LogStyle::Human && args.log != Some(LogStyle::Json);
        let nobody = mode == ServeMode::Serve || !is_seen;
        let shut =
            confirm::ask_before_run((&config, &environment::load_agents(&config)?), None, nobody)?;
        check_trust(&config)?;
        for shut in shut {
            tracing::warn!("{shut}");
        }
        raise_file_limit();
        let (listener, address) = bind(&config, mode)?;
        let url = local_url(address);
        let opening = OpenOptions {
            holder: format!("longhaul {} at {url}", mode.command()),
            ..open_options(OpenMode::Driver)
        };
        let agents = FileSnapshot::take(&config, &[]);
        let house = open(config, opening)?;
        let fresh = house.longhaul.generate_secret(KEY_PREFIX)?;
        let at = local_key::path(&house.config);
        let local_key = local_key::load_or_create(&at, &fresh)
            .map_err(|error| error::from_local_key_error(&error, &at))?;
        let store = store_file(&house.config)?;
        let pid = std::process::id();
        let marker = MarkerGuard::create(ServerMarker { url, pid, store })
            .map_err(|error| CliError::usage(format!("no marker can be left: {error}")))?;
        Ok(Self {
            runtime: house,
            listener,
            address,
            local_key,
            agent_files: agents,
            mode,
            until_eof: args.until_eof,
            is_interactive: is_seen,
            _marker: marker,
        })
    }

    /// Serves and drives until it is told to stop.
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        runtime::multi_thread()?.block_on(self.serve())
    }

    async fn serve(self) -> anyhow::Result<Exit> {
        let mut interrupts = Interrupts::listen()?;
        let worker = self.build_worker()?;
        let options = server_options(&self.runtime.config, self.local_key.clone());
        let app = App::new(self.runtime.longhaul.clone(), options, self.address);
        self.listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(self.listener.try_clone()?)?;
        let stop = Shutdown::new();
        let (close, closed) = oneshot::channel::<()>();
        let mut server = std::pin::pin!(longhaul_server::serve(listener, app.clone(), async {
            _ = closed.await;
        }));
        let mut worked = std::pin::pin!(worker.run(stop.clone()));
        let mut reload = std::pin::pin!(self.reload());
        let mut parent = std::pin::pin!(parent_gone(self.until_eof));
        self.announce().await?;
        loop {
            tokio::select! {
                biased;
                done = worked.as_mut() => {
                    if !stop.is_draining() {
                        tracing::error!("the driver ended by itself");
                    }
                    // The last answers leave, then the doors close.
                    drop(close);
                    let served = server.as_mut().await;
                    self.runtime.mcp_tools.close().await;
                    done?;
                    served?;
                    tracing::info!("stopped");
                    return Ok(if stop.is_draining() { Exit::Done } else { Exit::Busy });
                }
                broke = server.as_mut() => {
                    stop.drain();
                    let done = worked.as_mut().await;
                    self.runtime.mcp_tools.close().await;
                    done?;
                    broke?;
                    return Ok(Exit::Busy);
                }
                () = reload.as_mut() => {}
                () = interrupts.next() => request_stop(&stop, &app),
                () = parent.as_mut(), if !stop.is_draining() => request_stop(&stop, &app),
            }
        }
    }

    fn build_worker(&self) -> anyhow::Result<Worker> {
        let options = worker_options(&self.runtime.config).map_err(|bad| {
            CliError::usage(format!("[worker] inboxes: {bad}"))
                .hint("see where it is set", "longhaul config show --origin")
        })?;
        let worker = Worker::new(self.runtime.longhaul.services(), options);
        Ok(worker.with_hooks(Arc::new(LifecycleLog)))
    }

    async fn reload(&self) {
        match self.mode {
            ServeMode::Dev => Reloader::new(&self.runtime, self.agent_files.clone()).run().await,
            ServeMode::Serve => std::future::pending().await,
        }
    }

    /// Says where it is, and what to know about that.
    async fn announce(&self) -> anyhow::Result<()> {
        let url = local_url(self.address);
        // The link in it opens the pages, so it is for eyes and not for a file.
        if self.is_interactive {
            let ticket =
                self.runtime.longhaul.create_ticket(KeyRef::Local, self.local_key.hash()).await?;
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

/// Where it is reached from this machine.
pub(crate) fn local_url(address: SocketAddr) -> String {
    let mut near = address;
    match near {
        SocketAddr::V4(_) if near.ip().is_unspecified() => near.set_ip(Ipv4Addr::LOCALHOST.into()),
        SocketAddr::V6(_) if near.ip().is_unspecified() => near.set_ip(Ipv6Addr::LOCALHOST.into()),
        SocketAddr::V4(_) | SocketAddr::V6(_) => {}
    }
    format!("http://{near}")
}

fn request_stop(stop: &Shutdown, app: &App) {
    match stop.is_draining() {
        false => {
            tracing::info!("stopping: runs are let go of at their next fact");
            app.stop();
            stop.drain();
        }
        true => stop.abort(),
    }
}

/// The secrets that are known by their variables' names, and are not to be logged.
fn secrets_to_redact(config: &Config) -> Vec<(String, String)> {
    let mut names = config.secret_names();
    let known = BUILT_IN_PROVIDERS.iter().flat_map(|known| known.key_env);
    names.extend(known.map(|name| (*name).to_owned()));
    for (path, setting) in config.settings_below("providers") {
        if path.ends_with("key_env") {
            names.extend(setting.value.texts());
        }
    }
    let found = names.iter().flat_map(|name| {
        let values = config.env.secret_values(name).into_iter();
        values.map(move |value| (name.clone(), value.to_owned()))
    });
    // A header may hold a key too.
    let headers = config.settings_below("providers").filter_map(|(path, setting)| {
        let Value::Secret(value) = &setting.value else {
            return None;
        };
        Some((path.to_owned(), value.reveal().to_owned()))
    });
    found.chain(headers).collect()
}

/// What is set, and a log from here on.
fn load_settings(args: &ServeArgs, here: ProcessEnv, mode: ServeMode) -> anyhow::Result<Config> {
    let style = args.log.unwrap_or_else(LogStyle::from_terminal);
    let read = || {
        let here = match mode {
            ServeMode::Dev => environment::with_dotenv(here)?,
            ServeMode::Serve => here,
        };
        let mut config = environment::load_config_quietly(&here)?;
        if let Some(listen) = &args.listen {
            let setting = Setting {
                value: Value::Text(listen.clone()),
                origin: Origin::Flag("--listen".to_owned()),
            };
            config.settings.insert("server.listen".to_owned(), setting);
        }
        let hidden = secrets_to_redact(&config);
        anyhow::Ok((config, hidden))
    };
    match read() {
        Ok((config, hidden)) => {
            log::init_full(style, hidden);
            for note in config.notes.iter().chain(&secrets::notes(&config)) {
                tracing::warn!("{note}");
            }
            Ok(config)
        }
        Err(error) => {
            log::init_full(style, Vec::new());
            Err(error)
        }
    }
}

/// Fails if the project's own file opens the server wider than usual and nobody trusts that.
fn check_trust(config: &Config) -> anyhow::Result<()> {
    let Some(item) = egress::server_item(config) else {
        return Ok(());
    };
    Decisions::new(config).check(&item).map_err(|why| {
        CliError::usage(format!("{why} It {}.", item.lines.join("; ")))
            .with_exit(Exit::NotAllowed)
            .hint("look at it and decide", "longhaul trust")
            .into()
    })
}

fn bind(config: &Config, mode: ServeMode) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let at = config.server_settings().listen;
    let bound = TcpListener::bind(&at).and_then(|listener| {
        let address = listener.local_addr()?;
        Ok((listener, address))
    });
    bound.map_err(|error| {
        let command = mode.command();
        let failure = CliError::usage(format!("nothing can listen at {at}: {error}"))
            .hint("take any free port", format!("longhaul {command} --listen 127.0.0.1:0"));
        match error.kind() == std::io::ErrorKind::AddrInUse {
            true => running_server_error(config).unwrap_or(failure).with_exit(Exit::Busy).into(),
            false => failure.into(),
        }
    })
}

/// Whoever starts a second server of one store needs no other port: the first
/// one is what is in the way.
fn running_server_error(config: &Config) -> Option<CliError> {
    let store = store_file(config).ok()?;
    let ServerMarker { url, pid, .. } = server_marker::load(&store)?;
    let holds = longhaul_store::is_driven(&store).unwrap_or(false);
    holds.then(|| {
        error::from_store_error(&StoreError::AlreadyDriven {
            at: store.display().to_string(),
            holder: format!("pid {pid}, a server at {url}"),
        })
    })
}

/// Each connection is an open file: as many as the system lets this user have.
pub(crate) fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let most = Rlimit { current: now.maximum, maximum: now.maximum };
    // Where it is not allowed the old bound holds, and a full house is told so.
    _ = setrlimit(Resource::Nofile, most);
}
