//! Says that a server of tools is waited for, while it is.
//!
//! Never: ends a wait.

use std::fmt;
use std::pin::pin;
use std::sync::OnceLock;
use std::time::Duration;

/// Whoever waits longer than this is told for what.
const NOTICE_DELAY: Duration = Duration::from_secs(2);

/// Who is told, by the server's name.
type NoticeFn = Box<dyn Fn(&str) + Send + Sync>;

/// Whoever is told that servers are slow; nobody: the log.
#[derive(Default)]
pub(crate) struct SlowNotice(OnceLock<NoticeFn>);

impl fmt::Debug for SlowNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_told = self.0.get().is_some();
        f.debug_tuple("SlowNotice").field(&is_told).finish()
    }
}

impl SlowNotice {
    /// From now on this is told; the first who asks for it is.
    pub(crate) fn set_callback(&self, tell: impl Fn(&str) + Send + Sync + 'static) {
        _ = self.0.set(Box::new(tell));
    }

    /// Waits for a server.
    pub(crate) async fn wait_for_server<T>(
        &self,
        server: &str,
        work: impl Future<Output = T>,
    ) -> T {
        let told = || match self.0.get() {
            Some(tell) => tell(server),
            None => tracing::info!(server, "a server of tools is waited for: no answer yet"),
        };
        wait_with_notice(work, told).await
    }
}

/// Waits, and says so once where it takes long.
pub async fn wait_with_notice<T>(work: impl Future<Output = T>, told: impl FnOnce()) -> T {
    let mut work = pin!(work);
    tokio::select! {
        biased;
        done = &mut work => return done,
        () = tokio::time::sleep(NOTICE_DELAY) => told(),
    }
    work.await
}
