//! Observes the messages between the SDK and a server on any transport: progress of calls, changes
//! of the tool list, servers with too many open requests, and output while no call is in flight.
//!
//! The SDK's callbacks can't replace this: it runs each in a task of its own, so progress would be
//! unordered, unbounded, and reported after the result.
//!
//! Invariant: messages are not changed. Messages that only this module needs are not passed on to
//! the SDK.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longhaul_core::port::tool::Progress;
use rmcp::RoleClient;
use rmcp::model::{
    ClientCapabilities, ClientJsonRpcMessage, ClientNotification, ClientRequest,
    GetExtensions as _, GetMeta as _, JsonRpcMessage, ProgressNotificationParam, ProgressToken,
    RequestId, ServerJsonRpcMessage, ServerNotification,
};
use rmcp::transport::Transport;
use tokio::sync::Notify;

use crate::exit::ExitRecord;

/// Maximum length of a server's message in bytes.
pub(super) const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Maximum number of requests from a server to this client that are not answered yet.
const SERVER_REQUESTS_MAX: usize = 64;

/// Maximum length of a progress message in characters.
const PROGRESS_CHARS_MAX: usize = 500;

/// Time after which the counts of idle output start again.
const IDLE_WINDOW: Duration = Duration::from_secs(10);

/// Maximum number of lines and of reads of stderr per window while no call is in flight.
const IDLE_WRITES_MAX: usize = 2_000;

/// Maximum number of bytes per window while no call is in flight. A late response to a cancelled
/// call is within it.
const IDLE_BYTES_MAX: usize = 2 * MESSAGE_BYTES_MAX;

/// Receiver of a tool call's progress, stored in the SDK's extensions of the request that makes the
/// call.
#[derive(Debug, Clone)]
pub(super) struct ProgressSink(pub(super) Arc<dyn Progress>);

/// State of a connection to a server, derived from the messages on it.
#[derive(Debug, Default)]
pub(super) struct Observations {
    counts: Mutex<MessageCounts>,
    /// How often the server has reported a change of its tool list.
    pub(super) list_changes: AtomicU64,
    /// Notified when the server has written too much while no call was in flight.
    pub(super) idle_limit_exceeded: Notify,
}

#[derive(Debug, Default)]
struct MessageCounts {
    /// Requests without a response by id. The id is text, because some servers return a numeric id
    /// as a string.
    pending: HashMap<String, PendingRequest>,
    /// Whether `initialize` was sent. If the server does not answer `server/discover` for some time,
    /// the SDK assumes an older server and sends `initialize`. A server that is slow to start then
    /// answers both requests in order, and the SDK would treat the late answer as an error.
    is_initialize_sent: bool,
    /// Number of requests of the server that were not answered yet.
    server_requests: usize,
    idle_writes: usize,
    idle_bytes: usize,
}

#[derive(Debug)]
struct PendingRequest {
    is_call: bool,
    is_discover: bool,
    progress: Option<(ProgressToken, ProgressSink)>,
}

impl Observations {
    fn lock(&self) -> MutexGuard<'_, MessageCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the progress receivers of the calls in flight whose token fits.
    fn progress_sinks(&self, fits: impl Fn(&ProgressToken) -> bool) -> Vec<ProgressSink> {
        let counts = self.lock();
        let progress = counts.pending.values().filter_map(|request| request.progress.as_ref());
        progress.filter(|(token, _)| fits(token)).map(|(_, sink)| sink.clone()).collect()
    }

    /// Records a question of the server and its answer in the progress of all calls in flight. Over
    /// stdio it is unknown for which of several calls the server asks, and the calls may belong to
    /// different runs. Then the text of the question is left out.
    pub(super) fn report_question_to_calls(&self, text: &str) {
        let sinks = self.progress_sinks(|_| true);
        let text = match sinks.len() {
            0 | 1 => text.to_owned(),
            count => {
                format!("declined a question of the server during one of {count} parallel calls")
            }
        };
        for ProgressSink(listener) in sinks {
            listener.report_to_journal(&text);
        }
    }

    fn report_progress(&self, params: &ProgressNotificationParam) {
        let percent = params
            .total
            .filter(|total| total.is_finite() && *total > 0.0 && params.progress.is_finite())
            .map(|total| (params.progress / total * 100.0).clamp(0.0, 100.0) as u8);
        let text = params.message.as_deref().unwrap_or_default();
        let text: String =
            text.chars().filter(|c| !c.is_control()).take(PROGRESS_CHARS_MAX).collect();
        for ProgressSink(listener) in self.progress_sinks(|token| *token == params.progress_token) {
            listener.report(percent, &text);
        }
    }

