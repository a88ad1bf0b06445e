//! Broadcasts the output of models while it is generated.
//!
//! The broadcast is a best-effort copy: the journal has the full reply when the turn is over. A
//! slow subscriber may miss deltas of the broadcast, but loses nothing else.

mod holdback;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::id::RunId;
use longhaul_core::port::model::{DeltaSink, ModelRequest};
use longhaul_core::port::redact::Redact;
use tokio::sync::watch;

use crate::drive::deltas::holdback::HoldbackBuffer;
use crate::panics::with_lock;

/// Maximum number of bytes of one reply that are buffered for late subscribers.
const REPLY_BYTES_MAX: usize = 256 * 1024;

/// A piece of the text that a model generates for a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyDelta {
    /// Run whose model generates the reply.
    pub run: RunId,
    /// Number of the turn that the reply belongs to.
    pub turn: u32,
    /// Number of the attempt to generate the reply, within the turn.
    pub attempt: u32,
    /// Byte offset of `text` in the reply.
    pub offset: usize,
    /// Text that the model generated, with secrets redacted.
    pub text: Arc<str>,
}

/// Broadcast of the replies that models generate in this process. Cheap to clone; clones share
/// state.
#[derive(Debug, Clone, Default)]
pub struct ReplyDeltaBroadcast {
    channels: Arc<Mutex<HashMap<RunId, ReplyChannel>>>,
}

/// The current reply of one run and the signal for its subscribers.
#[derive(Debug, Default)]
struct ReplyChannel {
    reply: Option<LiveReply>,
    /// Signal for subscribers that the reply has grown. `None` if nobody has subscribed yet.
    changed: Option<watch::Sender<()>>,
}

impl ReplyChannel {
    fn notify_subscribers(&self) {
        if let Some(sender) = &self.changed {
            sender.send_replace(());
        }
    }

    fn subscriber_count(&self) -> usize {
        self.changed.as_ref().map_or(0, watch::Sender::receiver_count)
    }
}

#[derive(Debug, Clone)]
struct LiveReply {
    turn: u32,
    attempt: u32,
    text: String,
    /// Whether the reply is complete and is kept only for existing subscribers.
    is_complete: bool,
}

impl LiveReply {
    const fn end(&self) -> ReplyReadPosition {
        ReplyReadPosition { turn: self.turn, attempt: self.attempt, offset: self.text.len() }
    }
}

impl ReplyDeltaBroadcast {
    /// Subscribes to the model output of one run, starting at the beginning of the current reply.
    pub fn subscribe(&self, run: RunId) -> ReplyDeltaStream {
        let (receiver, at) = with_lock(&self.channels, |channels| {
            let channel = channels.entry(run).or_default();
            let receiver = channel.changed.get_or_insert_with(|| watch::Sender::new(()));
            // A reply that was complete before the subscription is in the journal.
            let completed = channel.reply.as_ref().filter(|reply| reply.is_complete);
            (receiver.subscribe(), completed.map(LiveReply::end))
        });
        ReplyDeltaStream { broadcast: self.clone(), run, changed: receiver, position: at }
    }

    /// Returns the text that the run's model has generated so far in the current turn. `None` if
    /// the model generates no reply at the moment.
    pub fn partial_reply(&self, run: RunId) -> Option<ReplyDelta> {
        let under_way = |channels: &mut HashMap<RunId, ReplyChannel>| {
            let reply = channels.get(&run)?.reply.as_ref();
            reply.filter(|reply| !reply.is_complete).map(drop)
        };
        with_lock(&self.channels, under_way)?;
        self.delta_since(run, None)
    }

    /// Returns the text of the run's current reply after a position. If the position is `None` or
    /// belongs to an earlier reply, returns the whole text. `None` if the run has no current reply.
    fn delta_since(&self, run: RunId, position: Option<ReplyReadPosition>) -> Option<ReplyDelta> {
        with_lock(&self.channels, |channels| {
            let reply = channels.get(&run)?.reply.as_ref()?;
            let offset = match position {
                Some(position)
                    if (position.turn, position.attempt) == (reply.turn, reply.attempt) =>
                {
                    position.offset
                }
                Some(_) | None => 0,
            };
            Some(ReplyDelta {
                run,
                turn: reply.turn,
                attempt: reply.attempt,
                offset,
                text: reply.text.get(offset..)?.into(),
            })
        })
    }

    /// Creates the sink that receives the streamed output of one model request. The sink redacts
    /// secrets before it publishes the output.
    pub(crate) fn create_model_output_sink(
        &self,
        request: &ModelRequest,
        redact: Arc<dyn Redact>,
    ) -> ReplyBroadcastSink {
        self.create_sink_for_reply((request.run, request.turn, request.attempt), redact)
    }

    fn create_sink_for_reply(
        &self,
        (run, turn, attempt): (RunId, u32, u32),
        redact: Arc<dyn Redact>,
    ) -> ReplyBroadcastSink {
        let reply = LiveReply { turn, attempt, text: String::new(), is_complete: false };
        with_lock(&self.channels, |channels| channels.entry(run).or_default().reply = Some(reply));
        ReplyBroadcastSink { broadcast: self.clone(), run, redact, holdback: Mutex::default() }
    }

