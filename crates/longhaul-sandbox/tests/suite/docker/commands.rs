//! Isolation and the end of processes, with a real engine.

use std::process::Command;
use std::sync::Arc;

use longhaul_core::change::SandboxState;
use longhaul_core::port::sandbox::{
    ExecStatus, Sandbox, SandboxCommand, SandboxEntryKind, SandboxError, SandboxLimits, SandboxSpec,
};
use longhaul_core::time::Millis;
use longhaul_testkit::conformance::sandboxes::fixture::{
    SandboxFixture, SandboxHarness, run, run_script, run_until_output, shell,
};

use super::real_engine::{IMAGE, RealEngine};

/// One test for all checks, so that the engine is started only once.
#[tokio::test(flavor = "multi_thread")]
async fn a_real_engine_isolates_and_kills() {
    let Some(engine) = RealEngine::start() else { return };
    let fixture = SandboxFixture::new(engine.harness());
    a_command_has_no_rights(&fixture).await;
    a_process_without_its_environment_is_killed(&fixture).await;
    more_processes_than_allowed_are_killed(&fixture).await;
    too_much_memory_is_reported(&fixture).await;
    files_outside_of_the_work_folder_are_copied(&fixture).await;
    a_handle_of_somebody_else_is_unknown(&fixture, &engine).await;
    a_sandbox_whose_files_are_lost_is_unknown(&fixture).await;
    the_image_is_named_that_is_missing(&engine.harness()).await;
    fixture.delete_all().await;
}

async fn a_command_has_no_rights(fixture: &SandboxFixture) {
    let sandbox = fixture.create().await;
    let status = run_script(&*sandbox, "cat /proc/self/status").await;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name}: {status}")).trim().to_owned()
    };
    assert_eq!(field("CapEff:"), "0000000000000000");
    assert_eq!(field("CapBnd:"), "0000000000000000");
    assert_eq!(field("NoNewPrivs:"), "1");
    // Only the loopback: its name is in the one line after two lines of titles.
    assert_eq!(run_script(&*sandbox, "tail -n +3 /proc/net/dev | wc -l").await.trim(), "1");
    for denied in ["mount -t tmpfs x /mnt", "chown 12345 /tmp", "mknod /tmp/d c 1 3", "hostname x"]
    {
        let (status, _) = run(&*sandbox, shell(denied)).await.unwrap();
        assert_ne!(status, ExecStatus::Exited(0), "{denied}");
    }
    // The processes of this machine are not visible: the first one is that of the container.
    assert!(run_script(&*sandbox, "cat /proc/1/cmdline").await.contains("tail"));
}

/// A process that has left its command, its session and its environment behind dies with the
/// command; a process of another command does not.
async fn a_process_without_its_environment_is_killed(fixture: &SandboxFixture) {
    let sandbox = fixture.create().await;
    run_script(&*sandbox, "mkfifo held other").await;
    let other = Arc::clone(&sandbox);
    let (started, other_started) = tokio::sync::oneshot::channel();
    let other = async move {
        let mut started = Some(started);
        let script = "echo up; env -i sh -c 'read line < /workspace/other; echo $line'";
        let mut output = Vec::new();
        let exit = other.exec(shell(script), &mut |_, bytes| {
            output.extend_from_slice(bytes);
            started.take().map(|started| started.send(()));
        });
        assert_eq!(exit.await.unwrap().status, ExecStatus::Exited(0));
        assert_eq!(output, b"up\nalive\n");
    };
    let kill = async {
        other_started.await.unwrap();
        let script = "env -i /bin/sh -c 'setsid /bin/sleep 100000 > /workspace/held &'; \
                      echo up; sleep 100000";
        run_until_output(&*sandbox, shell(script)).await;
        // Ends when the last process that holds the FIFO has ended.
        run_script(&*sandbox, "cat held").await;
        run_script(&*sandbox, "echo alive > other").await;
    };
    tokio::join!(other, kill);
}

/// A command that fills the sandbox with processes can be killed, and the sandbox goes on.
async fn more_processes_than_allowed_are_killed(fixture: &SandboxFixture) {
    let limits = SandboxLimits { tasks: Some(60), ..SandboxLimits::default() };
    let sandbox = fixture.create_from(&SandboxSpec { limits, ..fixture.new_spec() }).await;
    let bomb = "f() { f | f & }; f; while :; do f; done";
    let command = SandboxCommand { timeout: Some(Millis(2_000)), ..shell(bomb) };
    let (status, _) = run(&*sandbox, command).await.unwrap();
    assert_eq!(status, ExecStatus::TimedOut);
    // The pipe has four processes itself.
    let count = run_script(&*sandbox, "ls -d /proc/[0-9]* | wc -l").await;
    assert!(count.trim().parse::<u32>().unwrap() < 8, "{count}");
}

