//! Observes the messages between the SDK and a server on any transport: progress of calls, changes
//! of the tool list, and servers with too many open requests.
//!
//! Invariant: messages are not changed. Messages that only this module needs are not passed on to
//! the SDK.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::port::tool::Progress;
use rmcp::RoleClient;
use rmcp::model::{
    ClientCapabilities, ClientJsonRpcMessage, ClientNotification, ClientRequest,
    GetExtensions as _, GetMeta as _, JsonRpcMessage, ProgressNotificationParam, ProgressToken,
    RequestId, ServerJsonRpcMessage, ServerNotification,
};
use rmcp::transport::Transport;

use crate::exit::ServerExitRecord;

/// Maximum number of requests from a server to this client that are not answered yet.
const SERVER_REQUESTS_MAX: usize = 64;

/// Maximum length of a progress message in characters.
const PROGRESS_CHARS_MAX: usize = 500;

/// Receiver of a tool call's progress, stored in the SDK's extensions of the request that makes the
/// call.
#[derive(Debug, Clone)]
pub(super) struct ProgressSink(pub(super) Arc<dyn Progress>);

/// State of a connection to a server, derived from the messages on it.
#[derive(Debug, Default)]
pub(super) struct ObservedConnectionState {
    calls: Mutex<HashMap<RequestId, (ProgressToken, ProgressSink)>>,
    list_changes: AtomicU64,
    pending_server_requests: AtomicUsize,
    probe: Mutex<DiscoverRequestState>,
}

/// State of the `server/discover` request. If the server does not answer for some time, the SDK
/// assumes an older server and sends `initialize`. A server that is slow to start then answers both
/// requests in order, and the SDK would treat the late answer as an error.
#[derive(Debug, Default)]
enum DiscoverRequestState {
    #[default]
    Unsent,
    Sent(RequestId),
    /// The SDK no longer waits for the response to the `server/discover` request with this id.
    Abandoned(RequestId),
}

impl ObservedConnectionState {
    /// Returns how often the server has reported a change of its tool list.
    pub(super) fn tool_list_change_count(&self) -> u64 {
        self.list_changes.load(Ordering::Acquire)
    }

