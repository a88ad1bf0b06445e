//! Tools of others: servers of the Model Context Protocol, over pipes or HTTP.
//!
//! A server is started when it is first needed, once in a worker, and shared by
//! all its runs; one that is `per_run` is started for each run and closed with it.
//! Over pipes it runs beside us, not in a sandbox: it sees no more of our
//! environment than `PATH` and what its spec says.
//!
//! Never: believes a server. Its words are bounded, its schemas are judged, and
//! what it breaks is its own tools and nobody else's.

mod auth;
mod client_handler;
mod connection;
mod error;
mod exit;
mod guard;
mod handshake;
mod http;
mod http_auth;
mod lines;
mod listing;
mod observe;
mod output;
mod output_check;
mod reconnect;
mod request_error;
mod schema_check;
mod spec;
mod stdio;
mod tls;
mod tool;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::join_all;
use longhaul_core::port::tool::{ClaimId, Tool};
use longhaul_core::time::{Clock, Millis};
use reqwest::Url;
use tokio::time::timeout;

use crate::auth::login_flow::{self, LoginTarget};
use crate::auth::rejection::login_command;
use crate::auth::token_provider::TokenProvider;
use crate::connection::Connection;
use crate::handshake::{HandshakeMode, KnownMode};
use crate::http_auth::LOGIN_TIMEOUT_MAX;
use crate::reconnect::ReconnectingServer;
use crate::request_error::AuthNeed;
use crate::tool::McpTool;

pub use crate::auth::callback_server::CallbackServer;
pub use crate::auth::config::LoginContext;
pub use crate::auth::credential_file::CredentialFileError;
pub use crate::auth::error::LoginError;
pub use crate::auth::login_flow::{LoginRequest, PendingLogin};
pub use crate::auth::redaction::{partial_token_len, redact_tokens};
pub use crate::auth::revoke::LogoutOutcome;
pub use crate::auth::token_provider::LoginStatus;
pub use crate::error::McpError;
pub use crate::listing::ListedTool;
pub use crate::spec::{ServerSpec, ServerTransport};
pub use longhaul_core::oauth::OAuthConfig;

/// What a look at a server found.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerCheck {
    /// How it calls itself.
    pub name: String,
    /// How it wants to be called where people read it.
    pub title: Option<String>,
    /// Its version, as it says.
    pub version: String,
    /// The revision of the protocol that was agreed on.
    pub protocol: String,
    /// What it has.
    pub tools: Vec<ListedTool>,
    /// What was left out or cut, and why.
    pub notes: Vec<String>,
    /// How long the look took.
    pub duration: Millis,
}

/// The servers that a project names. Clones share them.
#[derive(Clone)]
pub struct Servers(Arc<ServersInner>);

struct ServersInner {
    servers: BTreeMap<String, Server>,
    clock: Arc<dyn Clock>,
}

/// A server, with what is open of it.
struct Server {
    spec: Arc<ServerSpec>,
    shared: Arc<ReconnectingServer>,
    /// What all that is open of it know of its manner.
    known_mode: KnownMode,
    runs: Mutex<BTreeMap<ClaimId, Arc<ReconnectingServer>>>,
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Servers").field(&self.names()).finish()
    }
}

