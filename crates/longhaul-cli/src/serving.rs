//! A server and a driver in one process, from the first line to the last.
//!
//! Never: a server without its driver, or one that goes on when the other broke.

mod banner;
mod lifecycle;
mod reload;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Arc;

use clap::Args;
use longhaul::assemble::{House, Opening, open, server_options, store_file, worker_options};
use longhaul::config::known::KNOWN;
use longhaul::config::secrets;
use longhaul::config::settings::Config;
use longhaul::config::surroundings::Surroundings;
use longhaul::config::value::{Origin, Setting, Value};
use longhaul::marker::{Marker, Standing};
use longhaul::trust::decisions::Decisions;
use longhaul::trust::sends;
use longhaul::{local_key, marker};
use longhaul_core::port::keyring::Holder;
use longhaul_core::port::store::StoreError;
use longhaul_engine::secret::{KEY_PREFIX, Secret};
use longhaul_engine::stop::Stop;
use longhaul_engine::worker::Worker;
use longhaul_server::App;
use longhaul_store::Role;
use tokio::sync::oneshot;

use crate::eof::parent_gone;
use crate::error::{self, CliError};
use crate::exit::Exit;
use crate::interrupts::Interrupts;
use crate::log::{self, Style};
use crate::open::opening;
use crate::serving::banner::banner;
use crate::serving::lifecycle::Lifecycle;
use crate::serving::reload::{Reload, Seen};
use crate::trust::asking;
use crate::{here, runtime};

/// How a server is started.
#[derive(Debug, Args)]
pub(crate) struct ServingArgs {
    /// Where to listen, in the place of what is set; port 0 takes any that is free
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// How the log looks; unless it is said, for people on a terminal and JSON elsewhere
    #[arg(long, value_enum)]
    log: Option<Style>,
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
pub(crate) struct Serving {
    // It goes before the store is let go of: whoever takes that leaves another.
    _marker: Standing,
    house: House,
    listener: TcpListener,
    address: SocketAddr,
    local_key: Secret,
    /// How the agents' files stood before they were read.
    agents: Seen,
    mode: ServeMode,
    until_eof: bool,
    /// Somebody at a terminal reads along.
    is_seen: bool,
}

impl Serving {
    /// Takes the address, the store and the key, in this order: whoever can't
    /// have one has changed nothing.
    pub(crate) fn open(
        args: &ServingArgs,
        here: Surroundings,
        mode: ServeMode,
    ) -> anyhow::Result<Self> {
        let config = settings(args, here, mode)?;
        let is_seen = Style::by_terminal() == Style::Human && args.log != Some(Style::Json);
        let nobody = mode == ServeMode::Serve || !is_seen;
        let shut = asking::before((&config, &here::agents(&config)?), None, nobody)?;
        refuse_untrusted(&config)?;
        for shut in shut {
            tracing::warn!("{shut}");
        }
        more_files();
        let (listener, address) = listen(&config, mode)?;
        let url = url(address);
        let opening = Opening {
            holder: format!("longhaul {} at {url}", mode.command()),
            ..opening(Role::Driver)
        };
        let agents = Seen::now(&config, &[]);
        let house = open(config, opening)?;
        let fresh = house.longhaul.secret(KEY_PREFIX)?;
        let at = local_key::path(&house.config);
        let local_key =
            local_key::read_or_make(&at, &fresh).map_err(|error| error::local_key(&error, &at))?;
        let store = store_file(&house.config)?;
        let pid = std::process::id();
        let marker = Standing::leave(Marker { url, pid, store })
            .map_err(|error| CliError::usage(format!("no marker can be left: {error}")))?;
        Ok(Self {
            house,
            listener,
            address,
            local_key,
            agents,
            mode,
            until_eof: args.until_eof,
            is_seen,
            _marker: marker,
        })
    }

    /// Serves and drives until it is told to stop.
    pub(crate) fn run(self) -> anyhow::Result<Exit> {
        runtime::driving()?.block_on(self.serve())
    }

