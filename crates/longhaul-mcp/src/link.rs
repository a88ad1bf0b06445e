//! One connection to a server: greeted, asked what it has, called, closed.
//!
//! Never: waits for a server without an end, but in a call: whoever called says
//! how long that may take, and to stop waiting is to cancel it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longhaul_core::port::tool::Progress;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotification, CancelledNotificationParam,
    ClientRequest, InputRequest, InputRequiredResult, JsonObject, ListToolsRequest,
    PaginatedRequestParams, RequestId, ServerResult, SubscriptionFilter,
};
use rmcp::service::{PeerRequestOptions, RunningService};
use rmcp::{Peer, RoleClient, ServiceError};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::error::McpError;
use crate::fate::Fate;
use crate::greet::{Manner, Who, failed, greet, on_the_way, turned_away, who};
use crate::host::{self, Host};
use crate::http;
use crate::listing::{Listing, TOOLS_MAX};
use crate::request_error::{RequestError, Wants};
use crate::sent::HttpError;
use crate::spec::{ServerSpec, Way, is_server_name};
use crate::stdio::Stdio;
use crate::tap::{Heard, Hears, Tap};

/// It has so long to say what it has.
const LISTS: Duration = Duration::from_secs(30);

/// It has so long to end.
const CLOSES: Duration = Duration::from_secs(10);

/// It has so long to take note of a cancellation.
const CANCELS: Duration = Duration::from_secs(5);

/// So many cancellations may wait to be sent.
const ABANDONED_MAX: usize = 1_024;

/// A list may have so many pages.
const PAGES_MAX: usize = 64;

/// So many calls in a row may run out of time before a server counts as hung.
const UNANSWERED_MAX: u32 = 3;

/// So many requests in a row may be turned away before the session counts as lost.
const TURNED_AWAY_MAX: u32 = 3;

/// A call may be asked for more so often.
const ROUNDS_MAX: u32 = 10;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Lost {
    /// The server said no, in these words.
    Refused(String),
    /// It is for want of a login; nothing has happened.
    Login {
        /// What is wrong with it, and what helps.
        why: String,
        /// It may pass by itself.
        passes: bool,
    },
    /// It is gone, or its answer is.
    Gone {
        /// What happened.
        why: String,
        /// It may have been asked, so it may have happened.
        sent: bool,
        /// To ask once more may help.
        again: bool,
    },
}

/// A connection to a server.
pub(super) struct Link {
    spec: ServerSpec,
    peer: Peer<RoleClient>,
    service: Mutex<Option<RunningService<RoleClient, Host>>>,
    fate: Arc<Fate>,
    heard: Arc<Heard>,
    who: Who,
    /// The list, and how often it had changed when it was asked for.
    listing: tokio::sync::Mutex<Option<(u64, Arc<Listing>)>>,
    abandoned: mpsc::Sender<RequestId>,
    /// How many calls in a row ran out of time.
    unanswered: AtomicU32,
    /// How many requests in a row were turned away.
    turned_away: AtomicU32,
    /// They end with the connection.
    keepers: Mutex<JoinSet<()>>,
}

impl Link {
    /// Starts a server, or reaches it, and greets it.
    pub(super) async fn start(spec: &ServerSpec, manner: Manner) -> Result<Self, McpError> {
        let config = |why: String| McpError::Config {
            server: spec.name.chars().take(64).collect(),
            why,
        };
        if !is_server_name(&spec.name) {
            let why = "its name is not 1 to 64 letters, digits, `_`, `-` and `.`";
            return Err(config(why.to_owned()));
        }
        let fate = Arc::new(Fate::new(&spec.way.secrets()));
        let heard = Arc::new(Heard::default());
        let tap = (Arc::clone(&heard), Arc::clone(&fate));
        let greeted = match &spec.way {
            Way::Stdio { .. } => {
                let way = Stdio::start(&spec.way, &fate);
                let way = way.map_err(|why| failed(spec, &fate, &RequestError::plain(why)))?;
                greet(Tap::new(way, tap.0, tap.1), manner, &heard).await
            }
            Way::Http { .. } => {
                let way = http::reach(spec).map_err(config)?;
                greet(Tap::new(way, tap.0, tap.1), manner, &heard).await
            }
        };
        let service = greeted.map_err(|error| failed(spec, &fate, &error))?;
        Ok(Self::over(spec, service, (heard, fate)))
    }

