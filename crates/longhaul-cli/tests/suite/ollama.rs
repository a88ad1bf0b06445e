//! An Ollama that is detected automatically: its model list is cached, and concurrent lookups do
//! not wait for each other.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use longhaul_core::time::{Clock, Millis, Timestamp};
use longhaul_engine::clock::SystemClock;
use longhaul_project::assemble::project_model_resolver;
use longhaul_project::config::load::load;
use longhaul_project::config::process_env::ProcessEnv;
use longhaul_project::config::settings::Config;

use super::fake_server::{FakeServer, json_response};

/// A project without an API key, with Ollama at this URL.
fn ollama_config(url: &str) -> Config {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("longhaul.toml"), "").unwrap();
    let host = ("OLLAMA_HOST".to_owned(), url.to_owned());
    let process_env = ProcessEnv {
        cwd: folder.path().to_path_buf(),
        env: BTreeMap::from([host]),
        ..ProcessEnv::default()
    };
    load(&process_env, &[]).unwrap()
}

/// A clock that the test sets.
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
    for (list, age, is_available) in
        [(r#"{"data":[{"id":"qwen3:8b"}]}"#, 5, true), (r#"{"data":[]}"#, 30, false)]
    {
        let server = FakeServer::new(move |_| json_response("200 OK", list));
        let manual_clock = Arc::new(ManualClock(Mutex::new(Timestamp::from_micros(0))));
        let clock: Arc<dyn Clock> = Arc::clone(&manual_clock) as Arc<dyn Clock>;
        let resolver = project_model_resolver(&ollama_config(&server.url), &clock);
        for (millis, expected) in [(0, 1), (age - 1, 1), (1, 2)] {
            manual_clock.advance(millis);
            assert_eq!(resolver.resolve_model_name(None).is_ok(), is_available, "{list}");
            assert_eq!(server.requests().len(), expected, "{list} {millis}");
        }
    }
}

#[test]
fn availability_checks_run_concurrently() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let max_concurrent = Arc::new(AtomicUsize::new(0));
    let observed = Arc::clone(&max_concurrent);
    // The server never responds, so each connection stays open until its client times out.
    std::thread::spawn(move || {
        let open_count = Arc::new(AtomicUsize::new(0));
        for stream in listener.incoming() {
            let (mut stream, open_count) = (stream.unwrap(), Arc::clone(&open_count));
            let current = open_count.fetch_add(1, Ordering::SeqCst) + 1;
            observed.fetch_max(current, Ordering::SeqCst);
            std::thread::spawn(move || {
                _ = std::io::copy(&mut stream, &mut std::io::sink());
                open_count.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    // On a busy machine the two may not overlap at the first attempt.
    for _ in 0..5 {
        let resolver = project_model_resolver(&ollama_config(&url), &clock);
        let barrier = Barrier::new(2);
        let resolve = || {
            barrier.wait();
            assert!(resolver.resolve_model_name(None).is_err());
        };
        std::thread::scope(|scope| {
            scope.spawn(resolve);
            scope.spawn(resolve);
        });
        if max_concurrent.load(Ordering::SeqCst) == 2 {
            return;
        }
    }
    panic!("the second lookup waits for the first");
}
