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
use longhaul_model::mock::Mock;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::mock_model::counts::Counts;
use crate::mock_model::route;

/// So many connections at once.
const CONNECTIONS_MAX: usize = 8_192;

/// A kept connection on which nothing is asked is closed after this: later than
/// clients let go of theirs, so that none asks on one that is just closing.
const HEAD_WAIT: Duration = Duration::from_secs(120);

/// When the system has no room for another connection, it is asked again after this.
const BREATH: Millis = Millis(50);

/// Where requests come in.
#[derive(Debug)]
pub(crate) struct Door {
    listener: tokio::net::TcpListener,
    mock: Arc<Mock>,
    counts: Arc<Counts>,
}

impl Door {
    pub(crate) fn new(listener: TcpListener, mock: Mock) -> anyhow::Result<Self> {
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
                        connection(stream, &mock, &counts).await;
                        drop(seat);
                    });
                }
                // A client may be gone before it was greeted; anything else passes.
                Err(_) => SystemClock.sleep(BREATH).await,
            }
        }
    }
}

async fn connection(stream: TcpStream, mock: &Mock, counts: &Counts) {
    // Small events should leave at once.
    _ = stream.set_nodelay(true);
    let service = service_fn(|request| route::answer(mock, counts, request));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT)
        .serve_connection(TokioIo::new(stream), service);
    // A client that goes away, and a stream that is cut on purpose, are no faults.
    _ = served.await;
}
