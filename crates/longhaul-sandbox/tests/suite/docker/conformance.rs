//! The provider passes the conformance suite of all providers, with a real engine.

use std::sync::Mutex;

use longhaul_testkit::conformance::sandboxes::{CHECKS, run_named};

use super::real_engine::RealEngine;

/// Number of checks that run concurrently.
const THREADS: usize = 4;

/// One test for all checks, because each test has a process of its own, and the engine is to start
/// only once.
#[test]
fn the_provider_conforms_to_the_port() {
    let Some(engine) = RealEngine::start() else { return };
    let names = Mutex::new(CHECKS.iter().map(|(name, _)| *name));
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let Some(name) = names.lock().unwrap().next() else { break };
                    let harness = engine.harness();
                    let check = || run_named(|| async { Some(harness) }, name);
                    let check = std::panic::AssertUnwindSafe(check);
                    if std::panic::catch_unwind(check).is_err() {
                        failed.lock().unwrap().push(name);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "failed checks, whose messages are above: {failed:#?}");
}