    /// Adds text to the current reply of a run and notifies the subscribers.
    fn publish_reply_text(&self, run: RunId, text: &str) {
        if text.is_empty() {
            return;
        }
        with_lock(&self.channels, |channels| {
            let Some(channel) = channels.get_mut(&run) else { return };
            if let Some(reply) = &mut channel.reply {
                reply.text.push_str(text);
            }
            channel.notify_subscribers();
        });
    }
}

/// A position in the model output of a run.
#[derive(Debug, Clone, Copy)]
struct ReplyReadPosition {
    turn: u32,
    attempt: u32,
    offset: usize,
}

/// Subscription to the model output of one run. A slow subscriber receives fewer, larger deltas.
#[derive(Debug)]
pub struct ReplyDeltaStream {
    broadcast: ReplyDeltaBroadcast,
    run: RunId,
    changed: watch::Receiver<()>,
    position: Option<ReplyReadPosition>,
}

impl ReplyDeltaStream {
    /// Returns the part of the turn's reply that this subscriber has not received yet. `None` if
    /// nothing of the turn is left.
    pub fn take_rest_of_turn(&mut self, turn: u32) -> Option<ReplyDelta> {
        self.take_delta_if(|delta| delta.turn == turn)
    }

    fn take_delta_if(&mut self, predicate: impl Fn(&ReplyDelta) -> bool) -> Option<ReplyDelta> {
        let delta = self.broadcast.delta_since(self.run, self.position)?;
        if delta.text.is_empty() || !predicate(&delta) {
            return None;
        }
        self.position = Some(ReplyReadPosition {
            turn: delta.turn,
            attempt: delta.attempt,
            offset: delta.offset + delta.text.len(),
        });
        Some(delta)
    }