    /// Calls `action` with the locked map of the tool calls in flight.
    fn lock_and_access_pending_calls<T>(
        &self,
        action: impl FnOnce(&mut HashMap<RequestId, (ProgressToken, ProgressSink)>) -> T,
    ) -> T {
        action(&mut self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records a question of the server and its answer in the progress of all calls in flight. Over
    /// stdio it is unknown for which of several calls the server asks, and the calls may belong to
    /// different runs. Then the text of the question is left out.
    pub(super) fn report_question_to_calls(&self, text: &str) {
        let sinks = self.lock_and_access_pending_calls(|calls| {
            let sinks = calls.values().map(|(_, sinks)| sinks.clone());
            sinks.collect::<Vec<_>>()
        });
        let count = sinks.len();
        let summary;
        let text = match count {
            0 | 1 => text,
            _ => {
                summary = format!(
                    "declined a question of the server during one of {count} parallel calls"
                );
                &summary
            }
        };
        for ProgressSink(listener) in sinks {
            listener.report_to_journal(text);
        }
    }

    fn remove_pending_call(&self, id: &RequestId) {
        self.lock_and_access_pending_calls(|calls| calls.remove(id));
    }

    fn report_progress(&self, params: &ProgressNotificationParam) {
        let mut calls = self.lock_and_access_pending_calls(|calls| {
            let matching = calls.values().filter(|(token, _)| *token == params.progress_token);
            matching.map(|(_, sink)| sink.clone()).collect::<Vec<_>>()
        });
        let percent = params
            .total
            .filter(|total| total.is_finite() && *total > 0.0 && params.progress.is_finite())
            .map(|total| (params.progress / total * 100.0).clamp(0.0, 100.0) as u8);
        let text = params.message.as_deref().unwrap_or_default();
        let text: String =
            text.chars().filter(|c| !c.is_control()).take(PROGRESS_CHARS_MAX).collect();
        for ProgressSink(listener) in calls.drain(..) {
            listener.report(percent, &text);
        }
    }

    /// Updates the state of the `server/discover` request when a handshake request is sent.
    fn track_handshake_request(&self, request: &ClientRequest, id: &RequestId) {
        let mut probe = self.probe.lock().unwrap_or_else(PoisonError::into_inner);
        if let ClientRequest::DiscoverRequest(_) = request {
            *probe = DiscoverRequestState::Sent(id.clone());
        } else if let (ClientRequest::InitializeRequest(_), DiscoverRequestState::Sent(sent)) =
            (request, &*probe)
        {
            *probe = DiscoverRequestState::Abandoned(sent.clone());
        }
    }

    /// Returns whether this id answers a `server/discover` request that the SDK no longer waits
    /// for. Ids are compared as text because some servers return a numeric id as a string.
    fn is_abandoned_discover_response(&self, response_id: &RequestId) -> bool {
        let probe = self.probe.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(&*probe, DiscoverRequestState::Abandoned(id) if id.to_string() == response_id.to_string())
    }

    /// Handles an outgoing message. Returns the id of the message if the message is a tool call.
    fn track_outgoing_message(&self, message: &ClientJsonRpcMessage) -> Option<RequestId> {
        match message {
            JsonRpcMessage::Request(request) => {
                let ClientRequest::CallToolRequest(call) = &request.request else {
                    self.track_handshake_request(&request.request, &request.id);
                    return None;
                };
                let token = request.request.get_meta().get_progress_token();
                let sink = call.extensions().get::<ProgressSink>().cloned();
                if let (Some(token), Some(sink)) = (token, sink) {
                    self.lock_and_access_pending_calls(|calls| {
                        calls.insert(request.id.clone(), (token, sink))
                    });
                }
                return Some(request.id.clone());
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) =
                    &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.remove_pending_call(id);
                }
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {
                let decrement = |pending: usize| Some(pending.saturating_sub(1));
                _ = self.pending_server_requests.fetch_update(
                    Ordering::AcqRel,
                    Ordering::Acquire,
                    decrement,
                );
            }
        }
        None
    }

    /// Handles an incoming message. Returns whether to pass the message on to the SDK; `None` means
    /// the server has too many open requests.
    fn track_incoming_and_should_forward(&self, message: &ServerJsonRpcMessage) -> Option<bool> {
        match message {
            JsonRpcMessage::Request(_) => {
                let pending = self.pending_server_requests.fetch_add(1, Ordering::AcqRel);
                (pending < SERVER_REQUESTS_MAX).then_some(true)
            }
            JsonRpcMessage::Response(response) => {
                self.remove_pending_call(&response.id);
                Some(!self.is_abandoned_discover_response(&response.id))
            }
            JsonRpcMessage::Error(response) => {
                let Some(id) = &response.id else {
                    return Some(true);
                };
                self.remove_pending_call(id);
                Some(!self.is_abandoned_discover_response(id))
            }
            JsonRpcMessage::Notification(notification) => {
                Some(self.track_notification_and_should_forward(&notification.notification))
            }
        }
    }

    /// Handles a notification of the server. Returns whether to pass it on to the SDK.
    fn track_notification_and_should_forward(&self, notification: &ServerNotification) -> bool {
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
}

/// A transport that updates the observed state of its connection with each message it carries.
pub(super) struct ObservedTransport<T> {
    inner: T,
    observations: Arc<ObservedConnectionState>,
    exit: Arc<ServerExitRecord>,
}

impl<T> ObservedTransport<T> {
    pub(super) const fn new(
        inner: T,
        observations: Arc<ObservedConnectionState>,
        exit: Arc<ServerExitRecord>,
    ) -> Self {
        Self { inner, observations, exit }
    }
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
        let call = self.observations.track_outgoing_message(&message);
        let send = self.inner.send(message);
        let observations = Arc::clone(&self.observations);
        async move {
            let result = send.await;
            // The request was not sent, so no response will remove the call.
            if let (Err(_), Some(call)) = (&result, call) {
                observations.remove_pending_call(&call);
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
            match self.observations.track_incoming_and_should_forward(&message) {
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
        let observations = Arc::new(ObservedConnectionState::default());
        let progress = Arc::new(ProgressRecorder::default());
        for (is_sent, expected) in [(false, Vec::new()), (true, vec!["asked".to_owned()])] {
            let mut transport = ObservedTransport::new(
                FakeTransport { sends_succeed: is_sent },
                Arc::clone(&observations),
                Arc::default(),
            );
            let result = transport.send(tool_call_message(1, &progress)).await;
            assert_eq!(result.is_ok(), is_sent);
            observations.report_question_to_calls("asked");
            assert_eq!(progress.take_messages(), expected);
        }
    }

    #[tokio::test]
    async fn a_question_is_reported_without_text_if_its_call_is_unknown() {
        let observations = Arc::new(ObservedConnectionState::default());
        let recorders: [Arc<ProgressRecorder>; 2] = Default::default();
        let mut transport = ObservedTransport::new(
            FakeTransport { sends_succeed: true },
            Arc::clone(&observations),
            Arc::default(),
        );
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
