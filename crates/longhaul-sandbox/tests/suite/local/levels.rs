//! Levels of isolation: what is refused without bubblewrap, and what runs all the same.

use std::path::PathBuf;

use longhaul_core::port::sandbox::{
    ExecStatus, Isolation, NetworkPolicy, SandboxCommand, SandboxError, SandboxSecret, SandboxSpec,
    SandboxVolume,
};
use longhaul_core::time::Millis;
use longhaul_sandbox::local::LocalOptions;
use longhaul_testkit::conformance::sandboxes::fixture::{run, run_script, run_until_lines, shell};

use crate::suite::local::fixture::Local;

/// Opens a provider that does not find bubblewrap, because the project contains all programs.
async fn open_without_bwrap() -> Local {
    Local::open_with(|options| LocalOptions { project: Some(PathBuf::from("/")), ..options }).await
}

fn plain_spec(local: &Local) -> SandboxSpec {
    SandboxSpec { min_isolation: Isolation::None, network: NetworkPolicy::Host, ..local.new_spec() }
}

#[tokio::test]
async fn without_bubblewrap_a_sandbox_is_refused() {
    let local = open_without_bwrap().await;
    let reason = local.provider.status().await.isolation.expect_err("no isolation");
    assert!(reason.contains("apt-get install bubblewrap"), "{reason}");
    for min_isolation in [Isolation::Landlock, Isolation::Bubblewrap, Isolation::Docker] {
        let spec = SandboxSpec { min_isolation, ..plain_spec(&local) };
        let error = local.provider.create(&spec).await.expect_err("refuse");
        assert_eq!(error, SandboxError::Refused(reason.clone()));
    }
    assert_eq!(local.provider.list(&Default::default()).await, Ok(Vec::new()));
}

/// What can't be kept from a program without isolation is refused.
#[tokio::test]
async fn without_bubblewrap_nothing_can_be_withheld() {
    let local = open_without_bwrap().await;
    let spec = plain_spec(&local);
    let volume = SandboxVolume { name: "cache".to_owned(), path: "/cache".to_owned() };
    let secret = SandboxSecret { name: "A".to_owned(), value: "b".to_owned(), hosts: Vec::new() };
    for spec in [
        SandboxSpec { network: NetworkPolicy::None, ..spec.clone() },
        SandboxSpec { volumes: vec![volume], ..spec.clone() },
        SandboxSpec { secrets: vec![secret], ..spec },
    ] {
        let error = local.provider.create(&spec).await.expect_err("refuse");
        assert!(matches!(error, SandboxError::Refused(_)), "{error}");
    }
}

#[tokio::test]
async fn without_isolation_commands_run_in_the_work_folder() {
    let local = open_without_bwrap().await;
    let sandbox = local.create_from(plain_spec(&local)).await;
    assert_eq!(sandbox.info().isolation, Isolation::None);
    sandbox.write("folder/file", b"content").await.expect("write");
    let command = SandboxCommand { cwd: Some("/workspace/folder".to_owned()), ..shell("cat file") };
    let (status, output) = run(&*sandbox, command).await.expect("run");
    assert_eq!((status, output.stdout_text().as_str()), (ExecStatus::Exited(0), "content"));
    assert_eq!(run_script(&*sandbox, "env | grep -c CARGO || true").await, "0\n");
    let cwd = Some("missing".to_owned());
    let error = run(&*sandbox, SandboxCommand { cwd, ..shell("true") }).await.expect_err("missing");
    assert!(matches!(error, SandboxError::File(_)), "{error}");
}

/// Processes without a namespace are found by their environment.
#[tokio::test]
async fn without_isolation_no_process_survives_its_command() {
    let local = open_without_bwrap().await;
    let sandbox = local.create_from(plain_spec(&local)).await;
    run_script(&*sandbox, "mkfifo held").await;
    let script = "exec 9<>held; (setsid sh -c 'echo up; exec sleep 100000' &); echo up; ";
    let wait_for_end = "echo end > held & exec cat held";
    run_until_lines(&*sandbox, shell(&format!("{script} sleep 100000")), 2).await;
    assert_eq!(run_script(&*sandbox, wait_for_end).await, "end\n");
    assert_eq!(run_script(&*sandbox, script).await.lines().next(), Some("up"));
    assert_eq!(run_script(&*sandbox, wait_for_end).await, "end\n");
    let endless = shell(&format!("{script} sleep 100000"));
    let command = SandboxCommand { timeout: Some(Millis(1_000)), ..endless };
    let (status, _) = run(&*sandbox, command).await.expect("run");
    assert_eq!(status, ExecStatus::TimedOut);
    assert_eq!(run_script(&*sandbox, wait_for_end).await, "end\n");
}
