//! Reports that the program waits for a slow MCP server. The waiting time is not limited here.

use std::fmt;
use std::pin::pin;
use std::sync::OnceLock;
use std::time::Duration;

/// Time to wait for a server before it is reported as slow.
const NOTICE_DELAY: Duration = Duration::from_secs(2);

/// Callback that receives the name of the slow server.
type NoticeFn = Box<dyn Fn(&str) + Send + Sync>;

/// Reports slow MCP servers to a callback, or to the log if no callback is set.
#[derive(Default)]
pub(crate) struct SlowMcpServerNotifier(OnceLock<NoticeFn>);

impl fmt::Debug for SlowMcpServerNotifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_set = self.0.get().is_some();
        f.debug_tuple("SlowMcpServerNotifier").field(&is_set).finish()
    }
}

impl SlowMcpServerNotifier {
    /// Sets the callback that receives the name of a slow server. Only the first call has an
    /// effect.
    pub(crate) fn set_slow_server_callback(&self, callback: impl Fn(&str) + Send + Sync + 'static) {
        _ = self.0.set(Box::new(callback));
    }

    /// Waits for `work`, an operation on the MCP server with this name. If that takes longer than
    /// `NOTICE_DELAY`, reports the server once as slow.
    pub(crate) async fn wait_for_server<T>(
        &self,
        server: &str,
        work: impl Future<Output = T>,
    ) -> T {
        let notify = || match self.0.get() {
            Some(callback) => callback(server),
            None => tracing::info!(server, "waiting for MCP server"),
        };
        wait_and_notify_if_slow(work, notify).await
    }
}

/// Waits for `work`. Calls `notify` once if that takes longer than `NOTICE_DELAY`.
pub async fn wait_and_notify_if_slow<T>(work: impl Future<Output = T>, notify: impl FnOnce()) -> T {
    let mut work = pin!(work);
    tokio::select! {
        biased;
        done = &mut work => return done,
        () = tokio::time::sleep(NOTICE_DELAY) => notify(),
    }
    work.await
}
