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
mod error;
mod fate;
mod greet;
mod guard;
mod host;
mod http;
mod judge;
mod lines;
mod link;
mod listing;
mod output;
mod promise;
mod request_error;
mod sent;
mod slot;
mod spec;
mod stdio;
mod tap;
mod tls;
mod tool;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::join_all;
use longhaul_core::port::tool::{Stay, Tool};
use longhaul_core::time::{Clock, Millis};
use reqwest::Url;
use tokio::time::timeout;

use crate::auth::flow::{self, At};
use crate::auth::keeper::Keeper;
use crate::auth::refusal::command;
use crate::greet::{Known, Manner};
use crate::link::Link;
use crate::request_error::Wants;
use crate::sent::LOGIN_MAX;
use crate::slot::Slot;
use crate::tool::McpTool;

pub use crate::auth::book::BookError;
pub use crate::auth::door::Door;
pub use crate::auth::error::LoginError;
pub use crate::auth::flow::{Began, Visit};
pub use crate::auth::keeper::Standing;
pub use crate::auth::means::Login;
pub use crate::auth::revoke::Forgotten;
pub use crate::auth::tokens::{unfinished, without_tokens};
pub use crate::error::McpError;
pub use crate::listing::Offered;
pub use crate::spec::{ServerSpec, Way};
pub use longhaul_core::oauth::OAuth;

/// What a look at a server found.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    /// How it calls itself.
    pub name: String,
    /// How it wants to be called where people read it.
    pub title: Option<String>,
    /// Its version, as it says.
    pub version: String,
    /// The revision of the protocol that was agreed on.
    pub protocol: String,
    /// What it has.
    pub tools: Vec<Offered>,
    /// What was left out or cut, and why.
    pub notes: Vec<String>,
    /// How long the look took.
    pub took: Millis,
}

/// The servers that a project names. Clones share them.
#[derive(Clone)]
pub struct Servers(Arc<House>);

struct House {
    servers: BTreeMap<String, Server>,
    clock: Arc<dyn Clock>,
}

/// A server, with what is open of it.
struct Server {
    spec: Arc<ServerSpec>,
    shared: Arc<Slot>,
    /// What all that is open of it know of its manner.
    known: Known,
    runs: Mutex<BTreeMap<Stay, Arc<Slot>>>,
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Servers").field(&self.names()).finish()
    }
}

