//! The HTTP server of the mock model, with a limit on the number of connections.

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

/// Maximum number of concurrent connections to the mock.
const CONNECTIONS_MAX: usize = 8_192;

/// Time after which an idle keep-alive connection is closed. It is longer than the idle timeout of
/// clients, so that no client sends a request on a connection that is just being closed.
const HEADER_TIMEOUT: Duration = Duration::from_secs(120);

/// Delay before the next attempt to accept a connection after an attempt failed.
const ACCEPT_RETRY_DELAY: Millis = Millis(50);

/// The HTTP server of the mock model.
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

    /// Serves requests until the future is dropped, which also closes every connection.
    pub(crate) async fn serve(self) {
        let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let mut tasks = JoinSet::new();
        loop {
            while tasks.try_join_next().is_some() {}
            let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
                return;
            };
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let (mock, counts) = (Arc::clone(&self.mock), Arc::clone(&self.counts));
                    tasks.spawn(async move {
                        serve_connection(stream, &mock, &counts).await;
                        drop(permit);
                    });
                }
                // A client may be gone before it was accepted; other errors are transient.
                Err(_) => SystemClock.sleep(ACCEPT_RETRY_DELAY).await,
            }
        }
    }
}

async fn serve_connection(stream: TcpStream, mock: &MockProvider, counts: &RequestCounts) {
    // Sends small events at once.
    _ = stream.set_nodelay(true);
    let service = service_fn(|request| route::handle_request(mock, counts, request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    // A disconnected client and a stream broken off on purpose are not errors.
    _ = connection.await;
}
