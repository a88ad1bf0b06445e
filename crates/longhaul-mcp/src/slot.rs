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

use crate::error::McpError;
use crate::greet::{Known, Manner};
use crate::link::{Link, Lost};
use crate::listing::Listing;
use crate::spec::{ServerSpec, Way, shown};

/// A server that fails so often in a row is reported.
const FAILURES_MAX: u32 = 5;

/// The same for one that others start: it is there or not, and no try of ours
/// brings it. The second is in the other manner.
const FAR_FAILURES_MAX: u32 = 2;

/// The first wait; each is twice the one before.
const WAIT: Millis = Millis::from_secs(1);

/// The longest wait.
const WAIT_MAX: Millis = Millis::from_secs(30);

/// A server is waited for so long, until it is there and has said what it has.
const READY: Duration = Duration::from_secs(60);

/// What a server has, or why nobody knows.
type Listed = Result<Arc<Listing>, McpError>;

/// A question that all who ask it meanwhile share.
type Asked = BoxFuture<'static, Listed>;

/// A connection, or why there is none.
type Opened = Result<Arc<Link>, McpError>;

/// A place for one connection.
pub(super) struct Slot {
    place: Arc<Place>,
    /// The question that is under way; it ends when nobody waits for it.
    asked: std::sync::Mutex<Option<WeakShared<Asked>>>,
    opening: std::sync::Mutex<Opening>,
}

/// The opening that is under way. It goes on when nobody waits for it, and ends with
/// the slot.
#[derive(Default)]
struct Opening {
    waited: Option<Shared<BoxFuture<'static, Opened>>>,
    tasks: JoinSet<()>,
}

/// What it takes to open a connection.
struct Place {
    spec: Arc<ServerSpec>,
    known: Known,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    closed: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    link: Option<Arc<Link>>,
    /// How often in a row it failed to start or was found gone.
    failures: u32,
    /// Not before this is it started again.
    not_before: Option<Millis>,
    /// Why it failed last.
    last: Option<McpError>,
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Slot").field(&self.spec().name).finish()
    }
}

impl Slot {
    pub(super) fn new(spec: Arc<ServerSpec>, known: Known, clock: Arc<dyn Clock>) -> Self {
        Self {
            place: Arc::new(Place {
                spec,
                known,
                clock,
                state: Mutex::default(),
                closed: watch::Sender::new(false),
            }),
            asked: std::sync::Mutex::default(),
            opening: std::sync::Mutex::default(),
        }
    }

    pub(super) fn spec(&self) -> &ServerSpec {
        &self.place.spec
    }

    /// The time by the monotonic clock.
    pub(super) fn monotonic(&self) -> Millis {
        self.place.clock.monotonic()
    }

    /// The connection, if there is one now that can be used.
    pub(super) fn open(&self) -> Option<Arc<Link>> {
        // Whoever holds this is starting one: none is there yet.
        let state = self.place.state.try_lock().ok()?;
        state.link.clone().filter(|link| link.gone().is_none())
    }

    /// The connection, opened where there is none. To stop waiting does not stop it.
    pub(super) async fn link(&self) -> Opened {
        match self.open().filter(|_| !*self.place.closed.borrow()) {
            Some(link) => Ok(link),
            None => self.opening().await,
        }
    }

    /// The opening that is under way, or a new one.
    fn opening(&self) -> Shared<BoxFuture<'static, Opened>> {
        let mut opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        while opening.tasks.try_join_next().is_some() {}
        let waited = opening.waited.clone();
        // What somebody has heard already says how it was then.
        if let Some(waited) = waited.filter(|waited| waited.peek().is_none())
            && !opening.tasks.is_empty()
        {
            return waited;
        }
        let (tell, told) = oneshot::channel();
        let place = Arc::clone(&self.place);
        opening.tasks.spawn(async move {
            // Nobody may wait for it any more; the connection is kept all the same.
            _ = tell.send(place.open().await);
        });
        let ending = self.place.ending();
        let waited = told.map(|opened| opened.unwrap_or(Err(ending)));
        let waited = waited.boxed().shared();
        opening.waited = Some(waited.clone());
        waited
    }

    /// What the server has; it is started where it is not there. Those who ask while
    /// another waits have the same answer, and the same failure.
    pub(super) async fn listing(self: &Arc<Self>) -> Listed {
        self.question().await
    }

    fn question(self: &Arc<Self>) -> Shared<Asked> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let open = asked.as_ref().and_then(WeakShared::upgrade);
        if let Some(open) = open.filter(|open| open.peek().is_none()) {
            return open;
        }
        let slot = Arc::clone(self);
        let new = async move { slot.within(READY).await }.boxed().shared();
        *asked = new.downgrade();
        new
    }

    /// Asks, but not for longer than this. What is being opened then goes on, and counts
    /// its own failures.
    async fn within(&self, most: Duration) -> Listed {
        if let Ok(listed) = timeout(most, self.ask()).await {
            return listed;
        }
        let spec = self.spec();
        let secs = most.as_secs_f32();
        Err(McpError::Start {
            server: spec.name.clone(),
            why: format!("it was not ready within {secs} s"),
            helps: match &spec.way {
                Way::Stdio { .. } => {
                    "Run its command in a terminal to see what takes it so long.".to_owned()
                }
                Way::Http { url, .. } => format!("Does it answer at {}?", shown(url)),
            },
        })
    }

    async fn ask(&self) -> Listed {
        let mut again = true;
        loop {
            let link = self.link().await?;
            match link.listing().await {
                Ok(listing) => return Ok(listing),
                // It was gone before it was asked, or ended at the question.
                Err(Lost::Gone { again: true, .. }) if again => again = false,
                Err(lost) => return Err(link.lost(&lost)),
            }
        }
    }

    /// Closes what is open, for good.
    pub(super) async fn close(&self) {
        self.place.closed.send_replace(true);
        let link = self.place.state.lock().await.link.take();
        if let Some(link) = link {
            link.close().await;
        }
    }
}

