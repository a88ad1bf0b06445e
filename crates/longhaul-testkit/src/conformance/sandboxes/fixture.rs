//! The provider under test, and what the checks have in common.

use std::any::Any;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use longhaul_core::id::Epoch;
use longhaul_core::port::sandbox::{
    ExecExit, ExecStatus, OutputStream, Sandbox, SandboxCommand, SandboxError, SandboxSpec,
    Sandboxes,
};
use longhaul_core::time::Millis;
use tokio::sync::oneshot;

/// Timeout of the commands that must end on their own. A command that reaches it fails its check.
pub const TIMEOUT: Millis = Millis(60_000);

/// Label of all sandboxes of one check.
const CHECK_LABEL: &str = "longhaul-check";

/// Default size of the output of the check on long output.
const LONG_OUTPUT_BYTES: u64 = 1 << 30;

/// A provider of sandboxes and what a check needs to use it.
#[derive(Debug, Clone)]
pub struct SandboxHarness {
    pub provider: Arc<dyn Sandboxes>,
    /// Spec of the sandboxes, such as the image. The checks set the name and the labels.
    pub spec: SandboxSpec,
    /// Empty directory of this machine, which is not visible in sandboxes.
    pub dir: PathBuf,
    /// Number of bytes of the output that must not fill the memory.
    pub long_output_bytes: u64,
    /// Value that must live as long as the provider, such as its temporary directory.
    pub guard: Arc<dyn Any + Send + Sync>,
}

impl SandboxHarness {
    /// Creates a harness for a provider, with an empty directory of this machine.
    pub fn new(provider: impl Sandboxes + 'static, dir: PathBuf) -> Self {
        Self {
            provider: Arc::new(provider),
            spec: SandboxSpec::default(),
            dir,
            long_output_bytes: LONG_OUTPUT_BYTES,
            guard: Arc::new(()),
        }
    }

    /// Keeps `guard` alive until the check has finished.
    #[must_use]
    pub fn with_guard(self, guard: impl Any + Send + Sync) -> Self {
        Self { guard: Arc::new(guard), ..self }
    }
}

/// The provider of one check, with names that no other check uses.
#[derive(Debug, Clone)]
pub struct SandboxFixture {
    pub harness: SandboxHarness,
    count: Arc<AtomicU32>,
    /// Name that is different for each check, also of concurrent test processes.
    prefix: String,
}

impl SandboxFixture {
    pub fn new(harness: SandboxHarness) -> Self {
        static CHECKS: AtomicU32 = AtomicU32::new(0);
        let check = CHECKS.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("check-{}-{check}", std::process::id());
        Self { harness, count: Arc::default(), prefix }
    }

