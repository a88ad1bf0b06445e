//! What is heard on the way between the SDK and a server, whichever way it is:
//! how far calls are, that a list has changed, and who asks too much.
//!
//! Never: changes a message. What only we need to hear goes no further.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::port::tool::Progress;
use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, GetExtensions as _, GetMeta as _,
    JsonRpcMessage, ProgressNotificationParam, ProgressToken, RequestId, ServerJsonRpcMessage,
    ServerNotification,
};
use rmcp::transport::Transport;

use crate::exit::ServerExit;

/// So many requests of a server may wait for their answer.
const SERVER_REQUESTS_MAX: usize = 64;

/// So much of what a server says of its progress is passed on.
const PROGRESS_CHARS_MAX: usize = 500;

/// Whoever hears how far a call is, put beside its request.
#[derive(Debug, Clone)]
pub(super) struct ProgressSink(pub(super) Arc<dyn Progress>);

/// What a connection has heard.
#[derive(Debug, Default)]
pub(super) struct Observations {
    calls: Mutex<HashMap<RequestId, (ProgressToken, ProgressSink)>>,
    list_changes: AtomicU64,
    pending_server_requests: AtomicUsize,
    probe: Mutex<DiscoveryProbe>,
}

/// The newer greeting. The SDK takes a while of silence for an older server and greets
/// that in the older manner; but a server that is slow to start is as silent, and then
/// answers both, in order. The SDK would take the late answer for a fault.
#[derive(Debug, Default)]
enum DiscoveryProbe {
    #[default]
    Unsent,
    Sent(RequestId),
    /// The SDK waits for its answer no more.
    Abandoned(RequestId),
}

impl Observations {
    /// How often the list of tools has changed.
    pub(super) fn list_changes(&self) -> u64 {
        self.list_changes.load(Ordering::Acquire)
    }

