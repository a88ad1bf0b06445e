//! Keeps one connection to a server: opened when needed, reopened when it is lost, with a backoff
//! when the server keeps failing.
//!
//! Invariant: there is at most one connection at a time. A connection attempt continues when its
//! callers stop waiting, and serves the next caller.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use longhaul_core::raw::Hash;
use longhaul_core::time::{Clock, Millis};
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;

use crate::connection::{McpConnection, ServerRequestError};
use crate::error::McpError;
use crate::handshake::{HandshakeMode, start_hint};
use crate::listing::ToolListing;
use crate::shared_task::SharedTask;
use crate::spec::{ServerSpec, ServerTransport, StartCheck};

/// Number of consecutive failures after which a stdio server is reported as failing.
const FAILURES_MAX: u32 = 5;

/// Number of consecutive failures after which an HTTP server is reported as failing. Retrying does
/// not start an HTTP server, so there is only a second attempt, in the other handshake mode (newer
/// protocol first, or legacy only).
const REMOTE_FAILURES_MAX: u32 = 2;

/// Delay before the first restart of a failed server; each further delay is twice as long.
const BACKOFF_INITIAL: Millis = Millis::from_secs(1);

/// Maximum delay before a restart of a failed server.
const BACKOFF_MAX: Millis = Millis::from_secs(30);

/// Timeout for starting a server and fetching its tool list.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// The tool list of a server, or why it could not be fetched.
type ListingResult = Result<Arc<ToolListing>, McpError>;

/// A connection to a server, or why it could not be opened.
type ConnectResult = Result<Arc<McpConnection>, McpError>;

/// What is needed to start a server. Clones share the handshake mode.
#[derive(Clone)]
pub(super) struct ServerSetup {
    pub(super) spec: Arc<ServerSpec>,
    /// Whether the last successful handshake was a legacy one. Cleared by a failed handshake,
    /// because the server may have been replaced.
    pub(super) needs_legacy_handshake: Arc<AtomicBool>,
    pub(super) clock: Arc<dyn Clock>,
    /// Checks the server before each start. `None` means that it may always be started.
    pub(super) start_check: Option<Arc<dyn StartCheck>>,
}

/// A server with at most one connection, which is opened when needed and reopened when it is lost.
pub(super) struct ReconnectingServer {
    connector: Arc<ServerConnector>,
    listing: SharedTask<ListingResult>,
    connect: SharedTask<ConnectResult>,
}

/// Opens connections to one server and counts its failures.
struct ServerConnector {
    setup: ServerSetup,
    state: Mutex<ConnectorState>,
    closed: watch::Sender<bool>,
}

#[derive(Default)]
struct ConnectorState {
    connection: Option<Arc<McpConnection>>,
    /// Version of the program at the last connection attempt. `None` if there was none, or there is
    /// no check.
    version: Option<Hash>,
    /// Number of consecutive failed starts and lost connections of the server.
    failures: u32,
    /// Earliest time of the next connection attempt, on the monotonic clock.
    retry_at: Option<Millis>,
    /// Error of the last failed connection attempt.
    last_error: Option<McpError>,
}

impl std::fmt::Debug for ReconnectingServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ReconnectingServer").field(&self.spec().name).finish()
    }
}

impl ReconnectingServer {
    pub(super) fn new(setup: ServerSetup) -> Self {
        let (state, closed) = (Mutex::default(), watch::Sender::new(false));
        Self {
            connector: Arc::new(ServerConnector { setup, state, closed }),
            listing: SharedTask::default(),
            connect: SharedTask::default(),
        }
    }

    pub(super) fn spec(&self) -> &ServerSpec {
        &self.connector.setup.spec
    }

    /// Returns the current connection. `None` if there is no usable connection.
    pub(super) fn current_connection(&self) -> Option<Arc<McpConnection>> {
        // The lock is held while a connection is being opened, so there is none yet.
        let mut state = self.connector.state.try_lock().ok()?;
        self.connector.drop_outdated_connection(&mut state);
        state.connection.clone().filter(|connection| connection.closed_reason().is_none())
    }

    /// Returns the connection to the server, opening one if needed. Concurrent callers share one
    /// attempt, which continues when they stop waiting.
    pub(super) async fn get_or_open_connection(&self) -> ConnectResult {
        if !*self.connector.closed.borrow()
            && let Some(connection) = self.current_connection()
        {
            return Ok(connection);
        }
        let (attempt, _) = self.connect.join_or_start(|| {
            let connector = Arc::clone(&self.connector);
            async move { connector.connect_unless_closed().await }
        });
        attempt.await.unwrap_or_else(|| Err(self.connector.closed_error()))
    }

