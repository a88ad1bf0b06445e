//! The words of models as they are spoken: a bounded log beside the journal.
//!
//! Never: needed. The journal has every word when the turn is over; whoever
//! listens too slowly misses words here and nothing else.

mod holdback;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::id::RunId;
use longhaul_core::port::model::{DeltaSink, ModelRequest};
use longhaul_core::port::redact::Redact;
use tokio::sync::watch;

use crate::deltas::holdback::HoldbackBuffer;

/// So much of one reply is kept for those who come late.
const REPLY_BYTES_MAX: usize = 256 * 1024;

/// A piece of what a model says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delta {
    /// In which run.
    pub run: RunId,
    /// In which turn.
    pub turn: u32,
    /// In which try of it.
    pub attempt: u32,
    /// After so many bytes of the reply.
    pub offset: usize,
    /// The words.
    pub text: Arc<str>,
}

/// What models are saying in this process. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct DeltaBroadcast {
    channels: Arc<Mutex<HashMap<RunId, Channel>>>,
}

/// Where one run is heard: what is said, and who listens.
#[derive(Debug, Default)]
struct Channel {
    reply: Option<LiveReply>,
    /// None: nobody ever listened.
    changed: Option<watch::Sender<()>>,
}

impl Channel {
    fn notify(&self) {
        if let Some(bell) = &self.changed {
            bell.send_replace(());
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
    /// The reply is complete: it is kept only for those who listened to it.
    is_complete: bool,
}

impl LiveReply {
    const fn end(&self) -> Position {
        Position { turn: self.turn, attempt: self.attempt, offset: self.text.len() }
    }
}

impl DeltaBroadcast {
    fn with_channels<T>(&self, use_it: impl FnOnce(&mut HashMap<RunId, Channel>) -> T) -> T {
        use_it(&mut self.channels.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Hears what the model of one run says, from the beginning of the reply
    /// that is under way.
    pub fn subscribe(&self, run: RunId) -> DeltaStream {
        let (bell, at) = self.with_channels(|rooms| {
            let room = rooms.entry(run).or_default();
            let bell = room.changed.get_or_insert_with(|| watch::Sender::new(()));
            // What was over before somebody came is in the journal.
            let past = room.reply.as_ref().filter(|talk| talk.is_complete);
            (bell.subscribe(), past.map(LiveReply::end))
        });
        DeltaStream { broadcast: self.clone(), run, changed: bell, position: at }
    }

    /// What the model of this run has said so far in the turn under way.
    pub fn partial_reply(&self, run: RunId) -> Option<Delta> {
        let under_way = |rooms: &mut HashMap<RunId, Channel>| {
            let talk = rooms.get(&run)?.reply.as_ref();
            talk.filter(|talk| !talk.is_complete).map(drop)
        };
        self.with_channels(under_way)?;
        self.delta_since(run, None)
    }

    /// What was said after a place in a reply; of another reply, all of it.
    fn delta_since(&self, run: RunId, at: Option<Position>) -> Option<Delta> {
        self.with_channels(|rooms| {
            let talk = rooms.get(&run)?.reply.as_ref()?;
            let offset = match at {
                Some(at) if (at.turn, at.attempt) == (talk.turn, talk.attempt) => at.offset,
                Some(_) | None => 0,
            };
            Some(Delta {
                run,
                turn: talk.turn,
                attempt: talk.attempt,
                offset,
                text: talk.text.get(offset..)?.into(),
            })
        })
    }

    /// An ear for one question, which lets nobody hear a secret.
    pub(crate) fn sink(&self, ask: &ModelRequest, redact: Arc<dyn Redact>) -> BroadcastSink {
        self.sink_for((ask.run, ask.turn, ask.attempt), redact)
    }

    fn sink_for(
        &self,
        (run, turn, attempt): (RunId, u32, u32),
        redact: Arc<dyn Redact>,
    ) -> BroadcastSink {
        let talk = LiveReply { turn, attempt, text: String::new(), is_complete: false };
        self.with_channels(|rooms| rooms.entry(run).or_default().reply = Some(talk));
        BroadcastSink { broadcast: self.clone(), run, redact, holdback: Mutex::default() }
    }

    /// Lets those who listen hear this.
    fn publish(&self, run: RunId, words: &str) {
        if words.is_empty() {
            return;
        }
        self.with_channels(|rooms| {
            let Some(room) = rooms.get_mut(&run) else {
                return;
            };
            if let Some(talk) = &mut room.reply {
                talk.text.push_str(words);
            }
            room.notify();
        });
    }
}

/// A place in a reply.
#[derive(Debug, Clone, Copy)]
struct Position {
    turn: u32,
    attempt: u32,
    offset: usize,
}

/// Somebody who listens to one run. Whoever listens slowly gets longer pieces.
#[derive(Debug)]
pub struct DeltaStream {
    broadcast: DeltaBroadcast,
    run: RunId,
    changed: watch::Receiver<()>,
    position: Option<Position>,
}

impl DeltaStream {
    /// The words of a turn that were said and not heard yet.
    pub fn rest_of_turn(&mut self, turn: u32) -> Option<Delta> {
        self.take_rest(|delta| delta.turn == turn)
    }

    fn take_rest(&mut self, wanted: impl Fn(&Delta) -> bool) -> Option<Delta> {
        let delta = self.broadcast.delta_since(self.run, self.position)?;
        if delta.text.is_empty() || !wanted(&delta) {
            return None;
        }
        self.position = Some(Position {
            turn: delta.turn,
            attempt: delta.attempt,
            offset: delta.offset + delta.text.len(),
        });
        Some(delta)
    }

    /// The next words.
    pub async fn next(&mut self) -> Delta {
        loop {
            self.changed.mark_unchanged();
            if let Some(delta) = self.take_rest(|_| true) {
                return delta;
            }
            if self.changed.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}

impl Drop for DeltaStream {
    fn drop(&mut self) {
        self.broadcast.with_channels(|rooms| {
            let last = rooms.get(&self.run).is_some_and(|room| {
                let under_way = room.reply.as_ref().is_some_and(|talk| !talk.is_complete);
                // This one is still counted.
                !under_way && room.subscriber_count() <= 1
            });
            if last {
                rooms.remove(&self.run);
            }
        });
    }
}

/// Takes the words of one reply in. When it is dropped they are forgotten, except
/// for those who listened: a reply may be over before they have heard its last
/// words, and for a model that answers at once these are all.
#[derive(Debug)]
pub(crate) struct BroadcastSink {
    broadcast: DeltaBroadcast,
    run: RunId,
    redact: Arc<dyn Redact>,
    /// Secrets are looked for behind a lock of this reply alone: the rooms are
    /// everybody's.
    holdback: Mutex<HoldbackBuffer>,
}

impl BroadcastSink {
    /// Takes something out of what is held back and says it, in this order also when
    /// two do.
    fn publish_from(&self, take: impl FnOnce(&mut HoldbackBuffer) -> String) {
        let mut held = self.holdback.lock().unwrap_or_else(PoisonError::into_inner);
        let words = take(&mut held);
        self.broadcast.publish(self.run, &words);
    }

    /// The words so far, when no more are waited for.
    pub(crate) fn text(&self) -> Arc<str> {
        self.publish_from(|held| held.drain(&*self.redact));
        self.broadcast.partial_reply(self.run).map_or_else(|| "".into(), |delta| delta.text)
    }
}

impl DeltaSink for BroadcastSink {
    fn on_text(&self, text: &str) {
        self.publish_from(|held| held.push(text, &*self.redact, REPLY_BYTES_MAX));
    }
}

impl Drop for BroadcastSink {
    fn drop(&mut self) {
        self.publish_from(|held| held.drain(&*self.redact));
        self.broadcast.with_channels(|rooms| {
            let Some(room) = rooms.get_mut(&self.run) else {
                return;
            };
            match (room.subscriber_count(), &mut room.reply) {
                (0, _) => drop(rooms.remove(&self.run)),
                (_, Some(talk)) => talk.is_complete = true,
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

    impl DeltaBroadcast {
        /// An ear where there are no secrets.
        fn sink_without_secrets(&self, run: RunId, turn: u32) -> BroadcastSink {
            self.sink_for((run, turn, 1), Arc::new(NoRedaction))
        }
    }

    /// Knows two, and one of them begins with the other.
    #[derive(Debug)]
    struct TwoSecrets;

    const SECRETS: [&str; 2] = ["abcab-long", "abcab"];

    impl Redact for TwoSecrets {
        fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
            match text.contains("abcab") {
                true => text.replace(SECRETS[0], "<L>").replace(SECRETS[1], "<S>").into(),
                false => text.into(),
            }
        }

        fn partial_match_len(&self, text: &str) -> usize {
            let begun = SECRETS.iter().flat_map(|one| (1..one.len()).map(|end| &one[..end]));
            let begun = begun.filter(|begun| text.ends_with(begun));
            begun.map(str::len).max().unwrap_or(0)
        }
    }

    #[test]
    fn no_secret_is_streamed_however_it_is_chunked() {
        fn check(pieces: &[&str], on_the_way: &str, all: &str) {
            let feed = DeltaBroadcast::default();
            let run = RunId::from_bits(7);
            let ear = feed.sink_for((run, 1, 1), Arc::new(TwoSecrets));
            for piece in pieces {
                ear.on_text(piece);
            }
            assert_eq!(&*feed.partial_reply(run).unwrap().text, on_the_way, "{pieces:?}");
            let mut listener = feed.subscribe(run);
            drop(ear);
            assert_eq!(&*listener.rest_of_turn(1).unwrap().text, all, "{pieces:?}");
        }
        check(&["it is abc", "ab!"], "it is <S>!", "it is <S>!");
        check(&["it is abcab"], "it is ", "it is <S>");
        check(&["it is abcab", "-lo", "ng."], "it is <L>.", "it is <L>.");
        check(&["it is abcab-", "lot"], "it is <S>-lot", "it is <S>-lot");
        check(&["a", "b", "c", "a", "b", "c"], "<S>c", "<S>c");
        check(&["a", "b", "ä"], "abä", "abä");
        check(&["a bc a"], "a bc ", "a bc a");
    }

    #[tokio::test]
    async fn deltas_are_streamed_in_order_and_dropped_at_the_end() {
        let feed = DeltaBroadcast::default();
        let run = RunId::from_bits(7);
        let mut early = feed.subscribe(run);
        let ear = feed.sink_without_secrets(run, 3);
        ear.on_text("one ");
        let heard = |delta: Delta| (delta.turn, delta.offset, delta.text.to_string());
        assert_eq!(heard(early.next().await), (3, 0, "one ".to_owned()));
        ear.on_text("two");
        ear.on_text(" three");
        assert_eq!(heard(early.next().await), (3, 4, "two three".to_owned()));
        let mut late = feed.subscribe(run);
        assert_eq!(heard(late.next().await), (3, 0, "one two three".to_owned()));
        assert_eq!(&*ear.text(), "one two three");
        drop(ear);
        assert_eq!(feed.partial_reply(run), None);
        let ear = feed.sink_without_secrets(run, 4);
        ear.on_text("four");
        assert_eq!(heard(early.next().await), (4, 0, "four".to_owned()));
        drop((early, late));
        drop(ear);
        assert!(feed.with_channels(|rooms| rooms.is_empty()));
    }

    #[test]
    fn subscribers_receive_the_last_delta() {
        let feed = DeltaBroadcast::default();
        let run = RunId::from_bits(7);
        let mut early = feed.subscribe(run);
        let ear = feed.sink_without_secrets(run, 1);
        ear.on_text("all at once");
        drop(ear);
        let mut late = feed.subscribe(run);
        assert_eq!(late.rest_of_turn(1), None, "the journal has them now");
        assert_eq!(feed.partial_reply(run), None);
        assert_eq!(early.rest_of_turn(2), None);
        assert_eq!(&*early.rest_of_turn(1).unwrap().text, "all at once");
        assert_eq!(early.rest_of_turn(1), None);
        drop((early, late));
        assert!(feed.with_channels(|rooms| rooms.is_empty()));
    }

    #[test]
    fn the_delta_buffer_is_limited() {
        let feed = DeltaBroadcast::default();
        let ear = feed.sink_without_secrets(RunId::from_bits(7), 1);
        for _ in 0..100 {
            ear.on_text(&"x".repeat(8 * 1024));
        }
        assert_eq!(ear.text().len(), REPLY_BYTES_MAX);
        let ear = feed.sink_without_secrets(RunId::from_bits(8), 1);
        ear.on_text("one");
        ear.on_text(&"x".repeat(REPLY_BYTES_MAX));
        ear.on_text("two");
        assert_eq!(&*ear.text(), "one", "nothing stands after a hole");
    }
}
