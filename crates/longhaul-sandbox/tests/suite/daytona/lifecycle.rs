//! The states of a sandbox, limits of the organization, and the automatic stop.

use std::time::Duration;

use longhaul_core::change::SandboxState;
use longhaul_core::port::sandbox::{SandboxError, SandboxSpec, Sandboxes as _};
use longhaul_core::time::Millis;
use longhaul_sandbox::daytona::{DaytonaOptions, DaytonaSandboxes};
use longhaul_testkit::daytona::FakeDaytona;

use super::harness::{CheckedFake, run, spec};

const MINUTE: Millis = Millis(60_000);

#[tokio::test]
async fn all_states_before_started_are_waited_for() {
    let fake = CheckedFake::start().await;
    fake.set_reads_per_state(2);
    fake.set_creation(&["pending_build", "building_snapshot", "pulling_snapshot", "started"]);
    let (provider, sandbox) = fake.create("slow").await;
    assert_eq!(run(&*sandbox, "echo ran").await, "ran\n");
    provider.stop(&sandbox.info().handle).await.expect("stop");
    provider.delete(&sandbox.info().handle).await.expect("delete");
    assert_eq!(fake.sandbox_count(), 0);
    assert_eq!(fake.count("DELETE", "/sandbox/*"), 1);
}

/// Not validated, because the description does not have the new state.
#[tokio::test]
async fn unknown_states_are_waited_for() {
    let fake = FakeDaytona::start().await;
    fake.set_creation(&["creating", "state_of_next_year", "started"]);
    let options = DaytonaOptions::new(longhaul_testkit::daytona::API_KEY.to_owned());
    let provider = DaytonaSandboxes::new(&DaytonaOptions { url: fake.url(), ..options });
    let sandbox = provider.expect("valid options").create(&spec("new")).await.expect("create");
    assert_eq!(run(&*sandbox, "echo ran").await, "ran\n");
}

#[tokio::test]
async fn failed_build_is_refused_with_its_reason() {
    let fake = CheckedFake::start().await;
    fake.set_creation(&["building_snapshot", "build_failed"]);
    let provider = fake.provider();
    let error = provider.create(&spec("failed")).await.expect_err("the build fails");
    assert!(
        matches!(&error, SandboxError::Refused(message) if message.contains("line 1")),
        "{error}"
    );
    let found = provider.get("failed").await.expect("get");
    assert_eq!(found.state, SandboxState::Stopped);
    provider.stop(&found.handle).await.expect("a failed sandbox has no processes");
    provider.delete(&found.handle).await.expect("delete");
    assert_eq!(fake.sandbox_count(), 0);
}

#[tokio::test]
async fn sandbox_that_never_starts_is_unavailable() {
    let fake = CheckedFake::start().await;
    fake.set_creation(&["creating"]);
    let change_timeout = Duration::from_millis(300);
    let options = DaytonaOptions { change_timeout, ..fake.options() };
    let provider = DaytonaSandboxes::new(&options).expect("valid options");
    let error = provider.create(&spec("stuck")).await.expect_err("the sandbox does not start");
    assert!(matches!(error, SandboxError::Unavailable(_)), "{error}");
    // A later attempt finds it.
    fake.set_state("stuck", "started");
    provider.create(&spec("stuck")).await.expect("create");
    assert_eq!(fake.sandbox_count(), 1);
}

#[tokio::test]
async fn reached_limit_of_the_organization_is_no_capacity() {
    let fake = CheckedFake::start().await;
    fake.set_cpu_quota(1);
    let (provider, first) = fake.create("first").await;
    let error = provider.create(&spec("second")).await.expect_err("there is no capacity");
    assert!(
        matches!(&error, SandboxError::NoCapacity(message) if message.contains("CPU")),
        "{error}"
    );
    provider.stop(&first.info().handle).await.expect("stop");
    provider.create(&spec("second")).await.expect("create");
    let error = provider.start(&first.info().handle, &spec("first")).await.expect_err("start");
    assert!(matches!(error, SandboxError::NoCapacity(_)), "{error}");
}