    /// Records a message to the server. Returns the id of the message if it is a request.
    fn track_sent(&self, message: &ClientJsonRpcMessage) -> Option<RequestId> {
        let mut counts = self.lock();
        match message {
            JsonRpcMessage::Request(request) => {
                let (id, request) = (&request.id, &request.request);
                let sink = request.extensions().get::<ProgressSink>().cloned();
                let pending = PendingRequest {
                    is_call: matches!(request, ClientRequest::CallToolRequest(_)),
                    is_discover: matches!(request, ClientRequest::DiscoverRequest(_)),
                    progress: request.get_meta().get_progress_token().zip(sink),
                };
                counts.pending.insert(id.to_string(), pending);
                counts.is_initialize_sent |= matches!(request, ClientRequest::InitializeRequest(_));
                return Some(id.clone());
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) =
                    &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    counts.pending.remove(&id.to_string());
                }
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {
                counts.server_requests = counts.server_requests.saturating_sub(1);
            }
        }
        None
    }

    /// Returns whether a message of the server answers a pending request.
    pub(super) fn is_awaited_response(&self, message: &ServerJsonRpcMessage) -> bool {
        let id = match message {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        id.is_some_and(|id| self.lock().pending.contains_key(&id.to_string()))
    }

    /// Records the end of a request. Returns whether the SDK waits for its response.
    fn end_request(&self, id: &RequestId) -> bool {
        let mut counts = self.lock();
        let request = counts.pending.remove(&id.to_string());
        !(counts.is_initialize_sent && request.is_some_and(|request| request.is_discover))
    }

    /// Records a message of the server. Returns whether to pass it on to the SDK; `None` means that
    /// the server has too many open requests.
    fn track_received(&self, message: &ServerJsonRpcMessage) -> Option<bool> {
        match message {
            JsonRpcMessage::Request(_) => {
                let mut counts = self.lock();
                counts.server_requests += 1;
                (counts.server_requests <= SERVER_REQUESTS_MAX).then_some(true)
            }
            JsonRpcMessage::Response(response) => Some(self.end_request(&response.id)),
            JsonRpcMessage::Error(error) => {
                Some(error.id.as_ref().is_none_or(|id| self.end_request(id)))
            }
            JsonRpcMessage::Notification(notification) => {
                Some(self.track_notification(&notification.notification))
            }
        }
    }

    /// Records a notification of the server. Returns whether to pass it on to the SDK.
    fn track_notification(&self, notification: &ServerNotification) -> bool {
        if let ServerNotification::ProgressNotification(progress) = notification {
            self.report_progress(&progress.params);
            return false;
        }
        if let ServerNotification::ToolListChangedNotification(_) = notification {
            self.list_changes.fetch_add(1, Ordering::AcqRel);
        }
        // The SDK needs the notifications that belong to its subscriptions.
        notification.get_meta().subscription_id().is_some()
            || matches!(
                notification,
                ServerNotification::CancelledNotification(_)
                    | ServerNotification::SubscriptionsAcknowledgedNotification(_)
            )
    }

    /// Counts output of the server unless a call is in flight. Returns whether the output is within
    /// the limit; if not, notifies `idle_limit_exceeded`.
    pub(super) fn count_idle_output(&self, bytes: usize) -> bool {
        let mut counts = self.lock();
        if counts.pending.values().any(|request| request.is_call) {
            return true;
        }
        counts.idle_writes += 1;
        counts.idle_bytes += bytes;
        let is_within =
            counts.idle_writes <= IDLE_WRITES_MAX && counts.idle_bytes <= IDLE_BYTES_MAX;
        if !is_within {
            self.idle_limit_exceeded.notify_one();
        }
        is_within
    }

    /// Starts to count idle output again after every window, until the future is dropped.
    pub(super) async fn restart_idle_windows(&self) {
        loop {
            tokio::time::sleep(IDLE_WINDOW).await;
            let mut counts = self.lock();
            (counts.idle_writes, counts.idle_bytes) = (0, 0);
        }
    }
}

