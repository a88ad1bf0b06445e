//! Broadcasts the output of models while it is generated.
//!
//! The broadcast is a best-effort copy: the journal has the full reply when the turn is over. A
//! slow subscriber may miss deltas of the broadcast, but loses nothing else. The end of the text is
//! held back while it may be the beginning of a secret.
//!
//! Invariant: when a part of the reply was skipped, no text after it is published.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use longhaul_core::id::RunId;
use longhaul_core::port::model::DeltaSink;
use longhaul_core::port::redact::Redact;
use tokio::sync::watch;

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
    replies: Arc<Mutex<HashMap<RunId, watch::Sender<LiveReply>>>>,
}

/// The current reply of one run. The default value stands for a run that has no reply yet.
#[derive(Debug, Clone, Default)]
struct LiveReply {
    turn: u32,
    attempt: u32,
    text: String,
    /// Whether the model still generates the reply. If not, the reply is kept only for existing
    /// subscribers.
    is_in_progress: bool,
}

impl LiveReply {
    /// Returns the text after a position. If the position belongs to another reply, returns the
    /// whole text. `None` if there is no text.
    fn delta_since(&self, run: RunId, position: ReplyReadPosition) -> Option<ReplyDelta> {
        let is_same = (position.turn, position.attempt) == (self.turn, self.attempt);
        let offset = if is_same { position.offset } else { 0 };
        let text = self.text.get(offset..).filter(|text| !text.is_empty())?.into();
        Some(ReplyDelta { run, turn: self.turn, attempt: self.attempt, offset, text })
    }
}

impl ReplyDeltaBroadcast {
    /// Subscribes to the model output of one run, starting at the beginning of the current reply.
    pub fn subscribe(&self, run: RunId) -> ReplyDeltaStream {
        let reply = with_lock(&self.replies, |replies| {
            replies.entry(run).or_insert_with(watch::Sender::default).subscribe()
        });
        let LiveReply { turn, attempt, ref text, is_in_progress } = *reply.borrow();
        // A reply that was complete before the subscription is in the journal.
        let offset = if is_in_progress { 0 } else { text.len() };
        let position = ReplyReadPosition { turn, attempt, offset };
        ReplyDeltaStream { broadcast: self.clone(), run, reply: reply.clone(), position }
    }

    /// Returns the text that the run's model has generated so far in the current turn. `None` if
    /// the model has generated none, or generates no reply at the moment.
    pub fn partial_reply(&self, run: RunId) -> Option<ReplyDelta> {
        with_lock(&self.replies, |replies| {
            let reply = replies.get(&run)?.borrow();
            reply.delta_since(run, ReplyReadPosition::default()).filter(|_| reply.is_in_progress)
        })
    }

    /// Creates the sink that receives the streamed output of one model request, given by the run,
    /// the turn and the attempt. The sink redacts secrets before it publishes the output.
    pub(crate) fn create_sink(
        &self,
        (run, turn, attempt): (RunId, u32, u32),
        redact: Arc<dyn Redact>,
    ) -> ReplyBroadcastSink {
        let reply = LiveReply { turn, attempt, text: String::new(), is_in_progress: true };
        let reply = with_lock(&self.replies, |replies| {
            let sender = replies.entry(run).or_insert_with(watch::Sender::default);
            sender.send_replace(reply);
            sender.clone()
        });
        ReplyBroadcastSink { broadcast: self.clone(), run, redact, reply, held: Mutex::default() }
    }
}

/// A position in the model output of a run.
#[derive(Debug, Clone, Copy, Default)]
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
    reply: watch::Receiver<LiveReply>,
    position: ReplyReadPosition,
}

impl ReplyDeltaStream {
    /// Returns the part of the turn's reply that this subscriber has not received yet. `None` if
    /// nothing of the turn is left.
    pub fn take_rest_of_turn(&mut self, turn: u32) -> Option<ReplyDelta> {
        self.take_delta_if(|delta| delta.turn == turn)
    }

    fn take_delta_if(&mut self, predicate: impl Fn(&ReplyDelta) -> bool) -> Option<ReplyDelta> {
        let delta = self.reply.borrow_and_update().delta_since(self.run, self.position);
        let delta = delta.filter(predicate)?;
        let offset = delta.offset + delta.text.len();
        self.position = ReplyReadPosition { turn: delta.turn, attempt: delta.attempt, offset };
        Some(delta)
    }

