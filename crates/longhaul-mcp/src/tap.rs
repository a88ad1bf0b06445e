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

use crate::fate::Fate;

/// So many requests of a server may wait for their answer.
const OWED_MAX: usize = 64;

/// So much of what a server says of its progress is passed on.
const PROGRESS_CHARS_MAX: usize = 500;

/// Whoever hears how far a call is, put beside its request.
#[derive(Debug, Clone)]
pub(super) struct Hears(pub(super) Arc<dyn Progress>);

/// What a connection has heard.
#[derive(Debug, Default)]
pub(super) struct Heard {
    calls: Mutex<HashMap<RequestId, (ProgressToken, Hears)>>,
    changed: AtomicU64,
    owed: AtomicUsize,
    probe: Mutex<Probe>,
}

/// The newer greeting. The SDK takes a while of silence for an older server and greets
/// that in the older manner; but a server that is slow to start is as silent, and then
/// answers both, in order. The SDK would take the late answer for a fault.
#[derive(Debug, Default)]
enum Probe {
    #[default]
    Unsent,
    Sent(RequestId),
    /// The SDK waits for its answer no more.
    Late(RequestId),
}

impl Heard {
    /// How often the list of tools has changed.
    pub(super) fn changes(&self) -> u64 {
        self.changed.load(Ordering::Acquire)
    }

