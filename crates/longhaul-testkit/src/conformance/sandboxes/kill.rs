//! The end of processes: with a timeout, a dropped future, a stop, a delete and a new claim. No
//! process of a command survives, whether it is in the background or in a session of its own.

use std::task::{Context, Waker};

use longhaul_core::id::Epoch;
use longhaul_core::port::sandbox::{ExecStatus, SandboxCommand};
use longhaul_core::time::Millis;

use crate::conformance::sandboxes::fixture::{
    ProcessWatch, SandboxFixture, notify_lines, run, run_script, run_until_lines, shell,
};

/// After its timeout a command has no process any more.
pub async fn a_timeout_kills_all_processes(fixture: SandboxFixture) {
    let sandbox = fixture.create().await;
    let watch = ProcessWatch::create(&*sandbox, "held").await;
    // Long enough that the processes have started before.
    let command = SandboxCommand { timeout: Some(Millis(3_000)), ..shell(&watch.script()) };
    let (status, output) = run(&*sandbox, command).await.expect("run");
    assert_eq!(status, ExecStatus::TimedOut);
    assert_eq!(output.stdout, b"up\n".repeat(ProcessWatch::PROCESSES));
    watch.wait_for_end(&*sandbox).await;
}

/// When the future of a command is dropped, its processes are killed.
pub async fn a_dropped_command_leaves_no_process(fixture: SandboxFixture) {
    let sandbox = fixture.create().await;
    let watch = ProcessWatch::create(&*sandbox, "held").await;
    run_until_lines(&*sandbox, shell(&watch.script()), ProcessWatch::PROCESSES).await;
    watch.wait_for_end(&*sandbox).await;
}

/// A command that is dropped before its first output, perhaps before it has started, leaves no
/// process either.
pub async fn a_command_can_be_dropped_at_any_time(fixture: SandboxFixture) {
    let sandbox = fixture.create().await;
    let watch = ProcessWatch::create(&*sandbox, "held").await;
    for polls in 1..6 {
        let mut on_output = |_, _: &[u8]| {};
        let mut exec = sandbox.exec(shell(&watch.script()), &mut on_output);
        for _ in 0..polls {
            let polled = exec.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending(), "{polled:?}");
            run_script(&*sandbox, "true").await;
        }
    }
    watch.wait_for_end(&*sandbox).await;
}

/// A command ends with its first process, although processes in the background hold its output.
pub async fn a_command_does_not_wait_for_its_background_processes(fixture: SandboxFixture) {
    let sandbox = fixture.create().await;
    let output = run_script(&*sandbox, "sleep 100000 & (setsid sleep 100000 &) ; echo done").await;
    assert_eq!(output, "done\n");
}

/// A stop kills the commands that are running, and returns after their end.
pub async fn a_stop_kills_running_commands(fixture: SandboxFixture) {
    let provider = &fixture.harness.provider;
    let spec = fixture.new_spec();
    let sandbox = fixture.create_from(&spec).await;
    let watch = ProcessWatch::create(&*sandbox, "held").await;
    let (mut on_output, started) = notify_lines(ProcessWatch::PROCESSES);
    let stop = async {
        started.await.expect("the command starts");
        provider.stop(&sandbox.info().handle).await.expect("stop");
    };
    let (exit, ()) = tokio::join!(sandbox.exec(shell(&watch.script()), &mut on_output), stop);
    if let Ok(exit) = exit {
        assert!(!matches!(exit.status, ExecStatus::Exited(0) | ExecStatus::TimedOut), "{exit:?}");
    }
    let sandbox = provider.start(&sandbox.info().handle, &spec).await.expect("start");
    watch.wait_for_end(&*sandbox).await;
}

/// A delete kills the commands that are running.
pub async fn a_delete_kills_running_commands(fixture: SandboxFixture) {
    let sandbox = fixture.create().await;
    let (mut on_output, started) = notify_lines(1);
    let delete = async {
        started.await.expect("the command starts");
        fixture.harness.provider.delete(&sandbox.info().handle).await.expect("delete");
    };
    // New files must not keep the sandbox from being deleted.
    let script = "echo up; while :; do mkdir -p new && echo line > new/file$$; done";
    let (exit, ()) = tokio::join!(sandbox.exec(shell(script), &mut on_output), delete);
    if let Ok(exit) = exit {
        assert!(!matches!(exit.status, ExecStatus::Exited(0) | ExecStatus::TimedOut), "{exit:?}");
    }
}

/// Commands of earlier claims are killed; those of the current claim are not.
pub async fn commands_of_earlier_claims_are_killed(fixture: SandboxFixture) {
    let sandbox = fixture.create().await;
    let watch = ProcessWatch::create(&*sandbox, "held").await;
    run_script(&*sandbox, "mkfifo input").await;
    let (mut on_old_output, old_started) = notify_lines(ProcessWatch::PROCESSES);
    let old = SandboxCommand { epoch: Epoch(3), ..shell(&watch.script()) };
    let new = SandboxCommand {
        epoch: Epoch(4),
        ..shell("exec <>input; read line; echo \"got $line\"; read line; echo \"got $line\"")
    };
    let kill = async {
        old_started.await.expect("the old command starts");
        let input =
            |line| SandboxCommand { epoch: Epoch(4), ..shell(&format!("echo {line} > input")) };
        run(&*sandbox, input("before")).await.expect("write before the kill");
        sandbox.kill_commands_before(Epoch(4)).await.expect("kill");
        watch.wait_for_end(&*sandbox).await;
        run(&*sandbox, input("after")).await.expect("write after the kill");
    };
    let (old, new, ()) =
        tokio::join!(sandbox.exec(old, &mut on_old_output), run(&*sandbox, new), kill);
    if let Ok(exit) = old {
        assert!(!matches!(exit.status, ExecStatus::Exited(0) | ExecStatus::TimedOut), "{exit:?}");
    }
    let (status, output) = new.expect("run the new command");
    assert_eq!(status, ExecStatus::Exited(0));
    assert_eq!(output.stdout_text(), "got before\ngot after\n");
}