    /// Waits for the next piece of model output of the run.
    pub async fn next(&mut self) -> ReplyDelta {
        loop {
            self.changed.mark_unchanged();
            if let Some(delta) = self.take_delta_if(|_| true) {
                return delta;
            }
            if self.changed.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}

impl Drop for ReplyDeltaStream {
    fn drop(&mut self) {
        with_lock(&self.broadcast.channels, |channels| {
            let last = channels.get(&self.run).is_some_and(|channel| {
                let is_in_progress = channel.reply.as_ref().is_some_and(|reply| !reply.is_complete);
                // This subscriber is still counted.
                !is_in_progress && channel.subscriber_count() <= 1
            });
            if last {
                channels.remove(&self.run);
            }
        });
    }
}

/// Receives the text of one reply from the model adapter. When the sink is dropped, the reply is
/// removed, unless there are subscribers that have not received all of it yet.
#[derive(Debug)]
pub(crate) struct ReplyBroadcastSink {
    broadcast: ReplyDeltaBroadcast,
    run: RunId,
    redact: Arc<dyn Redact>,
    /// End of the streamed text, held back while it may be the beginning of a secret. It has its
    /// own lock, so that redacting it does not block the replies of other runs.
    holdback: Mutex<HoldbackBuffer>,
}

impl ReplyBroadcastSink {
    /// Publishes the text that `take` removes from the holdback buffer. The lock on the buffer
    /// keeps concurrent calls in order.
    fn publish(&self, take: impl FnOnce(&mut HoldbackBuffer) -> String) {
        let mut buffer = self.holdback.lock().unwrap_or_else(PoisonError::into_inner);
        let text = take(&mut buffer);
        self.broadcast.publish_reply_text(self.run, &text);
    }

    /// Publishes the text that is still held back and returns the complete text of the reply.
    /// Called when no more text will follow.
    pub(crate) fn flush_and_get_text(&self) -> Arc<str> {
        self.publish(|buffer| buffer.drain_redacted(&*self.redact));
        self.broadcast.partial_reply(self.run).map_or_else(|| "".into(), |delta| delta.text)
    }
}

impl DeltaSink for ReplyBroadcastSink {
    fn on_text(&self, text: &str) {
        self.publish(|buffer| buffer.push(text, &*self.redact, REPLY_BYTES_MAX));
    }
}

impl Drop for ReplyBroadcastSink {
    fn drop(&mut self) {
        self.publish(|buffer| buffer.drain_redacted(&*self.redact));
        with_lock(&self.broadcast.channels, |channels| {
            let Some(channel) = channels.get_mut(&self.run) else { return };
            match (channel.subscriber_count(), &mut channel.reply) {
                (0, _) => drop(channels.remove(&self.run)),
                (_, Some(reply)) => reply.is_complete = true,
                (_, None) => {}
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use longhaul_core::port::redact::NoRedaction;

    use super::*;

    impl ReplyDeltaBroadcast {
        /// Creates a sink for a run that has no secrets to redact.
        fn sink_without_redaction(&self, run: RunId, turn: u32) -> ReplyBroadcastSink {
            self.create_sink_for_reply((run, turn, 1), Arc::new(NoRedaction))
        }
    }

    /// Test redactor with two secrets, one of which is a prefix of the other.
    #[derive(Debug)]
    struct TwoSecretsRedactor;

    const SECRETS: [&str; 2] = ["abcab-long", "abcab"];

    impl Redact for TwoSecretsRedactor {
        fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
            match text.contains("abcab") {
                true => text.replace(SECRETS[0], "<L>").replace(SECRETS[1], "<S>").into(),
                false => text.into(),
            }
        }

        fn partial_secret_suffix_len(&self, text: &str) -> usize {
            let prefixes = SECRETS.iter().flat_map(|one| (1..one.len()).map(|end| &one[..end]));
            let prefixes = prefixes.filter(|prefixes| text.ends_with(prefixes));
            prefixes.map(str::len).max().unwrap_or(0)
        }
    }

    #[test]
    fn no_secret_is_streamed_however_the_text_is_chunked() {
        fn assert_streamed_text(pieces: &[&str], streamed: &str, complete: &str) {
            let broadcast = ReplyDeltaBroadcast::default();
            let run = RunId::from_bits(7);
            let sink = broadcast.create_sink_for_reply((run, 1, 1), Arc::new(TwoSecretsRedactor));
            for piece in pieces {
                sink.on_text(piece);
            }
            assert_eq!(&*broadcast.partial_reply(run).unwrap().text, streamed, "{pieces:?}");
            let mut listener = broadcast.subscribe(run);
            drop(sink);
            assert_eq!(&*listener.take_rest_of_turn(1).unwrap().text, complete, "{pieces:?}");
        }
        assert_streamed_text(&["it is abc", "ab!"], "it is <S>!", "it is <S>!");
        assert_streamed_text(&["it is abcab"], "it is ", "it is <S>");
        assert_streamed_text(&["it is abcab", "-lo", "ng."], "it is <L>.", "it is <L>.");
        assert_streamed_text(&["it is abcab-", "lot"], "it is <S>-lot", "it is <S>-lot");
        assert_streamed_text(&["a", "b", "c", "a", "b", "c"], "<S>c", "<S>c");
        assert_streamed_text(&["a", "b", "ä"], "abä", "abä");
        assert_streamed_text(&["a bc a"], "a bc ", "a bc a");
    }

    #[tokio::test]
    async fn deltas_are_streamed_in_order_and_dropped_at_the_end() {
        let broadcast = ReplyDeltaBroadcast::default();
        let run = RunId::from_bits(7);
        let mut early = broadcast.subscribe(run);
        let sink = broadcast.sink_without_redaction(run, 3);
        sink.on_text("one ");
        let fields = |delta: ReplyDelta| (delta.turn, delta.offset, delta.text.to_string());
        assert_eq!(fields(early.next().await), (3, 0, "one ".to_owned()));
        sink.on_text("two");
        sink.on_text(" three");
        assert_eq!(fields(early.next().await), (3, 4, "two three".to_owned()));
        let mut late = broadcast.subscribe(run);
        assert_eq!(fields(late.next().await), (3, 0, "one two three".to_owned()));
        assert_eq!(&*sink.flush_and_get_text(), "one two three");
        drop(sink);
        assert_eq!(broadcast.partial_reply(run), None);
        let sink = broadcast.sink_without_redaction(run, 4);
        sink.on_text("four");
        assert_eq!(fields(early.next().await), (4, 0, "four".to_owned()));
        drop((early, late));
        drop(sink);
        assert!(with_lock(&broadcast.channels, |channels| channels.is_empty()));
    }

    #[test]
    fn subscribers_receive_the_last_delta() {
        let broadcast = ReplyDeltaBroadcast::default();
        let run = RunId::from_bits(7);
        let mut early = broadcast.subscribe(run);
        let sink = broadcast.sink_without_redaction(run, 1);
        sink.on_text("all at once");
        drop(sink);
        let mut late = broadcast.subscribe(run);
        assert_eq!(late.take_rest_of_turn(1), None, "the journal has the reply now");
        assert_eq!(broadcast.partial_reply(run), None);
        assert_eq!(early.take_rest_of_turn(2), None);
        assert_eq!(&*early.take_rest_of_turn(1).unwrap().text, "all at once");
        assert_eq!(early.take_rest_of_turn(1), None);
        drop((early, late));
        assert!(with_lock(&broadcast.channels, |channels| channels.is_empty()));
    }

    #[test]
    fn the_delta_buffer_is_limited() {
        let broadcast = ReplyDeltaBroadcast::default();
        let sink = broadcast.sink_without_redaction(RunId::from_bits(7), 1);
        for _ in 0..100 {
            sink.on_text(&"x".repeat(8 * 1024));
        }
        assert_eq!(sink.flush_and_get_text().len(), REPLY_BYTES_MAX);
        let sink = broadcast.sink_without_redaction(RunId::from_bits(8), 1);
        sink.on_text("one");
        sink.on_text(&"x".repeat(REPLY_BYTES_MAX));
        sink.on_text("two");
        assert_eq!(&*sink.flush_and_get_text(), "one", "no text is published after a gap");
    }
}
