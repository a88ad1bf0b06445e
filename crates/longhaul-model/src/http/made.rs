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
pub(super) struct Made(Arc<AtomicU64>);

impl Made {
    pub(super) fn so_far(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl<S> Layer<S> for Made {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted {
            inner,
            made: self.clone(),
        }
    }
}

/// What makes connections, counted.
#[derive(Debug, Clone)]
pub(super) struct Counted<S> {
    inner: S,
    made: Made,
}

impl<S: Service<R>, R> Service<R> for Counted<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, to: R) -> S::Future {
        self.made.0.fetch_add(1, Ordering::SeqCst);
        self.inner.call(to)
    }
}
