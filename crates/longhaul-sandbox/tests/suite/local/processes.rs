//! The end of processes, whatever happens to the worker that has started them.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use longhaul_core::id::Epoch;
use longhaul_core::port::sandbox::{ExecStatus, SandboxCommand};
use longhaul_testkit::conformance::sandboxes::fixture::{
    ProcessWatch, notify_lines, run, run_script, run_until_lines, shell,
};

use crate::suite::local::fixture::{Local, example};

#[tokio::test]
async fn a_background_process_ends_with_its_command() {
    let local = Local::open().await;
    let sandbox = local.create().await;
    let watch = ProcessWatch::create(&*sandbox, "held").await;
    let script = "exec 9<>held; (setsid sleep 100000 &) ; sleep 100000 & echo done";
    assert_eq!(run_script(&*sandbox, script).await, "done\n");
    watch.wait_for_end(&*sandbox).await;
}

#[tokio::test]
async fn zombies_end_with_their_command() {
    let local = Local::open().await;
    let sandbox = local.create().await;
    let script = "python3 -c 'import os\n\
                  for _ in range(200):\n\
                  \x20 if os.fork() == 0: os._exit(0)\n\
                  print(\"done\")'";
    for _ in 0..3 {
        assert_eq!(run_script(&*sandbox, script).await, "done\n");
    }
    let processes = run_script(&*sandbox, "ls -d /proc/[0-9]* | wc -l").await;
    assert!(processes.trim().parse::<u32>().expect("a number") < 10, "{processes}");
}

/// The kernel kills the processes of a worker that was killed.
#[tokio::test]
async fn commands_end_with_their_worker() {
    let local = Local::open().await;
    let spec = local.new_spec();
    let sandbox = local.create_from(spec.clone()).await;
    let watch = ProcessWatch::create(&*sandbox, "held").await;
    let mut worker = Command::new(example("sandbox_worker"))
        .arg(local.sandboxes_dir())
        .args([spec.name.as_str(), watch.script().as_str()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("start the worker");
    let lines = BufReader::new(worker.stdout.take().expect("a pipe")).lines();
    assert_eq!(lines.take(ProcessWatch::PROCESSES).count(), ProcessWatch::PROCESSES);
    worker.kill().expect("kill the worker");
    worker.wait().expect("wait for the worker");
    watch.wait_for_end(&*sandbox).await;
    // What the killed worker has left behind does no harm.
    sandbox.kill_commands_before(Epoch(5)).await.expect("kill");
    local.provider.stop(&sandbox.info().handle).await.expect("stop");
}

/// A provider that knows a command only from the disk can kill it.
#[tokio::test]
async fn commands_of_another_worker_are_killed() {
    let local = Local::open().await;
    let spec = local.new_spec();
    let sandbox = local.create_from(spec.clone()).await;
    let watch = ProcessWatch::create(&*sandbox, "held").await;
    let (mut on_output, started) = notify_lines(ProcessWatch::PROCESSES);
    let command = SandboxCommand { epoch: Epoch(1), ..shell(&watch.script()) };
    let other = local.open_again().await.start(&spec.name, &spec).await.expect("start");
    let kill = async {
        started.await.expect("the command starts");
        other.kill_commands_before(Epoch(2)).await.expect("kill");
    };
    let (exit, ()) = tokio::join!(sandbox.exec(command, &mut on_output), kill);
    assert_eq!(exit.expect("run").status, ExecStatus::Signaled(9));
    watch.wait_for_end(&*other).await;
}

/// A thread that has polled a command may end while the command runs.
#[test]
fn commands_outlive_the_thread_that_started_them() {
    let runtime = tokio::runtime::Runtime::new().expect("create a runtime");
    let (local, sandbox) = runtime.block_on(async {
        let local = Local::open().await;
        let sandbox = local.create().await;
        run_script(&*sandbox, "mkfifo input").await;
        (local, sandbox)
    });
    let (printed, lines) = std::sync::mpsc::channel();
    let command = shell("echo up; read line < input; echo $line");
    let mut on_output = move |_, bytes: &[u8]| _ = printed.send(bytes.to_vec());
    let mut exec = sandbox.exec(command, &mut on_output);
    let handle = runtime.handle().clone();
    std::thread::scope(|scope| {
        let poll_until_output = || {
            handle.block_on(std::future::poll_fn(|context| {
                assert!(exec.as_mut().poll(context).is_pending());
                match lines.try_recv() {
                    Ok(_) => std::task::Poll::Ready(()),
                    Err(_) => std::task::Poll::Pending,
                }
            }));
        };
        scope.spawn(poll_until_output).join().expect("the command starts");
    });
    let exit = runtime
        .block_on(async { tokio::join!(exec, run_script(&*sandbox, "echo text > input")).0 });
    assert_eq!(exit.expect("run").status, ExecStatus::Exited(0));
    drop(local);
}

#[tokio::test]
async fn records_of_ended_commands_are_removed() {
    let local = Local::open().await;
    let spec = local.new_spec();
    let sandbox = local.create_from(spec.clone()).await;
    run_script(&*sandbox, "true").await;
    run(&*sandbox, shell("exit 3")).await.expect("run");
    run_until_lines(&*sandbox, shell("echo up; sleep 100000"), 1).await;
    let records = local.sandboxes_dir().join(&spec.name).join("commands");
    assert_eq!(std::fs::read_dir(records).expect("list").count(), 0);
}
