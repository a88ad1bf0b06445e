//! Accept loop and shutdown of the server.
//!
//! Invariant: connections are limited in number, and no connection outlives the server.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use longhaul_engine::Error;
use longhaul_engine::services::Services;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::app::App;
use crate::connection::{self, AcceptedConnection};
use crate::connections::{ConnectionLimits, Connections};
use crate::limits::SHUTDOWN_GRACE;
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
    let Services { store, records, clock, changes, .. } = services;
    let notify = changes.notify_subscribers(&**store, &**records, &**clock);
    let result = tokio::select! {
        biased;
        () = stop => Ok(()),
        result = notify => result,
        () = accept_connections(listener, &app, &tasks, &abort) => Ok(()),
    };
    app.begin_shutdown();
    app.request_close_of_all_connections();
    tasks.close();
    app.background_tasks().close();
    tokio::select! {
        biased;
        () = async { tasks.wait().await; app.background_tasks().wait().await; } => {}
        () = clock.sleep(SHUTDOWN_GRACE.into()) => {
            tracing::info!(connections = tasks.len(), "timeout: closed connections that had not ended");
            abort.cancel();
            tasks.wait().await;
        }
    }
    result
}

async fn accept_connections(
    listener: TcpListener,
    app: &App,
    tasks: &TaskTracker,
    abort: &CancellationToken,
) {
    let limits = ConnectionLimits::within_process_file_limit(app.options().connections_max);
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
                let serve_future =
                    connection::serve_connection(accepted, app.clone(), router.clone());
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
