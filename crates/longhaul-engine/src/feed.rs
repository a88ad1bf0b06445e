//! The words of models as they are spoken: a bounded log beside the journal.
//!
//! Never: needed. The journal has every word when the turn is over; whoever
//! listens too slowly misses words here and nothing else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::id::RunId;
use longhaul_core::port::model::Ear;
use tokio::sync::watch;

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
#[derive(Debug, Clone, Default)]
pub struct Feed {
    rooms: Arc<Mutex<HashMap<RunId, Room>>>,
}

/// Where one run is heard: what is said, and who listens.
#[derive(Debug, Default)]
struct Room {
    talk: Option<Talk>,
    /// None: nobody ever listened.
    bell: Option<watch::Sender<()>>,
}

impl Room {
    fn ring(&self) {
        if let Some(bell) = &self.bell {
            bell.send_replace(());
        }
    }

    fn is_empty(&self) -> bool {
        let listened = self.bell.as_ref().map_or(0, watch::Sender::receiver_count);
        self.talk.is_none() && listened == 0
    }
}

#[derive(Debug, Clone)]
struct Talk {
    turn: u32,
    attempt: u32,
    text: String,
}

impl Feed {
    fn with<T>(&self, use_it: impl FnOnce(&mut HashMap<RunId, Room>) -> T) -> T {
        use_it(&mut self.rooms.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Hears what the model of one run says, from the beginning of the reply
    /// that is under way.
    pub fn listen(&self, run: RunId) -> Listener {
        let bell = self.with(|rooms| {
            let bell = &mut rooms.entry(run).or_default().bell;
            bell.get_or_insert_with(|| watch::Sender::new(()))
                .subscribe()
        });
        Listener {
            feed: self.clone(),
            run,
            bell,
            at: None,
        }
    }

    /// What the model of this run has said so far in the turn under way.
    pub fn so_far(&self, run: RunId) -> Option<Delta> {
        self.since(run, None)
    }

    /// What was said after a place in a reply; of another reply, all of it.
    fn since(&self, run: RunId, at: Option<At>) -> Option<Delta> {
        self.with(|rooms| {
            let talk = rooms.get(&run)?.talk.as_ref()?;
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

    /// An ear for one try of one turn.
    pub(crate) fn ear(&self, run: RunId, turn: u32, attempt: u32) -> FeedEar {
        let talk = Talk {
            turn,
            attempt,
            text: String::new(),
        };
        self.with(|rooms| rooms.entry(run).or_default().talk = Some(talk));
        FeedEar {
            feed: self.clone(),
            run,
        }
    }
}

/// A place in a reply.
#[derive(Debug, Clone, Copy)]
struct At {
    turn: u32,
    attempt: u32,
    offset: usize,
}

/// Somebody who listens to one run. Whoever listens slowly gets longer pieces.
#[derive(Debug)]
pub struct Listener {
    feed: Feed,
    run: RunId,
    bell: watch::Receiver<()>,
    at: Option<At>,
}

impl Listener {
    /// The next words.
    pub async fn next(&mut self) -> Delta {
        loop {
            self.bell.mark_unchanged();
            if let Some(delta) = self.feed.since(self.run, self.at)
                && !delta.text.is_empty()
            {
                self.at = Some(At {
                    turn: delta.turn,
                    attempt: delta.attempt,
                    offset: delta.offset + delta.text.len(),
                });
                return delta;
            }
            if self.bell.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.feed.with(|rooms| {
            let last = rooms.get(&self.run).is_some_and(|room| {
                let listened = room.bell.as_ref().map_or(0, watch::Sender::receiver_count);
                // This one is still counted.
                room.talk.is_none() && listened <= 1
            });
            if last {
                rooms.remove(&self.run);
            }
        });
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
        self.feed.with(|rooms| {
            let Some(room) = rooms.get_mut(&self.run) else {
                return;
            };
            if let Some(talk) = &mut room.talk
                && talk.text.len() + text.len() <= WORDS_BYTES_MAX
            {
                talk.text.push_str(text);
            }
            room.ring();
        });
    }
}

impl Drop for FeedEar {
    fn drop(&mut self) {
        self.feed.with(|rooms| {
            if let Some(room) = rooms.get_mut(&self.run) {
                room.talk = None;
                if room.is_empty() {
                    rooms.remove(&self.run);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn words_are_heard_in_order_and_forgotten_at_the_end() {
        let feed = Feed::default();
        let run = RunId::from_bits(7);
        let mut early = feed.listen(run);
        let ear = feed.ear(run, 3, 1);
        ear.words("one ");
        let heard = |delta: Delta| (delta.turn, delta.offset, delta.text.to_string());
        assert_eq!(heard(early.next().await), (3, 0, "one ".to_owned()));
        ear.words("two");
        ear.words(" three");
        assert_eq!(heard(early.next().await), (3, 4, "two three".to_owned()));
        let mut late = feed.listen(run);
        assert_eq!(heard(late.next().await), (3, 0, "one two three".to_owned()));
        assert_eq!(&*ear.text(), "one two three");
        drop(ear);
        assert_eq!(feed.so_far(run), None);
        let ear = feed.ear(run, 4, 1);
        ear.words("four");
        assert_eq!(heard(early.next().await), (4, 0, "four".to_owned()));
        drop((early, late));
        drop(ear);
        assert!(feed.with(|rooms| rooms.is_empty()));
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
