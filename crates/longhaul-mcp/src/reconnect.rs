//! Keeps one connection to a server: opened when needed, reopened when it is lost, with a backoff
//! when the server keeps failing.
//!
//! Invariant: there is at most one connection at a time. A connection attempt continues when its
//! callers stop waiting, and serves the next caller.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use longhaul_core::raw::Hash;
use longhaul_core::time::{Clock, Millis};
use tokio::sync::{Mutex, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::connection::{McpConnection, ServerRequestError};
use crate::error::McpError;
use crate::handshake::{HandshakeMode, HandshakeModeCache};
use crate::listing::ToolListing;
use crate::spec::{ServerSpec, ServerTransport, StartCheck, redacted_url};

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

/// A request for the tool list, shared by concurrent callers.
type ListingFuture = BoxFuture<'static, ListingResult>;

/// A connection to a server, or why it could not be opened.
type ConnectResult = Result<Arc<McpConnection>, McpError>;

/// A server with at most one connection, which is opened when needed and reopened when it is lost.
pub(super) struct ReconnectingServer {
    connector: Arc<ServerConnector>,
    /// The request for the tool list in flight. It is cancelled when nobody waits for it.
    pending_listing: std::sync::Mutex<Option<WeakShared<ListingFuture>>>,
    pending_connect: std::sync::Mutex<PendingConnectionAttempt>,
}

/// The connection attempt in flight. It continues when nobody waits for it, and ends when this
/// value is dropped.
#[derive(Default)]
struct PendingConnectionAttempt {
    result: Option<Shared<BoxFuture<'static, ConnectResult>>>,
    tasks: JoinSet<()>,
}

/// Opens connections to one server and counts its failures.
struct ServerConnector {
    spec: Arc<ServerSpec>,
    mode_cache: HandshakeModeCache,
    clock: Arc<dyn Clock>,
    /// Checks the server before each start. `None` means that it may always be started.
    start_check: Option<Arc<dyn StartCheck>>,
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
    pub(super) fn new(
        spec: Arc<ServerSpec>,
        mode_cache: HandshakeModeCache,
        clock: Arc<dyn Clock>,
        start_check: Option<Arc<dyn StartCheck>>,
    ) -> Self {
        Self {
            connector: Arc::new(ServerConnector {
                spec,
                mode_cache,
                clock,
                start_check,
                state: Mutex::default(),
                closed: watch::Sender::new(false),
            }),
            pending_listing: std::sync::Mutex::default(),
            pending_connect: std::sync::Mutex::default(),
        }
    }

    pub(super) fn spec(&self) -> &ServerSpec {
        &self.connector.spec
    }

    /// Returns the current time of the monotonic clock.
    pub(super) fn monotonic_now(&self) -> Millis {
        self.connector.clock.monotonic_time()
    }

    /// Returns the current connection. `None` if there is no usable connection.
    pub(super) fn current_connection(&self) -> Option<Arc<McpConnection>> {
        // The lock is held while a connection is being opened, so there is none yet.
        let mut state = self.connector.state.try_lock().ok()?;
        self.connector.drop_outdated_connection(&mut state);
        state.connection.clone().filter(|connection| connection.closed_reason().is_none())
    }

    /// Returns the connection to the server, opening one if needed. Dropping the future does not
    /// stop the attempt.
    pub(super) async fn get_or_open_connection(&self) -> ConnectResult {
        match self.current_connection().filter(|_| !*self.connector.closed.borrow()) {
            Some(connection) => Ok(connection),
            None => self.join_or_start_connection_attempt().await,
        }
    }

    /// Joins the connection attempt in flight, or starts a new one.
    fn join_or_start_connection_attempt(&self) -> Shared<BoxFuture<'static, ConnectResult>> {
        let mut pending = self.pending_connect.lock().unwrap_or_else(PoisonError::into_inner);
        while pending.tasks.try_join_next().is_some() {}
        let attempt = pending.result.clone();
        // A finished attempt is out of date.
        if let Some(attempt) = attempt.filter(|attempt| attempt.peek().is_none())
            && !pending.tasks.is_empty()
        {
            return attempt;
        }
        let (sender, receiver) = oneshot::channel();
        let connector = Arc::clone(&self.connector);
        pending.tasks.spawn(async move {
            // The receiver may be gone. The connection is kept in any case.
            _ = sender.send(connector.connect_unless_closed().await);
        });
        let closed_error = self.connector.permanently_closed_error();
        let attempt = receiver.map(|result| result.unwrap_or(Err(closed_error)));
        let attempt = attempt.boxed().shared();
        pending.result = Some(attempt.clone());
        attempt
    }

    /// Returns the tool list, starting the server if needed. Concurrent callers share one request
    /// and its result.
    pub(super) async fn tool_listing(self: &Arc<Self>) -> ListingResult {
        self.join_or_start_tool_listing().await
    }

    fn join_or_start_tool_listing(self: &Arc<Self>) -> Shared<ListingFuture> {
        let mut pending = self.pending_listing.lock().unwrap_or_else(PoisonError::into_inner);
        let ongoing = pending.as_ref().and_then(WeakShared::upgrade);
        if let Some(ongoing) = ongoing.filter(|ongoing| ongoing.peek().is_none()) {
            return ongoing;
        }
        let server = Arc::clone(self);
        let new =
            async move { server.fetch_tools_with_timeout(READY_TIMEOUT).await }.boxed().shared();
        *pending = new.downgrade();
        new
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
            hint: match &spec.transport {
                ServerTransport::Stdio { .. } => {
                    "Run the server's command in a terminal to see why it is slow.".to_owned()
                }
                ServerTransport::Http { url, .. } => {
                    format!("Check that the server responds at {}.", redacted_url(url))
                }
            },
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
            _ = closed.wait_for(|closed| *closed) => Err(self.permanently_closed_error()),
            result = attempt => result,
        }
    }

    fn permanently_closed_error(&self) -> McpError {
        McpError::Closed { server: self.spec.name.clone() }
    }

    /// Drops the connection to a program that has changed since, and forgets its failures, if the
    /// new version may be started. Calls in flight finish on the old connection; the old process is
    /// stopped after the last one.
    fn drop_outdated_connection(&self, state: &mut ConnectorState) {
        let (Some(check), Some(running)) = (&self.start_check, state.version) else {
            return;
        };
        if check.has_other_version(&self.spec.name, running) {
            tracing::info!(server = self.spec.name, "MCP server is restarted: its program changed");
            *state = ConnectorState::default();
        }
    }

    /// Checks that the server may be started, and returns the version of its program.
    fn check_start(&self) -> Result<Option<Hash>, McpError> {
        let check = self.start_check.as_ref();
        let version = check.map(|check| check.check_start(&self.spec.name)).transpose();
        let server = || self.spec.name.clone();
        version.map_err(|reason| McpError::StartRefused { server: server(), reason })
    }

    async fn connect_under_lock(&self, state: &mut ConnectorState) -> ConnectResult {
        self.drop_outdated_connection(state);
        if let Some(connection) = &state.connection {
            let Some(reason) = connection.closed_reason() else {
                return Ok(Arc::clone(connection));
            };
            tracing::debug!(server = self.spec.name, reason, "MCP server disconnected");
            state.connection = None;
            state.failures = 1;
            state.retry_at = Some(self.clock.monotonic_time().plus(restart_delay(1)));
        }
        loop {
            self.wait_for_backoff(state).await?;
            let default_mode = match state.failures % 2 {
                0 => HandshakeMode::Auto,
                _ => HandshakeMode::Legacy,
            };
            let mode = self.mode_cache.cached_mode().unwrap_or(default_mode);
            state.version = self.check_start()?;
            let result = McpConnection::connect_to_server(&self.spec, mode).await;
            self.mode_cache
                .set_cached_mode(result.as_ref().ok().map(McpConnection::handshake_mode));
            match result {
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
                Err(error) => self.record_connect_failure(state, error)?,
            }
        }
    }

    /// Waits until the backoff (the delay before a restart) is over. If the server keeps failing,
    /// returns its last error at once instead.
    async fn wait_for_backoff(&self, state: &ConnectorState) -> Result<(), McpError> {
        let Some(at) = state.retry_at.filter(|at| *at > self.clock.monotonic_time()) else {
            return Ok(());
        };
        match &state.last_error {
            Some(last) if state.failures >= self.max_connect_failures() => {
                Err(to_repeated_failure_error(last.clone(), state.failures))
            }
            Some(_) | None => {
                self.clock.sleep(at.minus(self.clock.monotonic_time())).await;
                Ok(())
            }
        }
    }

    fn record_connect_failure(
        &self,
        state: &mut ConnectorState,
        error: McpError,
    ) -> Result<(), McpError> {
        state.failures = state.failures.saturating_add(1);
        state.retry_at = Some(self.clock.monotonic_time().plus(restart_delay(state.failures)));
        state.last_error = Some(error.clone());
        match state.failures >= self.max_connect_failures() {
            true => Err(to_repeated_failure_error(error, state.failures)),
            false => Ok(()),
        }
    }

    /// Returns how many consecutive failures the server may have before it is reported as failing.
    fn max_connect_failures(&self) -> u32 {
        match self.spec.transport {
            ServerTransport::Stdio { .. } => FAILURES_MAX,
            ServerTransport::Http { .. } => REMOTE_FAILURES_MAX,
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
fn to_repeated_failure_error(error: McpError, times: u32) -> McpError {
    match error {
        McpError::Start { server, reason, hint } => {
            McpError::RepeatedFailures { server, times, reason, hint }
        }
        other @ (McpError::ServerNotFound { .. }
        | McpError::ToolNotFound { .. }
        | McpError::Config { .. }
        | McpError::LoginRequired { .. }
        | McpError::StartRefused { .. }
        | McpError::RepeatedFailures { .. }
        | McpError::Disconnected { .. }
        | McpError::Closed { .. }) => other,
    }
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
        let server = ReconnectingServer::new(
            Arc::new(spec),
            HandshakeModeCache::default(),
            Arc::new(FixedClock),
            None,
        );
        let error = server.fetch_tools_with_timeout(Duration::from_millis(20)).await.unwrap_err();
        assert!(error.to_string().contains("not ready within 0.02 s"), "{error}");
        // The attempt continues, and the next caller joins it instead of starting another.
        server.fetch_tools_with_timeout(Duration::from_millis(20)).await.unwrap_err();
        let pending = server.pending_connect.lock().unwrap();
        assert_eq!(pending.tasks.len(), 1);
    }

    #[test]
    fn restart_delays_double_up_to_a_limit() {
        let delays: Vec<u64> = (1..=7).map(|failures| restart_delay(failures).0).collect();
        assert_eq!(delays, [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
        assert_eq!(restart_delay(u32::MAX), BACKOFF_MAX);
    }
}