    /// Returns the tool list, starting the server if needed. Concurrent callers share one request
    /// and its result.
    pub(super) async fn tool_listing(self: &Arc<Self>) -> ListingResult {
        let (listing, _) = self.listing.join_or_start(|| {
            let server = Arc::clone(self);
            async move { server.fetch_tools_with_timeout(READY_TIMEOUT).await }
        });
        listing.await.unwrap_or_else(|| Err(self.connector.closed_error()))
    }

    /// Fetches the tool list with a timeout. A connection attempt continues after the timeout and
    /// counts its own failures.
    async fn fetch_tools_with_timeout(&self, max_wait: Duration) -> ListingResult {
        if let Ok(listed) = timeout(max_wait, self.fetch_tools_with_retry()).await {
            return listed;
        }
        let spec = self.spec();
        let secs = max_wait.as_secs_f32();
        Err(McpError::Start {
            server: spec.name.clone(),
            reason: format!("the server was not ready within {secs} s"),
            hint: start_hint(&spec.transport),
        })
    }

    async fn fetch_tools_with_retry(&self) -> ListingResult {
        let mut may_retry = true;
        loop {
            let connection = self.get_or_open_connection().await?;
            match connection.tool_listing().await {
                Ok(listing) => return Ok(listing),
                // The server was already gone, or it exited on this request.
                Err(ServerRequestError::Disconnected { can_retry: true, .. }) if may_retry => {
                    may_retry = false
                }
                Err(error) => return Err(connection.to_mcp_error(&error)),
            }
        }
    }

    /// Closes the connection and prevents new ones.
    pub(super) async fn close(&self) {
        self.connector.closed.send_replace(true);
        let connection = self.connector.state.lock().await.connection.take();
        if let Some(connection) = connection {
            connection.close().await;
        }
    }
}

impl ServerConnector {
    /// Opens a connection if there is none. Fails as soon as this server is closed.
    async fn connect_unless_closed(&self) -> ConnectResult {
        let mut closed = self.closed.subscribe();
        let attempt = async {
            let mut state = self.state.lock().await;
            self.connect_under_lock(&mut state).await
        };
        tokio::select! {
            biased;
            _ = closed.wait_for(|closed| *closed) => Err(self.closed_error()),
            result = attempt => result,
        }
    }

    fn closed_error(&self) -> McpError {
        let server = &self.setup.spec.name;
        McpError::Unavailable(format!(
            "The MCP server `{server}` is closed: this worker or this run is ending. Start it again."
        ))
    }

    /// Drops the connection to a program that has changed since, and forgets its failures, if the
    /// new version may be started. Calls in flight finish on the old connection; the old process is
    /// stopped after the last one.
    fn drop_outdated_connection(&self, state: &mut ConnectorState) {
        let (Some(check), Some(running)) = (&self.setup.start_check, state.version) else {
            return;
        };
        let server = &self.setup.spec.name;
        if check.has_other_version(server, running) {
            tracing::info!(server, "MCP server is restarted: its program changed");
            *state = ConnectorState::default();
        }
    }

    /// Checks that the server may be started, and returns the version of its program.
    fn check_start(&self) -> Result<Option<Hash>, McpError> {
        let server = &self.setup.spec.name;
        let version = self.setup.start_check.as_ref().map(|check| check.check_start(server));
        version.transpose().map_err(|reason| {
            McpError::Unavailable(format!("The MCP server `{server}` is not started: {reason}"))
        })
    }

    async fn connect_under_lock(&self, state: &mut ConnectorState) -> ConnectResult {
        self.drop_outdated_connection(state);
        if let Some(connection) = &state.connection {
            let Some(reason) = connection.closed_reason() else {
                return Ok(Arc::clone(connection));
            };
            tracing::debug!(server = self.setup.spec.name, reason, "MCP server disconnected");
            state.connection = None;
            state.failures = 0;
            self.count_failure(state);
        }
        loop {
            self.wait_for_backoff(state).await?;
            let default_mode = match state.failures % 2 {
                0 => HandshakeMode::Auto,
                _ => HandshakeMode::Legacy,
            };
            let mode = self.setup.handshake_mode(default_mode);
            state.version = self.check_start()?;
            match self.setup.connect(mode).await {
                Ok(connection) => {
                    let connection = Arc::new(connection);
                    *state = ConnectorState {
                        connection: Some(Arc::clone(&connection)),
                        version: state.version,
                        ..ConnectorState::default()
                    };
                    return Ok(connection);
                }
                Err(error @ (McpError::Config { .. } | McpError::LoginRequired { .. })) => {
                    return Err(error);
                }
                Err(error) => {
                    self.count_failure(state);
                    state.last_error = Some(error.clone());
                    if state.failures >= self.max_failures() {
                        return Err(repeated_failure(error, state.failures));
                    }
                }
            }
        }
    }