    fn over(
        spec: &ServerSpec,
        service: RunningService<RoleClient, Host>,
        (heard, fate): (Arc<Heard>, Arc<Fate>),
    ) -> Self {
        let peer = service.peer().clone();
        let (abandoned, queue) = mpsc::channel(ABANDONED_MAX);
        let mut keepers = JoinSet::new();
        keepers.spawn(cancel(peer.clone(), queue));
        if tells_changes_apart(&peer) {
            keepers.spawn(listen(peer.clone()));
        }
        Self {
            spec: spec.clone(),
            who: who(&peer, &fate),
            peer,
            service: Mutex::new(Some(service)),
            fate,
            heard,
            listing: tokio::sync::Mutex::default(),
            abandoned,
            unanswered: AtomicU32::new(0),
            turned_away: AtomicU32::new(0),
            keepers: Mutex::new(keepers),
        }
    }

    /// Who it says it is.
    pub(super) const fn who(&self) -> &Who {
        &self.who
    }

    /// How it is best greeted the next time.
    pub(super) fn manner(&self) -> Manner {
        let info = self.peer.peer_info();
        match info.is_some_and(|info| info.protocol_version.has_initialize()) {
            true => Manner::Older,
            false => Manner::Either,
        }
    }

    /// Why it can't be used any more, if so.
    pub(super) fn gone(&self) -> Option<String> {
        match self.fate.end() {
            Some(end) => Some(end.why),
            None if self.peer.is_transport_closed() => Some("its connection was closed".to_owned()),
            None => None,
        }
    }

    /// What it has; asked for once, until it says that this has changed.
    pub(super) async fn listing(&self) -> Result<Arc<Listing>, Lost> {
        let mut known = self.listing.lock().await;
        let changes = self.heard.changes();
        if let Some((then, listing)) = &*known
            && *then == changes
        {
            return Ok(Arc::clone(listing));
        }
        // A listing is no harder than a call.
        let patience = LISTS.min(Duration::from_millis(self.spec.timeout.0));
        let listing = match timeout(patience, self.list()).await {
            Ok(listing) => Arc::new(listing?),
            Err(_) => {
                let secs = patience.as_secs_f32();
                let why = format!("it did not say within {secs} s what it has");
                self.give_up(&why);
                return Err(Lost::Gone {
                    why,
                    sent: true,
                    again: false,
                });
            }
        };
        *known = Some((changes, Arc::clone(&listing)));
        Ok(listing)
    }

    async fn list(&self) -> Result<Listing, Lost> {
        let mut listing = Listing::default();
        let mut cursor: Option<String> = None;
        for _ in 0..PAGES_MAX {
            let params = PaginatedRequestParams::default().with_cursor(cursor.clone());
            let request = ListToolsRequest::with_param(params);
            let page = self.ask(ClientRequest::ListToolsRequest(request)).await?;
            // Read as it came: one tool that is none must not hide the others.
            let page = serde_json::to_value(page).unwrap_or_default();
            let tools = page["tools"].as_array().map(Vec::as_slice);
            let Some(tools) = tools else {
                listing.note("its list of tools is none".to_owned());
                return Ok(listing);
            };
            listing.add(&self.spec, tools);
            let next = page["nextCursor"].as_str().map(str::to_owned);
            if next.is_none() || listing.tools.len() >= TOOLS_MAX {
                return Ok(listing);
            }
            if next == cursor {
                break;
            }
            cursor = next;
        }
        listing.note("its list of tools has no end; the rest is left out".to_owned());
        Ok(listing)
    }

