//! A place for one connection to a server: opened when needed, opened anew when
//! the server is gone, and left alone for a while when it keeps failing.
//!
//! Never: two connections at once, a server started again and again without a wait,
//! or one given up because whoever needed it has stopped waiting: it is there for the
//! next.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use longhaul_core::time::{Clock, Millis};
use tokio::sync::{Mutex, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::connection::{CallError, Connection};
use crate::error::McpError;
use crate::handshake::{HandshakeMode, KnownMode};
use crate::listing::Listing;
use crate::spec::{ServerSpec, ServerTransport, redacted_url};

/// A server that fails so often in a row is reported.
const FAILURES_MAX: u32 = 5;

/// The same for one that others start: it is there or not, and no try of ours
/// brings it. The second is in the other manner.
const REMOTE_FAILURES_MAX: u32 = 2;

/// The first wait; each is twice the one before.
const BACKOFF_INITIAL: Millis = Millis::from_secs(1);

/// The longest wait.
const BACKOFF_MAX: Millis = Millis::from_secs(30);

/// A server is waited for so long, until it is there and has said what it has.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// What a server has, or why nobody knows.
type ListingResult = Result<Arc<Listing>, McpError>;

/// A question that all who ask it meanwhile share.
type ListingFuture = BoxFuture<'static, ListingResult>;

/// A connection, or why there is none.
type ConnectResult = Result<Arc<Connection>, McpError>;

/// A place for one connection.
pub(super) struct ReconnectingServer {
    connector: Arc<Connector>,
    /// The question that is under way; it ends when nobody waits for it.
    pending_listing: std::sync::Mutex<Option<WeakShared<ListingFuture>>>,
    pending_connect: std::sync::Mutex<PendingConnect>,
}

/// The opening that is under way. It goes on when nobody waits for it, and ends with
/// the slot.
#[derive(Default)]
struct PendingConnect {
    result: Option<Shared<BoxFuture<'static, ConnectResult>>>,
    tasks: JoinSet<()>,
}

/// What it takes to open a connection.
struct Connector {
    spec: Arc<ServerSpec>,
    known_mode: KnownMode,
    clock: Arc<dyn Clock>,
    state: Mutex<ConnectorState>,
    closed: watch::Sender<bool>,
}

#[derive(Default)]
struct ConnectorState {
    connection: Option<Arc<Connection>>,
    /// How often in a row it failed to start or was found gone.
    failures: u32,
    /// Not before this is it started again.
    retry_at: Option<Millis>,
    /// Why it failed last.
    last_error: Option<McpError>,
}

impl std::fmt::Debug for ReconnectingServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ReconnectingServer").field(&self.spec().name).finish()
    }
}

