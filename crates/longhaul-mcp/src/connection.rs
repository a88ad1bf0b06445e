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

use crate::client_handler::{self, McpClientHandler};
use crate::error::McpError;
use crate::exit::ServerExit;
use crate::handshake::{
    HandshakeMode, ServerInfo, connect, http_rejection, http_request_error, server_info,
    start_error,
};
use crate::http;
use crate::http_auth::HttpError;
use crate::listing::{Listing, TOOLS_MAX};
use crate::observe::{Observations, ObservedTransport, ProgressSink};
use crate::request_error::{AuthNeed, RequestError};
use crate::spec::{ServerSpec, ServerTransport, is_server_name};
use crate::stdio::StdioTransport;

/// It has so long to say what it has.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);

/// It has so long to end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// It has so long to take note of a cancellation.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// So many cancellations may wait to be sent.
const CANCELLATIONS_MAX: usize = 1_024;

/// A list may have so many pages.
const PAGES_MAX: usize = 64;

/// So many calls in a row may run out of time before a server counts as hung.
const TIMEOUTS_MAX: u32 = 3;

/// So many requests in a row may be turned away before the session counts as lost.
const REJECTIONS_MAX: u32 = 3;

/// A call may be asked for more so often.
const INPUT_ROUNDS_MAX: u32 = 10;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CallError {
    /// The server said no, in these words.
    Rejected(String),
    /// It is for want of a login; nothing has happened.
    LoginRequired {
        /// What is wrong with it, and what helps.
        reason: String,
        /// It may pass by itself.
        is_transient: bool,
    },
    /// It is gone, or its answer is.
    Disconnected {
        /// What happened.
        reason: String,
        /// It may have been asked, so it may have happened.
        may_have_been_sent: bool,
        /// To ask once more may help.
        can_retry: bool,
    },
}

/// A connection to a server.
pub(super) struct Connection {
    spec: ServerSpec,
    peer: Peer<RoleClient>,
    service: Mutex<Option<RunningService<RoleClient, McpClientHandler>>>,
    exit: Arc<ServerExit>,
    observations: Arc<Observations>,
    server_info: ServerInfo,
    /// The list, and how often it had changed when it was asked for.
    listing: tokio::sync::Mutex<Option<(u64, Arc<Listing>)>>,
    abandoned: mpsc::Sender<RequestId>,
    /// How many calls in a row ran out of time.
    timeouts: AtomicU32,
    /// How many requests in a row were turned away.
    rejections: AtomicU32,
    /// They end with the connection.
    background_tasks: Mutex<JoinSet<()>>,
}

impl Connection {
    /// Starts a server, or reaches it, and greets it.
    pub(super) async fn start(spec: &ServerSpec, manner: HandshakeMode) -> Result<Self, McpError> {
        let config = |why: String| McpError::Config {
            server: spec.name.chars().take(64).collect(),
            reason: why,
        };
        if !is_server_name(&spec.name) {
            let why = "its name is not 1 to 64 letters, digits, `_`, `-` and `.`";
            return Err(config(why.to_owned()));
        }
        let fate = Arc::new(ServerExit::new(&spec.transport.secrets()));
        let heard = Arc::new(Observations::default());
        let tap = (Arc::clone(&heard), Arc::clone(&fate));
        let greeted = match &spec.transport {
            ServerTransport::Stdio { .. } => {
                let way = StdioTransport::start(&spec.transport, &fate);
                let way = way.map_err(|why| start_error(spec, &fate, &RequestError::new(why)))?;
                connect(ObservedTransport::new(way, tap.0, tap.1), manner, &heard).await
            }
            ServerTransport::Http { .. } => {
                let way = http::transport(spec).map_err(config)?;
                connect(ObservedTransport::new(way, tap.0, tap.1), manner, &heard).await
            }
        };
        let service = greeted.map_err(|error| start_error(spec, &fate, &error))?;
        Ok(Self::from_service(spec, service, (heard, fate)))
    }

