//! Creation, start, stop and deletion of sandboxes.

use std::collections::BTreeMap;

use longhaul_core::change::SandboxState;
use longhaul_core::port::sandbox::{Isolation, SandboxError, SandboxSpec, SandboxVolume};

use crate::conformance::sandboxes::fixture::{SandboxFixture, run, run_script, shell};

/// Creating a sandbox again returns the same sandbox with its files.
pub async fn a_sandbox_is_created_once(fixture: SandboxFixture) {
    let spec = fixture.new_spec();
    let first = fixture.create_from(&spec).await;
    assert_eq!(first.info().name, spec.name);
    assert_eq!(first.info().labels, spec.labels);
    assert_eq!(first.info().state, SandboxState::Running);
    first.keep_alive().await.expect("keep the sandbox alive");
    run_script(&*first, "echo kept > file").await;
    let second = fixture.create_from(&spec).await;
    assert_eq!(second.info().handle, first.info().handle);
    assert_eq!(run_script(&*second, "cat file").await, "kept\n");
}

/// Concurrent calls with one name return the same sandbox.
pub async fn concurrent_creates_return_one_sandbox(fixture: SandboxFixture) {
    let spec = fixture.new_spec();
    let creates = (0..4).map(|_| fixture.create_from(&spec));
    let sandboxes = futures_util::future::join_all(creates).await;
    run_script(&*sandboxes[0], "echo shared > file").await;
    for sandbox in &sandboxes {
        assert_eq!(sandbox.info().handle, sandboxes[0].info().handle);
        assert_eq!(run_script(&**sandbox, "cat file").await, "shared\n");
    }
    let labels = &sandboxes[0].info().labels;
    assert_eq!(fixture.harness.provider.list(labels).await.expect("list").len(), 1);
}

/// A stopped sandbox has its files after the next start, in the work folder and in the home folder.
pub async fn a_stopped_sandbox_keeps_its_files(fixture: SandboxFixture) {
    let provider = &fixture.harness.provider;
    let spec = fixture.new_spec();
    let sandbox = fixture.create_from(&spec).await;
    run_script(&*sandbox, "echo work > file && echo home > ~/file").await;
    let handle = &sandbox.info().handle;
    for _ in 0..2 {
        provider.stop(handle).await.expect("stop");
        assert_eq!(provider.get(handle).await.expect("get").state, SandboxState::Stopped);
    }
    let sandbox = provider.start(handle, &spec).await.expect("start");
    assert_eq!(sandbox.info().state, SandboxState::Running);
    assert_eq!(&sandbox.info().handle, handle);
    assert_eq!(run_script(&*sandbox, "cat file ~/file").await, "work\nhome\n");
    assert_eq!(provider.get(handle).await.expect("get").state, SandboxState::Running);
    let again = provider.start(handle, &spec).await.expect("start a running sandbox");
    assert_eq!(run_script(&*again, "cat file").await, "work\n");
}

/// Creating a sandbox whose name belongs to a stopped one starts that one.
pub async fn create_starts_a_stopped_sandbox(fixture: SandboxFixture) {
    let spec = fixture.new_spec();
    let sandbox = fixture.create_from(&spec).await;
    run_script(&*sandbox, "echo work > file").await;
    fixture.harness.provider.stop(&sandbox.info().handle).await.expect("stop");
    let sandbox = fixture.create_from(&spec).await;
    assert_eq!(run_script(&*sandbox, "cat file").await, "work\n");
}

/// A command in a stopped sandbox is an error and starts no process.
pub async fn a_stopped_sandbox_runs_no_command(fixture: SandboxFixture) {
    let spec = fixture.new_spec();
    let sandbox = fixture.create_from(&spec).await;
    fixture.harness.provider.stop(&sandbox.info().handle).await.expect("stop");
    run(&*sandbox, shell("touch started")).await.expect_err("the sandbox is stopped");
    let sandbox = fixture.create_from(&spec).await;
    assert_eq!(run_script(&*sandbox, "ls").await, "");
}

/// A deleted sandbox is not found any more; deleting it again does nothing. A new sandbox with its
/// name is empty.
pub async fn a_deleted_sandbox_is_gone(fixture: SandboxFixture) {
    let provider = &fixture.harness.provider;
    let spec = fixture.new_spec();
    let sandbox = fixture.create_from(&spec).await;
    // A folder without permissions must not keep the sandbox from being deleted.
    run_script(&*sandbox, "mkdir -p a/b && echo lost > a/b/file && chmod 0 a/b").await;
    let handle = &sandbox.info().handle;
    for _ in 0..2 {
        provider.delete(handle).await.expect("delete");
        assert_eq!(provider.get(handle).await, Err(SandboxError::NotFound));
    }
    assert_eq!(provider.list(&spec.labels).await, Ok(Vec::new()));
    run(&*sandbox, shell("true")).await.expect_err("the sandbox is deleted");
    let sandbox = fixture.create_from(&spec).await;
    assert_eq!(run_script(&*sandbox, "ls").await, "");
}