    /// Returns a name that is used only once.
    pub fn new_name(&self) -> String {
        format!("{}-{}", self.prefix, self.count.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the spec of a new sandbox.
    pub fn new_spec(&self) -> SandboxSpec {
        let mut spec = SandboxSpec { name: self.new_name(), ..self.harness.spec.clone() };
        spec.labels.extend(self.labels());
        spec
    }

    fn labels(&self) -> BTreeMap<String, String> {
        BTreeMap::from([(CHECK_LABEL.to_owned(), self.prefix.clone())])
    }

    /// Creates a sandbox with the spec of the harness.
    pub async fn create(&self) -> Arc<dyn Sandbox> {
        self.create_from(&self.new_spec()).await
    }

    pub async fn create_from(&self, spec: &SandboxSpec) -> Arc<dyn Sandbox> {
        self.harness.provider.create(spec).await.expect("create a sandbox")
    }

    /// Deletes all sandboxes of the check.
    pub async fn delete_all(&self) {
        let sandboxes = self.harness.provider.list(&self.labels()).await.expect("list");
        for sandbox in sandboxes {
            self.harness.provider.delete(&sandbox.handle).await.expect("delete");
        }
    }
}

/// Output of a command, by stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CommandOutput {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl CommandOutput {
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

/// Returns a command that runs a script, with the timeout of the checks.
pub fn shell(script: &str) -> SandboxCommand {
    SandboxCommand { timeout: Some(TIMEOUT), ..SandboxCommand::shell(script) }
}

/// Runs a command and returns its exit and its output.
pub async fn run(
    sandbox: &dyn Sandbox,
    command: SandboxCommand,
) -> Result<(ExecStatus, CommandOutput), SandboxError> {
    let mut output = CommandOutput::default();
    let mut on_output = |stream, bytes: &[u8]| match stream {
        OutputStream::Stdout => output.stdout.extend_from_slice(bytes),
        OutputStream::Stderr => output.stderr.extend_from_slice(bytes),
    };
    let ExecExit { status, .. } = sandbox.exec(command, &mut on_output).await?;
    Ok((status, output))
}

/// Runs a script that must succeed, and returns its standard output.
pub async fn run_script(sandbox: &dyn Sandbox, script: &str) -> String {
    let (status, output) = run(sandbox, shell(script)).await.expect("run a script");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(status, ExecStatus::Exited(0), "{script}: {stderr}");
    output.stdout_text()
}

/// A FIFO in the work folder that shows whether processes of a sandbox are alive: each of them
/// holds its writing end until its death, and a reader sees the end only after all of them.
#[derive(Debug)]
pub struct ProcessWatch {
    name: String,
}

impl ProcessWatch {
    /// Number of processes of the script, each of which prints a line.
    pub const PROCESSES: usize = 3;

    /// Creates the FIFO with this name in the work folder.
    pub async fn create(sandbox: &dyn Sandbox, name: &str) -> Self {
        run_script(sandbox, &format!("mkfifo /workspace/{name}")).await;
        Self { name: name.to_owned() }
    }

    /// Returns a script with three processes that never end: the shell itself, one in the
    /// background, and one in a session of its own that has left its parent.
    pub fn script(&self) -> String {
        // Opened for reading too, because opening a FIFO only for writing waits for a reader.
        format!(
            "exec 9<>/workspace/{}\n\
             hold='trap \"\" TERM HUP INT; echo up; while :; do sleep 100000; done'\n\
             sh -c \"$hold\" &\n\
             (setsid sh -c \"$hold\" &)\n\
             eval \"$hold\"",
            self.name
        )
    }

    /// Waits until all processes that hold the FIFO have ended.
    pub async fn wait_for_end(&self, sandbox: &dyn Sandbox) {
        let command = SandboxCommand {
            // Later than the claims of all other commands, so that it is not killed with them.
            epoch: Epoch(1_000),
            ..shell(&format!("cd /workspace; echo end > {0} & exec cat {0}", self.name))
        };
        let (status, output) = run(sandbox, command).await.expect("read the FIFO");
        assert_eq!(output.stdout_text(), "end\n");
        assert_eq!(status, ExecStatus::Exited(0), "processes are alive after {TIMEOUT:?}");
    }
}

/// Returns a receiver of output, and a signal that is sent after this number of lines.
pub fn notify_lines(
    count: usize,
) -> (impl FnMut(OutputStream, &[u8]) + Send, oneshot::Receiver<()>) {
    let (sender, receiver) = oneshot::channel();
    let mut sender = Some(sender);
    let mut lines = 0;
    let on_output = move |_, bytes: &[u8]| {
        lines += bytes.iter().filter(|byte| **byte == b'\n').count();
        if lines >= count
            && let Some(sender) = sender.take()
        {
            // The check may have stopped waiting.
            _ = sender.send(());
        }
    };
    (on_output, receiver)
}

/// Runs a command until it has printed this number of lines, then drops it.
pub async fn run_until_lines(sandbox: &dyn Sandbox, command: SandboxCommand, count: usize) {
    let (mut on_output, printed) = notify_lines(count);
    tokio::select! {
        exit = sandbox.exec(command, &mut on_output) => panic!("the command ended: {exit:?}"),
        printed = printed => printed.expect("the command prints its lines"),
    }
}