    fn from_service(
        spec: &ServerSpec,
        service: RunningService<RoleClient, McpClientHandler>,
        (heard, fate): (Arc<Observations>, Arc<ServerExit>),
    ) -> Self {
        let peer = service.peer().clone();
        let (abandoned, queue) = mpsc::channel(CANCELLATIONS_MAX);
        let mut keepers = JoinSet::new();
        keepers.spawn(send_cancellations(peer.clone(), queue));
        if needs_change_subscription(&peer) {
            keepers.spawn(watch_tool_list(peer.clone()));
        }
        Self {
            spec: spec.clone(),
            server_info: server_info(&peer, &fate),
            peer,
            service: Mutex::new(Some(service)),
            exit: fate,
            observations: heard,
            listing: tokio::sync::Mutex::default(),
            abandoned,
            timeouts: AtomicU32::new(0),
            rejections: AtomicU32::new(0),
            background_tasks: Mutex::new(keepers),
        }
    }

    /// Who it says it is.
    pub(super) const fn server_info(&self) -> &ServerInfo {
        &self.server_info
    }

    /// How it is best greeted the next time.
    pub(super) fn handshake_mode(&self) -> HandshakeMode {
        let info = self.peer.peer_info();
        match info.is_some_and(|info| info.protocol_version.has_initialize()) {
            true => HandshakeMode::Legacy,
            false => HandshakeMode::Auto,
        }
    }

    /// Why it can't be used any more, if so.
    pub(super) fn closed_reason(&self) -> Option<String> {
        match self.exit.reason() {
            Some(end) => Some(end.reason),
            None if self.peer.is_transport_closed() => Some("its connection was closed".to_owned()),
            None => None,
        }
    }

    /// What it has; asked for once, until it says that this has changed.
    pub(super) async fn listing(&self) -> Result<Arc<Listing>, CallError> {
        let mut known = self.listing.lock().await;
        let changes = self.observations.list_changes();
        if let Some((then, listing)) = &*known
            && *then == changes
        {
            return Ok(Arc::clone(listing));
        }
        // A listing is no harder than a call.
        let patience = LIST_TIMEOUT.min(Duration::from_millis(self.spec.timeout.0));
        let listing = match timeout(patience, self.fetch_listing()).await {
            Ok(listing) => Arc::new(listing?),
            Err(_) => {
                let secs = patience.as_secs_f32();
                let why = format!("it did not say within {secs} s what it has");
                self.abandon(&why);
                return Err(CallError::Disconnected {
                    reason: why,
                    may_have_been_sent: true,
                    can_retry: false,
                });
            }
        };
        *known = Some((changes, Arc::clone(&listing)));
        Ok(listing)
    }