    /// Calls a tool. To drop this is to cancel the call.
    pub(super) async fn call(
        &self,
        tool: &str,
        input: JsonObject,
        progress: &Arc<dyn Progress>,
    ) -> Result<Value, Lost> {
        let mut params = CallToolRequestParams::new(tool.to_owned()).with_arguments(input);
        for round in 0..ROUNDS_MAX {
            let mut request = CallToolRequest::new(params.clone());
            request.extensions.insert(Hears(Arc::clone(progress)));
            let answer = self.ask(ClientRequest::CallToolRequest(request)).await?;
            let ServerResult::InputRequiredResult(more) = answer else {
                return serde_json::to_value(answer).map_err(|bad| Lost::Gone {
                    why: format!("its answer can't be read: {bad}"),
                    sent: true,
                    again: false,
                });
            };
            params.request_state.clone_from(&more.request_state);
            let answers = self.answers(more, progress)?;
            params.input_responses = answers.map(|said| said.into_iter().collect());
            // It asks for nothing but patience.
            if params.input_responses.is_none() {
                tokio::time::sleep(Duration::from_millis(100) * (1 << round.min(5))).await;
            }
        }
        Err(Lost::Refused(format!(
            "it asked for more {ROUNDS_MAX} times and never came to an end"
        )))
    }

    /// Our answers to what a server asks in the middle of a call: we have no folder
    /// to show, and no model for it. None: it asked nothing.
    fn answers(
        &self,
        more: InputRequiredResult,
        progress: &Arc<dyn Progress>,
    ) -> Result<Option<Vec<(String, Value)>>, Lost> {
        let mut answers = Vec::new();
        for (key, request) in more.input_requests.unwrap_or_default() {
            let answer = if let InputRequest::Elicitation(asked) = request {
                progress.record(&host::declined(&asked.params));
                host::decline()
            } else if let InputRequest::ListRoots(_) = request {
                json!({ "roots": [] })
            } else {
                let why = "it wants a model to answer something, which is not offered to servers";
                return Err(Lost::Refused(why.to_owned()));
            };
            answers.push((key, answer));
        }
        Ok((!answers.is_empty()).then_some(answers))
    }

    async fn ask(&self, request: ClientRequest) -> Result<ServerResult, Lost> {
        let options = PeerRequestOptions::no_options();
        let lists = matches!(request, ClientRequest::ListToolsRequest(_));
        let asked = self.peer.send_cancellable_request(request, options).await;
        let asked = asked.map_err(|error| self.why(&error, lists))?;
        let mut waits = Waits {
            id: Some(asked.id.clone()),
            abandoned: self.abandoned.clone(),
        };
        let answer = asked.await_response().await;
        waits.id = None;
        self.count(&answer);
        answer.map_err(|error| {
            let lost = self.why(&error, lists);
            if let Lost::Gone { why, .. } = &lost {
                self.fate.ends(why);
            }
            lost
        })
    }

    /// Counts the requests in a row that were turned away. Some servers say so of every
    /// request when they no longer know our session: then only a new one helps.
    fn count(&self, answer: &Result<ServerResult, ServiceError>) {
        match answer {
            Ok(_) | Err(ServiceError::McpError(_)) => self.turned_away.store(0, Ordering::Release),
            Err(error) if turned_away(error).is_some_and(|no| no.may_be_session) => {
                let before = self.turned_away.fetch_add(1, Ordering::AcqRel);
                if before.saturating_add(1) >= TURNED_AWAY_MAX {
                    self.fate.ends(&format!(
                        "it turned away {TURNED_AWAY_MAX} requests in a row"
                    ));
                }
            }
            Err(_) => {}
        }
    }

