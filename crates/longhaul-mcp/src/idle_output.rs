//! Limits how much a server process may write while no tool call is in flight, when nobody waits
//! for its output.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, JsonRpcMessage, ServerJsonRpcMessage,
};
use tokio::sync::Notify;

use crate::lines::MESSAGE_BYTES_MAX;

/// Time after which the counts start again.
const WINDOW: Duration = Duration::from_secs(10);

/// Maximum number of lines and of reads of stderr per window.
const WRITES_MAX: usize = 2_000;

/// Maximum number of bytes per window. A late response to a cancelled call is within it.
const BYTES_MAX: usize = 2 * MESSAGE_BYTES_MAX;

/// Counts the output of one server process between calls.
#[derive(Debug, Default)]
pub(super) struct IdleOutputLimit {
    counts: Mutex<OutputCounts>,
    exceeded: Notify,
}

#[derive(Debug, Default)]
struct OutputCounts {
    /// Requests without a response by id, and whether each is a tool call. The id is text, because
    /// some servers return a numeric id as a string.
    pending: HashMap<String, bool>,
    writes: usize,
    bytes: usize,
}

impl IdleOutputLimit {
    fn lock_counts(&self) -> MutexGuard<'_, OutputCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a message to the server.
    pub(super) fn track_sent_message(&self, message: &ClientJsonRpcMessage) {
        match message {
            JsonRpcMessage::Request(request) => {
                let is_call = matches!(request.request, ClientRequest::CallToolRequest(_));
                self.lock_counts().pending.insert(request.id.to_string(), is_call);
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) =
                    &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.lock_counts().pending.remove(&id.to_string());
                }
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
        }
    }

    /// Records a message of the server. Returns whether it answers a pending request.
    pub(super) fn track_response(&self, message: &ServerJsonRpcMessage) -> bool {
        let id = match message {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        id.is_some_and(|id| self.lock_counts().pending.remove(&id.to_string()).is_some())
    }

    /// Counts output of the server unless a call is in flight. Returns whether the output is within
    /// the limit; if not, wakes `wait_until_exceeded`.
    pub(super) fn count_output(&self, bytes: usize) -> bool {
        let mut counts = self.lock_counts();
        if counts.pending.values().any(|is_call| *is_call) {
            return true;
        }
        counts.writes += 1;
        counts.bytes += bytes;
        let is_within = counts.writes <= WRITES_MAX && counts.bytes <= BYTES_MAX;
        if !is_within {
            self.exceeded.notify_one();
        }
        is_within
    }

    /// Waits until the output has exceeded the limit.
    pub(super) async fn wait_until_exceeded(&self) {
        self.exceeded.notified().await;
    }

    /// Starts a new window every `WINDOW`, until the future is dropped.
    pub(super) async fn restart_windows(&self) {
        loop {
            tokio::time::sleep(WINDOW).await;
            let mut counts = self.lock_counts();
            (counts.writes, counts.bytes) = (0, 0);
        }
    }
}