    async fn fetch_listing(&self) -> Result<Listing, CallError> {
        let mut listing = Listing::default();
        let mut cursor: Option<String> = None;
        for _ in 0..PAGES_MAX {
            let params = PaginatedRequestParams::default().with_cursor(cursor.clone());
            let request = ListToolsRequest::with_param(params);
            let page = self.request(ClientRequest::ListToolsRequest(request)).await?;
            // Read as it came: one tool that is none must not hide the others.
            let page = serde_json::to_value(page).unwrap_or_default();
            let tools = page["tools"].as_array().map(Vec::as_slice);
            let Some(tools) = tools else {
                listing.add_note("its list of tools is none".to_owned());
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
        listing.add_note("its list of tools has no end; the rest is left out".to_owned());
        Ok(listing)
    }

    /// Calls a tool. To drop this is to cancel the call.
    pub(super) async fn call(
        &self,
        tool: &str,
        input: JsonObject,
        progress: &Arc<dyn Progress>,
    ) -> Result<Value, CallError> {
        let mut params = CallToolRequestParams::new(tool.to_owned()).with_arguments(input);
        for round in 0..INPUT_ROUNDS_MAX {
            let mut request = CallToolRequest::new(params.clone());
            request.extensions.insert(ProgressSink(Arc::clone(progress)));
            let answer = self.request(ClientRequest::CallToolRequest(request)).await?;
            let ServerResult::InputRequiredResult(more) = answer else {
                return serde_json::to_value(answer).map_err(|bad| CallError::Disconnected {
                    reason: format!("its answer can't be read: {bad}"),
                    may_have_been_sent: true,
                    can_retry: false,
                });
            };
            params.request_state.clone_from(&more.request_state);
            let answers = self.input_responses(more, progress)?;
            params.input_responses = answers.map(|said| said.into_iter().collect());
            // It asks for nothing but patience.
            if params.input_responses.is_none() {
                tokio::time::sleep(Duration::from_millis(100) * (1 << round.min(5))).await;
            }
        }
        Err(CallError::Rejected(format!(
            "it asked for more {INPUT_ROUNDS_MAX} times and never came to an end"
        )))
    }

    /// Our answers to what a server asks in the middle of a call: we have no folder
    /// to show, and no model for it. None: it asked nothing.
    fn input_responses(
        &self,
        more: InputRequiredResult,
        progress: &Arc<dyn Progress>,
    ) -> Result<Option<Vec<(String, Value)>>, CallError> {
        let mut answers = Vec::new();
        for (key, request) in more.input_requests.unwrap_or_default() {
            let answer = if let InputRequest::Elicitation(asked) = request {
                progress.report_durable(&client_handler::declined_message(&asked.params));
                client_handler::decline_response()
            } else if let InputRequest::ListRoots(_) = request {
                json!({ "roots": [] })
            } else {
                let why = "it wants a model to answer something, which is not offered to servers";
                return Err(CallError::Rejected(why.to_owned()));
            };
            answers.push((key, answer));
        }
        Ok((!answers.is_empty()).then_some(answers))
    }

    async fn request(&self, request: ClientRequest) -> Result<ServerResult, CallError> {
        let options = PeerRequestOptions::no_options();
        let lists = matches!(request, ClientRequest::ListToolsRequest(_));
        let asked = self.peer.send_cancellable_request(request, options).await;
        let asked = asked.map_err(|error| self.classify_error(&error, lists))?;
        let mut waits =
            PendingRequest { id: Some(asked.id.clone()), abandoned: self.abandoned.clone() };
        let answer = asked.await_response().await;
        waits.id = None;
        self.count_rejection(&answer);
        answer.map_err(|error| {
            let lost = self.classify_error(&error, lists);
            if let CallError::Disconnected { reason: why, .. } = &lost {
                self.exit.record_exit(why);
            }
            lost
        })
    }

    /// Counts the requests in a row that were turned away. Some servers say so of every
    /// request when they no longer know our session: then only a new one helps.
    fn count_rejection(&self, answer: &Result<ServerResult, ServiceError>) {
        match answer {
            Ok(_) | Err(ServiceError::McpError(_)) => self.rejections.store(0, Ordering::Release),
            Err(error) if http_rejection(error).is_some_and(|no| no.may_be_lost_session) => {
                let before = self.rejections.fetch_add(1, Ordering::AcqRel);
                if before.saturating_add(1) >= REJECTIONS_MAX {
                    self.exit
                        .record_exit(&format!("it turned away {REJECTIONS_MAX} requests in a row"));
                }
            }
            Err(_) => {}
        }
    }

    fn classify_error(&self, error: &ServiceError, lists: bool) -> CallError {
        if let ServiceError::McpError(said) = error {
            let code = said.code.0;
            let words = self.exit.sanitize(&said.message);
            return CallError::Rejected(format!("{words} (code {code})"));
        }
        if let Some(no) = http_rejection(error) {
            return match lists {
                // A list is harmless to repeat, and all who need tools need it: it is asked
                // for once more, in a new session.
                true => CallError::Disconnected {
                    reason: no.reason,
                    may_have_been_sent: true,
                    can_retry: true,
                },
                // Whoever turns away one request may well take the next.
                false => CallError::Rejected(no.reason),
            };
        }
        if let ServiceError::TransportSend(error) = error
            && let Some(error) = error.error.downcast_ref::<HttpError>()
        {
            let RequestError { reason: why, may_have_been_sent: sent, auth_need: wants } =
                http_request_error(error);
            let why = self.exit.sanitize(&why);
            return match wants {
                AuthNeed::Login { is_transient: passes } => {
                    CallError::LoginRequired { reason: why, is_transient: passes }
                }
                AuthNeed::None | AuthNeed::Key => CallError::Disconnected {
                    reason: why,
                    may_have_been_sent: sent,
                    can_retry: true,
                },
            };
        }
        let end = self.exit.reason();
        CallError::Disconnected {
            can_retry: end.as_ref().is_none_or(|end| !end.is_violation),
            reason: end.map_or_else(
                || "it closed the connection before it answered".to_owned(),
                |end| end.reason,
            ),
            may_have_been_sent: true,
        }
    }

    /// The error that says that this is lost.
    pub(super) fn to_mcp_error(&self, lost: &CallError) -> McpError {
        let server = self.spec.name.clone();
        match lost.clone() {
            CallError::LoginRequired { reason: why, is_transient: passes } => {
                McpError::LoginRequired { server, reason: why, is_transient: passes }
            }
            CallError::Rejected(why) | CallError::Disconnected { reason: why, .. } => {
                McpError::Disconnected { server, reason: why }
            }
        }
    }

    /// A call was answered, so the server is alive.
    pub(super) fn mark_answered(&self) {
        self.timeouts.store(0, Ordering::Release);
    }

    /// A call ran out of time. After some of them the server counts as hung.
    pub(super) fn mark_timed_out(&self) {
        let before = self.timeouts.fetch_add(1, Ordering::AcqRel);
        if before.saturating_add(1) >= TIMEOUTS_MAX {
            self.abandon(&format!("it let {TIMEOUTS_MAX} calls in a row run out of time"));
        }
    }

    /// Lets go of a server that hangs: whoever needs it next starts it anew.
    fn abandon(&self, why: &str) {
        self.exit.record_violation(why);
        let service = self.service.lock();
        // Dropped, it ends on its own, and so does whoever waits for an answer.
        drop(service.unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Closes it: the server has a while to end by itself.
    pub(super) async fn close(&self) {
        self.exit.record_exit("it was closed");
        let service = self.service.lock();
        let service = service.unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut service) = service {
            // An error says that it had ended already.
            _ = service.close_with_timeout(CLOSE_TIMEOUT).await;
        }
        let mut keepers = self.background_tasks.lock().unwrap_or_else(PoisonError::into_inner);
        keepers.abort_all();
    }
}

/// A request that somebody waits for. Dropped before its answer, it is cancelled.
struct PendingRequest {
    id: Option<RequestId>,
    abandoned: mpsc::Sender<RequestId>,
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            // A queue that is full is that of a server that hears nothing any more.
            _ = self.abandoned.try_send(id);
        }
    }
}

/// Tells a server which requests nobody waits for any more.
async fn send_cancellations(peer: Peer<RoleClient>, mut abandoned: mpsc::Receiver<RequestId>) {
    while let Some(id) = abandoned.recv().await {
        let params = CancelledNotificationParam::new(Some(id), Some("no longer needed".to_owned()));
        let notification = CancelledNotification::new(params);
        _ = timeout(CANCEL_TIMEOUT, peer.send_notification(notification.into())).await;
    }
}

/// Whether a server tells of changes only to whoever has asked for that.
fn needs_change_subscription(peer: &Peer<RoleClient>) -> bool {
    let tells = |info: &rmcp::model::ServerPeerInfo| {
        let tools = info.capabilities.tools.as_ref();
        !info.protocol_version.has_initialize()
            && tools.is_some_and(|tools| tools.list_changed == Some(true))
    };
    peer.peer_info().is_some_and(|info| tells(&info))
}

/// Hears that the list has changed; what is heard is counted on its way here.
async fn watch_tool_list(peer: Peer<RoleClient>) {
    let mut wanted = SubscriptionFilter::new();
    wanted.tools_list_changed = Some(true);
    if let Ok(mut told) = peer.listen(wanted).await {
        while let Ok(Some(_)) = told.next().await {}
    }
}