impl ReconnectingServer {
    pub(super) fn new(spec: Arc<ServerSpec>, known: KnownMode, clock: Arc<dyn Clock>) -> Self {
        Self {
            connector: Arc::new(Connector {
                spec,
                known_mode: known,
                clock,
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

    /// The time by the monotonic clock.
    pub(super) fn monotonic(&self) -> Millis {
        self.connector.clock.monotonic()
    }

    /// The connection, if there is one now that can be used.
    pub(super) fn current(&self) -> Option<Arc<Connection>> {
        // Whoever holds this is starting one: none is there yet.
        let state = self.connector.state.try_lock().ok()?;
        state.connection.clone().filter(|link| link.closed_reason().is_none())
    }

    /// The connection, opened where there is none. To stop waiting does not stop it.
    pub(super) async fn connection(&self) -> ConnectResult {
        match self.current().filter(|_| !*self.connector.closed.borrow()) {
            Some(link) => Ok(link),
            None => self.join_connect().await,
        }
    }

    /// The opening that is under way, or a new one.
    fn join_connect(&self) -> Shared<BoxFuture<'static, ConnectResult>> {
        let mut opening = self.pending_connect.lock().unwrap_or_else(PoisonError::into_inner);
        while opening.tasks.try_join_next().is_some() {}
        let waited = opening.result.clone();
        // What somebody has heard already says how it was then.
        if let Some(waited) = waited.filter(|waited| waited.peek().is_none())
            && !opening.tasks.is_empty()
        {
            return waited;
        }
        let (tell, told) = oneshot::channel();
        let place = Arc::clone(&self.connector);
        opening.tasks.spawn(async move {
            // Nobody may wait for it any more; the connection is kept all the same.
            _ = tell.send(place.connect().await);
        });
        let ending = self.connector.closed_error();
        let waited = told.map(|opened| opened.unwrap_or(Err(ending)));
        let waited = waited.boxed().shared();
        opening.result = Some(waited.clone());
        waited
    }

    /// What the server has; it is started where it is not there. Those who ask while
    /// another waits have the same answer, and the same failure.
    pub(super) async fn listing(self: &Arc<Self>) -> ListingResult {
        self.join_listing().await
    }

    fn join_listing(self: &Arc<Self>) -> Shared<ListingFuture> {
        let mut asked = self.pending_listing.lock().unwrap_or_else(PoisonError::into_inner);
        let open = asked.as_ref().and_then(WeakShared::upgrade);
        if let Some(open) = open.filter(|open| open.peek().is_none()) {
            return open;
        }
        let slot = Arc::clone(self);
        let new = async move { slot.listing_within(READY_TIMEOUT).await }.boxed().shared();
        *asked = new.downgrade();
        new
    }

    /// Asks, but not for longer than this. What is being opened then goes on, and counts
    /// its own failures.
    async fn listing_within(&self, most: Duration) -> ListingResult {
        if let Ok(listed) = timeout(most, self.fetch_listing()).await {
            return listed;
        }
        let spec = self.spec();
        let secs = most.as_secs_f32();
        Err(McpError::Start {
            server: spec.name.clone(),
            reason: format!("it was not ready within {secs} s"),
            hint: match &spec.transport {
                ServerTransport::Stdio { .. } => {
                    "Run its command in a terminal to see what takes it so long.".to_owned()
                }
                ServerTransport::Http { url, .. } => {
                    format!("Does it answer at {}?", redacted_url(url))
                }
            },
        })
    }

    async fn fetch_listing(&self) -> ListingResult {
        let mut again = true;
        loop {
            let link = self.connection().await?;
            match link.listing().await {
                Ok(listing) => return Ok(listing),
                // It was gone before it was asked, or ended at the question.
                Err(CallError::Disconnected { can_retry: true, .. }) if again => again = false,
                Err(lost) => return Err(link.to_mcp_error(&lost)),
            }
        }
    }

    /// Closes what is open, for good.
    pub(super) async fn close(&self) {
        self.connector.closed.send_replace(true);
        let link = self.connector.state.lock().await.connection.take();
        if let Some(link) = link {
            link.close().await;
        }
    }
}

impl Connector {
    /// Opens a connection where there is none, until all is closed.
    async fn connect(&self) -> ConnectResult {
        let mut closed = self.closed.subscribe();
        let opened = async {
            let mut state = self.state.lock().await;
            self.connect_locked(&mut state).await
        };
        tokio::select! {
            biased;
            _ = closed.wait_for(|closed| *closed) => Err(self.closed_error()),
            opened = opened => opened,
        }
    }

    /// All is closed.
    fn closed_error(&self) -> McpError {
        McpError::Closed { server: self.spec.name.clone() }
    }

    async fn connect_locked(&self, state: &mut ConnectorState) -> ConnectResult {
        if let Some(link) = &state.connection {
            let Some(why) = link.closed_reason() else {
                return Ok(Arc::clone(link));
            };
            tracing::debug!(server = self.spec.name, why, "an MCP server is gone");
            state.connection = None;
            state.failures = 1;
            state.retry_at = Some(self.clock.monotonic().plus(backoff(1)));
        }
        loop {
            self.wait_for_backoff(state).await?;
            let guess = match state.failures % 2 {
                0 => HandshakeMode::Auto,
                _ => HandshakeMode::Legacy,
            };
            let manner = self.known_mode.get().unwrap_or(guess);
            let started = Connection::start(&self.spec, manner).await;
            self.known_mode.set(started.as_ref().ok().map(Connection::handshake_mode));
            match started {
                Ok(link) => {
                    let link = Arc::new(link);
                    *state = ConnectorState {
                        connection: Some(Arc::clone(&link)),
                        ..ConnectorState::default()
                    };
                    return Ok(link);
                }
                Err(error @ (McpError::Config { .. } | McpError::LoginRequired { .. })) => {
                    return Err(error);
                }
                Err(error) => self.record_failure(state, error)?,
            }
        }
    }

    /// Waits until the server may be started. One that keeps failing is not
    /// waited for: its failure is told once more.
    async fn wait_for_backoff(&self, state: &ConnectorState) -> Result<(), McpError> {
        let Some(at) = state.retry_at.filter(|at| *at > self.clock.monotonic()) else {
            return Ok(());
        };
        match &state.last_error {
            Some(last) if state.failures >= self.failures_max() => {
                Err(as_repeated_failure(last.clone(), state.failures))
            }
            Some(_) | None => {
                self.clock.sleep(at.minus(self.clock.monotonic())).await;
                Ok(())
            }
        }
    }

    fn record_failure(&self, state: &mut ConnectorState, error: McpError) -> Result<(), McpError> {
        state.failures = state.failures.saturating_add(1);
        state.retry_at = Some(self.clock.monotonic().plus(backoff(state.failures)));
        state.last_error = Some(error.clone());
        match state.failures >= self.failures_max() {
            true => Err(as_repeated_failure(error, state.failures)),
            false => Ok(()),
        }
    }

    /// How often it may fail in a row.
    fn failures_max(&self) -> u32 {
        match self.spec.transport {
            ServerTransport::Stdio { .. } => FAILURES_MAX,
            ServerTransport::Http { .. } => REMOTE_FAILURES_MAX,
        }
    }
}

/// The wait after so many failures.
fn backoff(failures: u32) -> Millis {
    let factor = 1_u64.checked_shl(failures.saturating_sub(1));
    let span = factor.unwrap_or(u64::MAX).saturating_mul(BACKOFF_INITIAL.0);
    Millis(span).min(BACKOFF_MAX)
}

/// An error of a start as that of many.
fn as_repeated_failure(error: McpError, times: u32) -> McpError {
    match error {
        McpError::Start { server, reason, hint } => {
            McpError::RepeatedFailures { server, times, reason, hint }
        }
        other @ (McpError::ServerNotFound { .. }
        | McpError::ToolNotFound { .. }
        | McpError::Config { .. }
        | McpError::LoginRequired { .. }
        | McpError::RepeatedFailures { .. }
        | McpError::Disconnected { .. }
        | McpError::Closed { .. }) => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_core::time::Timestamp;

    /// Never hurries: what it is asked to wait for does not come.
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
        let slot =
            ReconnectingServer::new(Arc::new(spec), KnownMode::default(), Arc::new(FixedClock));
        let late = slot.listing_within(Duration::from_millis(20)).await.unwrap_err();
        assert!(late.to_string().contains("not ready within 0.02 s"), "{late}");
        // It goes on, and whoever asks next waits for that and for nothing else.
        slot.listing_within(Duration::from_millis(20)).await.unwrap_err();
        let opening = slot.pending_connect.lock().unwrap();
        assert_eq!(opening.tasks.len(), 1);
    }

    #[test]
    fn restart_delays_double_up_to_a_limit() {
        let waits: Vec<u64> = (1..=7).map(|failures| backoff(failures).0).collect();
        assert_eq!(waits, [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
        assert_eq!(backoff(u32::MAX), BACKOFF_MAX);
    }
}
