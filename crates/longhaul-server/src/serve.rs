//! Accepts connections until it is told to stop, then lets them end.
//!
//! Never: a connection without a seat, or one that outlives the server.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use longhaul_engine::Error;
use longhaul_engine::changes::ChangeSource;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::app::App;
use crate::connection::{self, AcceptedConnection};
use crate::connections::{ConnectionLimits, Connections};
use crate::limits::SHUTDOWN_GRACE;
use crate::routes::router;

/// When the system has no room for another connection, it is asked again after this.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Serves until `stop` returns. The caller owns the listener and the end.
pub async fn serve(
    listener: TcpListener,
    app: App,
    stop: impl Future<Output = ()>,
) -> Result<(), Error> {
    let longhaul = app.longhaul().clone();
    let ports = longhaul.services();
    let source =
        ChangeSource { store: &*ports.store, records: &*ports.records, clock: &*ports.clock };
    let crew = TaskTracker::new();
    let cut = CancellationToken::new();
    let ended = tokio::select! {
        biased;
        () = stop => Ok(()),
        broke = ports.changes.run_reader(source) => broke,
        () = accept(listener, &app, &crew, &cut) => Ok(()),
    };
    app.stop();
    app.close();
    crew.close();
    app.background_tasks().close();
    let clock = &ports.clock;
    tokio::select! {
        biased;
        () = async { crew.wait().await; app.background_tasks().wait().await; } => {}
        () = clock.sleep(SHUTDOWN_GRACE.into()) => {
            tracing::info!(open = crew.len(), "connections were cut off");
            cut.cancel();
            crew.wait().await;
        }
    }
    ended
}

async fn accept(listener: TcpListener, app: &App, crew: &TaskTracker, cut: &CancellationToken) {
    let limits = ConnectionLimits::for_process(app.options().connections_max);
    let connections = Connections::new(limits);
    let router = router(app.clone());
    loop {
        connections.available().await;
        match listener.accept().await {
            Ok((stream, peer)) => {
                let accepted = AcceptedConnection {
                    stream,
                    peer,
                    connection: Arc::new(connections.open(peer.ip())),
                };
                let served = connection::serve(accepted, app.clone(), router.clone());
                let cut = cut.clone();
                crew.spawn(async move {
                    tokio::select! {
                        biased;
                        () = served => {}
                        () = cut.cancelled() => {}
                    }
                });
            }
            Err(error) => {
                // A client may be gone before it was greeted; anything else is
                // the system's, and passes or is seen in the log.
                if !matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset
                ) {
                    tracing::warn!(%error, "no connection can be accepted");
                    let clock = &app.longhaul().services().clock;
                    clock.sleep(ACCEPT_RETRY_DELAY.into()).await;
                }
            }
        }
    }
}
