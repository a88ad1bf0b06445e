//! Counts the connections that a client makes, so that one can tell whether a
//! question went out on an old one.
//!
//! Never: changes how a connection comes about.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tower_layer::Layer;
use tower_service::Service;

/// How many connections were begun. A copy counts the same ones.
#[derive(Debug, Clone, Default)]
pub(super) struct ConnCounter(Arc<AtomicU64>);

impl ConnCounter {
    pub(super) fn total(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl<S> Layer<S> for ConnCounter {
    type Service = CountingConnector<S>;

    fn layer(&self, inner: S) -> CountingConnector<S> {
        CountingConnector { inner, counter: self.clone() }
    }
}

/// What makes connections, counted.
#[derive(Debug, Clone)]
pub(super) struct CountingConnector<S> {
    inner: S,
    counter: ConnCounter,
}

impl<S: Service<R>, R> Service<R> for CountingConnector<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, to: R) -> S::Future {
        self.counter.0.fetch_add(1, Ordering::SeqCst);
        self.inner.call(to)
    }
}