async fn too_much_memory_is_reported(fixture: &SandboxFixture) {
    let limits = SandboxLimits { memory_bytes: Some(32 << 20), ..SandboxLimits::default() };
    let sandbox = fixture.create_from(&SandboxSpec { limits, ..fixture.new_spec() }).await;
    // `tail` keeps everything, because there is no line break.
    let (status, _) = run(&*sandbox, shell("exec tail -n 1 /dev/zero")).await.unwrap();
    assert_eq!(status, ExecStatus::OverLimit);
    assert_eq!(run_script(&*sandbox, "echo on").await, "on\n");
}

async fn files_outside_of_the_work_folder_are_copied(fixture: &SandboxFixture) {
    let sandbox = fixture.create().await;
    run_script(&*sandbox, "cd /tmp && mkdir d && ln -s d link && printf 12345 > d/a && mkdir d/b")
        .await;
    let entries = sandbox.list("/tmp/d").await.unwrap();
    let entries: Vec<_> = entries.iter().map(|e| (e.name.as_str(), e.kind, e.size)).collect();
    assert_eq!(entries, [("a", SandboxEntryKind::File, 5), ("b", SandboxEntryKind::Dir, 0)]);
    assert_eq!(sandbox.read("/tmp/d/a", 5).await.unwrap(), b"12345");
    for (path, limit) in [("/tmp/d/a", 4), ("/tmp/d", 9), ("/tmp/link", 9), ("/nothing", 9)] {
        let error = sandbox.read(path, limit).await.unwrap_err();
        assert!(matches!(error, SandboxError::File(_)), "{path}: {error}");
    }
    assert!(matches!(sandbox.list("/tmp/d/a").await, Err(SandboxError::File(_))));
    assert!(matches!(sandbox.write("/tmp/d", b"x").await, Err(SandboxError::File(_))));
    let to = fixture.harness.dir.join("copy");
    sandbox.download("/tmp/d", &to).await.unwrap();
    assert_eq!(std::fs::read(to.join("a")).unwrap(), b"12345");
    sandbox.upload(&to, "/opt/new/d").await.unwrap();
    assert_eq!(run_script(&*sandbox, "cat /opt/new/d/a && ls -d /opt/new/d/b").await.len(), 18);
}

async fn a_handle_of_somebody_else_is_unknown(fixture: &SandboxFixture, engine: &RealEngine) {
    let docker = |arguments: &[&str]| {
        let socket = format!("unix://{}", engine.socket.display());
        let output = Command::new("docker").args(["--host", &socket]).args(arguments).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let name = fixture.new_name();
    let id = docker(&["run", "-d", "--network=none", "--name", &name, IMAGE, "sleep", "100000"]);
    let provider = &fixture.harness.provider;
    for handle in [name.as_str(), &id, &id[..12]] {
        assert_eq!(provider.stop(handle).await, Err(SandboxError::NotFound), "{handle}");
        assert_eq!(provider.delete(handle).await, Ok(()), "{handle}");
    }
    assert_eq!(docker(&["inspect", "--format", "{{.State.Running}}", &id]), "true");
    let spec = SandboxSpec { name, ..fixture.new_spec() };
    let error = provider.create(&spec).await.unwrap_err();
    assert!(matches!(error, SandboxError::Refused(_)), "{error}");
    docker(&["rm", "--force", &id]);
}

async fn a_sandbox_whose_files_are_lost_is_unknown(fixture: &SandboxFixture) {
    let spec = fixture.new_spec();
    let sandbox = fixture.create_from(&spec).await;
    let provider = &fixture.harness.provider;
    let handle = &sandbox.info().handle;
    provider.stop(handle).await.unwrap();
    std::fs::remove_dir_all(sandbox.workspace_dir().unwrap()).unwrap();
    let error = provider.start(handle, &spec).await.unwrap_err();
    assert_eq!(error, SandboxError::NotFound);
    assert_eq!(provider.get(handle).await.unwrap().state, SandboxState::Stopped);
}

async fn the_image_is_named_that_is_missing(harness: &SandboxHarness) {
    let spec = SandboxSpec { name: "missing-image".to_owned(), ..SandboxSpec::default() };
    let error = harness.provider.create(&spec).await.unwrap_err().to_string();
    assert!(error.contains("docker pull missing-default-image"), "{error}");
    let status = harness.provider.status().await;
    assert!(status.notes[0].contains("as root"), "{status:?}");
}