    async fn serve(self) -> anyhow::Result<Exit> {
        let mut interrupts = Interrupts::listen()?;
        let worker = self.worker()?;
        let options = server_options(&self.house.config, self.local_key.clone());
        let app = App::new(self.house.longhaul.clone(), options, self.address);
        self.listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(self.listener.try_clone()?)?;
        let stop = Stop::new();
        let (close, closed) = oneshot::channel::<()>();
        let mut server = std::pin::pin!(longhaul_server::serve(listener, app.clone(), async {
            _ = closed.await;
        }));
        let mut worked = std::pin::pin!(worker.run(stop.clone()));
        let mut reload = std::pin::pin!(self.reload());
        let mut parent = std::pin::pin!(parent_gone(self.until_eof));
        self.greet().await?;
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
                    self.house.served.close().await;
                    done?;
                    served?;
                    tracing::info!("stopped");
                    return Ok(if stop.is_draining() { Exit::Done } else { Exit::Busy });
                }
                broke = server.as_mut() => {
                    stop.drain();
                    let done = worked.as_mut().await;
                    self.house.served.close().await;
                    done?;
                    broke?;
                    return Ok(Exit::Busy);
                }
                () = reload.as_mut() => {}
                () = interrupts.next() => tell_to_stop(&stop, &app),
                () = parent.as_mut(), if !stop.is_draining() => tell_to_stop(&stop, &app),
            }
        }
    }

    fn worker(&self) -> anyhow::Result<Worker> {
        let options = worker_options(&self.house.config).map_err(|bad| {
            CliError::usage(format!("[worker] inboxes: {bad}"))
                .hint("see where it is set", "longhaul config show --origin")
        })?;
        let worker = Worker::new(self.house.longhaul.ports(), options);
        Ok(worker.hooks(Arc::new(Lifecycle)))
    }

    async fn reload(&self) {
        match self.mode {
            ServeMode::Dev => Reload::new(&self.house, self.agents.clone()).run().await,
            ServeMode::Serve => std::future::pending().await,
        }
    }

    /// Says where it is, and what to know about that.
    async fn greet(&self) -> anyhow::Result<()> {
        let url = url(self.address);
        // The link in it opens the pages, so it is for eyes and not for a file.
        if self.is_seen {
            let ticket = self
                .house
                .longhaul
                .give_ticket(Holder::Local, self.local_key.hash())
                .await?;
            banner(&self.house, &url, &ticket);
        }
        for problem in &self.house.loaded.problems {
            tracing::warn!("{problem}");
        }
        if !self.address.ip().is_loopback() {
            tracing::warn!(
                "other machines can reach this server without TLS: put a proxy with TLS in front of it, and its name into `[server] hosts`"
            );
        }
        if self.house.config.server().open_loopback {
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
pub(crate) fn url(address: SocketAddr) -> String {
    let mut near = address;
    match near {
        SocketAddr::V4(_) if near.ip().is_unspecified() => near.set_ip(Ipv4Addr::LOCALHOST.into()),
        SocketAddr::V6(_) if near.ip().is_unspecified() => near.set_ip(Ipv6Addr::LOCALHOST.into()),
        SocketAddr::V4(_) | SocketAddr::V6(_) => {}
    }
    format!("http://{near}")
}

fn tell_to_stop(stop: &Stop, app: &App) {
    match stop.is_draining() {
        false => {
            tracing::info!("stopping: runs are let go of at their next fact");
            app.stop();
            stop.drain();
        }
        true => stop.cut(),
    }
}

/// The secrets that are known by their variables' names, and are not to be logged.
fn hidden(config: &Config) -> Vec<(String, String)> {
    let mut names = config.secrets();
    let known = KNOWN.iter().flat_map(|known| known.key_env);
    names.extend(known.map(|name| (*name).to_owned()));
    for (path, setting) in config.below("providers") {
        if path.ends_with("key_env") {
            names.extend(setting.value.words());
        }
    }
    let found = names.iter().flat_map(|name| {
        let values = config.env.secrets(name).into_iter();
        values.map(move |value| (name.clone(), value.to_owned()))
    });
    // A header may hold a key too.
    let headers = config.below("providers").filter_map(|(path, setting)| {
        let Value::Hidden(value) = &setting.value else {
            return None;
        };
        Some((path.to_owned(), value.reveal().to_owned()))
    });
    found.chain(headers).collect()
}

/// What is set, and a log from here on.
fn settings(args: &ServingArgs, here: Surroundings, mode: ServeMode) -> anyhow::Result<Config> {
    let style = args.log.unwrap_or_else(Style::by_terminal);
    let read = || {
        let here = match mode {
            ServeMode::Dev => here::with_env_file(here)?,
            ServeMode::Serve => here,
        };
        let mut config = here::quiet_config(&here)?;
        if let Some(listen) = &args.listen {
            let setting = Setting {
                value: Value::Text(listen.clone()),
                origin: Origin::Flag("--listen".to_owned()),
            };
            config.settings.insert("server.listen".to_owned(), setting);
        }
        let hidden = hidden(&config);
        anyhow::Ok((config, hidden))
    };
    match read() {
        Ok((config, hidden)) => {
            log::everything(style, hidden);
            for note in config.notes.iter().chain(&secrets::notes(&config)) {
                tracing::warn!("{note}");
            }
            Ok(config)
        }
        Err(error) => {
            log::everything(style, Vec::new());
            Err(error)
        }
    }
}

/// Fails if the project's own file opens the server wider than usual and nobody trusts that.
fn refuse_untrusted(config: &Config) -> anyhow::Result<()> {
    let Some(item) = sends::server(config) else {
        return Ok(());
    };
    Decisions::new(config).check(&item).map_err(|why| {
        CliError::usage(format!("{why} It {}.", item.shown.join("; ")))
            .exit(Exit::NotAllowed)
            .hint("look at it and decide", "longhaul trust")
            .into()
    })
}

fn listen(config: &Config, mode: ServeMode) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let at = config.server().listen;
    let bound = TcpListener::bind(&at).and_then(|listener| {
        let address = listener.local_addr()?;
        Ok((listener, address))
    });
    bound.map_err(|error| {
        let command = mode.command();
        let failure = CliError::usage(format!("nothing can listen at {at}: {error}")).hint(
            "take any free port",
            format!("longhaul {command} --listen 127.0.0.1:0"),
        );
        match error.kind() == std::io::ErrorKind::AddrInUse {
            true => first_one(config).unwrap_or(failure).exit(Exit::Busy).into(),
            false => failure.into(),
        }
    })
}

/// Whoever starts a second server of one store needs no other port: the first
/// one is what is in the way.
fn first_one(config: &Config) -> Option<CliError> {
    let store = store_file(config).ok()?;
    let Marker { url, pid, .. } = marker::read(&store)?;
    let holds = longhaul_store::is_taken(&store).unwrap_or(false);
    holds.then(|| {
        error::store(&StoreError::Driven {
            at: store.display().to_string(),
            holder: format!("pid {pid}, a server at {url}"),
        })
    })
}

/// Each connection is an open file: as many as the system lets this user have.
pub(crate) fn more_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: now.maximum,
        maximum: now.maximum,
    };
    // Where it is not allowed the old bound holds, and a full house is told so.
    _ = setrlimit(Resource::Nofile, most);
}
