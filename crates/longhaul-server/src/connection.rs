//! One connection: bounded heads, a patience with silence, and an end.
//!
//! Never: held by a client that neither writes nor reads.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use longhaul_core::time::Millis;
use tokio::net::TcpStream;
use tokio_io_timeout::TimeoutStream;
use tower_service::Service as _;

use crate::app::App;
use crate::connections::Connection;
use crate::limits::{FIRST_HEAD_TIMEOUT, HEAD_BYTES_MAX, HEADERS_MAX};
use crate::peer::Peer;

/// A connection as it was accepted.
#[derive(Debug)]
pub(crate) struct AcceptedConnection {
    pub(crate) stream: TcpStream,
    pub(crate) peer: SocketAddr,
    pub(crate) connection: Arc<Connection>,
}

/// Serves one connection until either side has enough, or its place is needed.
pub(crate) async fn serve(accepted: AcceptedConnection, app: App, router: Router) {
    let AcceptedConnection { stream, peer, connection: counted } = accepted;
    // Small answers should leave at once.
    _ = stream.set_nodelay(true);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(app.options().write_timeout));
    let asked = AtomicBool::new(false);
    let service = service_fn(|request: Request<Incoming>| {
        asked.store(true, Ordering::Relaxed);
        let mut router = router.clone();
        let counted = Arc::clone(&counted);
        async move {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(Peer(peer));
            request.extensions_mut().insert(counted);
            let answer: Result<Response, Infallible> = router.call(request).await;
            answer
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(app.options().head_timeout)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(Box::pin(stream)), service);
    let mut connection = std::pin::pin!(connection);
    let clock = &app.longhaul().services().clock;
    let silent = async {
        clock.sleep(Millis::from(FIRST_HEAD_TIMEOUT)).await;
        if asked.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    };
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = counted.evicted() => return,
        () = silent => return,
        () = app.close_requested() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        // A client that goes away, or keeps a connection and asks no more, is no
        // fault; one that writes nonsense, or never ends its first head, is worth a line.
        let dawdled = error.is_timeout() && !asked.load(Ordering::Relaxed);
        if error.is_parse() || dawdled {
            tracing::info!(%peer, %error, "a connection was closed");
        } else {
            tracing::debug!(%peer, %error, "a connection broke");
        }
    }
}