impl Server {
    fn with<T>(&self, use_it: impl FnOnce(&mut BTreeMap<Stay, Arc<Slot>>) -> T) -> T {
        use_it(&mut self.runs.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Where this run finds it.
    fn slot(&self, stay: Stay, clock: &Arc<dyn Clock>) -> Arc<Slot> {
        if !self.spec.per_run {
            return Arc::clone(&self.shared);
        }
        let new = || {
            let known = self.known.clone();
            Arc::new(Slot::new(Arc::clone(&self.spec), known, Arc::clone(clock)))
        };
        self.with(|runs| Arc::clone(runs.entry(stay).or_insert_with(new)))
    }
}

impl Servers {
    /// Servers by their specs; of two of one name the last counts. None is started.
    pub fn new(specs: Vec<ServerSpec>, clock: Arc<dyn Clock>) -> Self {
        let servers = specs.into_iter().map(|spec| {
            let spec = Arc::new(spec);
            let known = Known::default();
            let slot = Slot::new(Arc::clone(&spec), known.clone(), Arc::clone(&clock));
            let server = Server {
                shared: Arc::new(slot),
                spec: Arc::clone(&spec),
                known,
                runs: Mutex::default(),
            };
            (spec.name.clone(), server)
        });
        let servers = servers.collect();
        Self(Arc::new(House { servers, clock }))
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
        stay: Stay,
    ) -> Result<Vec<Arc<dyn Tool>>, McpError> {
        let slot = self.find(server)?.slot(stay, &self.0.clock);
        if let Some(why) = self.lacks(server).await {
            return Err(McpError::Login {
                server: server.to_owned(),
                why,
                passes: false,
            });
        }
        let listing = slot.listing().await?;
        let made = |offered: &Offered| -> Arc<dyn Tool> {
            Arc::new(McpTool::new(offered.clone(), Arc::clone(&slot)))
        };
        let Some(wanted) = tool else {
            return Ok(listing.tools.iter().map(made).collect());
        };
        let name = spec::tool_name(server, wanted);
        let found = listing.tools.iter().find(|offered| {
            let its = offered.card.name.as_str();
            its == name
        });
        match found {
            Some(offered) => Ok(vec![made(offered)]),
            None => Err(McpError::no_tool(server, wanted, &listing)),
        }
    }

    /// What has to be done about a login that has ended. Where a connection is open and
    /// the list is known, nobody else would say so before a call is lost to it.
    async fn lacks(&self, server: &str) -> Option<String> {
        let keeper = self.keeper(server).ok()?;
        // Nothing is asked yet, so nothing can be in doubt. Whoever needs the token waits for
        // it again.
        match timeout(LOGIN_MAX, keeper.pass(None)).await.ok()? {
            Ok(pass) => {
                let over = pass.over?;
                Some(format!("{over}; run `{}`", command(server)))
            }
            Err(error) => (error.wants == Wants::Login { passes: false }).then_some(error.why),
        }
    }

    /// Starts a server, asks who it is, lists what it has, and closes it again
    /// where nobody else uses it.
    pub async fn check(&self, server: &str) -> Result<Checked, McpError> {
        let known = self.find(server)?;
        let begun = self.0.clock.nanos();
        let (link, alone) = match known.shared.open() {
            Some(link) => (link, false),
            None => (Arc::new(first(&known.spec, &known.known).await?), true),
        };
        let listing = link.listing().await;
        let who = link.who().clone();
        if alone {
            link.close().await;
        }
        let listing = listing.map_err(|lost| link.lost(&lost))?;
        let took = self.0.clock.nanos().saturating_sub(begun) / 1_000_000;
        Ok(Checked {
            name: who.name,
            title: who.title,
            version: who.version,
            protocol: who.protocol,
            tools: listing.tools.clone(),
            notes: listing.notes.clone(),
            took: Millis(took),
        })
    }

    /// Whether a server wants a login of whoever has none. What it says then is kept
    /// in mind for the login.
    pub async fn wants_login(&self, server: &str) -> Result<bool, McpError> {
        let Server { spec, known, .. } = self.find(server)?;
        let stranger = ServerSpec {
            way: spec.way.as_stranger(),
            ..ServerSpec::clone(spec)
        };
        let asked = async {
            let link = first(&stranger, known).await?;
            let listing = link.listing().await;
            link.close().await;
            listing.map_err(|lost| link.lost(&lost))
        };
        match asked.await {
            Ok(_) => Ok(false),
            Err(McpError::Login { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Whether a server says how one logs in there, though strangers may be let in.
    pub async fn publishes_login(&self, server: &str) -> Result<bool, LoginError> {
        let (url, login) = self.desk(server)?;
        let (url, login) = (&url, &login);
        flow::is_published(At { server, url, login }).await
    }

    /// Begins a login at a server: whoever has a browser opens its address.
    pub async fn login(&self, server: &str, visit: &Visit) -> Result<Began, LoginError> {
        let (url, login) = self.desk(server)?;
        let (url, login) = (&url, &login);
        flow::begin(At { server, url, login }, visit).await
    }

    /// How the login at a server stands; none: nobody has logged in.
    pub fn standing(&self, server: &str) -> Result<Option<Standing>, LoginError> {
        Ok(self.keeper(server)?.standing()?)
    }

    /// Forgets the login at a server, and has it taken back there if it may be asked;
    /// says what became of it.
    pub async fn logout(&self, server: &str, may_ask: bool) -> Result<Forgotten, LoginError> {
        Ok(self.keeper(server)?.forget(may_ask).await?)
    }

    fn keeper(&self, server: &str) -> Result<Keeper, LoginError> {
        let (url, login) = self.desk(server)?;
        Ok(Keeper::new(server, &url, &login))
    }

    /// Where one logs in at a server.
    fn desk(&self, server: &str) -> Result<(Url, Login), LoginError> {
        let spec = &self.find(server)?.spec;
        let none = |why: &str| LoginError::None {
            server: server.to_owned(),
            why: why.to_owned(),
        };
        let Way::Http { url, .. } = &spec.way else {
            return Err(none("it is started here, and reads its keys from `env`"));
        };
        let Some(login) = spec.way.login() else {
            return Err(none(
                "it is sent the Authorization header of .mcp.json, or there is no place to keep one",
            ));
        };
        let url = url.parse().map_err(|_| none("its address is no URL"))?;
        Ok((url, login.clone()))
    }

    /// A run has let go of everything: what was started for it alone is closed.
    pub async fn let_go(&self, stay: Stay) {
        let servers = self.0.servers.values();
        let mine = servers.filter_map(|server| server.with(|runs| runs.remove(&stay)));
        let mine: Vec<Arc<Slot>> = mine.collect();
        join_all(mine.iter().map(|slot| slot.close())).await;
    }

    /// Closes all of them, for good. What they leave behind wants to be settled.
    pub async fn close(&self) {
        let mut all = Vec::new();
        for server in self.0.servers.values() {
            all.push(Arc::clone(&server.shared));
            all.extend(server.with(std::mem::take).into_values());
        }
        join_all(all.iter().map(|slot| slot.close())).await;
    }

    /// Waits for renewals of logins that are under way, but not for long: the answer may
    /// be the only one that holds the next token. A close may begin one.
    pub async fn settle(&self) {
        let servers = self.0.servers.values();
        let logins = servers.filter_map(|server| server.spec.way.login());
        join_all(logins.map(Login::settle)).await;
    }

    fn find(&self, server: &str) -> Result<&Server, McpError> {
        let found = self.0.servers.get(server);
        found.ok_or_else(|| McpError::no_server(server, &self.names()))
    }
}

/// A server that is looked at has no second chance but one: in the older manner.
async fn first(spec: &ServerSpec, known: &Known) -> Result<Link, McpError> {
    let manner = known.manner().unwrap_or(Manner::Either);
    let started = match Link::start(spec, manner).await {
        Err(error) if error.may_be_manner() => {
            let other = match manner {
                Manner::Either => Manner::Older,
                Manner::Older => Manner::Either,
            };
            Link::start(spec, other).await.map_err(|_| error)
        }
        started => started,
    };
    known.learn(started.as_ref().ok().map(Link::manner));
    started
}