    /// Waits for the next piece of model output of the run.
    pub async fn next(&mut self) -> ReplyDelta {
        loop {
            if let Some(delta) = self.take_delta_if(|_| true) {
                return delta;
            }
            if self.reply.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}

impl Drop for ReplyDeltaStream {
    fn drop(&mut self) {
        with_lock(&self.broadcast.replies, |replies| {
            // This subscriber is still counted.
            let is_unused = |reply: &watch::Sender<LiveReply>| {
                reply.receiver_count() <= 1 && !reply.borrow().is_in_progress
            };
            if replies.get(&self.run).is_some_and(is_unused) {
                replies.remove(&self.run);
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
    reply: watch::Sender<LiveReply>,
    /// Text that is held back. It has its own lock, so that redacting it does not block the replies
    /// of other runs.
    held: Mutex<HeldText>,
}

/// End of a streamed text that is not published yet, because it may be the beginning of a secret.
#[derive(Debug, Default)]
struct HeldText {
    text: String,
    /// Whether text was skipped because the reply exceeded the size limit. Nothing is published
    /// after a gap.
    has_gap: bool,
}

impl HeldText {
    /// Removes the redacted text that can be published, without an end that may be the beginning of
    /// a secret.
    fn take_publishable(&mut self, redact: &dyn Redact) -> String {
        let end = self.text.len().saturating_sub(redact.partial_secret_suffix_len(&self.text));
        let (complete, rest) = self.text.split_at(self.text.floor_char_boundary(end));
        let redacted = redact.redact(&self.text);
        // Without a secret in the whole text there is none in its parts, which is the usual case.
        let (publishable, rest) = match redacted {
            Cow::Borrowed(_) => (complete.to_owned(), rest.to_owned()),
            Cow::Owned(redacted) => {
                let clean = redact.redact(complete);
                // A secret may end where another one seems to begin.
                match rest.is_empty() || redacted != format!("{clean}{}", redact.redact(rest)) {
                    true => (redacted, String::new()),
                    false => (clean.into_owned(), rest.to_owned()),
                }
            }
        };
        self.text = rest;
        publishable
    }
}

impl ReplyBroadcastSink {
    /// Publishes the text that `take` removes from the held text. The lock keeps concurrent calls
    /// in order.
    fn publish(&self, take: impl FnOnce(&mut HeldText) -> String) {
        with_lock(&self.held, |held| {
            let text = take(held);
            if !text.is_empty() {
                self.reply.send_modify(|reply| reply.text.push_str(&text));
            }
        });
    }

    fn publish_held_text(&self) {
        self.publish(|held| self.redact.redact(&std::mem::take(&mut held.text)).into_owned());
    }

    /// Publishes the text that is still held back and returns the complete text of the reply.
    /// Called when no more text will follow.
    pub(crate) fn flush_and_get_text(&self) -> Arc<str> {
        self.publish_held_text();
        self.reply.borrow().text.as_str().into()
    }
}

impl DeltaSink for ReplyBroadcastSink {
    fn on_text(&self, text: &str) {
        self.publish(|held| {
            let published_bytes = self.reply.borrow().text.len();
            held.has_gap |= published_bytes + held.text.len() + text.len() > REPLY_BYTES_MAX;
            if held.has_gap {
                return String::new();
            }
            held.text.push_str(text);
            held.take_publishable(&*self.redact)
        });
    }
}

impl Drop for ReplyBroadcastSink {
    fn drop(&mut self) {
        self.publish_held_text();
        with_lock(&self.broadcast.replies, |replies| match self.reply.receiver_count() {
            0 => drop(replies.remove(&self.run)),
            _ => self.reply.send_modify(|reply| reply.is_in_progress = false),
        });
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::port::redact::NoRedaction;

    use super::*;

    impl ReplyDeltaBroadcast {
        /// Creates a sink for a run that has no secrets to redact.
        fn sink_without_redaction(&self, run: RunId, turn: u32) -> ReplyBroadcastSink {
            self.create_sink((run, turn, 1), Arc::new(NoRedaction))
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
            let sink = broadcast.create_sink((run, 1, 1), Arc::new(TwoSecretsRedactor));
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
        assert!(with_lock(&broadcast.replies, |replies| replies.is_empty()));
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
        assert!(with_lock(&broadcast.replies, |replies| replies.is_empty()));
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
