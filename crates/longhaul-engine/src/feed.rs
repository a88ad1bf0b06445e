//! The words of models as they are spoken: a bounded log beside the journal.
//!
//! Never: needed. The journal has every word when the turn is over; whoever
//! listens too slowly misses words here and nothing else.

mod held;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::id::RunId;
use longhaul_core::port::model::{Ask, Ear};
use longhaul_core::port::redact::Redact;
use tokio::sync::watch;

use crate::feed::held::Held;

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

    fn listeners(&self) -> usize {
        self.bell.as_ref().map_or(0, watch::Sender::receiver_count)
    }
}

#[derive(Debug, Clone)]
struct Talk {
    turn: u32,
    attempt: u32,
    text: String,
    /// The reply is complete: it is kept only for those who listened to it.
    over: bool,
}

impl Talk {
    const fn end(&self) -> At {
        At {
            turn: self.turn,
            attempt: self.attempt,
            offset: self.text.len(),
        }
    }
}

impl Feed {
    fn with<T>(&self, use_it: impl FnOnce(&mut HashMap<RunId, Room>) -> T) -> T {
        use_it(&mut self.rooms.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Hears what the model of one run says, from the beginning of the reply
    /// that is under way.
    pub fn listen(&self, run: RunId) -> Listener {
        let (bell, at) = self.with(|rooms| {
            let room = rooms.entry(run).or_default();
            let bell = room.bell.get_or_insert_with(|| watch::Sender::new(()));
            // What was over before somebody came is in the journal.
            let past = room.talk.as_ref().filter(|talk| talk.over);
            (bell.subscribe(), past.map(Talk::end))
        });
        Listener {
            feed: self.clone(),
            run,
            bell,
            at,
        }
    }

    /// What the model of this run has said so far in the turn under way.
    pub fn so_far(&self, run: RunId) -> Option<Delta> {
        let under_way = |rooms: &mut HashMap<RunId, Room>| {
            let talk = rooms.get(&run)?.talk.as_ref();
            talk.filter(|talk| !talk.over).map(drop)
        };
        self.with(under_way)?;
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

    /// An ear for one question, which lets nobody hear a secret.
    pub(crate) fn ear(&self, ask: &Ask, redact: Arc<dyn Redact>) -> FeedEar {
        self.ear_of((ask.run, ask.turn, ask.attempt), redact)
    }

    fn ear_of(&self, (run, turn, attempt): (RunId, u32, u32), redact: Arc<dyn Redact>) -> FeedEar {
        let talk = Talk {
            turn,
            attempt,
            text: String::new(),
            over: false,
        };
        self.with(|rooms| rooms.entry(run).or_default().talk = Some(talk));
        FeedEar {
            feed: self.clone(),
            run,
            redact,
            held: Mutex::default(),
        }
    }

    /// Lets those who listen hear this.
    fn say(&self, run: RunId, words: &str) {
        if words.is_empty() {
            return;
        }
        self.with(|rooms| {
            let Some(room) = rooms.get_mut(&run) else {
                return;
            };
            if let Some(talk) = &mut room.talk {
                talk.text.push_str(words);
            }
            room.ring();
        });
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
    /// The words of a turn that were said and not heard yet.
    pub fn rest_of(&mut self, turn: u32) -> Option<Delta> {
        self.rest(|delta| delta.turn == turn)
    }

    fn rest(&mut self, wanted: impl Fn(&Delta) -> bool) -> Option<Delta> {
        let delta = self.feed.since(self.run, self.at)?;
        if delta.text.is_empty() || !wanted(&delta) {
            return None;
        }
        self.at = Some(At {
            turn: delta.turn,
            attempt: delta.attempt,
            offset: delta.offset + delta.text.len(),
        });
        Some(delta)
    }

    /// The next words.
    pub async fn next(&mut self) -> Delta {
        loop {
            self.bell.mark_unchanged();
            if let Some(delta) = self.rest(|_| true) {
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
                let under_way = room.talk.as_ref().is_some_and(|talk| !talk.over);
                // This one is still counted.
                !under_way && room.listeners() <= 1
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
pub(crate) struct FeedEar {
    feed: Feed,
    run: RunId,
    redact: Arc<dyn Redact>,
    /// Secrets are looked for behind a lock of this reply alone: the rooms are
    /// everybody's.
    held: Mutex<Held>,
}

impl FeedEar {
    /// Takes something out of what is held back and says it, in this order also when
    /// two do.
    fn say(&self, take: impl FnOnce(&mut Held) -> String) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let words = take(&mut held);
        self.feed.say(self.run, &words);
    }

    /// The words so far, when no more are waited for.
    pub(crate) fn text(&self) -> Arc<str> {
        self.say(|held| held.rest(&*self.redact));
        self.feed
            .so_far(self.run)
            .map_or_else(|| "".into(), |delta| delta.text)
    }
}

impl Ear for FeedEar {
    fn words(&self, text: &str) {
        self.say(|held| held.take(text, &*self.redact, WORDS_BYTES_MAX));
    }
}

impl Drop for FeedEar {
    fn drop(&mut self) {
        self.say(|held| held.rest(&*self.redact));
        self.feed.with(|rooms| {
            let Some(room) = rooms.get_mut(&self.run) else {
                return;
            };
            match (room.listeners(), &mut room.talk) {
                (0, _) => drop(rooms.remove(&self.run)),
                (_, Some(talk)) => talk.over = true,
                (_, None) => {}
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use longhaul_core::port::redact::NoSecrets;

    use super::*;

    impl Feed {
        /// An ear where there are no secrets.
        fn open_ear(&self, run: RunId, turn: u32) -> FeedEar {
            self.ear_of((run, turn, 1), Arc::new(NoSecrets))
        }
    }

    /// Knows two, and one of them begins with the other.
    #[derive(Debug)]
    struct Two;

    const TWO: [&str; 2] = ["abcab-long", "abcab"];

    impl Redact for Two {
        fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
            match text.contains("abcab") {
                true => text.replace(TWO[0], "<L>").replace(TWO[1], "<S>").into(),
                false => text.into(),
            }
        }

        fn unfinished(&self, text: &str) -> usize {
            let begun = TWO
                .iter()
                .flat_map(|one| (1..one.len()).map(|end| &one[..end]));
            let begun = begun.filter(|begun| text.ends_with(begun));
            begun.map(str::len).max().unwrap_or(0)
        }
    }

    #[test]
    fn nobody_hears_a_secret_however_it_is_cut() {
        fn check(pieces: &[&str], on_the_way: &str, all: &str) {
            let feed = Feed::default();
            let run = RunId::from_bits(7);
            let ear = feed.ear_of((run, 1, 1), Arc::new(Two));
            for piece in pieces {
                ear.words(piece);
            }
            assert_eq!(&*feed.so_far(run).unwrap().text, on_the_way, "{pieces:?}");
            let mut listener = feed.listen(run);
            drop(ear);
            assert_eq!(&*listener.rest_of(1).unwrap().text, all, "{pieces:?}");
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
    async fn words_are_heard_in_order_and_forgotten_at_the_end() {
        let feed = Feed::default();
        let run = RunId::from_bits(7);
        let mut early = feed.listen(run);
        let ear = feed.open_ear(run, 3);
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
        let ear = feed.open_ear(run, 4);
        ear.words("four");
        assert_eq!(heard(early.next().await), (4, 0, "four".to_owned()));
        drop((early, late));
        drop(ear);
        assert!(feed.with(|rooms| rooms.is_empty()));
    }

    #[test]
    fn the_last_words_are_heard_by_those_who_listened() {
        let feed = Feed::default();
        let run = RunId::from_bits(7);
        let mut early = feed.listen(run);
        let ear = feed.open_ear(run, 1);
        ear.words("all at once");
        drop(ear);
        let mut late = feed.listen(run);
        assert_eq!(late.rest_of(1), None, "the journal has them now");
        assert_eq!(feed.so_far(run), None);
        assert_eq!(early.rest_of(2), None);
        assert_eq!(&*early.rest_of(1).unwrap().text, "all at once");
        assert_eq!(early.rest_of(1), None);
        drop((early, late));
        assert!(feed.with(|rooms| rooms.is_empty()));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let feed = Feed::default();
        let ear = feed.open_ear(RunId::from_bits(7), 1);
        for _ in 0..100 {
            ear.words(&"x".repeat(8 * 1024));
        }
        assert_eq!(ear.text().len(), WORDS_BYTES_MAX);
        let ear = feed.open_ear(RunId::from_bits(8), 1);
        ear.words("one");
        ear.words(&"x".repeat(WORDS_BYTES_MAX));
        ear.words("two");
        assert_eq!(&*ear.text(), "one", "nothing stands after a hole");
    }
}
