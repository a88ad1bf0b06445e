//! Accept loop, connections and shutdown of the server. A connection has limits on the request head
//! and timeouts for reading and writing; a client that neither sends nor reads is disconnected.
//!
//! Invariant: connections are limited in number, and no connection outlives the server.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use longhaul_core::time::Millis;
use longhaul_engine::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_service::Service as _;

use crate::app::App;
use crate::connections::{Connection, ConnectionLimits, Connections};
use crate::limits::{FIRST_HEAD_TIMEOUT, HEAD_BYTES_MAX, HEADERS_MAX, SHUTDOWN_GRACE};
use crate::peer::PeerAddress;
use crate::routes::build_router;

/// Delay before connections are accepted again after `accept` failed, for example because no file
/// descriptor is free.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Serves connections until `stop` completes or the engine's change feed fails, then closes all
/// connections.
pub async fn serve(
    listener: TcpListener,
    app: App,
    stop: impl Future<Output = ()>,
) -> Result<(), Error> {
    let longhaul = app.longhaul().clone();
    let services = longhaul.services();
    let tasks = TaskTracker::new();
    let abort = CancellationToken::new();
    let result = tokio::select! {
        biased;
        () = stop => Ok(()),
        result = services.notify_subscribers() => result,
        () = accept_all(listener, &app, &tasks, &abort) => Ok(()),
    };
    app.begin_shutdown();
    app.state.closed.cancel();
    tasks.close();
    app.state.background_tasks.close();
    tokio::select! {
        biased;
        () = async { tasks.wait().await; app.state.background_tasks.wait().await; } => {}
        () = services.clock.sleep(SHUTDOWN_GRACE.into()) => {
            tracing::info!(connections = tasks.len(), "timeout: closed connections that had not ended");
            abort.cancel();
            tasks.wait().await;
        }
    }
    result
}

async fn accept_all(
    listener: TcpListener,
    app: &App,
    tasks: &TaskTracker,
    abort: &CancellationToken,
) {
    let limits = ConnectionLimits::within_process_file_limit(app.state.options.connections_max);
    let clock = Arc::clone(&app.longhaul().services().clock);
    let connections = Connections::new(limits, clock);
    let router = build_router(app.clone());
    loop {
        connections.wait_for_connection_slot().await;
        match listener.accept().await {
            Ok((stream, peer)) => {
                let accepted = AcceptedConnection {
                    stream,
                    peer,
                    connection: Arc::new(connections.register_connection(peer.ip())),
                };
                let serve_future = serve_connection(accepted, app.clone(), router.clone());
                let abort = abort.clone();
                tasks.spawn(async move {
                    tokio::select! {
                        biased;
                        () = serve_future => {}
                        () = abort.cancelled() => {}
                    }
                });
            }
            Err(error) => {
                // A client may disconnect before its connection is accepted. All other errors
                // come from the operating system: they are logged, and `accept` is retried.
                if !matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset
                ) {
                    tracing::warn!(%error, "could not accept a connection");
                    let clock = &app.longhaul().services().clock;
                    clock.sleep(ACCEPT_RETRY_DELAY.into()).await;
                }
            }
        }
    }
}

/// An accepted TCP connection with its peer address.
#[derive(Debug)]
struct AcceptedConnection {
    stream: TcpStream,
    peer: SocketAddr,
    connection: Arc<Connection>,
}

/// Serves one connection until the client or the server closes it, or until it is evicted to make
/// room for a new connection.
async fn serve_connection(accepted: AcceptedConnection, app: App, router: Router) {
    let AcceptedConnection { stream, peer, connection: registration } = accepted;
    // Send small responses immediately.
    _ = stream.set_nodelay(true);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(app.state.options.write_timeout));
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
        .header_read_timeout(app.state.options.head_timeout)
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
        () = app.state.closed.cancelled() => {
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
