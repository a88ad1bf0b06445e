//! Serves one HTTP connection, with limits on the request head and timeouts for reading and
//! writing. A client that neither sends nor reads is disconnected.

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
use crate::peer::PeerAddress;

/// An accepted TCP connection with its peer address.
#[derive(Debug)]
pub(crate) struct AcceptedConnection {
    pub(crate) stream: TcpStream,
    pub(crate) peer: SocketAddr,
    pub(crate) connection: Arc<Connection>,
}

/// Serves one connection until the client or the server closes it, or until it is evicted to make
/// room for a new connection.
pub(crate) async fn serve_connection(accepted: AcceptedConnection, app: App, router: Router) {
    let AcceptedConnection { stream, peer, connection: registration } = accepted;
    // Send small responses immediately.
    _ = stream.set_nodelay(true);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(app.options().write_timeout));
    let has_request = AtomicBool::new(false);
    let service = service_fn(|request: Request<Incoming>| {
        has_request.store(true, Ordering::Relaxed);
        let mut router = router.clone();
        let registration = Arc::clone(&registration);
        async move {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(PeerAddress(peer));
            request.extensions_mut().insert(registration);
            let response: Result<Response, Infallible> = router.call(request).await;
            response
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
    let first_request_timeout = async {
        clock.sleep(Millis::from(FIRST_HEAD_TIMEOUT)).await;
        if has_request.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    };
    let result = tokio::select! {
        biased;
        result = connection.as_mut() => result,
        () = registration.wait_for_eviction() => return,
        () = first_request_timeout => return,
        () = app.wait_until_connections_must_close() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        // A client that disconnects, or that leaves an idle connection open, is not an error.
        // Only invalid requests and clients that never finish their first request head are
        // logged.
        let is_idle_timeout = error.is_timeout() && !has_request.load(Ordering::Relaxed);
        if error.is_parse() || is_idle_timeout {
            tracing::info!(%peer, %error, "closed a connection because of an invalid or incomplete request");
        } else {
            tracing::debug!(%peer, %error, "connection error");
        }
    }
}