    fn why(&self, error: &ServiceError, lists: bool) -> Lost {
        if let ServiceError::McpError(said) = error {
            let code = said.code.0;
            let words = self.fate.clean(&said.message);
            return Lost::Refused(format!("{words} (code {code})"));
        }
        if let Some(no) = turned_away(error) {
            return match lists {
                // A list is harmless to repeat, and all who need tools need it: it is asked
                // for once more, in a new session.
                true => Lost::Gone {
                    why: no.why,
                    sent: true,
                    again: true,
                },
                // Whoever turns away one request may well take the next.
                false => Lost::Refused(no.why),
            };
        }
        if let ServiceError::TransportSend(error) = error
            && let Some(error) = error.error.downcast_ref::<HttpError>()
        {
            let RequestError { why, sent, wants } = on_the_way(error);
            let why = self.fate.clean(&why);
            return match wants {
                Wants::Login { passes } => Lost::Login { why, passes },
                Wants::Nothing | Wants::Key => Lost::Gone {
                    why,
                    sent,
                    again: true,
                },
            };
        }
        let end = self.fate.end();
        Lost::Gone {
            again: end.as_ref().is_none_or(|end| !end.broke),
            why: end.map_or_else(
                || "it closed the connection before it answered".to_owned(),
                |end| end.why,
            ),
            sent: true,
        }
    }

    /// The error that says that this is lost.
    pub(super) fn lost(&self, lost: &Lost) -> McpError {
        let server = self.spec.name.clone();
        match lost.clone() {
            Lost::Login { why, passes } => McpError::Login {
                server,
                why,
                passes,
            },
            Lost::Refused(why) | Lost::Gone { why, .. } => McpError::Lost { server, why },
        }
    }

    /// A call was answered, so the server is alive.
    pub(super) fn answered(&self) {
        self.unanswered.store(0, Ordering::Release);
    }

    /// A call ran out of time. After some of them the server counts as hung.
    pub(super) fn ran_out(&self) {
        let before = self.unanswered.fetch_add(1, Ordering::AcqRel);
        if before.saturating_add(1) >= UNANSWERED_MAX {
            self.give_up(&format!(
                "it let {UNANSWERED_MAX} calls in a row run out of time"
            ));
        }
    }

    /// Lets go of a server that hangs: whoever needs it next starts it anew.
    fn give_up(&self, why: &str) {
        self.fate.breaks(why);
        let service = self.service.lock();
        // Dropped, it ends on its own, and so does whoever waits for an answer.
        drop(service.unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Closes it: the server has a while to end by itself.
    pub(super) async fn close(&self) {
        self.fate.ends("it was closed");
        let service = self.service.lock();
        let service = service.unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut service) = service {
            // An error says that it had ended already.
            _ = service.close_with_timeout(CLOSES).await;
        }
        let mut keepers = self.keepers.lock().unwrap_or_else(PoisonError::into_inner);
        keepers.abort_all();
    }
}

/// A request that somebody waits for. Dropped before its answer, it is cancelled.
struct Waits {
    id: Option<RequestId>,
    abandoned: mpsc::Sender<RequestId>,
}

impl Drop for Waits {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            // A queue that is full is that of a server that hears nothing any more.
            _ = self.abandoned.try_send(id);
        }
    }
}

/// Tells a server which requests nobody waits for any more.
async fn cancel(peer: Peer<RoleClient>, mut abandoned: mpsc::Receiver<RequestId>) {
    while let Some(id) = abandoned.recv().await {
        let params = CancelledNotificationParam::new(Some(id), Some("no longer needed".to_owned()));
        let notification = CancelledNotification::new(params);
        _ = timeout(CANCELS, peer.send_notification(notification.into())).await;
    }
}

/// Whether a server tells of changes only to whoever has asked for that.
fn tells_changes_apart(peer: &Peer<RoleClient>) -> bool {
    let tells = |info: &rmcp::model::ServerPeerInfo| {
        let tools = info.capabilities.tools.as_ref();
        !info.protocol_version.has_initialize()
            && tools.is_some_and(|tools| tools.list_changed == Some(true))
    };
    peer.peer_info().is_some_and(|info| tells(&info))
}

/// Hears that the list has changed; what is heard is counted on its way here.
async fn listen(peer: Peer<RoleClient>) {
    let mut wanted = SubscriptionFilter::new();
    wanted.tools_list_changed = Some(true);
    if let Ok(mut told) = peer.listen(wanted).await {
        while let Ok(Some(_)) = told.next().await {}
    }
}
