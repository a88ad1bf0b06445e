//! Accepts connections, and hands each request on.
//!
//! Never: a connection without a seat.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use longhaul_core::time::{Clock as _, Millis};
use longhaul_engine::clock::SystemClock;
use longhaul_model::mock::MockProvider;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::mock_model::counts::RequestCounts;
use crate::mock_model::route;

/// So many connections at once.
const CONNECTIONS_MAX: usize = 8_192;

/// A kept connection on which nothing is asked is closed after this: later than
/// clients let go of theirs, so that none asks on one that is just closing.
const HEADER_TIMEOUT: Duration = Duration::from_secs(120);

/// When the system has no room for another connection, it is asked again after this.
const ACCEPT_RETRY_DELAY: Millis = Millis(50);

/// Where requests come in.
#[derive(Debug)]
pub(crate) struct MockServer {
    listener: tokio::net::TcpListener,
    mock: Arc<MockProvider>,
    counts: Arc<RequestCounts>,
}

impl MockServer {
    pub(crate) fn new(listener: TcpListener, mock: MockProvider) -> anyhow::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener: tokio::net::TcpListener::from_std(listener)?,
            mock: Arc::new(mock),
            counts: Arc::default(),
        })
    }

    /// Serves until it is dropped, and every connection with it.
    pub(crate) async fn serve(self) {
        let seats = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let mut crew = JoinSet::new();
        loop {
            while crew.try_join_next().is_some() {}
            let Ok(seat) = Arc::clone(&seats).acquire_owned().await else {
                return;
            };
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let (mock, counts) = (Arc::clone(&self.mock), Arc::clone(&self.counts));
                    crew.spawn(async move {
                        serve_connection(stream, &mock, &counts).await;
                        drop(seat);
                    });
                }
                // A client may be gone before it was greeted; anything else passes.
                Err(_) => SystemClock.sleep(ACCEPT_RETRY_DELAY).await,
            }
        }
    }
}

async fn serve_connection(stream: TcpStream, mock: &MockProvider, counts: &RequestCounts) {
    // Small events should leave at once.
    _ = stream.set_nodelay(true);
    let service = service_fn(|request| route::handle(mock, counts, request));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    // A client that goes away, and a stream that is cut on purpose, are no faults.
    _ = served.await;
}