    fn with<T>(
        &self,
        use_it: impl FnOnce(&mut HashMap<RequestId, (ProgressToken, Hears)>) -> T,
    ) -> T {
        use_it(&mut self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Tells all who wait for a call what a server asked and was answered, to be read
    /// about afterwards. Over pipes nobody knows which of several calls it asked for,
    /// and they may be of different runs: then its words are not told.
    pub(super) fn tell(&self, words: &str) {
        let all = self.with(|calls| {
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
        for Hears(listener) in all {
            listener.record(words);
        }
    }

    fn forget(&self, id: &RequestId) {
        self.with(|calls| calls.remove(id));
    }

    fn progress(&self, said: &ProgressNotificationParam) {
        let mut calls = self.with(|calls| {
            let its = calls
                .values()
                .filter(|(token, _)| *token == said.progress_token);
            its.map(|(_, hears)| hears.clone()).collect::<Vec<_>>()
        });
        let percent = said
            .total
            .filter(|total| total.is_finite() && *total > 0.0 && said.progress.is_finite())
            .map(|total| (said.progress / total * 100.0).clamp(0.0, 100.0) as u8);
        let words = said.message.as_deref().unwrap_or_default();
        let words: String = words
            .chars()
            .filter(|letter| !letter.is_control())
            .take(PROGRESS_CHARS_MAX)
            .collect();
        for Hears(listener) in calls.drain(..) {
            listener.report(percent, &words);
        }
    }

    /// Takes note of the greetings that go out.
    fn greets(&self, request: &ClientRequest, id: &RequestId) {
        let mut probe = self.probe.lock().unwrap_or_else(PoisonError::into_inner);
        if let ClientRequest::DiscoverRequest(_) = request {
            *probe = Probe::Sent(id.clone());
        } else if let (ClientRequest::InitializeRequest(_), Probe::Sent(sent)) = (request, &*probe)
        {
            *probe = Probe::Late(sent.clone());
        }
    }

    /// Whether this answers a greeting for whose answer the SDK waits no more. Some
    /// servers give a number back as text.
    fn is_late(&self, answers: &RequestId) -> bool {
        let probe = self.probe.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(&*probe, Probe::Late(id) if id.to_string() == answers.to_string())
    }

    /// What goes out, and which call that is.
    fn out(&self, message: &ClientJsonRpcMessage) -> Option<RequestId> {
        match message {
            JsonRpcMessage::Request(asked) => {
                let ClientRequest::CallToolRequest(call) = &asked.request else {
                    self.greets(&asked.request, &asked.id);
                    return None;
                };
                let token = asked.request.get_meta().get_progress_token();
                let hears = call.extensions().get::<Hears>().cloned();
                if let (Some(token), Some(hears)) = (token, hears) {
                    self.with(|calls| calls.insert(asked.id.clone(), (token, hears)));
                }
                return Some(asked.id.clone());
            }
            JsonRpcMessage::Notification(told) => {
                if let ClientNotification::CancelledNotification(cancelled) = &told.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.forget(id);
                }
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {
                let less = |owed: usize| Some(owed.saturating_sub(1));
                _ = self
                    .owed
                    .fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
            }
        }
        None
    }

    /// What comes in, and whether it goes on to the SDK. None: it asks too much.
    fn comes(&self, message: &ServerJsonRpcMessage) -> Option<bool> {
        match message {
            JsonRpcMessage::Request(_) => {
                let owed = self.owed.fetch_add(1, Ordering::AcqRel);
                (owed < OWED_MAX).then_some(true)
            }
            JsonRpcMessage::Response(answer) => {
                self.forget(&answer.id);
                Some(!self.is_late(&answer.id))
            }
            JsonRpcMessage::Error(answer) => {
                let Some(id) = &answer.id else {
                    return Some(true);
                };
                self.forget(id);
                Some(!self.is_late(id))
            }
            JsonRpcMessage::Notification(told) => Some(self.told(&told.notification)),
        }
    }

    fn told(&self, notification: &ServerNotification) -> bool {
        if let ServerNotification::ProgressNotification(said) = notification {
            self.progress(&said.params);
            return false;
        }
        if let ServerNotification::ToolListChangedNotification(_) = notification {
            self.changed.fetch_add(1, Ordering::AcqRel);
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
pub(super) struct Tap<T> {
    way: T,
    heard: Arc<Heard>,
    fate: Arc<Fate>,
}

impl<T> Tap<T> {
    pub(super) const fn new(way: T, heard: Arc<Heard>, fate: Arc<Fate>) -> Self {
        Self { way, heard, fate }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Tap<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let call = self.heard.out(&message);
        let sent = self.way.send(message);
        let heard = Arc::clone(&self.heard);
        async move {
            let sent = sent.await;
            // No answer will come that ends it.
            if let (Err(_), Some(call)) = (&sent, call) {
                heard.forget(&call);
            }
            sent
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let Some(message) = self.way.receive().await else {
                self.fate.ends("it closed the connection");
                return None;
            };
            match self.heard.comes(&message) {
                Some(true) => return Some(message),
                Some(false) => {}
                None => {
                    self.fate
                        .breaks("it asks again and again without waiting for answers");
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.way.close().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Writes down what it is told.
    #[derive(Debug, Default)]
    struct Diary(Mutex<Vec<String>>);

    impl Diary {
        fn told(&self) -> Vec<String> {
            std::mem::take(&mut self.0.lock().unwrap())
        }
    }

    impl Progress for Diary {
        fn report(&self, _: Option<u8>, message: &str) {
            self.0.lock().unwrap().push(message.to_owned());
        }
    }

    /// A way on which things are sent or not.
    struct Says(bool);

    impl Transport<RoleClient> for Says {
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

    fn call(id: u32, diary: &Arc<Diary>) -> ClientJsonRpcMessage {
        let call = json!({
            "jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": { "name": "a", "_meta": { "progressToken": id } },
        });
        let mut call: ClientJsonRpcMessage = serde_json::from_value(call).unwrap();
        if let JsonRpcMessage::Request(asked) = &mut call
            && let ClientRequest::CallToolRequest(call) = &mut asked.request
        {
            call.extensions.insert(Hears(diary.clone()));
        }
        call
    }

    #[tokio::test]
    async fn a_call_that_was_never_sent_hears_nothing() {
        let heard = Arc::new(Heard::default());
        let diary = Arc::new(Diary::default());
        for (is_sent, expect) in [(false, Vec::new()), (true, vec!["asked".to_owned()])] {
            let mut tap = Tap::new(Says(is_sent), Arc::clone(&heard), Arc::default());
            let sent = tap.send(call(1, &diary)).await;
            assert_eq!(sent.is_ok(), is_sent);
            heard.tell("asked");
            assert_eq!(diary.told(), expect);
        }
    }

    #[tokio::test]
    async fn what_may_be_about_another_call_is_told_without_its_words() {
        let heard = Arc::new(Heard::default());
        let diaries: [Arc<Diary>; 2] = Default::default();
        let mut tap = Tap::new(Says(true), Arc::clone(&heard), Arc::default());
        tap.send(call(1, &diaries[0])).await.unwrap();
        heard.tell("it asked \"secret?\"");
        assert_eq!(diaries[0].told(), ["it asked \"secret?\""]);
        tap.send(call(2, &diaries[1])).await.unwrap();
        heard.tell("it asked \"secret?\"");
        let words = "it asked something in the middle of one of 2 calls and was declined";
        for diary in diaries {
            assert_eq!(diary.told(), [words]);
        }
    }
}
