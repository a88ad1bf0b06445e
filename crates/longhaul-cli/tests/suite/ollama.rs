//! An Ollama that is found by itself: asked seldom, and nobody waits for another's
//! question.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use longhaul::assemble::model_resolver;
use longhaul::config::load::load;
use longhaul::config::process_env::ProcessEnv;
use longhaul::config::settings::Config;
use longhaul_core::time::{Clock, Millis, Timestamp};
use longhaul_engine::clock::SystemClock;

use super::fake_server::{FakeServer, json_response};

/// A project without a key whose Ollama is there.
fn ollama_config(url: &str) -> Config {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("longhaul.toml"), "").unwrap();
    let host = ("OLLAMA_HOST".to_owned(), url.to_owned());
    let here = ProcessEnv {
        cwd: folder.path().to_path_buf(),
        env: BTreeMap::from([host]),
        ..ProcessEnv::default()
    };
    load(&here, &[]).unwrap()
}

/// A clock that the test moves.
#[derive(Debug)]
struct ManualClock(Mutex<Timestamp>);

impl ManualClock {
    fn advance(&self, seconds: u64) {
        let mut time = self.0.lock().unwrap();
        *time = time.plus(Millis::from_secs(seconds));
    }
}

#[async_trait::async_trait]
impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }

    async fn sleep(&self, _: Millis) {}
}

#[test]
fn availability_is_cached_for_5_s_and_unavailability_for_30_s() {
    for (list, age, says) in
        [(r#"{"data":[{"id":"qwen3:8b"}]}"#, 5, true), (r#"{"data":[]}"#, 30, false)]
    {
        let server = FakeServer::new(move |_| json_response("200 OK", list));
        let hand = Arc::new(ManualClock(Mutex::new(Timestamp::from_micros(0))));
        let clock: Arc<dyn Clock> = Arc::clone(&hand) as Arc<dyn Clock>;
        let shelf = model_resolver(&ollama_config(&server.url), &clock);
        for (later, asked) in [(0, 1), (age - 1, 1), (1, 2)] {
            hand.advance(later);
            assert_eq!(shelf.resolve(None).is_ok(), says, "{list}");
            assert_eq!(server.requests().len(), asked, "{list} {later}");
        }
    }
}

#[test]
fn availability_checks_run_concurrently() {
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
        let shelf = model_resolver(&ollama_config(&url), &clock);
        let both = Barrier::new(2);
        let ask = || {
            both.wait();
            assert!(shelf.resolve(None).is_err());
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
