//! The words of models as they are spoken: a bounded log beside the journal.
//!
//! Never: needed. The journal has every word when the turn is over; whoever
//! listens too slowly misses words here and nothing else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::id::RunId;
use longhaul_core::port::model::Ear;
use tokio::sync::broadcast;

/// So many pieces wait for a slow listener.
const PIECES_MAX: usize = 1_024;

/// So much of one reply is kept for those who come late.
const WORDS_BYTES_MAX: usize = 256 * 1024;

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
#[derive(Debug, Clone)]
pub struct Feed {
    talks: Arc<Mutex<HashMap<RunId, Talk>>>,
    out: broadcast::Sender<Delta>,
}

#[derive(Debug, Clone)]
struct Talk {
    turn: u32,
    attempt: u32,
    text: String,
    /// How much was said, kept or not.
    said: usize,
}

impl Default for Feed {
    fn default() -> Self {
        Self {
            talks: Arc::default(),
            out: broadcast::Sender::new(PIECES_MAX),
        }
    }
}

impl Feed {
    fn with<T>(&self, use_it: impl FnOnce(&mut HashMap<RunId, Talk>) -> T) -> T {
        use_it(&mut self.talks.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Hears what is said from now on, of every run.
    pub fn listen(&self) -> broadcast::Receiver<Delta> {
        self.out.subscribe()
    }

    /// What the model of this run has said so far in the turn under way.
    pub fn so_far(&self, run: RunId) -> Option<Delta> {
        self.with(|talks| {
            let talk = talks.get(&run)?;
            Some(Delta {
                run,
                turn: talk.turn,
                attempt: talk.attempt,
                offset: 0,
                text: talk.text.as_str().into(),
            })
        })
    }

    /// An ear for one try of one turn.
    pub(crate) fn ear(&self, run: RunId, turn: u32, attempt: u32) -> FeedEar {
        let talk = Talk {
            turn,
            attempt,
            text: String::new(),
            said: 0,
        };
        self.with(|talks| talks.insert(run, talk));
        FeedEar {
            feed: self.clone(),
            run,
        }
    }
}

/// Takes the words of one reply in, and forgets them when it is dropped.
#[derive(Debug)]
pub(crate) struct FeedEar {
    feed: Feed,
    run: RunId,
}

impl FeedEar {
    /// The words so far.
    pub(crate) fn text(&self) -> Arc<str> {
        self.feed
            .so_far(self.run)
            .map_or_else(|| "".into(), |delta| delta.text)
    }
}

impl Ear for FeedEar {
    fn words(&self, text: &str) {
        let spoken = self.feed.with(|talks| {
            let talk = talks.get_mut(&self.run)?;
            let offset = talk.said;
            talk.said += text.len();
            if talk.text.len() + text.len() <= WORDS_BYTES_MAX {
                talk.text.push_str(text);
            }
            Some((talk.turn, talk.attempt, offset))
        });
        // An error says that nobody listens, which is the usual case.
        if let Some((turn, attempt, offset)) = spoken
            && self.feed.out.receiver_count() > 0
        {
            _ = self.feed.out.send(Delta {
                run: self.run,
                turn,
                attempt,
                offset,
                text: text.into(),
            });
        }
    }
}

impl Drop for FeedEar {
    fn drop(&mut self) {
        self.feed.with(|talks| talks.remove(&self.run));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_heard_in_order_and_forgotten_at_the_end() {
        let feed = Feed::default();
        let run = RunId::from_bits(7);
        let mut listener = feed.listen();
        let ear = feed.ear(run, 3, 1);
        ear.words("one ");
        ear.words("two");
        let heard: Vec<_> = std::iter::from_fn(|| listener.try_recv().ok())
            .map(|delta| (delta.offset, delta.text.to_string()))
            .collect();
        assert_eq!(heard, [(0, "one ".to_owned()), (4, "two".to_owned())]);
        assert_eq!(&*ear.text(), "one two");
        drop(ear);
        assert_eq!(feed.so_far(run), None);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let feed = Feed::default();
        let ear = feed.ear(RunId::from_bits(7), 1, 1);
        for _ in 0..100 {
            ear.words(&"x".repeat(8 * 1024));
        }
        assert_eq!(ear.text().len(), WORDS_BYTES_MAX);
    }
}
