//! An Ollama that is found by itself: asked seldom, and nobody waits for another's
//! question.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use longhaul::assemble::models;
use longhaul::config::load::load;
use longhaul::config::settings::Config;
use longhaul::config::surroundings::Surroundings;
use longhaul_core::time::{Clock, Millis, Timestamp};
use longhaul_engine::clock::SystemClock;

use super::stand_in::{StandIn, json};

/// A project without a key whose Ollama is there.
fn config(url: &str) -> Config {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("longhaul.toml"), "").unwrap();
    let host = ("OLLAMA_HOST".to_owned(), url.to_owned());
    let here = Surroundings {
        cwd: folder.path().to_path_buf(),
        env: BTreeMap::from([host]),
        ..Surroundings::default()
    };
    load(&here, &[]).unwrap()
}

/// A clock that the test moves.
#[derive(Debug)]
struct Hand(Mutex<Timestamp>);

impl Hand {
    fn moves(&self, seconds: u64) {
        let mut time = self.0.lock().unwrap();
        *time = time.plus(Millis::from_secs(seconds));
    }
}

#[async_trait::async_trait]
impl Clock for Hand {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }

    async fn sleep(&self, _: Millis) {}
}

#[test]
fn a_yes_is_believed_for_seconds_and_a_no_for_half_a_minute() {
    for (list, age, says) in [
        (r#"{"data":[{"id":"qwen3:8b"}]}"#, 5, true),
        (r#"{"data":[]}"#, 30, false),
    ] {
        let server = StandIn::new(move |_| json("200 OK", list));
        let hand = Arc::new(Hand(Mutex::new(Timestamp::from_micros(0))));
        let clock: Arc<dyn Clock> = Arc::clone(&hand) as Arc<dyn Clock>;
        let shelf = models(&config(&server.url), &clock);
        for (later, asked) in [(0, 1), (age - 1, 1), (1, 2)] {
            hand.moves(later);
            assert_eq!(shelf.find(None).is_ok(), says, "{list}");
            assert_eq!(server.asked().len(), asked, "{list} {later}");
        }
    }
}

#[test]
fn one_question_does_not_keep_another_waiting() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let most = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&most);
    // Nobody is ever answered: whoever asks is there until it has lost patience.
    std::thread::spawn(move || {
        let open = Arc::new(AtomicUsize::new(0));
        for stream in listener.incoming() {
            let (mut stream, open) = (stream.unwrap(), Arc::clone(&open));
            let now = open.fetch_add(1, Ordering::SeqCst) + 1;
            seen.fetch_max(now, Ordering::SeqCst);
            std::thread::spawn(move || {
                _ = std::io::copy(&mut stream, &mut std::io::sink());
                open.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    // On a busy machine two may miss each other once.
    for _ in 0..5 {
        let shelf = models(&config(&url), &clock);
        let both = Barrier::new(2);
        let ask = || {
            both.wait();
            assert!(shelf.find(None).is_err());
        };
        std::thread::scope(|scope| {
            scope.spawn(ask);
            scope.spawn(ask);
        });
        if most.load(Ordering::SeqCst) == 2 {
            return;
        }
    }
    panic!("the second waits for the first");
}