    /// Waits until the backoff (the delay before a restart) is over. If the server keeps failing,
    /// returns its last error at once instead.
    async fn wait_for_backoff(&self, state: &ConnectorState) -> Result<(), McpError> {
        let clock = &self.setup.clock;
        let Some(at) = state.retry_at.filter(|at| *at > clock.monotonic_time()) else {
            return Ok(());
        };
        match &state.last_error {
            Some(last) if state.failures >= self.max_failures() => {
                Err(repeated_failure(last.clone(), state.failures))
            }
            Some(_) | None => {
                clock.sleep(at.minus(clock.monotonic_time())).await;
                Ok(())
            }
        }
    }

    fn count_failure(&self, state: &mut ConnectorState) {
        state.failures = state.failures.saturating_add(1);
        let delay = restart_delay(state.failures);
        state.retry_at = Some(self.setup.clock.monotonic_time().plus(delay));
    }

    /// Returns how many consecutive failures the server may have before it is reported as failing.
    fn max_failures(&self) -> u32 {
        match self.setup.spec.transport {
            ServerTransport::Stdio { .. } => FAILURES_MAX,
            ServerTransport::Http { .. } => REMOTE_FAILURES_MAX,
        }
    }
}

impl ServerSetup {
    fn handshake_mode(&self, default: HandshakeMode) -> HandshakeMode {
        match self.needs_legacy_handshake.load(Ordering::Acquire) {
            true => HandshakeMode::Legacy,
            false => default,
        }
    }

    /// Starts the server or connects to it, and remembers the handshake mode that worked.
    async fn connect(&self, mode: HandshakeMode) -> Result<McpConnection, McpError> {
        let result = McpConnection::connect(&self.spec, mode, &self.clock).await;
        let is_legacy = |connection: &McpConnection| connection.uses_legacy_protocol();
        let needs_legacy = result.as_ref().is_ok_and(is_legacy);
        self.needs_legacy_handshake.store(needs_legacy, Ordering::Release);
        result
    }

    /// Starts the server for a check. If that fails, the start is tried once more in the other
    /// handshake mode.
    pub(super) async fn connect_for_check(&self) -> Result<McpConnection, McpError> {
        let mode = self.handshake_mode(HandshakeMode::Auto);
        match self.connect(mode).await {
            Err(error @ McpError::Start { .. }) => {
                let other_mode = match mode {
                    HandshakeMode::Auto => HandshakeMode::Legacy,
                    HandshakeMode::Legacy => HandshakeMode::Auto,
                };
                self.connect(other_mode).await.map_err(|_| error)
            }
            result => result,
        }
    }
}

/// Returns the delay before a restart after this number of consecutive failures.
fn restart_delay(failures: u32) -> Millis {
    let factor = 1_u64.checked_shl(failures.saturating_sub(1));
    let millis = factor.unwrap_or(u64::MAX).saturating_mul(BACKOFF_INITIAL.0);
    Millis(millis).min(BACKOFF_MAX)
}

/// Converts a start error into the error for a server that failed this many times in a row.
fn repeated_failure(error: McpError, times: u32) -> McpError {
    let McpError::Start { server, reason, hint } = error else {
        return error;
    };
    McpError::RepeatedFailures { server, times, reason, hint }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_core::time::Timestamp;

    /// A clock whose time never changes and whose sleeps never end.
    #[derive(Debug)]
    struct FixedClock;

    #[async_trait::async_trait]
    impl Clock for FixedClock {
        fn now(&self) -> Timestamp {
            Timestamp::from_micros(0)
        }

        async fn sleep(&self, _: Millis) {
            std::future::pending().await
        }
    }

    #[tokio::test]
    async fn waiting_for_a_server_to_start_has_a_timeout() {
        let spec = ServerSpec {
            name: "never".into(),
            transport: ServerTransport::Stdio {
                command: "/no/such/program".into(),
                args: Vec::new(),
                env: Default::default(),
                cwd: None,
            },
            per_run: false,
            timeout: ServerSpec::TIMEOUT,
        };
        let server = ReconnectingServer::new(ServerSetup {
            spec: Arc::new(spec),
            needs_legacy_handshake: Arc::default(),
            clock: Arc::new(FixedClock),
            start_check: None,
        });
        let error = server.fetch_tools_with_timeout(Duration::from_millis(20)).await.unwrap_err();
        assert!(error.to_string().contains("not ready within 0.02 s"), "{error}");
        // The attempt continues, and the next caller joins it instead of starting another.
        server.fetch_tools_with_timeout(Duration::from_millis(20)).await.unwrap_err();
        let (_, is_new) = server.connect.join_or_start(std::future::pending);
        assert!(!is_new);
    }

    #[test]
    fn restart_delays_double_up_to_a_limit() {
        let delays: Vec<u64> = (1..=7).map(|failures| restart_delay(failures).0).collect();
        assert_eq!(delays, [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
        assert_eq!(restart_delay(u32::MAX), BACKOFF_MAX);
    }
}
