//! One connection to a server: handshake, tool list, calls, close.
//!
//! Invariant: every wait has a timeout, except for a call. The caller sets the timeout of a call,
//! and dropping the call cancels it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longhaul_core::port::tool::Progress;
use longhaul_core::time::{Clock, Millis};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotification, CancelledNotificationParam,
    ClientRequest, ListToolsRequest, PaginatedRequestParams, RequestId, ServerResult,
    SubscriptionFilter,
};
use rmcp::service::PeerRequestOptions;
use rmcp::{Peer, RoleClient, ServiceError};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::error::McpError;
use crate::exit::ExitRecord;
use crate::handshake::{
    HandshakeMode, McpService, http_to_request_error, perform_handshake, start_error,
};
use crate::http;
use crate::http_auth::HttpTransportError;
use crate::http_client::{RequestError, RequiredCredentials};
use crate::listing::{ServerCheckReport, TOOLS_MAX, ToolListing};
use crate::observe::{Observations, ProgressSink};
use crate::spec::{ServerSpec, ServerTransport, is_valid_server_name};
use crate::stdio::StdioTransport;

/// Timeout for fetching the tool list of a server.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);

/// Timeout for closing a connection to a server.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout for sending the cancellation of a request.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of request cancellations in the send queue.
const CANCELLATIONS_MAX: usize = 1_024;

/// Maximum number of pages of a tool list.
const PAGES_MAX: usize = 64;

/// Maximum number of consecutive call timeouts. A server that reaches it counts as hung.
const TIMEOUTS_MAX: u32 = 3;

/// Maximum number of consecutive rejected requests. A session that reaches it counts as lost.
const REJECTIONS_MAX: u32 = 3;

/// HTTP status with which a server rejects requests without a valid key.
const UNAUTHORIZED: u16 = 401;

/// HTTP status with which a server rejects requests over its rate limit.
const TOO_MANY_REQUESTS: u16 = 429;

/// Why a request to a server has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ServerRequestError {
    /// The server rejected this request. Other requests to it continue.
    Rejected {
        message: String,
        /// HTTP status of the rejection. `None` means that the server answered with an error.
        http_status: Option<u16>,
    },
    /// The server requires a login. The request had no effect.
    LoginRequired {
        /// What is wrong with the login, and the command that fixes it.
        reason: String,
        /// Whether the login may work again without user action.
        is_transient: bool,
    },
    /// The connection was lost, or the response was lost or can't be parsed.
    Disconnected {
        /// Why there is no response.
        reason: String,
        /// Whether the request may have reached the server and taken effect.
        may_have_been_sent: bool,
        /// Whether sending the request again may help.
        can_retry: bool,
    },
}

/// The answer to a request, or why there is none.
type RequestResult<T> = Result<T, ServerRequestError>;

impl ServerRequestError {
    /// Creates the error of a request that may have taken effect.
    const fn disconnected(reason: String, can_retry: bool) -> Self {
        Self::Disconnected { reason, may_have_been_sent: true, can_retry }
    }

    /// Returns whether the server answered with this JSON-RPC error code.
    pub(super) fn has_json_rpc_code(&self, code: i32) -> bool {
        let suffix = format!("(code {code})");
        matches!(self, Self::Rejected { message, .. } if message.ends_with(&suffix))
    }
}

/// A connection to a server.
pub(super) struct McpConnection {
    spec: ServerSpec,
    clock: Arc<dyn Clock>,
    peer: Peer<RoleClient>,
    service: Mutex<Option<McpService>>,
    exit: Arc<ExitRecord>,
    observations: Arc<Observations>,
    /// The cached tool list. The number says how often the server had reported a change of its tool
    /// list when the list was requested.
    listing: tokio::sync::Mutex<Option<(u64, Arc<ToolListing>)>>,
    abandoned: mpsc::Sender<RequestId>,
    /// Number of consecutive calls that timed out.
    consecutive_timeouts: AtomicU32,
    /// Number of consecutive requests that the server rejected.
    consecutive_rejections: AtomicU32,
    /// Background tasks that end with the connection.
    background_tasks: Mutex<JoinSet<()>>,
}