    fn with_calls<T>(
        &self,
        use_it: impl FnOnce(&mut HashMap<RequestId, (ProgressToken, ProgressSink)>) -> T,
    ) -> T {
        use_it(&mut self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Tells all who wait for a call what a server asked and was answered, to be read
    /// about afterwards. Over pipes nobody knows which of several calls it asked for,
    /// and they may be of different runs: then its words are not told.
    pub(super) fn record_for_calls(&self, words: &str) {
        let all = self.with_calls(|calls| {
            let hears = calls.values().map(|(_, hears)| hears.clone());
            hears.collect::<Vec<_>>()
        });
        let many = all.len();
        let briefly;
        let words = match many {
            0 | 1 => words,
            _ => {
                briefly = format!(
                    "it asked something in the middle of one of {many} calls and was declined"
                );
                &briefly
            }
        };
        for ProgressSink(listener) in all {
            listener.report_durable(words);
        }
    }

    fn remove_call(&self, id: &RequestId) {
        self.with_calls(|calls| calls.remove(id));
    }

    fn report_progress(&self, said: &ProgressNotificationParam) {
        let mut calls = self.with_calls(|calls| {
            let its = calls.values().filter(|(token, _)| *token == said.progress_token);
            its.map(|(_, hears)| hears.clone()).collect::<Vec<_>>()
        });
        let percent = said
            .total
            .filter(|total| total.is_finite() && *total > 0.0 && said.progress.is_finite())
            .map(|total| (said.progress / total * 100.0).clamp(0.0, 100.0) as u8);
        let words = said.message.as_deref().unwrap_or_default();
        let words: String =
            words.chars().filter(|letter| !letter.is_control()).take(PROGRESS_CHARS_MAX).collect();
        for ProgressSink(listener) in calls.drain(..) {
            listener.report(percent, &words);
        }
    }

    /// Takes note of the greetings that go out.
    fn note_handshake(&self, request: &ClientRequest, id: &RequestId) {
        let mut probe = self.probe.lock().unwrap_or_else(PoisonError::into_inner);
        if let ClientRequest::DiscoverRequest(_) = request {
            *probe = DiscoveryProbe::Sent(id.clone());
        } else if let (ClientRequest::InitializeRequest(_), DiscoveryProbe::Sent(sent)) =
            (request, &*probe)
        {
            *probe = DiscoveryProbe::Abandoned(sent.clone());
        }
    }

    /// Whether this answers a greeting for whose answer the SDK waits no more. Some
    /// servers give a number back as text.
    fn is_abandoned_probe(&self, answers: &RequestId) -> bool {
        let probe = self.probe.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(&*probe, DiscoveryProbe::Abandoned(id) if id.to_string() == answers.to_string())
    }

    /// What goes out, and which call that is.
    fn on_outgoing(&self, message: &ClientJsonRpcMessage) -> Option<RequestId> {
        match message {
            JsonRpcMessage::Request(asked) => {
                let ClientRequest::CallToolRequest(call) = &asked.request else {
                    self.note_handshake(&asked.request, &asked.id);
                    return None;
                };
                let token = asked.request.get_meta().get_progress_token();
                let hears = call.extensions().get::<ProgressSink>().cloned();
                if let (Some(token), Some(hears)) = (token, hears) {
                    self.with_calls(|calls| calls.insert(asked.id.clone(), (token, hears)));
                }
                return Some(asked.id.clone());
            }
            JsonRpcMessage::Notification(told) => {
                if let ClientNotification::CancelledNotification(cancelled) = &told.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.remove_call(id);
                }
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {
                let less = |owed: usize| Some(owed.saturating_sub(1));
                _ = self.pending_server_requests.fetch_update(
                    Ordering::AcqRel,
                    Ordering::Acquire,
                    less,
                );
            }
        }
        None
    }

    /// What comes in, and whether it goes on to the SDK. None: it asks too much.
    fn on_incoming(&self, message: &ServerJsonRpcMessage) -> Option<bool> {
        match message {
            JsonRpcMessage::Request(_) => {
                let owed = self.pending_server_requests.fetch_add(1, Ordering::AcqRel);
                (owed < SERVER_REQUESTS_MAX).then_some(true)
            }
            JsonRpcMessage::Response(answer) => {
                self.remove_call(&answer.id);
                Some(!self.is_abandoned_probe(&answer.id))
            }
            JsonRpcMessage::Error(answer) => {
                let Some(id) = &answer.id else {
                    return Some(true);
                };
                self.remove_call(id);
                Some(!self.is_abandoned_probe(id))
            }
            JsonRpcMessage::Notification(told) => Some(self.on_notification(&told.notification)),
        }
    }

    fn on_notification(&self, notification: &ServerNotification) -> bool {
        if let ServerNotification::ProgressNotification(said) = notification {
            self.report_progress(&said.params);
            return false;
        }
        if let ServerNotification::ToolListChangedNotification(_) = notification {
            self.list_changes.fetch_add(1, Ordering::AcqRel);
        }
        // The SDK needs those that belong to what it subscribed to.
        notification.get_meta().subscription_id().is_some()
            || matches!(
                notification,
                ServerNotification::CancelledNotification(_)
                    | ServerNotification::SubscriptionsAcknowledgedNotification(_)
            )
    }
}

/// A way to a server, with somebody who hears what passes.
pub(super) struct ObservedTransport<T> {
    inner: T,
    observations: Arc<Observations>,
    exit: Arc<ServerExit>,
}

impl<T> ObservedTransport<T> {
    pub(super) const fn new(way: T, heard: Arc<Observations>, fate: Arc<ServerExit>) -> Self {
        Self { inner: way, observations: heard, exit: fate }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for ObservedTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let call = self.observations.on_outgoing(&message);
        let sent = self.inner.send(message);
        let heard = Arc::clone(&self.observations);
        async move {
            let sent = sent.await;
            // No answer will come that ends it.
            if let (Err(_), Some(call)) = (&sent, call) {
                heard.remove_call(&call);
            }
            sent
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let Some(message) = self.inner.receive().await else {
                self.exit.record_exit("it closed the connection");
                return None;
            };
            match self.observations.on_incoming(&message) {
                Some(true) => return Some(message),
                Some(false) => {}
                None => {
                    self.exit
                        .record_violation("it asks again and again without waiting for answers");
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

    /// Writes down what it is told.
    #[derive(Debug, Default)]
    struct RecordedProgress(Mutex<Vec<String>>);

    impl RecordedProgress {
        fn take(&self) -> Vec<String> {
            std::mem::take(&mut self.0.lock().unwrap())
        }
    }

    impl Progress for RecordedProgress {
        fn report(&self, _: Option<u8>, message: &str) {
            self.0.lock().unwrap().push(message.to_owned());
        }
    }

    /// A way on which things are sent or not.
    struct FakeTransport(bool);

    impl Transport<RoleClient> for FakeTransport {
        type Error = std::io::Error;

        fn send(
            &mut self,
            _: ClientJsonRpcMessage,
        ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
            let sent = match self.0 {
                true => Ok(()),
                false => Err(std::io::ErrorKind::BrokenPipe.into()),
            };
            std::future::ready(sent)
        }

        async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
            None
        }

        async fn close(&mut self) -> Result<(), Self::Error> {
            Ok(())
        }
    }

    fn call(id: u32, diary: &Arc<RecordedProgress>) -> ClientJsonRpcMessage {
        let call = json!({
            "jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": { "name": "a", "_meta": { "progressToken": id } },
        });
        let mut call: ClientJsonRpcMessage = serde_json::from_value(call).unwrap();
        if let JsonRpcMessage::Request(asked) = &mut call
            && let ClientRequest::CallToolRequest(call) = &mut asked.request
        {
            call.extensions.insert(ProgressSink(diary.clone()));
        }
        call
    }

    #[tokio::test]
    async fn a_call_that_was_never_sent_gets_no_progress() {
        let heard = Arc::new(Observations::default());
        let diary = Arc::new(RecordedProgress::default());
        for (is_sent, expect) in [(false, Vec::new()), (true, vec!["asked".to_owned()])] {
            let mut tap =
                ObservedTransport::new(FakeTransport(is_sent), Arc::clone(&heard), Arc::default());
            let sent = tap.send(call(1, &diary)).await;
            assert_eq!(sent.is_ok(), is_sent);
            heard.record_for_calls("asked");
            assert_eq!(diary.take(), expect);
        }
    }

    #[tokio::test]
    async fn progress_of_an_unclear_call_is_reported_without_its_text() {
        let heard = Arc::new(Observations::default());
        let diaries: [Arc<RecordedProgress>; 2] = Default::default();
        let mut tap =
            ObservedTransport::new(FakeTransport(true), Arc::clone(&heard), Arc::default());
        tap.send(call(1, &diaries[0])).await.unwrap();
        heard.record_for_calls("it asked \"secret?\"");
        assert_eq!(diaries[0].take(), ["it asked \"secret?\""]);
        tap.send(call(2, &diaries[1])).await.unwrap();
        heard.record_for_calls("it asked \"secret?\"");
        let words = "it asked something in the middle of one of 2 calls and was declined";
        for diary in diaries {
            assert_eq!(diary.take(), [words]);
        }
    }
}
