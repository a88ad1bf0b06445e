//! The machine of a sandbox: a root directory, and a process of bubblewrap in which a shell starts
//! the commands.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

/// Starts each command whose number it reads, in a process group of its own, and prints the number
/// and the exit code afterwards.
const AGENT: &str = "while IFS= read -r id; do \
    ( setsid /bin/sh /.fake/$id.sh </.fake/$id.in >/.fake/$id.out 2>&1; echo \"$id $?\" ) & \
    done";

/// Panics if bubblewrap can't run a program.
pub(super) async fn check_bubblewrap() {
    let args = ["--unshare-all", "--ro-bind", "/", "/", "true"];
    let output = Command::new("bwrap").args(args).stdin(Stdio::null()).output().await;
    let works = output.as_ref().is_ok_and(|output| output.status.success());
    assert!(
        works,
        "bubblewrap does not work: {output:?}; install it with `sudo apt-get install bubblewrap`"
    );
}

/// Creates the directory that becomes the root of a machine.
pub(super) fn create_root(root: &Path) {
    for dir in ["usr", "tmp", "proc", "dev", "home/daytona", ".fake"] {
        fs::create_dir_all(root.join(dir)).expect("create a directory");
    }
    for name in ["bin", "sbin", "lib", "lib64"] {
        symlink(format!("usr/{name}"), root.join(name)).expect("create a link");
    }
}

/// What a machine is started with.
#[derive(Debug, Clone)]
pub(super) struct MachineSpec {
    pub(super) root: PathBuf,
    pub(super) env: BTreeMap<String, String>,
    /// Directories of volumes and their paths in the machine.
    pub(super) volumes: Vec<(PathBuf, String)>,
}

type Waiters = Arc<Mutex<HashMap<u64, oneshot::Sender<i32>>>>;

/// A running machine. All its processes are killed when it is dropped.
#[derive(Debug)]
pub(super) struct Machine {
    root: PathBuf,
    commands: mpsc::UnboundedSender<u64>,
    waiters: Waiters,
    _child: Child,
    _tasks: JoinSet<()>,
}

impl Machine {
    /// Starts a machine. Numbers of commands must not be used twice for one root.
    pub(super) fn start(spec: &MachineSpec) -> Self {
        let mut bwrap = Command::new("bwrap");
        bwrap.args(["--unshare-all", "--die-with-parent", "--bind"]).arg(&spec.root).arg("/");
        bwrap.args(["--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev"]);
        for (dir, path) in &spec.volumes {
            bwrap.arg("--bind").arg(dir).arg(path);
        }
        bwrap.args(["--chdir", "/home/daytona", "--clearenv"]);
        bwrap.args(["--setenv", "HOME", "/home/daytona", "--setenv", "PATH", "/usr/bin:/bin"]);
        for (name, value) in &spec.env {
            bwrap.args(["--setenv", name, value]);
        }
        bwrap.args(["--", "/bin/sh", "-c", AGENT]).kill_on_drop(true);
        bwrap.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = bwrap.spawn().expect("start bubblewrap");
        let stdin = child.stdin.take().expect("a pipe");
        let stdout = child.stdout.take().expect("a pipe");
        let (commands, received) = mpsc::unbounded_channel();
        let waiters = Waiters::default();
        let mut tasks = JoinSet::new();
        tasks.spawn(send_commands(received, stdin));
        tasks.spawn(receive_exits(stdout, waiters.clone()));
        Self { root: spec.root.clone(), commands, waiters, _child: child, _tasks: tasks }
    }

    /// Starts a command, and returns a signal that its exit code is sent to.
    pub(super) fn start_command(&self, id: u64, script: &str, input: &[u8]) -> CommandHandle {
        let file = |suffix: &str| self.root.join(format!(".fake/{id}.{suffix}"));
        fs::write(file("sh"), format!("echo $$ >/.fake/{id}.pid\n{script}\n")).expect("write");
        fs::write(file("in"), input).expect("write");
        let (sender, exit) = oneshot::channel();
        self.waiters.lock().expect("waiters").insert(id, sender);
        // An error means that the machine is dead, which the waiter sees.
        _ = self.commands.send(id);
        CommandHandle { exit, output: file("out") }
    }
}

/// A command that was started.
#[derive(Debug)]
pub(super) struct CommandHandle {
    exit: oneshot::Receiver<i32>,
    output: PathBuf,
}

impl CommandHandle {
    /// Returns the exit code and the output of the command. `None` means that the machine has been
    /// stopped.
    pub(super) async fn wait(self) -> Option<(i32, Vec<u8>)> {
        let code = self.exit.await.ok()?;
        Some((code, fs::read(self.output).unwrap_or_default()))
    }
}

async fn send_commands(mut commands: mpsc::UnboundedReceiver<u64>, mut stdin: ChildStdin) {
    while let Some(id) = commands.recv().await {
        if stdin.write_all(format!("{id}\n").as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn receive_exits(stdout: ChildStdout, waiters: Waiters) {
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let (id, code) = line.split_once(' ').expect("a number and an exit code");
        let id = id.parse().expect("a number");
        if let Some(waiter) = waiters.lock().expect("waiters").remove(&id) {
            // The connection of the request can be closed.
            _ = waiter.send(code.parse().expect("an exit code"));
        }
    }
    waiters.lock().expect("waiters").clear();
}