/// A handle that the provider does not know is reported as such.
pub async fn an_unknown_handle_is_not_found(fixture: SandboxFixture) {
    let provider = &fixture.harness.provider;
    let spec = fixture.new_spec();
    for handle in [spec.name.as_str(), "../unknown", "no such sandbox", "", ".", "a/b\0c"] {
        assert_eq!(provider.get(handle).await, Err(SandboxError::NotFound), "{handle:?}");
        let started = provider.start(handle, &spec).await;
        assert_eq!(started.expect_err("start"), SandboxError::NotFound, "{handle:?}");
        assert_eq!(provider.stop(handle).await, Err(SandboxError::NotFound), "{handle:?}");
        assert_eq!(provider.delete(handle).await, Ok(()), "{handle:?}");
    }
}

/// A list contains the sandboxes that have all of the labels, running or not.
pub async fn sandboxes_are_listed_by_labels(fixture: SandboxFixture) {
    let provider = &fixture.harness.provider;
    let check = fixture.new_spec().labels;
    let with_label = |value: &str| {
        let mut spec = fixture.new_spec();
        spec.labels.insert("longhaul-run".to_owned(), value.to_owned());
        spec
    };
    let (first, second) = (with_label("run-1"), with_label("run-2"));
    let first_handle = fixture.create_from(&first).await.info().handle.clone();
    let second_handle = fixture.create_from(&second).await.info().handle.clone();
    provider.stop(&second_handle).await.expect("stop");
    let handles = async |labels: &BTreeMap<String, String>| {
        let list = provider.list(labels).await.expect("list");
        list.into_iter().map(|info| (info.handle, info.state)).collect::<BTreeMap<_, _>>()
    };
    let (running, stopped) = (SandboxState::Running, SandboxState::Stopped);
    let (first_only, second_only) = ((first_handle, running), (second_handle, stopped));
    let both = BTreeMap::from([first_only.clone(), second_only.clone()]);
    assert_eq!(handles(&check).await, both);
    assert_eq!(handles(&first.labels).await, BTreeMap::from([first_only]));
    assert_eq!(handles(&second.labels).await, BTreeMap::from([second_only]));
    assert_eq!(handles(&with_label("run-3").labels).await, BTreeMap::new());
}

/// A volume is shared by the sandboxes that use it, and is not deleted with them.
pub async fn a_volume_outlives_its_sandboxes(fixture: SandboxFixture) {
    let volume = SandboxVolume { name: fixture.new_name(), path: "/cache/packages".to_owned() };
    let with_volume = || SandboxSpec { volumes: vec![volume.clone()], ..fixture.new_spec() };
    let first = fixture.create_from(&with_volume()).await;
    run_script(&*first, "echo cached > /cache/packages/file").await;
    let second = fixture.create_from(&with_volume()).await;
    assert_eq!(run_script(&*second, "cat /cache/packages/file").await, "cached\n");
    for sandbox in [first, second] {
        fixture.harness.provider.delete(&sandbox.info().handle).await.expect("delete");
    }
    let third = fixture.create_from(&with_volume()).await;
    assert_eq!(run_script(&*third, "cat /cache/packages/file").await, "cached\n");
}

/// Names and volumes that could lead out of the folders of the provider are refused.
pub async fn a_name_is_checked(fixture: SandboxFixture) {
    let long = "x".repeat(1_000);
    for name in ["", "..", "../other", "a/b", "a b", "-a", "a\0", long.as_str()] {
        let spec = SandboxSpec { name: name.to_owned(), ..fixture.new_spec() };
        let created = fixture.harness.provider.create(&spec).await;
        let error = created.err().unwrap_or_else(|| panic!("{name:?} was accepted"));
        assert!(matches!(error, SandboxError::Refused(_)), "{name:?}: {error}");
        let volume = SandboxVolume { name: name.to_owned(), path: "/cache".to_owned() };
        let spec = SandboxSpec { volumes: vec![volume], ..fixture.new_spec() };
        let created = fixture.harness.provider.create(&spec).await;
        let error = created.err().unwrap_or_else(|| panic!("volume {name:?} was accepted"));
        assert!(matches!(error, SandboxError::Refused(_)), "{name:?}: {error}");
    }
}

/// A provider that can't isolate as well as requested refuses. It reports the isolation that it has.
pub async fn weaker_isolation_than_requested_is_refused(fixture: SandboxFixture) {
    let status = fixture.harness.provider.status().await;
    let isolation = status.isolation.expect("the provider can isolate");
    let sandbox = fixture.create().await;
    assert_eq!(sandbox.info().isolation, isolation);
    assert!(isolation.is_at_least(fixture.harness.spec.min_isolation));
    if isolation == Isolation::Remote {
        return;
    }
    let spec = SandboxSpec { min_isolation: Isolation::Remote, ..fixture.new_spec() };
    let error = fixture.harness.provider.create(&spec).await.expect_err("refuse");
    assert!(matches!(error, SandboxError::Refused(_)), "{error}");
}