impl Place {
    /// Opens a connection where there is none, until all is closed.
    async fn open(&self) -> Opened {
        let mut closed = self.closed.subscribe();
        let opened = async {
            let mut state = self.state.lock().await;
            self.opened(&mut state).await
        };
        tokio::select! {
            biased;
            _ = closed.wait_for(|closed| *closed) => Err(self.ending()),
            opened = opened => opened,
        }
    }

    /// All is closed.
    fn ending(&self) -> McpError {
        McpError::Closed {
            server: self.spec.name.clone(),
        }
    }

    async fn opened(&self, state: &mut State) -> Opened {
        if let Some(link) = &state.link {
            let Some(why) = link.gone() else {
                return Ok(Arc::clone(link));
            };
            tracing::debug!(server = self.spec.name, why, "an MCP server is gone");
            state.link = None;
            state.failures = 1;
            state.not_before = Some(self.clock.monotonic().plus(wait(1)));
        }
        loop {
            self.bide(state).await?;
            let guess = match state.failures % 2 {
                0 => Manner::Either,
                _ => Manner::Older,
            };
            let manner = self.known.manner().unwrap_or(guess);
            let started = Link::start(&self.spec, manner).await;
            self.known.learn(started.as_ref().ok().map(Link::manner));
            match started {
                Ok(link) => {
                    let link = Arc::new(link);
                    *state = State {
                        link: Some(Arc::clone(&link)),
                        ..State::default()
                    };
                    return Ok(link);
                }
                Err(error @ (McpError::Config { .. } | McpError::Login { .. })) => {
                    return Err(error);
                }
                Err(error) => self.failed(state, error)?,
            }
        }
    }

    /// Waits until the server may be started. One that keeps failing is not
    /// waited for: its failure is told once more.
    async fn bide(&self, state: &State) -> Result<(), McpError> {
        let Some(at) = state.not_before.filter(|at| *at > self.clock.monotonic()) else {
            return Ok(());
        };
        match &state.last {
            Some(last) if state.failures >= self.failures_max() => {
                Err(keeps(last.clone(), state.failures))
            }
            Some(_) | None => {
                self.clock.sleep(at.minus(self.clock.monotonic())).await;
                Ok(())
            }
        }
    }

    fn failed(&self, state: &mut State, error: McpError) -> Result<(), McpError> {
        state.failures = state.failures.saturating_add(1);
        state.not_before = Some(self.clock.monotonic().plus(wait(state.failures)));
        state.last = Some(error.clone());
        match state.failures >= self.failures_max() {
            true => Err(keeps(error, state.failures)),
            false => Ok(()),
        }
    }

    /// How often it may fail in a row.
    fn failures_max(&self) -> u32 {
        match self.spec.way {
            Way::Stdio { .. } => FAILURES_MAX,
            Way::Http { .. } => FAR_FAILURES_MAX,
        }
    }
}

/// The wait after so many failures.
fn wait(failures: u32) -> Millis {
    let factor = 1_u64.checked_shl(failures.saturating_sub(1));
    let span = factor.unwrap_or(u64::MAX).saturating_mul(WAIT.0);
    Millis(span).min(WAIT_MAX)
}

/// An error of a start as that of many.
fn keeps(error: McpError, times: u32) -> McpError {
    match error {
        McpError::Start { server, why, helps } => McpError::KeepsFailing {
            server,
            times,
            why,
            helps,
        },
        other @ (McpError::NoServer { .. }
        | McpError::NoTool { .. }
        | McpError::Config { .. }
        | McpError::Login { .. }
        | McpError::KeepsFailing { .. }
        | McpError::Lost { .. }
        | McpError::Closed { .. }) => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_core::time::Timestamp;

    /// Never hurries: what it is asked to wait for does not come.
    #[derive(Debug)]
    struct Still;

    #[async_trait::async_trait]
    impl Clock for Still {
        fn now(&self) -> Timestamp {
            Timestamp::from_micros(0)
        }

        async fn sleep(&self, _: Millis) {
            std::future::pending().await
        }
    }

    #[tokio::test]
    async fn one_that_never_gets_ready_is_not_waited_for_without_an_end() {
        let spec = ServerSpec {
            name: "never".into(),
            way: Way::Stdio {
                command: "/no/such/program".into(),
                args: Vec::new(),
                env: Default::default(),
                cwd: None,
            },
            per_run: false,
            timeout: ServerSpec::TIMEOUT,
        };
        let slot = Slot::new(Arc::new(spec), Known::default(), Arc::new(Still));
        let late = slot.within(Duration::from_millis(20)).await.unwrap_err();
        assert!(
            late.to_string().contains("not ready within 0.02 s"),
            "{late}"
        );
        // It goes on, and whoever asks next waits for that and for nothing else.
        slot.within(Duration::from_millis(20)).await.unwrap_err();
        let opening = slot.opening.lock().unwrap();
        assert_eq!(opening.tasks.len(), 1);
    }

    #[test]
    fn waits_double_up_to_a_bound() {
        let waits: Vec<u64> = (1..=7).map(|failures| wait(failures).0).collect();
        assert_eq!(waits, [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
        assert_eq!(wait(u32::MAX), WAIT_MAX);
    }
}