impl McpConnection {
    /// Starts a server or connects to it, and performs the handshake.
    pub(super) async fn connect(
        spec: &ServerSpec,
        mode: HandshakeMode,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, McpError> {
        let config = |reason: String| McpError::Config {
            server: spec.name.chars().take(64).collect(),
            reason,
        };
        if !is_valid_server_name(&spec.name) {
            let reason = "the server name must be 1 to 64 letters, digits, `_`, `-` or `.`";
            return Err(config(reason.to_owned()));
        }
        let exit = Arc::new(ExitRecord::new(&spec.transport.secret_values()));
        let observations = Arc::new(Observations::default());
        let start_error = |error: &RequestError| start_error(spec, &exit, error);
        let service = match &spec.transport {
            ServerTransport::Stdio { .. } => {
                let transport = StdioTransport::start(&spec.transport, &observations, &exit);
                let transport =
                    transport.map_err(|reason| start_error(&RequestError::new(reason)))?;
                perform_handshake(transport, mode, (&observations, &exit)).await
            }
            ServerTransport::Http { .. } => {
                let transport = http::build_transport(spec).map_err(config)?;
                perform_handshake(transport, mode, (&observations, &exit)).await
            }
        };
        let service = service.map_err(|error| start_error(&error))?;
        let peer = service.peer().clone();
        let (abandoned, queue) = mpsc::channel(CANCELLATIONS_MAX);
        let mut background_tasks = JoinSet::new();
        background_tasks.spawn(cancel_abandoned(peer.clone(), queue));
        background_tasks.spawn(subscribe_to_tool_list_changes(peer.clone()));
        Ok(Self {
            spec: spec.clone(),
            clock: Arc::clone(clock),
            peer,
            service: Mutex::new(Some(service)),
            exit,
            observations,
            listing: tokio::sync::Mutex::default(),
            abandoned,
            consecutive_timeouts: AtomicU32::new(0),
            consecutive_rejections: AtomicU32::new(0),
            background_tasks: Mutex::new(background_tasks),
        })
    }

    /// Returns a report with the name and the version that the server reports about itself, redacted
    /// and truncated.
    pub(super) fn identity_report(&self) -> ServerCheckReport {
        let info = self.peer.peer_info();
        let server = info.as_ref().and_then(|info| info.server_info.as_ref());
        let protocol = info.as_ref().map(|info| info.protocol_version.as_str());
        let sanitized = |text: Option<&str>| self.sanitize_server_text(text.unwrap_or_default());
        ServerCheckReport {
            name: sanitized(server.map(|server| server.name.as_str())),
            version: sanitized(server.map(|server| server.version.as_str())),
            protocol: sanitized(protocol),
            ..ServerCheckReport::default()
        }
    }

    /// Returns whether the server uses a revision of the protocol with the legacy handshake.
    pub(super) fn uses_legacy_protocol(&self) -> bool {
        self.peer.peer_info().is_some_and(|info| info.protocol_version.has_initialize())
    }

    /// Returns why the connection can't be used any more. `None` if the connection is usable.
    pub(super) fn closed_reason(&self) -> Option<String> {
        match self.exit.reason() {
            Some(end) => Some(end.reason),
            None if self.peer.is_transport_closed() => Some("the connection was closed".to_owned()),
            None => None,
        }
    }

    /// Returns the tool list of the server. It is cached until the server reports a change.
    pub(super) async fn tool_listing(&self) -> RequestResult<Arc<ToolListing>> {
        let mut cached = self.listing.lock().await;
        let changes = self.observations.list_changes.load(Ordering::Acquire);
        if let Some((cached_changes, listing)) = &*cached
            && *cached_changes == changes
        {
            return Ok(Arc::clone(listing));
        }
        // A list request gets no more time than a call.
        let max_wait = LIST_TIMEOUT.min(Duration::from_millis(self.spec.timeout.0));
        let listing = match timeout(max_wait, self.fetch_tool_listing()).await {
            Ok(listing) => Arc::new(listing?),
            Err(_) => {
                let secs = max_wait.as_secs_f32();
                let reason = format!("the server did not list its tools within {secs} s");
                self.close_hung_connection(&reason);
                return Err(ServerRequestError::disconnected(reason, false));
            }
        };
        *cached = Some((changes, Arc::clone(&listing)));
        Ok(listing)
    }

    async fn fetch_tool_listing(&self) -> RequestResult<ToolListing> {
        let mut listing = ToolListing::default();
        let mut cursor: Option<String> = None;
        for _ in 0..PAGES_MAX {
            let params = PaginatedRequestParams::default().with_cursor(cursor.clone());
            let request = ListToolsRequest::with_param(params);
            let page = self.send_request(ClientRequest::ListToolsRequest(request)).await?;
            // Kept as raw JSON: one malformed tool must not hide the others.
            let page = serde_json::to_value(page).unwrap_or_default();
            let Some(tools) = page["tools"].as_array() else {
                listing.add_note("the server's tool list is invalid".to_owned());
                return Ok(listing);
            };
            listing.add_page(&self.spec, tools);
            let next = page["nextCursor"].as_str().map(str::to_owned);
            if next.is_none() || listing.tools.len() >= TOOLS_MAX {
                return Ok(listing);
            }
            if next == cursor {
                break;
            }
            cursor = next;
        }
        listing.add_note("the tool list has too many pages; the rest is left out".to_owned());
        Ok(listing)
    }

    /// Calls a tool. Dropping the future cancels the call.
    pub(super) async fn call_tool(
        &self,
        params: CallToolRequestParams,
        progress: &Arc<dyn Progress>,
    ) -> RequestResult<Value> {
        let mut request = CallToolRequest::new(params);
        request.extensions.insert(ProgressSink(Arc::clone(progress)));
        self.request_json(ClientRequest::CallToolRequest(request)).await
    }

    /// Sends a request and returns the response as JSON. Dropping the future cancels the request.
    pub(super) async fn request_json(&self, request: ClientRequest) -> RequestResult<Value> {
        let answer = self.send_request(request).await?;
        serde_json::to_value(answer).map_err(|error| {
            ServerRequestError::disconnected(
                format!("the response can't be parsed: {error}"),
                false,
            )
        })
    }

    /// Returns a text of the server as it may be shown: redacted, short and printable.
    pub(super) fn sanitize_server_text(&self, text: &str) -> String {
        self.exit.sanitize_server_text(text)
    }

    async fn send_request(&self, request: ClientRequest) -> RequestResult<ServerResult> {
        let options = PeerRequestOptions::no_options();
        let is_list_request = matches!(request, ClientRequest::ListToolsRequest(_));
        let is_call = matches!(request, ClientRequest::CallToolRequest(_));
        let call_started = is_call.then(|| self.clock.monotonic_time());
        let pending = self.peer.send_cancellable_request(request, options).await;
        let pending = pending.map_err(|error| self.classify_error(&error))?;
        let mut cancel_on_drop =
            PendingRequest { connection: self, id: Some(pending.id.clone()), call_started };
        let answer = pending.await_response().await;
        cancel_on_drop.id = None;
        if is_call {
            // The server does not hang.
            self.consecutive_timeouts.store(0, Ordering::Release);
        }
        let answer = answer.map_err(|error| self.classify_error(&error));
        self.count_consecutive_rejections(&answer);
        answer.map_err(|mut error| {
            // Listing tools can be repeated safely, and every user of the server needs the list. So
            // it is requested once more in a new session. A server that rejects one other request
            // may accept the next.
            if let ServerRequestError::Rejected { message, http_status: Some(_) } = &error
                && is_list_request
            {
                error = ServerRequestError::disconnected(message.clone(), true);
            }
            if let ServerRequestError::Disconnected { reason, .. } = &error {
                self.exit.record_exit(reason);
            }
            error
        })
    }

    /// Counts consecutive requests that the server rejected because it may not know the session any
    /// more. After too many of them the connection counts as closed, because only a new session
    /// helps.
    fn count_consecutive_rejections(&self, answer: &RequestResult<ServerResult>) {
        match answer {
            Ok(_) | Err(ServerRequestError::Rejected { http_status: None, .. }) => {
                self.consecutive_rejections.store(0, Ordering::Release);
            }
            Err(ServerRequestError::Rejected { http_status: Some(status), .. })
                if *status != TOO_MANY_REQUESTS
                    && self.consecutive_rejections.fetch_add(1, Ordering::AcqRel) + 1
                        >= REJECTIONS_MAX =>
            {
                let reason = format!("the server rejected {REJECTIONS_MAX} requests in a row");
                self.exit.record_exit(&reason);
            }
            Err(_) => {}
        }
    }

    fn classify_error(&self, error: &ServiceError) -> ServerRequestError {
        if let ServiceError::McpError(rpc_error) = error {
            let message = self.exit.sanitize_server_text(&rpc_error.message);
            let message = format!("{message} (code {})", rpc_error.code.0);
            return ServerRequestError::Rejected { message, http_status: None };
        }
        if let ServiceError::TransportSend(error) = error
            && let Some(error) = error.error.downcast_ref::<HttpTransportError>()
        {
            let mut http_status = None;
            if let HttpTransportError::HttpStatus(error) = error {
                http_status = Some(error.status).filter(|status| (400..500).contains(status));
            }
            let RequestError { reason, may_have_been_sent, required_credentials } =
                http_to_request_error(error);
            let reason = self.exit.sanitize_server_text(&reason);
            return match (required_credentials, http_status) {
                (RequiredCredentials::Login { is_transient }, _) => {
                    ServerRequestError::LoginRequired { reason, is_transient }
                }
                (RequiredCredentials::Key, _) => ServerRequestError::Rejected {
                    message: reason,
                    http_status: Some(UNAUTHORIZED),
                },
                (RequiredCredentials::None, Some(_)) => {
                    ServerRequestError::Rejected { message: reason, http_status }
                }
                (RequiredCredentials::None, None) => {
                    ServerRequestError::Disconnected { reason, may_have_been_sent, can_retry: true }
                }
            };
        }
        match self.exit.reason() {
            Some(end) => ServerRequestError::disconnected(end.reason, !end.is_violation),
            None => {
                let reason = "the server closed the connection before it answered".to_owned();
                ServerRequestError::disconnected(reason, true)
            }
        }
    }

    pub(super) fn to_mcp_error(&self, error: &ServerRequestError) -> McpError {
        let server = self.spec.name.clone();
        match error.clone() {
            ServerRequestError::LoginRequired { reason, is_transient } => {
                McpError::LoginRequired { server, reason, is_transient }
            }
            ServerRequestError::Rejected { message: reason, .. }
            | ServerRequestError::Disconnected { reason, .. } => McpError::Unavailable(format!(
                "The MCP server `{server}` disconnected: {reason}. Run `longhaul mcp check {server}`."
            )),
        }
    }

    /// Closes the connection to a server that hangs. The next use starts the server again.
    fn close_hung_connection(&self, reason: &str) {
        self.exit.record_limit_violation(reason);
        // Dropping the service ends it and fails all pending requests.
        drop(self.take_service());
    }

    fn take_service(&self) -> Option<McpService> {
        self.service.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Closes the connection. The server gets a limited time to exit by itself.
    pub(super) async fn close(&self) {
        self.exit.record_exit("the server was closed");
        if let Some(mut service) = self.take_service() {
            // An error means that the service had already ended.
            _ = service.close_with_timeout(CLOSE_TIMEOUT).await;
        }
        self.background_tasks.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }
}

/// A request in flight. Dropping it before the response arrives cancels the request. After several
/// calls in a row that timed out, the server counts as hung.
struct PendingRequest<'a> {
    connection: &'a McpConnection,
    id: Option<RequestId>,
    /// Start time of a call on the monotonic clock. `None` for other requests.
    call_started: Option<Millis>,
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let connection = self.connection;
        // The queue is full only if the server no longer reads.
        _ = connection.abandoned.try_send(id);
        // The caller's timeout started slightly earlier than this watch.
        let max_duration = Millis(connection.spec.timeout.0 / 10 * 9);
        let now = connection.clock.monotonic_time();
        if self.call_started.is_some_and(|started| now.minus(started) >= max_duration)
            && connection.consecutive_timeouts.fetch_add(1, Ordering::AcqRel) + 1 >= TIMEOUTS_MAX
        {
            connection.close_hung_connection(&format!("{TIMEOUTS_MAX} calls in a row timed out"));
        }
    }
}

/// Sends the server a cancellation for each abandoned request.
async fn cancel_abandoned(peer: Peer<RoleClient>, mut abandoned: mpsc::Receiver<RequestId>) {
    while let Some(id) = abandoned.recv().await {
        let params = CancelledNotificationParam::new(Some(id), Some("no longer needed".to_owned()));
        let notification = CancelledNotification::new(params);
        _ = timeout(CANCEL_TIMEOUT, peer.send_notification(notification.into())).await;
    }
}

/// Subscribes to changes of the server's tool list, if the server reports them only to subscribers.
/// The observed transport counts the notifications.
async fn subscribe_to_tool_list_changes(peer: Peer<RoleClient>) {
    let needs_subscription = peer.peer_info().is_some_and(|info| {
        let tools = info.capabilities.tools.as_ref();
        !info.protocol_version.has_initialize()
            && tools.is_some_and(|tools| tools.list_changed == Some(true))
    });
    let mut filter = SubscriptionFilter::new();
    filter.tools_list_changed = Some(true);
    if needs_subscription && let Ok(mut subscription) = peer.listen(filter).await {
        while let Ok(Some(_)) = subscription.next().await {}
    }
}