impl Server {
    fn with_runs<T>(
        &self,
        use_it: impl FnOnce(&mut BTreeMap<ClaimId, Arc<ReconnectingServer>>) -> T,
    ) -> T {
        use_it(&mut self.runs.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Where this run finds it.
    fn for_run(&self, stay: ClaimId, clock: &Arc<dyn Clock>) -> Arc<ReconnectingServer> {
        if !self.spec.per_run {
            return Arc::clone(&self.shared);
        }
        let new = || {
            let known = self.known_mode.clone();
            Arc::new(ReconnectingServer::new(Arc::clone(&self.spec), known, Arc::clone(clock)))
        };
        self.with_runs(|runs| Arc::clone(runs.entry(stay).or_insert_with(new)))
    }
}

impl Servers {
    /// Servers by their specs; of two of one name the last counts. None is started.
    pub fn new(specs: Vec<ServerSpec>, clock: Arc<dyn Clock>) -> Self {
        let servers = specs.into_iter().map(|spec| {
            let spec = Arc::new(spec);
            let known = KnownMode::default();
            let slot =
                ReconnectingServer::new(Arc::clone(&spec), known.clone(), Arc::clone(&clock));
            let server = Server {
                shared: Arc::new(slot),
                spec: Arc::clone(&spec),
                known_mode: known,
                runs: Mutex::default(),
            };
            (spec.name.clone(), server)
        });
        let servers = servers.collect();
        Self(Arc::new(ServersInner { servers, clock }))
    }

    /// Their names, sorted.
    pub fn names(&self) -> Vec<String> {
        self.0.servers.keys().cloned().collect()
    }

    /// The tools of a server, or the one named. It is started and asked where that
    /// has not been done.
    pub async fn tools(
        &self,
        server: &str,
        tool: Option<&str>,
        stay: ClaimId,
    ) -> Result<Vec<Arc<dyn Tool>>, McpError> {
        let slot = self.find_server(server)?.for_run(stay, &self.0.clock);
        if let Some(why) = self.login_problem(server).await {
            return Err(McpError::LoginRequired {
                server: server.to_owned(),
                reason: why,
                is_transient: false,
            });
        }
        let listing = slot.listing().await?;
        let made = |offered: &ListedTool| -> Arc<dyn Tool> {
            Arc::new(McpTool::new(offered.clone(), Arc::clone(&slot)))
        };
        let Some(wanted) = tool else {
            return Ok(listing.tools.iter().map(made).collect());
        };
        let name = spec::tool_name(server, wanted);
        let found = listing.tools.iter().find(|offered| {
            let its = offered.spec.name.as_str();
            its == name
        });
        match found {
            Some(offered) => Ok(vec![made(offered)]),
            None => Err(McpError::tool_not_found(server, wanted, &listing)),
        }
    }

    /// What has to be done about a login that has ended. Where a connection is open and
    /// the list is known, nobody else would say so before a call is lost to it.
    async fn login_problem(&self, server: &str) -> Option<String> {
        let keeper = self.token_provider(server).ok()?;
        // Nothing is asked yet, so nothing can be in doubt. Whoever needs the token waits for
        // it again.
        match timeout(LOGIN_TIMEOUT_MAX, keeper.access_token(None)).await.ok()? {
            Ok(pass) => {
                let over = pass.missing_reason?;
                Some(format!("{over}; run `{}`", login_command(server)))
            }
            Err(error) => {
                (error.auth_need == AuthNeed::Login { is_transient: false }).then_some(error.reason)
            }
        }
    }

    /// Starts a server, asks who it is, lists what it has, and closes it again
    /// where nobody else uses it.
    pub async fn check(&self, server: &str) -> Result<ServerCheck, McpError> {
        let known = self.find_server(server)?;
        let begun = self.0.clock.monotonic_nanos();
        let (link, alone) = match known.shared.current() {
            Some(link) => (link, false),
            None => (Arc::new(connect_with_fallback(&known.spec, &known.known_mode).await?), true),
        };
        let listing = link.listing().await;
        let who = link.server_info().clone();
        if alone {
            link.close().await;
        }
        let listing = listing.map_err(|lost| link.to_mcp_error(&lost))?;
        let took = self.0.clock.monotonic_nanos().saturating_sub(begun) / 1_000_000;
        Ok(ServerCheck {
            name: who.name,
            title: who.title,
            version: who.version,
            protocol: who.protocol,
            tools: listing.tools.clone(),
            notes: listing.notes.clone(),
            duration: Millis(took),
        })
    }

    /// Whether a server wants a login of whoever has none. What it says then is kept
    /// in mind for the login.
    pub async fn requires_login(&self, server: &str) -> Result<bool, McpError> {
        let Server { spec, known_mode: known, .. } = self.find_server(server)?;
        let stranger =
            ServerSpec { transport: spec.transport.as_anonymous(), ..ServerSpec::clone(spec) };
        let asked = async {
            let link = connect_with_fallback(&stranger, known).await?;
            let listing = link.listing().await;
            link.close().await;
            listing.map_err(|lost| link.to_mcp_error(&lost))
        };
        match asked.await {
            Ok(_) => Ok(false),
            Err(McpError::LoginRequired { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Whether a server says how one logs in there, though strangers may be let in.
    pub async fn advertises_login(&self, server: &str) -> Result<bool, LoginError> {
        let (url, login) = self.login_target(server)?;
        let (url, login) = (&url, &login);
        login_flow::is_advertised(LoginTarget { server, url, login }).await
    }

    /// Begins a login at a server: whoever has a browser opens its address.
    pub async fn login(
        &self,
        server: &str,
        visit: &LoginRequest,
    ) -> Result<PendingLogin, LoginError> {
        let (url, login) = self.login_target(server)?;
        let (url, login) = (&url, &login);
        login_flow::start(LoginTarget { server, url, login }, visit).await
    }

    /// How the login at a server stands; none: nobody has logged in.
    pub fn login_status(&self, server: &str) -> Result<Option<LoginStatus>, LoginError> {
        Ok(self.token_provider(server)?.status()?)
    }

    /// Forgets the login at a server, and has it taken back there if it may be asked;
    /// says what became of it.
    pub async fn logout(&self, server: &str, may_ask: bool) -> Result<LogoutOutcome, LoginError> {
        Ok(self.token_provider(server)?.log_out(may_ask).await?)
    }

    fn token_provider(&self, server: &str) -> Result<TokenProvider, LoginError> {
        let (url, login) = self.login_target(server)?;
        Ok(TokenProvider::new(server, &url, &login))
    }

    /// Where one logs in at a server.
    fn login_target(&self, server: &str) -> Result<(Url, LoginContext), LoginError> {
        let spec = &self.find_server(server)?.spec;
        let none = |why: &str| LoginError::Unsupported {
            server: server.to_owned(),
            reason: why.to_owned(),
        };
        let ServerTransport::Http { url, .. } = &spec.transport else {
            return Err(none("it is started here, and reads its keys from `env`"));
        };
        let Some(login) = spec.transport.login() else {
            return Err(none(
                "it is sent the Authorization header of .mcp.json, or there is no place to keep one",
            ));
        };
        let url = url.parse().map_err(|_| none("its address is no URL"))?;
        Ok((url, login.clone()))
    }

    /// A run has let go of everything: what was started for it alone is closed.
    pub async fn release(&self, stay: ClaimId) {
        let servers = self.0.servers.values();
        let mine = servers.filter_map(|server| server.with_runs(|runs| runs.remove(&stay)));
        let mine: Vec<Arc<ReconnectingServer>> = mine.collect();
        join_all(mine.iter().map(|slot| slot.close())).await;
    }

    /// Closes all of them, for good. What they leave behind wants to be settled.
    pub async fn close(&self) {
        let mut all = Vec::new();
        for server in self.0.servers.values() {
            all.push(Arc::clone(&server.shared));
            all.extend(server.with_runs(std::mem::take).into_values());
        }
        join_all(all.iter().map(|slot| slot.close())).await;
    }

    /// Waits for renewals of logins that are under way, but not for long: the answer may
    /// be the only one that holds the next token. A close may begin one.
    pub async fn finish_refreshes(&self) {
        let servers = self.0.servers.values();
        let logins = servers.filter_map(|server| server.spec.transport.login());
        join_all(logins.map(LoginContext::finish_refresh)).await;
    }

    fn find_server(&self, server: &str) -> Result<&Server, McpError> {
        let found = self.0.servers.get(server);
        found.ok_or_else(|| McpError::server_not_found(server, &self.names()))
    }
}

/// A server that is looked at has no second chance but one: in the older manner.
async fn connect_with_fallback(
    spec: &ServerSpec,
    known: &KnownMode,
) -> Result<Connection, McpError> {
    let manner = known.get().unwrap_or(HandshakeMode::Auto);
    let started = match Connection::start(spec, manner).await {
        Err(error) if error.may_be_handshake_mode() => {
            let other = match manner {
                HandshakeMode::Auto => HandshakeMode::Legacy,
                HandshakeMode::Legacy => HandshakeMode::Auto,
            };
            Connection::start(spec, other).await.map_err(|_| error)
        }
        started => started,
    };
    known.set(started.as_ref().ok().map(Connection::handshake_mode));
    started
}