/// A transport that updates the observed state of its connection with each message it carries.
pub(super) struct ObservedTransport<T> {
    pub(super) inner: T,
    pub(super) observations: Arc<Observations>,
    pub(super) exit: Arc<ExitRecord>,
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for ObservedTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        mut message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        // In the older protocol the call stays open during a question, so questions are declined. A
        // server that knows this asks none.
        if let JsonRpcMessage::Request(request) = &mut message
            && let ClientRequest::InitializeRequest(initialize) = &mut request.request
        {
            initialize.params.capabilities = ClientCapabilities::default();
        }
        let request = self.observations.track_sent(&message);
        let send = self.inner.send(message);
        let observations = Arc::clone(&self.observations);
        async move {
            let result = send.await;
            // The request was not sent, so no response will end it.
            if let (Err(_), Some(id)) = (&result, request) {
                observations.end_request(&id);
            }
            result
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let Some(message) = self.inner.receive().await else {
                self.exit.record_exit("the server closed the connection");
                return None;
            };
            match self.observations.track_received(&message) {
                Some(true) => return Some(message),
                Some(false) => {}
                None => {
                    self.exit.record_limit_violation(
                        "the server sends too many requests without waiting for responses",
                    );
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Progress receiver that stores all reported messages.
    #[derive(Debug, Default)]
    struct ProgressRecorder(Mutex<Vec<String>>);

    impl ProgressRecorder {
        fn take_messages(&self) -> Vec<String> {
            std::mem::take(&mut self.0.lock().unwrap())
        }
    }

    impl Progress for ProgressRecorder {
        fn report(&self, _: Option<u8>, message: &str) {
            self.0.lock().unwrap().push(message.to_owned());
        }
    }

    /// A fake transport whose sends succeed or fail.
    struct FakeTransport {
        sends_succeed: bool,
    }

    impl Transport<RoleClient> for FakeTransport {
        type Error = std::io::Error;

        fn send(
            &mut self,
            _: ClientJsonRpcMessage,
        ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
            let result = match self.sends_succeed {
                true => Ok(()),
                false => Err(std::io::ErrorKind::BrokenPipe.into()),
            };
            std::future::ready(result)
        }

        async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
            None
        }

        async fn close(&mut self) -> Result<(), Self::Error> {
            Ok(())
        }
    }

    fn tool_call_message(id: u32, progress: &Arc<ProgressRecorder>) -> ClientJsonRpcMessage {
        let call = json!({
            "jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": { "name": "a", "_meta": { "progressToken": id } },
        });
        let mut call: ClientJsonRpcMessage = serde_json::from_value(call).unwrap();
        if let JsonRpcMessage::Request(request) = &mut call
            && let ClientRequest::CallToolRequest(call) = &mut request.request
        {
            call.extensions.insert(ProgressSink(progress.clone()));
        }
        call
    }

    #[tokio::test]
    async fn a_call_that_was_never_sent_gets_no_progress() {
        let observations = Arc::new(Observations::default());
        let progress = Arc::new(ProgressRecorder::default());
        for (is_sent, expected) in [(false, Vec::new()), (true, vec!["asked".to_owned()])] {
            let mut transport = ObservedTransport {
                inner: FakeTransport { sends_succeed: is_sent },
                observations: Arc::clone(&observations),
                exit: Arc::default(),
            };
            let result = transport.send(tool_call_message(1, &progress)).await;
            assert_eq!(result.is_ok(), is_sent);
            observations.report_question_to_calls("asked");
            assert_eq!(progress.take_messages(), expected);
        }
    }

    #[tokio::test]
    async fn a_question_is_reported_without_text_if_its_call_is_unknown() {
        let observations = Arc::new(Observations::default());
        let recorders: [Arc<ProgressRecorder>; 2] = Default::default();
        let mut transport = ObservedTransport {
            inner: FakeTransport { sends_succeed: true },
            observations: Arc::clone(&observations),
            exit: Arc::default(),
        };
        transport.send(tool_call_message(1, &recorders[0])).await.unwrap();
        observations.report_question_to_calls("it asked \"secret?\"");
        assert_eq!(recorders[0].take_messages(), ["it asked \"secret?\""]);
        transport.send(tool_call_message(2, &recorders[1])).await.unwrap();
        observations.report_question_to_calls("it asked \"secret?\"");
        let expected = "declined a question of the server during one of 2 parallel calls";
        for progress in recorders {
            assert_eq!(progress.take_messages(), [expected]);
        }
    }
}