#[tokio::test]
async fn archived_and_paused_sandboxes_are_started_and_stopped() {
    let fake = CheckedFake::start().await;
    let (provider, sandbox) = fake.create("asleep").await;
    let handle = &sandbox.info().handle;
    run(&*sandbox, "echo kept > file").await;
    for (state, is_stopped) in [("archived", true), ("paused", false)] {
        fake.set_state("asleep", "stopped");
        fake.set_state("asleep", state);
        assert_eq!(provider.get(handle).await.expect("get").state, SandboxState::Stopped);
        let stops = fake.count("POST", "/sandbox/*/stop");
        provider.stop(handle).await.expect("stop");
        // A paused sandbox has its processes in memory.
        assert_eq!(fake.count("POST", "/sandbox/*/stop") == stops, is_stopped, "{state}");
        fake.set_state("asleep", state);
        let sandbox = provider.start(handle, &spec("asleep")).await.expect("start");
        assert_eq!(run(&*sandbox, "cat file").await, "kept\n", "{state}");
    }
}

#[tokio::test]
async fn sandbox_in_transition_is_stopped_started_and_deleted_afterwards() {
    let fake = CheckedFake::start().await;
    let (provider, sandbox) = fake.create("busy").await;
    let handle = &sandbox.info().handle;
    fake.set_reads_per_state(3);
    let (stopped, again) = tokio::join!(provider.stop(handle), provider.stop(handle));
    assert_eq!((stopped, again), (Ok(()), Ok(())));
    let busy = spec("busy");
    let (first, second) =
        tokio::join!(provider.start(handle, &busy), provider.start(handle, &busy));
    assert!(first.is_ok() && second.is_ok());
    let (deleted, again) = tokio::join!(provider.delete(handle), provider.delete(handle));
    assert_eq!((deleted, again), (Ok(()), Ok(())));
    assert_eq!(fake.sandbox_count(), 0);
}

#[tokio::test]
async fn unused_sandbox_stops_unless_it_is_kept_alive() {
    let fake = CheckedFake::start().await;
    let provider = fake.provider();
    let auto_stop = Some(Millis(MINUTE.0 * 10));
    let spec = SandboxSpec { auto_stop, ..spec("unused") };
    let sandbox = provider.create(&spec).await.expect("create");
    let handle = &sandbox.info().handle;
    assert_eq!(fake.create_request()["autoStopInterval"], 10);
    for _ in 0..3 {
        fake.advance(Millis(MINUTE.0 * 9));
        sandbox.keep_alive().await.expect("keep alive");
        assert_eq!(provider.get(handle).await.expect("get").state, SandboxState::Running);
    }
    fake.advance(Millis(MINUTE.0 * 10));
    while provider.get(handle).await.expect("get").state != SandboxState::Stopped {}
    let error = sandbox.read("file", 10).await.expect_err("the sandbox is stopped");
    assert!(matches!(error, SandboxError::Unavailable(_)), "{error}");
    provider.start(handle, &spec).await.expect("start");
}

#[tokio::test]
async fn sandbox_without_auto_stop_never_stops() {
    let fake = CheckedFake::start().await;
    let (provider, sandbox) = fake.create("always").await;
    assert_eq!(fake.create_request()["autoStopInterval"], 0);
    fake.advance(Millis(MINUTE.0 * 100_000));
    let state = provider.get(&sandbox.info().handle).await.expect("get").state;
    assert_eq!(state, SandboxState::Running);
}

#[tokio::test]
async fn list_has_several_pages() {
    let fake = CheckedFake::start().await;
    let provider = fake.provider();
    for name in ["one", "two", "three", "four", "five"] {
        provider.create(&spec(name)).await.expect("create");
    }
    let list = provider.list(&spec("any").labels).await.expect("list");
    let names: Vec<_> = list.iter().map(|info| info.name.as_str()).collect();
    assert_eq!(names, ["one", "two", "three", "four", "five"]);
}
