//! Counts the connections that a client opens, to detect whether a request was sent on a reused
//! connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tower_layer::Layer;
use tower_service::Service;

/// Counter of the connections that a client has opened. Cheap to clone; clones share the count.
#[derive(Debug, Clone, Default)]
pub(super) struct ConnectionCounter(Arc<AtomicU64>);

impl ConnectionCounter {
    pub(super) fn total_connections(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl<S> Layer<S> for ConnectionCounter {
    type Service = CountingConnector<S>;

    fn layer(&self, inner: S) -> CountingConnector<S> {
        CountingConnector { inner, counter: self.clone() }
    }
}

/// A connector that counts the connections it opens.
#[derive(Debug, Clone)]
pub(super) struct CountingConnector<S> {
    inner: S,
    counter: ConnectionCounter,
}

impl<S: Service<R>, R> Service<R> for CountingConnector<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, destination: R) -> S::Future {
        self.counter.0.fetch_add(1, Ordering::SeqCst);
        self.inner.call(destination)
    }
}
