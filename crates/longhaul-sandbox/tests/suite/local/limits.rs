//! Programs that try to use up the resources of the machine.

use longhaul_core::port::sandbox::{ExecStatus, SandboxCommand, SandboxLimits, SandboxSpec};
use longhaul_core::time::Millis;
use longhaul_testkit::conformance::sandboxes::fixture::{run, run_script, shell};

use crate::suite::local::fixture::Local;

#[tokio::test]
async fn processes_are_limited() {
    let local = Local::open().await;
    let limits = SandboxLimits { tasks: Some(50), ..SandboxLimits::default() };
    let sandbox = local.create_from(SandboxSpec { limits, ..local.new_spec() }).await;
    let script = "i=0; while [ $i -lt 200 ]; do sleep 100000 & i=$((i+1)); done; echo all";
    let (status, output) = run(&*sandbox, shell(script)).await.expect("run");
    assert_ne!(status, ExecStatus::Exited(0));
    assert_eq!(output.stdout_text(), "");
    // A fork bomb: each process starts two.
    let bomb = SandboxCommand {
        timeout: Some(Millis(1_000)),
        ..shell("bomb() { bomb | bomb & }; bomb; wait; while :; do bomb; done")
    };
    run(&*sandbox, bomb).await.expect("run");
    assert_eq!(run_script(&*sandbox, "echo alive").await, "alive\n");
}

#[tokio::test]
async fn memory_is_limited() {
    let local = Local::open().await;
    let limits = SandboxLimits { memory_bytes: Some(64 << 20), ..SandboxLimits::default() };
    let sandbox = local.create_from(SandboxSpec { limits, ..local.new_spec() }).await;
    let script = "exec python3 -c 'text = bytes(300_000_000); print(len(text), text[1000:1001])'";
    let (status, output) = run(&*sandbox, shell(script)).await.expect("run");
    assert!(
        matches!(status, ExecStatus::OverLimit | ExecStatus::Exited(1)),
        "{status:?} {}",
        output.stdout_text()
    );
    assert_eq!(run_script(&*sandbox, "echo alive").await, "alive\n");
}

#[tokio::test]
async fn files_are_limited() {
    let local = Local::open().await;
    let limits = SandboxLimits { disk_bytes: Some(20 << 20), ..SandboxLimits::default() };
    let sandbox = local.create_from(SandboxSpec { limits, ..local.new_spec() }).await;
    let one_file = "cat /dev/zero > file; echo full";
    let (status, output) = run(&*sandbox, shell(one_file)).await.expect("run");
    assert_eq!(output.stdout_text(), "full\n", "{status:?}");
    let size: u64 =
        run_script(&*sandbox, "wc -c < file; rm file").await.trim().parse().expect("a number");
    assert!(size <= 20 << 20, "{size}");
    let exec = "exec cat /dev/zero > file";
    assert_eq!(run(&*sandbox, shell(exec)).await.expect("run").0, ExecStatus::OverLimit);
    run_script(&*sandbox, "rm file").await;

    let many = "i=0; while :; do head -c 1000000 /dev/zero > file$i; i=$((i+1)); done";
    assert_eq!(run(&*sandbox, shell(many)).await.expect("run").0, ExecStatus::OverLimit);
    // A command in a full sandbox can still make room.
    run_script(&*sandbox, "rm file*").await;
    assert_eq!(run_script(&*sandbox, "ls").await, "");
}

#[tokio::test]
async fn an_existing_limit_may_be_changed_at_the_next_start() {
    let local = Local::open().await;
    let spec = local.new_spec();
    let sandbox = local.create_from(spec.clone()).await;
    local.provider.stop(&sandbox.info().handle).await.expect("stop");
    let limits = SandboxLimits { tasks: Some(20), cpus: Some(0.5), ..SandboxLimits::default() };
    let spec = SandboxSpec { limits, ..spec };
    let sandbox = local.provider.start(&sandbox.info().handle, &spec).await.expect("start");
    let script = "i=0; while [ $i -lt 100 ]; do sleep 100000 & i=$((i+1)); done; echo all";
    let (status, _) = run(&*sandbox, shell(script)).await.expect("run");
    assert_ne!(status, ExecStatus::Exited(0));
}
